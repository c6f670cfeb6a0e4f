"""Scripted models: what a test gives them is what comes out, and what they were asked is kept."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from lagent.effects import Event, subscribe
from lagent.llms import (
    AsyncScriptedModel,
    Completion,
    RateLimited,
    ScriptedModel,
    ScriptEnded,
    Stall,
)
from lagent.schema import ModelStatusCode


def asks(text: str) -> list[dict[str, Any]]:
    return [{'role': 'user', 'content': text}]


def chat(face: type[ScriptedModel], llm: ScriptedModel, *args: Any, **kwargs: Any) -> Any:
    if face is ScriptedModel:
        return llm.chat(*args, **kwargs)

    async def answer() -> Any:
        return await llm.chat(*args, **kwargs)

    return asyncio.run(answer())


both_faces = pytest.mark.parametrize('face', [ScriptedModel, AsyncScriptedModel])


@both_faces
def test_replies_come_in_order_and_calls_are_kept(face: type[ScriptedModel]) -> None:
    llm = face(['one', Completion('tw', finish_reason='length')])
    messages = asks('a')
    first = chat(face, llm, messages, 7, temperature=0)
    messages[0]['content'] = 'changed'
    second = chat(face, llm, asks('b'))
    assert (first, first.finish_reason) == ('one', 'stop')
    assert (second, second.finish_reason) == ('tw', 'length')
    assert [call.messages for call in llm.calls] == [asks('a'), asks('b')]
    assert (llm.calls[0].session_id, llm.calls[0].params) == (7, {'temperature': 0})


@both_faces
def test_a_script_that_is_over_says_what_was_asked(face: type[ScriptedModel]) -> None:
    llm = face('only one')
    chat(face, llm, asks('a'))
    with pytest.raises(ScriptEnded, match=r'1 reply,.*what now'):
        chat(face, llm, asks('what now'))


@both_faces
def test_functions_and_generators_are_scripts_too(face: type[ScriptedModel]) -> None:
    llm = face(lambda messages: messages[-1]['content'].upper())
    assert [chat(face, llm, asks(text)) for text in 'ab'] == ['A', 'B']

    def script() -> Iterator[Any]:
        yield 'first'
        yield lambda messages: f'second, to {messages[0]["content"]}'

    llm = face(script())
    assert [chat(face, llm, asks(text)) for text in 'ab'] == ['first', 'second, to b']


def test_an_awaited_script_may_await() -> None:
    async def think(messages: list[dict[str, Any]]) -> str:
        await asyncio.sleep(0)
        return 'thought'

    assert chat(AsyncScriptedModel, AsyncScriptedModel([think]), asks('a')) == 'thought'


@both_faces
def test_failures_and_stalls(face: type[ScriptedModel]) -> None:
    llm = face([RateLimited('slow down', retry_after=3), Stall(0.01, 'late'), Stall(0, KeyError())])
    with pytest.raises(RateLimited, match='slow down'):
        chat(face, llm, asks('a'))
    assert chat(face, llm, asks('b')) == 'late'
    with pytest.raises(KeyError):
        chat(face, llm, asks('c'))


@both_faces
@pytest.mark.parametrize('reply', [lambda messages: None, 3, b'text'])
def test_what_is_no_reply_is_told(face: type[ScriptedModel], reply: Any) -> None:
    with pytest.raises(TypeError, match=r"'scripted' gave a (NoneType|int|bytes) for a reply"):
        chat(face, face([reply]), asks('a'))


async def test_a_stall_can_be_cancelled() -> None:
    llm = AsyncScriptedModel([Stall(60, 'never')])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await llm.chat(asks('a'))


@both_faces
def test_expectations(face: type[ScriptedModel]) -> None:
    llm = face(['x'] * 4, expect=['rows', None, lambda messages: len(messages) == 1, 'other'])
    for text in ('how many rows?', 'anything', 'one message'):
        chat(face, llm, asks(text))
    with pytest.raises(AssertionError, match=r"call 4 .*expected 'other', asked: 'wrong'"):
        chat(face, llm, asks('wrong'))


@both_faces
def test_a_batch_takes_a_reply_each(face: type[ScriptedModel]) -> None:
    assert chat(face, face(['a', 'b']), [asks('1'), asks('2')]) == ['a', 'b']


@both_faces
def test_a_listener_gets_pieces(face: type[ScriptedModel]) -> None:
    heard: list[Event] = []
    with subscribe(heard.append):
        chat(face, face(['abcdefg'], chunk=3), asks('a'))
    assert [(event.type, event.data) for event in heard] == [
        ('begin', None),
        ('delta', 'abc'),
        ('delta', 'def'),
        ('delta', 'g'),
        ('end', 'abcdefg'),
    ]


def streamed(text: str) -> list[tuple[ModelStatusCode, str, None]]:
    return [
        (ModelStatusCode.STREAM_ING, text[:2], None),
        (ModelStatusCode.END, text, None),
    ]


def test_streaming() -> None:
    llm = ScriptedModel(['abc'], chunk=2)
    chunks = list(llm.stream_chat(asks('a'), session_id=3))
    assert chunks == streamed('abc')
    assert type(chunks[-1][1]) is Completion
    assert llm.calls[0].session_id == 3


async def test_streaming_awaited() -> None:
    llm = AsyncScriptedModel(['abc'], chunk=2)
    assert [chunk async for chunk in llm.stream_chat(asks('a'))] == streamed('abc')
