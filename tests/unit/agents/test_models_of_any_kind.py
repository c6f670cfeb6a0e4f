"""A model is any object with a `chat`; it is told the session if it has a parameter for it."""

from dataclasses import dataclass
from typing import Any

import pytest

from lagent.agents import Agent, AsyncAgent, Coder, StreamingAgent
from lagent.agents.session_argument import session_argument
from lagent.agents.streaming_agent import AsyncStreamingAgent
from lagent.llms import AsyncBaseLLM, AsyncScriptedModel, BaseLLM
from lagent.schema import ModelStatusCode


class Gathers:
    async def chat(self, messages, **kwargs):
        return str(kwargs)

    def stream_chat(self, messages, **kwargs):
        yield ModelStatusCode.END, str(kwargs), None


class Named:
    async def chat(self, messages, temperature=0.5, session_ids=None):
        return f'{temperature} {session_ids}'

    async def stream_chat(self, messages, temperature=0.5, *, session_id):
        yield ModelStatusCode.END, f'{temperature} {session_id}', None


class Second:
    async def chat(self, messages, session):
        return session


class Plain:
    def chat(self, messages):
        return 'plain'


class Whole(BaseLLM):
    def generate(self, inputs, **gen_params):
        return str(gen_params)


class AsyncWhole(AsyncBaseLLM):
    async def generate(self, inputs, session_ids=None, **gen_params):
        return f'{session_ids} {gen_params}'


class Wrapped(AsyncWhole):
    async def chat(self, *args, **kwargs):
        return await super().chat(*args, **kwargs)


@pytest.mark.parametrize(
    ('llm', 'said'),
    [
        (Gathers(), "{'top_p': 1}"),
        (Second(), 's'),
        (Plain(), 'plain'),
        (AsyncWhole('m'), "s {'top_p': 1}"),
        (Wrapped('m'), "s {'top_p': 1}"),
    ],
)
async def test_an_async_agent_asks_any_object_with_a_chat(llm, said):
    asked: dict[str, Any] = {} if isinstance(llm, Second | Plain) else {'top_p': 1}
    assert (await AsyncAgent(llm)('q', session_id='s', **asked)).content == said


async def test_the_session_never_takes_the_place_of_another_parameter():
    assert (await AsyncAgent(Named())('q', session_id='s')).content == '0.5 s'
    stream = AsyncStreamingAgent(Named())('q', session_id='s')
    assert [message.content async for message in stream][-1] == '0.5 s'


def test_a_streaming_agent_asks_any_object_with_a_stream_chat():
    messages = [*StreamingAgent(Gathers())('q', session_id='s', top_p=1)]
    assert messages[-1].content == "{'top_p': 1}"


async def test_a_model_that_cannot_stream_gives_its_reply_in_one_piece():
    messages = [*StreamingAgent(Whole('m'))('q', top_p=1)]
    assert [message.content for message in messages] == ["{'top_p': 1}"] * 2
    assert Agent(Whole('m'))('q', top_p=1).content == messages[-1].content
    stream = AsyncStreamingAgent(AsyncWhole('m'))('q', session_id='s')
    assert [message.content async for message in stream][-1] == 's {}'


def test_what_has_no_signature_is_not_told():
    assert session_argument(dict, 's') == {}


def test_a_callable_that_cannot_be_a_key_is_looked_at_as_well():
    @dataclass
    class Chat:  # equal by its fields, and so without a hash
        words: str = 'hello'

        def __call__(self, messages, session_id=None):
            return self.words

    assert session_argument(Chat(), 's') == {'session_id': 's'}


class Delegating(Agent):
    def __init__(self) -> None:
        super().__init__()
        self.child = AsyncAgent(AsyncScriptedModel(['x']))

    def forward(self, *message: Any, **kwargs: Any) -> Any:
        return self.child(*message)


@pytest.mark.parametrize(
    ('agent', 'called'),
    [
        (Agent(AsyncScriptedModel(['x'])), 'AsyncScriptedModel.chat'),
        (Coder(AsyncScriptedModel(['x'])), 'AsyncScriptedModel.chat'),
        (Delegating(), 'Delegating.forward'),
    ],
)
def test_what_must_be_awaited_needs_an_agent_that_awaits(agent: Agent, called: str) -> None:
    with pytest.raises(TypeError, match=f'{called} gave a coroutine.* use an asynchronous agent'):
        agent('q')


def test_the_name_of_a_model_is_no_model() -> None:
    with pytest.raises(TypeError, match=r"'gpt-4o' is no model: .* GPTAPI\('gpt-4o'\)"):
        Coder('gpt-4o')
