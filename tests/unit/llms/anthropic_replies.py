"""What a server of Anthropic's protocol says, and calls to one."""

import asyncio
import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest

from lagent.llms import (
    AnthropicAPI,
    AsyncAnthropicAPI,
    Completion,
    RetryPolicy,
)
from lagent.schema import ModelStatusCode

from .conftest import EVENTS, FakeServer, Reply, document

Serve = Callable[..., FakeServer]
ASK = [{'role': 'user', 'content': 'q'}]
FAST = RetryPolicy(attempts=3, base=0.001, cap=0.001)
MODEL = 'claude-test'
TEXT = {'type': 'text', 'text': ' hello\n'}
CALL = {'type': 'tool_use', 'id': 'c1', 'name': 'python', 'input': {'code': '1'}}

both_faces = pytest.mark.parametrize('face', [AnthropicAPI, AsyncAnthropicAPI])


def whole(*content: dict[str, Any], stop_reason: str = 'end_turn', **fields: Any) -> Reply:
    said = {
        'id': 'msg_1',
        'type': 'message',
        'role': 'assistant',
        'model': MODEL,
        'content': content,
        'stop_reason': stop_reason,
        'stop_sequence': None,
        'usage': {
            'input_tokens': 11,
            'output_tokens': 7,
            'cache_creation_input_tokens': 2,
            'cache_read_input_tokens': 5,
            'output_tokens_details': {'thinking_tokens': 3},
        },
    }
    return document({**said, **fields})


def failure(status: int, kind: str, text: str = 'no', **headers: str) -> Reply:
    return document({'type': 'error', 'error': {'type': kind, 'message': text}}, status, **headers)


def begin(**usage: int) -> dict[str, Any]:
    usage = {'input_tokens': 4, 'output_tokens': 1, **usage}
    said = {'id': 'msg_1', 'type': 'message', 'role': 'assistant', 'content': []}
    return {'type': 'message_start', 'message': {**said, 'stop_reason': None, 'usage': usage}}


def block(index: int, opening: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {'type': 'content_block_start', 'index': index, 'content_block': opening},
        *({'type': 'content_block_delta', 'index': index, 'delta': delta} for delta in deltas),
        {'type': 'content_block_stop', 'index': index},
    ]


def text_block(*pieces: str, index: int = 0) -> list[dict[str, Any]]:
    deltas = [{'type': 'text_delta', 'text': piece} for piece in pieces]
    return block(index, {'type': 'text', 'text': ''}, *deltas)


def ends(stop_reason: str = 'end_turn', stop_sequence: str | None = None) -> list[dict[str, Any]]:
    delta = {'stop_reason': stop_reason, 'stop_sequence': stop_sequence}
    return [
        {'type': 'message_delta', 'delta': delta, 'usage': {'output_tokens': 9}},
        {'type': 'message_stop'},
    ]


def stream(*events: dict[str, Any], **fields: Any) -> Reply:
    pieces = [f'event: {e["type"]}\ndata: {json.dumps(e)}\n\n'.encode() for e in events]
    return Reply(pieces=pieces, content_type=EVENTS, **fields)


def ask(face: type, server: FakeServer, *args: Any, **kwargs: Any) -> Any:
    settings = {'key': 'k', 'base_url': server.base, 'retry': FAST, **kwargs.pop('settings', {})}
    reply = face(MODEL, **settings).chat(*args or (ASK,), **kwargs)
    return asyncio.run(_await(reply)) if inspect.isawaitable(reply) else reply


async def _await(awaitable: Any) -> Any:
    return await awaitable


def key_of(server: FakeServer) -> str:
    """The key of the last request, wherever the SDK's version puts it."""
    headers = server.headers[-1]
    return headers.get('x-api-key') or headers['authorization'].removeprefix('Bearer ')


def last(server: FakeServer, **settings: Any) -> Completion:
    llm = AnthropicAPI(MODEL, key='k', base_url=server.base, retry=FAST, **settings)
    *_, (state, reply, extra) = llm.stream_chat(ASK, session_id=3)
    assert (state, extra) == (ModelStatusCode.END, None)
    assert type(reply) is Completion
    return reply
