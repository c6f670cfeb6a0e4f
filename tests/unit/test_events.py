"""Events as they come, and as lines of JSON."""

import asyncio
import dataclasses
import io
import json
import math
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest
from pydantic import BaseModel

from lagent.actions import ActionExecutor, AsyncInterpreter, Interpreter, tool_api
from lagent.agents import (
    Agent,
    AsyncAgent,
    AsyncCoder,
    AsyncStreamingAgent,
    Coder,
    StreamingAgent,
)
from lagent.context import RunContext
from lagent.effects import Effect, Event, subscribe
from lagent.events import JsonLines, as_dict, json_value
from lagent.llms import AsyncScriptedModel, Completion, ScriptedModel, ToolCall, Usage
from lagent.schema import ActionReturn, ActionStatusCode, AgentMessage
from sandbox import FakeBackend, Output

CODE = '```python\nprint(6 * 7)\n```'
REPLIES = [Completion(CODE, usage=Usage(20, 5)), Completion('It is 42.', usage=Usage(30, 4))]
SANDBOX: dict[str, Any] = {'backend': FakeBackend(lambda _: 'ran it'), 'unsafe': True}


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@tool_api
def add(a: int, b: int) -> int:
    """Add.

    Args:
        a (int): one.
        b (int): other.
    """
    return a + b


@pytest.mark.parametrize('is_async', [False, True])
def test_a_coder_tells_text_code_output_and_usage(is_async: bool) -> None:
    out = io.StringIO()
    with subscribe(JsonLines(out)):
        if is_async:

            async def ask() -> None:
                async with AsyncCoder(
                    AsyncScriptedModel(REPLIES), AsyncInterpreter(**SANDBOX)
                ) as coder:
                    await coder('6 * 7?', session_id='s')

            asyncio.run(ask())
        else:
            with Coder(ScriptedModel(REPLIES), Interpreter(**SANDBOX)) as coder:
                coder('6 * 7?', session_id='s')
    lines = lines_of(out.getvalue())
    told = [line['event'] for line in lines if line['event'] != 'delta']
    assert told == ['request', 'reply', 'code', 'output', 'result', 'request', 'reply']
    deltas = [line for line in lines if line['event'] == 'delta']
    assert ''.join(line['text'] for line in deltas) == CODE + 'It is 42.'
    assert len(deltas) > 2
    by_event = {line['event']: line for line in lines}
    assert by_event['code']['code'] == 'print(6 * 7)'
    assert by_event['output']['output']['text'] == 'ran it'
    assert by_event['result']['outcome'] == 'ok'
    assert by_event['reply']['text'] == 'It is 42.'
    assert by_event['reply']['finish_reason'] == 'stop'
    assert by_event['reply']['usage']['completion_tokens'] == 4
    assert {line['session'] for line in lines} == {'s'}
    assert len({line['run'] for line in lines}) == 1
    assert [line['effect'] for line in lines if line['event'] in ('request', 'code')] == [1, 2, 3]
    assert {line['effect'] for line in lines if line['event'] in ('reply', 'result')} == {1, 2, 3}


async def test_streaming_agents_tell_the_same(tmp_path: Any) -> None:
    del tmp_path
    texts = []
    for agent in (StreamingAgent(ScriptedModel(REPLIES)), Agent(ScriptedModel(REPLIES))):
        out = io.StringIO()
        with subscribe(JsonLines(out)):
            list(agent('Hello?'))
        texts.append(out.getvalue())
    for agent in (
        AsyncStreamingAgent(AsyncScriptedModel(REPLIES)),
        AsyncAgent(AsyncScriptedModel(REPLIES)),
    ):
        out = io.StringIO()
        with subscribe(JsonLines(out)):
            if isinstance(agent, AsyncStreamingAgent):
                async for _ in agent('Hello?'):
                    pass
            else:
                await agent('Hello?')
        texts.append(out.getvalue())
    for text in texts:
        *deltas, last = lines_of(text)[1:]
        assert {line['event'] for line in deltas} == {'delta'}
        assert ''.join(line['text'] for line in deltas) == CODE
        assert (last['event'], last['text']) == ('reply', CODE)
        assert last['usage']['prompt_tokens'] == 20


