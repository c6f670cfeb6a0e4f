"""Models, and agents that hold them, can be copied and pickled; what can't be says what to do."""

import asyncio
import copy
import inspect
import itertools
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from lagent.agents import Agent
from lagent.errors import ConfigError
from lagent.llms import (
    GPTAPI,
    AnthropicAPI,
    AsyncAnthropicAPI,
    AsyncGPTAPI,
    AsyncScriptedModel,
    BaseLLM,
    Completion,
    RateLimits,
    ScriptedModel,
)
from lagent.llms.sharing import SharesEngine
from lagent.server_process import ServerProcess

from .anthropic_replies import TEXT, whole
from .conftest import FakeServer, message

Serve = Callable[..., FakeServer]
ASK = [{'role': 'user', 'content': 'q'}]


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def chat(llm: Any) -> Any:
    reply = llm.chat(ASK)
    return asyncio.run(_await(reply)) if inspect.isawaitable(reply) else reply


async def _await(awaitable: Any) -> Any:
    return await awaitable


copies = pytest.mark.parametrize('how', [copy.copy, copy.deepcopy, pickled])
both_scripted = pytest.mark.parametrize('face', [ScriptedModel, AsyncScriptedModel])


@copies
@both_scripted
def test_a_copied_script_goes_on_for_itself(face: type, how: Callable[[Any], Any]) -> None:
    llm = face(['a', Completion('b', finish_reason='length'), ValueError('c')], expect=['q'] * 3)
    assert chat(llm) == 'a'
    copied = how(llm)
    assert type(copied) is face
    for each in (copied, llm):
        reply = chat(each)
        assert (reply, reply.finish_reason, len(each.calls)) == ('b', 'length', 2)
        with pytest.raises(ValueError, match='c'):
            chat(each)
    assert copied.calls == llm.calls


def shout(messages: Any) -> str:
    return str(messages[-1]['content']).upper()


@copies
@both_scripted
def test_a_function_goes_on_to_give_the_replies(face: type, how: Callable[[Any], Any]) -> None:
    copied = how(face(shout))
    assert [chat(copied), chat(copied)] == ['Q', 'Q']


@copies
def test_a_script_that_can_not_be_read_twice_says_so(how: Callable[[Any], Any]) -> None:
    llm = ScriptedModel(f'{n}' for n in itertools.count())
    assert llm.chat(ASK) == '0'
    with pytest.raises(ConfigError, match='a generator, which can not be copied: give a list'):
        how(llm)
    assert llm.chat(ASK) == '1'


@pytest.mark.parametrize('how', [copy.deepcopy, pickled])
def test_a_copied_agent_has_a_script_and_a_memory_of_its_own(how: Callable[[Any], Any]) -> None:
    agent = Agent(ScriptedModel(['a', 'b']))
    assert agent('q').content == 'a'
    copied = how(agent)
    assert [copied('q').content, agent('q').content] == ['b', 'b']
    assert [len(each.memory.get_memory()) for each in (copied, agent)] == [4, 4]
    assert copied.memory.get_memory()[0] is not agent.memory.get_memory()[0]


@copies
@pytest.mark.parametrize('face', [GPTAPI, AsyncGPTAPI])
def test_a_copied_model_asks_the_same_server(
    face: type, how: Callable[[Any], Any], serve: Serve
) -> None:
    server = serve(message('x'))
    url = f'{server.url}?version=2'
    llm = face('m', 1, key='k', api_base=url, temperature=0.5, read_timeout=7)
    assert chat(llm) == 'x'
    copied = how(llm)
    copied.gen_params['temperature'] = 0.1
    assert (chat(copied), repr(copied)) == ('x', repr(llm))
    assert chat(llm) == 'x'
    assert {each['authorization'] for each in server.headers} == {'Bearer k'}
    assert set(server.paths) == {'/v1/chat/completions?version=2'}
    temperatures = [each['temperature'] for each in server.requests]
    assert temperatures == [0.5, 0.1, 0.1 if how is copy.copy else 0.5]


@copies
@pytest.mark.parametrize('face', [AnthropicAPI, AsyncAnthropicAPI])
def test_a_copied_model_of_anthropics_asks_the_same_server(
    face: type, how: Callable[[Any], Any], serve: Serve
) -> None:
    llm = face('m', key='k', base_url=serve(whole(TEXT)).base)
    assert [chat(llm), chat(how(llm)), chat(llm)] == ['hello'] * 3


def test_a_copied_agent_asks_the_same_server(serve: Serve) -> None:
    server = serve(message('x'))
    agent = Agent(GPTAPI('m', 1, key='k', api_base=server.url))
    copied = copy.deepcopy(agent)
    assert copied('q').content == agent('q').content == 'x'
    copied.llm.close()  # which leaves the connections of the other one
    assert agent('q').content == 'x'


def test_copies_keep_to_the_limits_together_and_what_is_pickled_to_the_same_numbers() -> None:
    limits = RateLimits(6, 1_000, 2, max_wait=3)
    llm = GPTAPI('m', key='k', base_url='http://localhost/v1', rate_limits=limits)
    for how in (copy.copy, copy.deepcopy):
        assert how(limits) is limits
        assert how(llm).rate_limits is limits
    apart = pickled(llm).rate_limits
    assert apart is not limits
    assert repr(apart) == repr(limits)


class Local(SharesEngine, BaseLLM):
    """A model with an engine that can't be copied."""

    _shared = ('engine',)

    def __init__(self) -> None:
        super().__init__('local', temperature=0.5)
        self.engine = threading.Lock()


def test_copies_of_a_local_model_share_its_engine_alone() -> None:
    agent = Agent(Local())
    copied = copy.deepcopy(agent)
    assert copied.llm is not agent.llm
    assert copied.llm.engine is agent.llm.engine
    copied.llm.gen_params['temperature'] = 0
    assert agent.llm.gen_params['temperature'] == 0.5
    assert copy.copy(agent.llm).engine is agent.llm.engine
    with pytest.raises(ConfigError, match=rf"'type': '{__name__}.Local'"):
        pickle.dumps(agent)


def test_copies_of_a_started_server_are_the_same_process() -> None:
    process = ServerProcess([sys.executable, '-c', 'input()'], 'http://127.0.0.1:9/')
    try:
        assert copy.copy(process) is copy.deepcopy([process])[0] is process
        with pytest.raises(ConfigError, match='the address of the server'):
            pickle.dumps(process)
    finally:
        process.close()
