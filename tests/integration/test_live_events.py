"""What a subscriber is told while code runs in a real sandbox, when it happens."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from lagent.actions import AsyncInterpreter, Interpreter
from lagent.agents import AsyncCoder, Coder
from lagent.effects import Event, subscribe
from lagent.llms import AsyncScriptedModel, Completion, ScriptedModel, Usage

pytestmark = pytest.mark.docker

PAUSE = 2.0  # seconds
CODE = f"""```python
import time
print('begun', flush=True)
time.sleep({PAUSE})
print('done')
6 * 7
```"""
REPLIES = [Completion(CODE, usage=Usage(20, 5)), 'It is 42.']


def sync_run() -> None:
    with Coder(ScriptedModel(REPLIES), Interpreter()) as coder:
        coder('6 * 7?')


def async_run() -> None:
    async def ask() -> None:
        async with AsyncCoder(AsyncScriptedModel(REPLIES), AsyncInterpreter()) as coder:
            await coder('6 * 7?')

    asyncio.run(ask())


@pytest.mark.parametrize('ask', [sync_run, async_run])
def test_output_is_told_as_it_is_printed(ask: Callable[[], None]) -> None:
    heard: list[tuple[float, Event]] = []

    def hear(event: Event) -> None:
        heard.append((time.monotonic(), event))

    with subscribe(hear):
        ask()
    kernel = [(moment, event) for moment, event in heard if event.effect.kind == 'kernel']
    (begun, first), *printed, (ended, last) = kernel
    assert (first.type, last.type) == ('begin', 'end')
    assert 'begun' in first.effect.payload
    texts: list[Any] = [event.data.text for _, event in printed]
    assert [event.data.kind for _, event in printed] == ['stdout', 'stdout', 'result']
    assert texts == ['begun\n', 'done\n', '42']
    assert ended - printed[0][0] > PAUSE / 2, 'the output was held back until the cell had ended'
    assert begun <= printed[0][0]
    reply = next(event for _, event in heard if event.type == 'end')
    assert reply.data.usage.completion_tokens == 5
    assert reply.run.usage.completion_tokens == 5
