"""The two faces of each class: same names, same parameters, same words, same behaviour."""

import asyncio
import inspect
import re
from dataclasses import replace

import pytest

from sandbox import (
    AsyncFakeSandbox,
    AsyncSandbox,
    AsyncSandboxManager,
    ExecutionResult,
    FakeSandbox,
    Sandbox,
    SandboxManager,
    Timings,
)

PAIRS = [(AsyncSandbox, Sandbox), (AsyncSandboxManager, SandboxManager)]


def public(kind: type) -> dict[str, object]:
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith('_')}


@pytest.mark.parametrize(('aio', 'sync'), PAIRS)
def test_same_names_parameters_and_words(aio, sync):
    assert public(aio).keys() == public(sync).keys()
    assert inspect.signature(aio) == inspect.signature(sync)
    for name, method in public(aio).items():
        other = getattr(sync, name)
        if not callable(method):
            continue
        ours, theirs = inspect.signature(method), inspect.signature(other)
        assert list(ours.parameters.values()) == list(theirs.parameters.values()), name
        assert method.__doc__ == other.__doc__, name
        assert not inspect.iscoroutinefunction(other), name
        assert not inspect.isasyncgenfunction(other), name


def timeless(result: ExecutionResult) -> ExecutionResult:
    files = tuple(replace(info, modified=0.0) for info in result.artifacts)
    return replace(result, timings=Timings(), artifacts=files)


def script(code: str) -> str | ValueError:
    return ValueError(code) if code == 'fail' else code * 2


def sync_transcript() -> list[object]:
    with FakeSandbox(script) as box:
        box.upload(b'abc', name='f')
        return [
            timeless(box.execute('x')),
            timeless(box.execute('fail', timeout=3)),
            [event.kind for event in box.stream('y')],
            [replace(info, modified=0.0) for info in box.files()],
            box.read('f'),
            box.interrupt(),
            box.restart(),
            box.delete('f'),
            box.files(),
        ]


async def async_transcript() -> list[object]:
    async with AsyncFakeSandbox(script) as box:
        await box.upload(b'abc', name='f')
        return [
            timeless(await box.execute('x')),
            timeless(await box.execute('fail', timeout=3)),
            [event.kind async for event in box.stream('y')],
            [replace(info, modified=0.0) for info in await box.files()],
            await box.read('f'),
            await box.interrupt(),
            await box.restart(),
            await box.delete('f'),
            await box.files(),
        ]


def test_same_transcript():
    assert sync_transcript() == asyncio.run(async_transcript())


@pytest.mark.parametrize('face', [Sandbox, SandboxManager])
def test_every_argument_of_a_constructor_is_documented_where_it_is_looked_for(face):
    documented = inspect.getdoc(face).partition('Args:')[2].partition('Raises:')[0]
    names = re.findall(r'^    (\w+):', documented, re.MULTILINE)
    assert names == list(inspect.signature(face).parameters)
