"""In what order cells begin, and that nobody keeps the others from it."""

import asyncio
from contextlib import suppress

import pytest

from sandbox import AsyncSandbox, FakeBackend, admission
from sandbox.admission import Admission, own_admission


@pytest.fixture(autouse=True)
def long(monkeypatch):
    monkeypatch.setattr(admission, '_FIRST', 600)


class Cells:
    """Cells that last until they are let go."""

    def __init__(self, places: int) -> None:
        self.admission = Admission(places)
        self.begun: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}

    def ask(self, name: str) -> 'asyncio.Task[None]':
        async def run() -> None:
            with await self.admission.admit():
                self.begun.append(name)
                await self.ends[name].wait()

        self.ends[name] = asyncio.Event()
        return asyncio.create_task(run())

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await settled()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_cells_begin_in_the_order_asked():
    cells = Cells(2)
    tasks = [cells.ask(name) for name in 'abcd']
    await settled()
    assert cells.begun == ['a', 'b']
    await cells.end('b')
    assert cells.begun == ['a', 'b', 'c']
    late = cells.ask('e')
    for name in 'adc':
        await cells.end(name)
    assert cells.begun == ['a', 'b', 'c', 'd', 'e']
    await cells.end('e')
    await asyncio.gather(*tasks, late)
    assert cells.admission._free == 2
    assert not cells.admission._waiting


async def test_a_long_cell_makes_room_while_it_runs(monkeypatch):
    monkeypatch.setattr(admission, '_FIRST', 0.01)
    cells = Cells(1)
    tasks = [cells.ask(name) for name in 'ab']
    async with asyncio.timeout(10):
        while cells.begun != ['a', 'b']:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
    for name in 'ab':
        cells.ends[name].set()
    await asyncio.gather(*tasks)
    assert cells.admission._free == 1


@pytest.mark.parametrize('has_turn', [True, False])
async def test_who_is_cancelled_while_waiting_keeps_no_place(has_turn):
    cells = Cells(1)
    first, second, third = (cells.ask(name) for name in 'abc')
    await settled()
    if has_turn:
        cells.ends['a'].set()
        await asyncio.sleep(0)  # the place is given to the second, which has not run since
    second.cancel()
    cells.ends['a'].set()
    with suppress(asyncio.CancelledError):
        await second
    await settled()
    assert cells.begun == ['a', 'c']
    await cells.end('c')
    await asyncio.gather(first, third)
    assert cells.admission._free == 1


async def test_a_cell_that_waits_can_be_stopped_and_says_that_it_was_queued(monkeypatch):
    shared = own_admission()
    places = [await shared.admit() for _ in range(shared._free)]
    async with AsyncSandbox(backend=FakeBackend(lambda code: code.upper())) as box:
        waiting = asyncio.create_task(box.execute('a'))
        await settled()
        await box.interrupt()
        queued = asyncio.create_task(box.execute('b'))
        await settled()
        assert not waiting.done()
        for place in places:
            place.__exit__()
        stopped, result = await waiting, await queued
    assert (stopped.outcome, result.text) == ('interrupted', 'B')
    assert result.timings is not None
    assert result.timings.queued > 0
