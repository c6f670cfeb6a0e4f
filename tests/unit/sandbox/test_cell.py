"""When a cell counts as ended: by its reply and "idle", or by what says that one is lost."""

import asyncio
import json
import weakref

import pytest

from sandbox.kernel import client
from sandbox.kernel.client import Cell
from sandbox.kernel.collector import Collector
from sandbox.kernel.verdict import Ending, notices, outcome
from sandbox.kernel.wire import Incoming
from sandbox.policy import SandboxPolicy
from sandbox.types import Outcome, Truncation

IDLE = {'execution_state': 'idle'}


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(client, '_IDLE_PATIENCE', 0.05)


@pytest.fixture
async def cell() -> Cell:
    return Cell('id', Collector(SandboxPolicy()))


def message(kind: str, content: dict) -> Incoming:
    return Incoming(kind, 'id', json.dumps(content).encode())


async def ended(cell: Cell) -> None:
    told = asyncio.Event()
    cell.on_ended = told.set
    if not cell.ended:
        async with asyncio.timeout(10):
            await told.wait()
    assert cell.ended


async def test_reply_and_idle_end_a_cell_at_once(cell):
    cell.on_iopub(message('status', IDLE))
    assert not cell.ended
    cell.on_shell(message('execute_reply', {'status': 'ok'}))
    assert cell.ended


async def test_a_reply_without_idle_ends_it_after_a_silence(cell):
    cell.on_shell(message('execute_reply', {'status': 'ok'}))
    assert not cell.ended
    await ended(cell)


async def test_nothing_keeps_a_cell_that_has_ended(monkeypatch):
    monkeypatch.setattr(client, '_IDLE_PATIENCE', 600)
    cell = Cell('id', Collector(SandboxPolicy()))
    cell.on_shell(message('execute_reply', {'status': 'ok'}))
    cell.on_iopub(message('status', IDLE))
    assert cell.ended
    kept = weakref.ref(cell)
    del cell
    assert kept() is None


@pytest.mark.parametrize('idle_first', [True, False])
async def test_a_reply_that_could_not_be_read_ends_an_idle_cell_after_a_silence(cell, idle_first):
    if idle_first:
        cell.on_iopub(message('status', IDLE))
    cell.on_unreadable(20_000_000, may_be_reply=True)
    await asyncio.sleep(0.2)
    assert cell.ended == idle_first
    if not idle_first:
        cell.on_iopub(message('status', IDLE))
    await ended(cell)
    assert cell.collector.truncated() == Truncation(bytes=20_000_000, messages=1)
    ending = Ending(output_ended=cell.idle)
    assert (outcome(ending), ending.state_preserved) == (Outcome.UNKNOWN, True)
    assert notices(ending, SandboxPolicy()) == ['the kernel did not say whether the cell succeeded']


async def test_the_reply_may_come_after_a_message_that_could_not_be_read(cell):
    cell.on_iopub(message('status', IDLE))
    cell.on_unreadable(0, may_be_reply=True)
    assert not cell.ended
    cell.on_shell(message('execute_reply', {'status': 'ok'}))
    assert cell.ended


async def test_output_that_could_not_be_read_ends_nothing(cell):
    cell.on_iopub(message('status', IDLE))
    cell.on_unreadable(20_000_000, may_be_reply=False)
    await asyncio.sleep(0.2)
    assert not cell.ended
