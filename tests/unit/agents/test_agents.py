"""Agents: what their four faces share, and what the layer tree does."""

import asyncio
import inspect
import json

import pytest

from lagent.actions import FinishAction, Interpreter
from lagent.agents import (
    Agent,
    AgentForInternLM,
    AsyncAgent,
    AsyncStreamingAgent,
    Coder,
    ReAct,
    StreamingAgent,
)
from lagent.context import current_context
from lagent.effects import subscribe
from lagent.errors import LimitExceeded
from lagent.hooks import Hook
from lagent.limits import RunLimits
from lagent.llms import AsyncScriptedModel, Completion, ScriptedModel
from lagent.prompts.parsers import ToolParser
from lagent.schema import ActionReturn, AgentMessage, ModelStatusCode

FACES = [Agent, AsyncAgent, StreamingAgent, AsyncStreamingAgent]


def model_for(cls, replies):
    return (AsyncScriptedModel if cls in {AsyncAgent, AsyncStreamingAgent} else ScriptedModel)(
        replies
    )


def ask(agent, *message, **kwargs):
    """The last message that an agent of any face gives."""
    result = agent(*message, **kwargs)
    if inspect.isawaitable(result):
        return asyncio.run(_awaited(result))
    if hasattr(result, '__aiter__'):
        return asyncio.run(_collected(result))[-1]
    return result if isinstance(result, AgentMessage) else list(result)[-1]


async def _awaited(value):
    return await value


async def _collected(items):
    return [item async for item in items]


class Marker(Hook):
    def before_agent(self, agent, message, session_id):
        for one in message:
            one.content += f' <{session_id}'

    def after_agent(self, agent, message, session_id):
        return message.model_copy(update={'content': f'{message.content} {session_id}>'})


@pytest.mark.parametrize('cls', FACES)
def test_every_face_gives_the_same_transcript(cls):
    agent = cls(
        model_for(cls, ['one<tool>\nx = 1</tool>\n', 'two']),
        'be brief',
        output_format=ToolParser('code'),
        hooks=Marker(),
    )
    first = ask(agent, 'a', session_id='s')
    second = ask(agent, 'b', session_id='s')
    assert (first.content, second.content) == ('one<tool>\nx = 1</tool>\n s>', 'two s>')
    assert first.formatted['action'] == 'x = 1'
    assert [(m.sender, m.content) for m in agent.memory.get_memory('s')] == [
        ('user', 'a <s'),
        (cls.__name__, 'one<tool>\nx = 1</tool>\n'),
        ('user', 'b <s'),
        (cls.__name__, 'two'),
    ]
    assert [m['content'] for m in agent.llm.calls[-1].messages] == [
        'be brief',
        'a <s',
        'one<tool>\nx = 1</tool>\n',
        'b <s',
    ]


@pytest.mark.parametrize('cls', FACES)
def test_every_face_has_the_same_public_names_and_signatures(cls):
    names = {name for name in dir(Agent) if not name.startswith('_')}
    assert {name for name in dir(cls) if not name.startswith('_')} == names
    for name in [*names, '__call__', '__init__']:
        ours, theirs = getattr(cls, name), getattr(Agent, name)
        if callable(theirs):
            parameters = inspect.signature(ours).parameters
            assert list(parameters) == list(inspect.signature(theirs).parameters), name


@pytest.mark.parametrize('cls', FACES)
def test_every_face_is_charged_and_stopped_alike(cls):
    agent = cls(model_for(cls, ['x'] * 3), limits=RunLimits(model_calls=1))

    class Twice(cls):
        def __init__(self):
            super().__init__(limits=RunLimits(model_calls=1))
            self.inner = agent

        if cls is Agent:

            def forward(self, *message, session_id=0):
                return self.inner(self.inner(*message))
        elif cls is AsyncAgent:

            async def forward(self, *message, session_id=0):
                return await self.inner(await self.inner(*message))
        elif cls is StreamingAgent:

            def forward(self, *message, session_id=0):
                for _ in range(2):
                    yield from self.inner(*message)
        else:

            async def forward(self, *message, session_id=0):
                for _ in range(2):
                    async for item in self.inner(*message):
                        yield item

    assert ask(agent, 'q').content == 'x'
    with pytest.raises(LimitExceeded, match='model_calls'):
        ask(Twice(), 'q')


@pytest.mark.parametrize('cls', FACES)
def test_events_tell_the_growth_of_a_reply(cls):
    events = []
    agent = cls(model_for(cls, ['a b c']))
    with subscribe(events.append):
        ask(agent, 'q')
    assert [events[0].type, events[-1].type] == ['begin', 'end']
    assert ''.join(event.data for event in events[1:-1]) == 'a b c'
    assert events[-1].data == 'a b c'