def test_tools_and_errors() -> None:
    out = io.StringIO()
    call = {'name': 'add', 'parameters': {'a': 1, 'b': 2}, 'id': 'call_1'}
    with subscribe(JsonLines(out)):
        ActionExecutor([add])(AgentMessage(sender='model', content=[call]))
        with pytest.raises(ValueError, match='no'):
            Agent(ScriptedModel([ValueError('no')]))('Hello?')
    asked, gave, _, failed = lines_of(out.getvalue())
    assert (asked['event'], asked['of'], asked['name']) == ('call', 'tool', 'add')
    assert (asked['arguments'], asked['call_id']) == ({'a': 1, 'b': 2}, 'call_1')
    assert gave['event'] == 'return'
    assert gave['result']['result'] == [{'type': 'text', 'content': '3'}]
    assert gave['result']['state'] == ActionStatusCode.SUCCESS.value
    assert (failed['event'], failed['of'], failed['type']) == ('error', 'model', 'ValueError')
    assert failed['message'] == 'no'


def test_deltas_can_be_left_out() -> None:
    out = io.StringIO()
    with subscribe(JsonLines(out, deltas=False)):
        Agent(ScriptedModel(REPLIES))('Hello?')
    assert [line['event'] for line in lines_of(out.getvalue())] == ['request', 'reply']


def test_lines_of_threads_are_whole_and_their_effects_are_told_apart() -> None:
    out = io.StringIO()
    agent = Agent(ScriptedModel(lambda _: 'word ' * 20))
    with subscribe(JsonLines(out)), ThreadPoolExecutor(8) as pool:
        runs = [pool.submit(copy_context().run, agent, 'q', session_id=n) for n in range(16)]
        for run in runs:
            run.result()
    lines = lines_of(out.getvalue())
    for number in range(1, 17):
        mine = [line for line in lines if line['effect'] == number]
        assert [line['event'] for line in mine if line['event'] != 'delta'] == ['request', 'reply']
        assert ''.join(line.get('text', '') for line in mine[1:-1]) == mine[-1]['text']
        assert len({line['session'] for line in mine}) == 1


def test_replayed_effects_say_so() -> None:
    event = Event('begin', Effect('kernel', 'k', '1'), None, RunContext(), 0.0, replayed=True)
    assert as_dict(event)['replayed'] is True
    assert 'replayed' not in as_dict(dataclasses.replace(event, replayed=False))


def test_lines_hold_any_text() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding='utf-8')
    JsonLines(file).write(event='mine', text='é \ud83d \u202e')
    buffer = file.buffer
    assert isinstance(buffer, io.BytesIO)
    line = buffer.getvalue().decode('ascii')
    assert json.loads(line) == {'v': 1, 'event': 'mine', 'text': 'é \ud83d \u202e'}


class Shape(BaseModel):
    sides: int


@pytest.mark.parametrize(
    ('value', 'expected'),
    [
        (Completion('text'), 'text'),
        ({1: (2, None, True)}, {'1': [2, None, True]}),
        (math.nan, 'nan'),
        (b'ab', 'YWI='),
        (ActionStatusCode.SUCCESS, ActionStatusCode.SUCCESS.value),
        (ToolCall('1', 'f', '{}'), {'id': '1', 'name': 'f', 'arguments': '{}'}),
        (Shape(sides=3), {'sides': 3}),
        (ActionReturn(type='t').state, ActionStatusCode.SUCCESS.value),
        (complex(1, 2), '(1+2j)'),
    ],
)
def test_every_value_has_a_form(value: Any, expected: Any) -> None:
    assert json_value(value) == expected
    json.dumps(json_value(value), allow_nan=False)


def test_an_image_is_written_whole() -> None:
    event = Event(
        'delta',
        Effect('kernel', 'k', 'plot()'),
        Output('display', data={'image/png': b'\x89PNG'}),
        RunContext(),
        0.1,
    )
    assert as_dict(event)['output']['data'] == {'image/png': {'base64': 'iVBORw=='}}
