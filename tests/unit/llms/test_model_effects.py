"""Whatever a model is asked through is an effect: charged, told, and recorded, once."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lagent.agents import Agent, AsyncStreamingAgent, StreamingAgent
from lagent.context import run_context
from lagent.effects import Event, subscribe
from lagent.errors import LimitExceeded
from lagent.journal import replay
from lagent.limits import RunLimits
from lagent.llms import (
    GPTAPI,
    AsyncGPTAPI,
    AsyncLMDeployClient,
    AsyncScriptedModel,
    BaseLLM,
    Completion,
    LMDeployClient,
    ScriptedModel,
    Usage,
)
from lagent.llms.effect import model_stream
from lagent.llms.recorded import AsyncRecordedModel, RecordedModel
from lagent.schema import ModelStatusCode

from .conftest import FakeServer, ends, events, message

Serve = Callable[..., FakeServer]
ASK = [{'role': 'user', 'content': 'q'}]
TOLD = [('begin', None), ('delta', 'Hel'), ('delta', 'lo'), ('end', 'Hello')]


async def collect(chunks: Any) -> list[Any]:
    return [chunk async for chunk in chunks]


def read(chunks: Any) -> list[Any]:
    return asyncio.run(collect(chunks)) if hasattr(chunks, '__aiter__') else list(chunks)


def now(reply: Any) -> Any:
    return asyncio.run(reply) if asyncio.iscoroutine(reply) else reply


@pytest.mark.parametrize('face', [GPTAPI, AsyncGPTAPI])
def test_a_stream_of_a_server_is_charged_and_told(face: type, serve: Serve) -> None:
    server = serve(events('Hel', 'lo', ends() | {'usage': {'prompt_tokens': 3}}))
    llm = face('m', key='k', api_base=server.url)
    heard: list[Event] = []
    with run_context() as run, subscribe(heard.append):
        assert read(llm.stream_chat(ASK))[-1][1] == 'Hello'
    assert [(event.type, event.data) for event in heard] == TOLD
    assert (run.usage.model_calls, run.usage.prompt_tokens) == (1, 3)


@pytest.mark.parametrize('kind', [ScriptedModel, AsyncScriptedModel])
def test_a_stream_by_hand_keeps_to_the_limits(kind: type) -> None:
    llm = kind(lambda messages: Completion('Hello', usage=Usage(3, 4)), chunk=3)
    heard: list[Event] = []
    with run_context(limits=RunLimits(model_calls=2)) as run, subscribe(heard.append):
        assert read(llm.stream_chat(ASK)) == [
            (ModelStatusCode.STREAM_ING, 'Hel', None),
            (ModelStatusCode.END, 'Hello', None),
        ]
        assert [(event.type, event.data) for event in heard] == TOLD
        now(llm.chat(ASK))
        with pytest.raises(LimitExceeded):
            read(llm.stream_chat(ASK))
    assert len(llm.calls) == 2
    assert (run.usage.model_calls, run.usage.tokens) == (2, 14)


@pytest.mark.parametrize('client', [LMDeployClient, AsyncLMDeployClient])
def test_what_an_engine_continues_is_charged(client: type, serve: Serve) -> None:
    llm = client(serve(message('x')).base, 'm')
    with run_context() as run:
        now(llm.generate('Once'))
        now(llm.chat(ASK))
    assert run.usage.model_calls == 2


@pytest.mark.parametrize(
    ('agent', 'kind'), [(StreamingAgent, ScriptedModel), (AsyncStreamingAgent, AsyncScriptedModel)]
)
def test_a_stream_of_an_agent_counts_once(agent: type, kind: type) -> None:
    heard: list[Event] = []
    with run_context() as run, subscribe(heard.append):
        read(agent(kind(['Hello'], chunk=3))('q'))
    assert [(event.type, event.data) for event in heard] == TOLD
    assert run.usage.model_calls == 1


def test_a_reader_that_leaves_ends_the_effect() -> None:
    heard: list[Event] = []
    with subscribe(heard.append):
        chunks = ScriptedModel(['Hello'], chunk=2).stream_chat(ASK)
        assert next(chunks)[1] == 'He'
        chunks.close()  # type: ignore[attr-defined]  # it is a generator
    assert [event.type for event in heard] == ['begin', 'delta', 'error']


class ByHand(Agent):
    def forward(self, *message: Any, **kwargs: Any) -> str:
        *_, (_, said, _) = read(self.llm.stream_chat(ASK))
        return str(said)


@pytest.mark.parametrize('recorded', [RecordedModel, AsyncRecordedModel])
def test_a_stream_by_hand_is_recorded(recorded: type, tmp_path: Path) -> None:
    path = tmp_path / 'cassette.jsonl'
    with replay(path, record='all'):
        assert ByHand(ScriptedModel(['Hello'], path='m'))('q').content == 'Hello'
    with replay(path):
        assert ByHand(recorded('m'))('q').content == 'Hello'


def test_a_stream_that_begins_again_is_told_from_its_beginning() -> None:
    class Restarting(BaseLLM):
        @model_stream
        def stream_chat(self, inputs: Any, **_: Any) -> Any:
            for text in ('Hello wor', 'He', 'Help me'):
                yield ModelStatusCode.STREAM_ING, text, None

    heard: list[Event] = []
    with subscribe(heard.append):
        read(Restarting('m').stream_chat(ASK))
    assert [event.data for event in heard if event.type == 'delta'] == ['Hello wor', 'He', 'lp me']
