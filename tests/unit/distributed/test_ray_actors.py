"""Ray actors, on a stand-in for Ray that runs them in this process."""

import sys
from types import ModuleType

import pytest

from lagent.agents import Agent, AsyncAgent
from lagent.distributed import AgentRayActor, AsyncAgentRayActor
from lagent.errors import ExtraMissing
from lagent.schema import AgentMessage


class Echo(Agent):
    def forward(self, *message, session_id=0, **kwargs):
        return f'{message[-1].content} in {session_id} {kwargs}'

    def get_steps(self, number):
        return [number]


class AsyncEcho(AsyncAgent):
    async def forward(self, *message, session_id=0, **kwargs):
        return f'{message[-1].content} in {session_id} {kwargs}'


class Reference:
    def __init__(self, value):
        self.value = value

    def __await__(self):
        return self.value.__await__()


class Method:
    def __init__(self, fn):
        self.fn = fn

    def remote(self, *args, **kwargs):
        return Reference(self.fn(*args, **kwargs))


class Handle:
    def __init__(self, actor):
        self._actor = actor

    def __getattribute__(self, name):
        actor = object.__getattribute__(self, '_actor')
        return Method(getattr(actor, name))


@pytest.fixture
def ray(monkeypatch):
    module = ModuleType('ray')
    module.reserved = []

    def remote(num_gpus):
        module.reserved.append(num_gpus)

        def wrap(cls):
            class Remote:
                @staticmethod
                def remote(**kwargs):
                    return Handle(cls(**kwargs))

            return Remote

        return wrap

    module.remote = remote
    module.get = lambda reference: reference.value
    monkeypatch.setitem(sys.modules, 'ray', module)
    return module


def test_an_agent_in_an_actor(ray):
    config = {'type': Echo, 'name': 'E'}
    actor = AgentRayActor(config, num_gpus=1)
    answer = actor(AgentMessage(content='q'), session_id=2, mood='x')
    assert (answer.sender, answer.content) == ('E', "q in 2 {'mood': 'x'}")
    assert ray.get(actor.agent_actor.get_steps.remote(3)) == [3]
    assert ray.reserved == [1]
    assert config == {'type': Echo, 'name': 'E'}


async def test_an_awaited_agent_in_an_actor(ray):
    actor = AsyncAgentRayActor({'type': AsyncEcho}, num_gpus=0)
    assert (await actor('q')).content == 'q in 0 {}'


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, 'ray', None)
    with pytest.raises(ExtraMissing, match=r'lagent-sandbox\[ray\]'):
        AgentRayActor({'type': Echo}, num_gpus=0)
