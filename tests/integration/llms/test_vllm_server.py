"""GPTAPI against a real OpenAI-compatible server: vLLM's, with the small real model."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lagent.effects import Event, subscribe
from lagent.llms import (
    GPTAPI,
    AsyncGPTAPI,
    AsyncVllmServer,
    AuthenticationFailed,
    BadRequest,
    ContextOverflow,
    ServerFailed,
    VllmServer,
)

from .conftest import VLLM_ENV, VLLM_MARKS, VLLM_SMALL

pytestmark = VLLM_MARKS

FRANCE = [{'role': 'user', 'content': 'What is the capital of France?'}]


@pytest.fixture(scope='module')
def server(model_path: Path) -> Iterator[VllmServer]:
    cfg = {**VLLM_SMALL, 'dtype': 'bfloat16', 'kv_cache_memory_bytes': 256 * 1024**2}
    lines: list[str] = []
    settings = {'temperature': 0, 'max_new_tokens': 30}
    llm = VllmServer(
        str(model_path),
        vllm_cfg=cfg,
        model_name='small',
        env={**VLLM_ENV, 'VLLM_LOGGING_LEVEL': 'INFO'},
        start_timeout=300,
        progress=lines.append,
        **settings,
    )
    with llm:
        assert any('startup complete' in line for line in lines)
        yield llm
    assert llm.process is not None
    assert not llm.process.running


@pytest.fixture
def access(server: VllmServer) -> dict[str, str]:
    return {'base_url': server.url, 'key': server.keys[0]}


def test_the_server_is_a_model(server: VllmServer) -> None:
    reply = server.chat(FRANCE)
    assert 'Paris' in reply
    *chunks, (_, streamed, _) = server.stream_chat(FRANCE)
    assert (streamed, streamed.usage) == (reply, reply.usage)
    assert len(chunks) > 3
    assert server.generate('The capital of France is', max_new_tokens=8).finish_reason == 'length'
    assert server.process is not None
    # All of it is one process group, which is how it is ended.
    assert os.getpgid(server.process.pid) == server.process.pid


def test_what_only_vllm_has(server: VllmServer) -> None:
    assert server.chat(FRANCE, structured_outputs={'choice': ['Rome', 'Oslo']}) in ('Rome', 'Oslo')
    schema = {
        'type': 'object',
        'properties': {'city': {'type': 'string', 'maxLength': 8}},
        'required': ['city'],
        'additionalProperties': False,
    }
    reply = server.chat(FRANCE, structured_outputs={'json': schema}, max_new_tokens=60)
    assert list(json.loads(reply)) == ['city']
    greedy = server.chat(FRANCE)
    assert server.chat(FRANCE, temperature=1.5, top_k=1) == greedy


def test_token_ids_through_the_server(server: VllmServer) -> None:
    reply = server.chat(FRANCE, return_token_ids=True)
    assert len(reply.prompt_token_ids) == reply.usage.prompt_tokens
    assert len(reply.token_ids) == reply.usage.completion_tokens
    *_, (_, streamed, _) = server.stream_chat(FRANCE, return_token_ids=True)
    assert (streamed.prompt_token_ids, streamed.token_ids) == (
        reply.prompt_token_ids,
        reply.token_ids,
    )
    for ask in (server.generate, server.chat):
        again = ask(reply.prompt_token_ids, return_token_ids=True)
        assert (again.prompt_token_ids, again.token_ids) == (
            reply.prompt_token_ids,
            reply.token_ids,
        )
    [one, other] = server.generate([list(reply.prompt_token_ids), 'The capital of France is'])
    assert one == reply
    assert other.finish_reason in ('stop', 'length')


def test_only_who_has_the_key_is_answered(access: dict[str, str]) -> None:
    with pytest.raises(AuthenticationFailed):
        GPTAPI('small', **{**access, 'key': 'another'}).chat(FRANCE)


async def test_one_that_cannot_start(tmp_path: Path) -> None:
    llm = AsyncVllmServer(str(tmp_path), env=VLLM_ENV, start_timeout=300)
    with pytest.raises(ServerFailed, match='ended by itself'):
        async with llm:
            pass
    assert llm.process is not None
    assert not llm.process.running


def test_a_reply(access: dict[str, str]) -> None:
    llm = GPTAPI('small', **access, temperature=0, max_new_tokens=30)
    reply = llm.chat(FRANCE)
    assert 'Paris' in reply
    assert reply.finish_reason == 'stop'
    assert reply.usage.prompt_tokens > 30
    assert 5 < reply.usage.completion_tokens < 30
    cut = llm.chat(FRANCE, max_new_tokens=3, logprobs=True)
    assert (cut.finish_reason, cut.usage.completion_tokens) == ('length', 3)
    assert len(cut.logprobs) == 3


def test_streaming(access: dict[str, str]) -> None:
    llm = GPTAPI('small', **access, temperature=0, max_new_tokens=30)
    *chunks, (_, reply, _) = llm.stream_chat(FRANCE)
    assert len(chunks) > 3
    assert reply == llm.chat(FRANCE)
    assert reply.usage == llm.chat(FRANCE).usage
    heard: list[Event] = []
    with subscribe(heard.append):
        llm.chat(FRANCE)
    assert ''.join(event.data for event in heard if event.type == 'delta') == reply


def test_stop_words(access: dict[str, str]) -> None:
    llm = GPTAPI('small', **access, temperature=0, max_new_tokens=30, stop_words=['Paris'])
    reply = llm.chat(FRANCE)
    assert 'Paris' not in reply
    assert (reply.finish_reason, reply.stop_reason) == ('stop', 'Paris')


async def test_many_sessions_at_once(access: dict[str, str]) -> None:
    llm = AsyncGPTAPI('small', **access, temperature=0, max_new_tokens=20)
    replies = await asyncio.gather(*(llm.chat(FRANCE, session) for session in range(8)))
    assert all('Paris' in reply for reply in replies)


def test_refusals_are_typed(access: dict[str, str]) -> None:
    llm = GPTAPI('small', **access)
    with pytest.raises(ContextOverflow):
        llm.chat([{'role': 'user', 'content': 'many rows ' * 600}])
    with pytest.raises(BadRequest, match='404'):
        GPTAPI('no such model', **access).chat(FRANCE)
    with pytest.raises(BadRequest):
        llm.chat(FRANCE, temperature=-3)