def test_a_nested_agent_is_in_the_session_of_the_run():
    class Outer(Agent):
        def __init__(self):
            super().__init__()
            self.inner = Agent(ScriptedModel(['x']))

        def forward(self, *message, session_id=0):
            assert current_context().session_id == 'ada'
            return self.inner(*message)

    outer = Outer()
    outer('q', session_id='ada')
    assert len(outer.inner.memory.get_memory('ada')) == 2
    assert outer.inner.memory.get(0) is None


def test_an_async_hook_of_a_sync_agent_runs():
    class Later(Hook):
        async def before_agent(self, agent, message, session_id):
            await asyncio.sleep(0)
            message[0].content += '!'

    llm = ScriptedModel(['x'])
    Agent(llm, hooks=[Later()])('q')
    assert llm.calls[-1].messages == [{'role': 'user', 'content': 'q!'}]


def test_a_stream_says_when_it_ends():
    items = list(StreamingAgent(ScriptedModel(['a b'], chunk=1))('q'))
    assert [item.content for item in items] == ['a', 'a ', 'a b', 'a b']
    assert items[0].stream_state is ModelStatusCode.STREAM_ING
    assert items[-1].stream_state is ModelStatusCode.END


def test_a_reply_keeps_what_the_provider_said():
    agent = Agent(ScriptedModel([Completion('cut', finish_reason='length')]))
    assert agent('q').content.finish_reason == 'length'
    assert json.loads(json.dumps(agent.state_dict()))['memory'][1]['content'] == 'cut'


def test_messages_of_different_kinds_are_joined():
    agent = Agent(ScriptedModel(['x']))
    image = {'type': 'image_url', 'image_url': {'url': 'data:'}}
    agent('look', AgentMessage(content=[image]), AgentMessage(content=ActionReturn(errmsg='no')))
    sent = agent.llm.calls[-1].messages
    assert [message['role'] for message in sent] == ['user']
    assert sent[0]['content'][:2] == [{'type': 'text', 'text': 'look'}, image]


def test_a_layer_that_is_shared_appears_once():
    shared = Agent(ScriptedModel(['x']))

    class Two(Agent):
        def __init__(self):
            super().__init__()
            self.first, self.second = shared, shared

    assert list(dict(Two().named_layers())) == ['', 'first']


def test_a_bad_entry_changes_nothing():
    class Pair(Agent):
        def __init__(self):
            super().__init__()
            self.inner = Agent(ScriptedModel(['x']))

        def forward(self, *message, session_id=0):
            return self.inner(*message)

    pair = Pair()
    pair('q')
    before = pair.state_dict()
    with pytest.raises(TypeError):
        pair.load_state_dict({'memory': [{'content': 'new'}], 'inner.memory': [3]})
    assert pair.state_dict() == before


def test_a_memory_object_is_not_shared_by_sessions():
    from lagent.memory import Memory

    memory = Memory()
    agent = Agent(ScriptedModel(['x'] * 3), memory=memory)
    agent('zero')
    agent('one', session_id=1)
    assert [m.content for m in memory.get_memory()] == ['zero', 'x']
    assert [m.content for m in agent.memory.get_memory(1)] == ['one', 'x']
    agent.reset()
    agent('again')
    assert [m.content for m in agent.memory.get_memory()] == ['again', 'x']


@pytest.mark.parametrize(
    'agent',
    [
        Agent(ScriptedModel(['1', '2', '3'] * 2), max_sessions=2),
        Coder(ScriptedModel(['1', '2', '3'] * 2), len, max_sessions=2),
        ReAct(ScriptedModel(['{"conclusion": "1"}'] * 3), [], max_sessions=2),
        AgentForInternLM(ScriptedModel(['1', '2', '3']), plugins=[FinishAction()], max_sessions=2),
    ],
)
def test_sessions_are_bounded_in_all_of_an_agent(agent):
    for session in 'abc':
        agent('q', session_id=session)
    for _, layer in agent.named_layers():
        assert list(layer.memory.memory_map) == ['b', 'c']


def test_a_tree_shows_its_models_tools_and_interpreters():
    class Named(ScriptedModel):
        def __repr__(self):
            return 'Named()'

    assert repr(ReAct(Named([]), [FinishAction()])) == (
        "ReAct(name='ReAct')(\n"
        "  (select_agent): _Selector(name='Agent')(\n"
        '    (llm): Named()\n'
        '  )\n'
        '  (actions): ActionExecutor(FinishAction)\n'
        ')'
    )
    coder = Coder(Named([]), Interpreter(backend='fake', unsafe=True))
    assert "  (interpreter): Interpreter(name='interpreter', backend='fake', network='none')" in (
        repr(coder)
    )
    coder.agent.boss = coder
    assert '(boss): ...' in repr(coder)
    assert repr(Agent()) == "Agent(name='Agent')"
