"""A session's one machine at a time, its queue of calls, and whose process it is."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import AsyncSandbox, ExecutionResult, FakeBackend, FakeSandbox, Outcome, SandboxClosed
from sandbox.backends.fake import FakeMachine

ROOT = Path(__file__).parents[3]
LOST = ExecutionResult(Outcome.SANDBOX_LOST, state_preserved=False)
DIED = ExecutionResult(Outcome.KERNEL_DIED, state_preserved=False)


class GatedMachine(FakeMachine):
    """Cells whose code is 'wait' and removals wait for a gate, if there is one."""

    def __init__(self, script, policy) -> None:
        super().__init__(script, policy)
        self.running = asyncio.Event()
        self.cells = asyncio.Event()
        self.removals: list[asyncio.Event] = []
        self.closed = False

    async def run(self, code, *args):
        if code == 'wait':
            self.running.set()
            await self.cells.wait()
        return await super().run(code, *args)

    async def close(self) -> None:
        await asyncio.sleep(0)
        if self.removals:
            await self.removals.pop(0).wait()
        self.closed = True
        await super().close()


class GatedBackend(FakeBackend):
    def __init__(self, script=lambda _: '') -> None:
        super().__init__(script)
        self.machines: list[GatedMachine] = []
        self.starting, self.starts = asyncio.Event(), asyncio.Event()
        self.starts.set()

    async def start(self, policy, *, labels):
        self.starting.set()
        await self.starts.wait()
        self.machines.append(GatedMachine(self._script, policy))
        return self.machines[-1]


async def until(condition) -> None:
    while not condition():  # noqa: ASYNC110 - nothing tells of it but this
        await asyncio.sleep(0)


async def test_a_close_during_a_replacement_leaves_no_machine_behind():
    backend = GatedBackend([LOST])
    box = AsyncSandbox(backend=backend)
    await box.execute('')
    first, second = asyncio.Event(), asyncio.Event()
    backend.machines[0].removals = [first, second]
    cell = asyncio.create_task(box.execute(''))
    await until(lambda: len(backend.machines[0].removals) == 1)
    closing = asyncio.create_task(box.close())
    await until(lambda: not backend.machines[0].removals)
    first.set()
    with pytest.raises(SandboxClosed):
        await cell
    second.set()
    await closing
    assert [machine.closed for machine in backend.machines] == [True]


async def test_a_removal_that_ends_late_does_not_forget_the_next_machine():
    backend = GatedBackend([LOST])
    async with AsyncSandbox(backend=backend) as box:
        await box.execute('')
        first, late = asyncio.Event(), asyncio.Event()
        backend.machines[0].removals = [first, late]
        drops = [asyncio.create_task(box._drop_machine()) for _ in range(2)]
        await until(lambda: not backend.machines[0].removals)
        first.set()
        await drops[0]
        await box.start()
        late.set()
        await drops[1]
        assert box.container_id == backend.machines[1].id


async def test_a_call_that_only_waits_its_turn_is_cancelled_at_once():
    backend = GatedBackend()
    async with AsyncSandbox(backend=backend) as box:
        running = asyncio.create_task(box.execute('wait'))
        await backend.machines[0].running.wait()
        queued = asyncio.create_task(box.execute('1'))
        await asyncio.sleep(0)
        queued.cancel()
        await asyncio.wait({queued}, timeout=5)
        assert queued.cancelled()
        assert not running.done()
        backend.machines[0].cells.set()
        assert (await running).execution_count == 1
        assert (await box.execute('2')).execution_count == 2


@pytest.mark.parametrize('call', ['interrupt', 'restart'])
async def test_a_cell_that_waits_for_its_sandbox_is_not_begun(call):
    backend = GatedBackend()
    backend.starts.clear()
    async with asyncio.timeout(10):
        box = AsyncSandbox(backend=backend)
        cell = asyncio.create_task(box.execute('wait'))
        await backend.starting.wait()
        asked = asyncio.create_task(getattr(box, call)())
        await asyncio.sleep(0)
        backend.starts.set()
        result = await cell
        await asked
        assert (result.outcome, result.state_preserved) == (Outcome.INTERRUPTED, True)
        assert 'before it began' in result.notices[0]
        assert (await box.execute('')).execution_count == 1
        await box.close()


def test_a_restart_does_not_hide_that_files_are_gone():
    with FakeSandbox(['', LOST, 'x']) as box:
        box.execute('')
        box.execute('')
        box.restart()
        assert 'files from before it are lost' in box.execute('').notices[0]


def test_a_restart_tells_nobody_of_the_kernel_that_was_asked_for():
    script = iter(['', DIED, 'x'])
    with FakeSandbox(lambda _: next(script)) as box:
        box.execute('')
        box.execute('')
        box.restart()
        assert box.execute('').notices == ()


FORKED = """
import asyncio, os, traceback
from sandbox import AsyncSandbox, FakeBackend, Sandbox, SandboxError, SandboxManager

box, manager = Sandbox(backend=FakeBackend()), SandboxManager(backend=FakeBackend())
box.upload(b'x', name='f')
managed = manager.session('a')
stream = box.stream('')
next(stream)

def refused(call, *args):
    try:
        call(*args)
    except SandboxError as error:
        assert 'fork' in str(error), error
    else:
        raise AssertionError(call)

def child():
    refused(box.execute, '1')
    refused(next, box.stream('1'))
    refused(next, stream)
    stream.close()
    for call in (box.start, box.interrupt, box.restart, box.files):
        refused(call)
    refused(box.read, 'f')
    refused(manager.session, 'a')
    refused(manager.session, 'b')
    refused(manager.close_session, 'a')
    box.close()
    managed.close()
    manager.close()
    with Sandbox(backend=FakeBackend()) as own:
        assert own.execute('1').ok

pid = os.fork()
if pid == 0:
    try:
        child()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
stream.close()
assert box.read('f') == b'x'
assert manager.sessions() == ['a'] and managed.execute('1').ok
box.close()
manager.close()
assert box.closed and managed.closed
"""


def test_a_forked_child_leaves_the_sandboxes_of_its_parent_alone():
    subprocess.run(
        [sys.executable, '-W', 'ignore::DeprecationWarning', '-c', FORKED],
        check=True,
        timeout=60,
        cwd=ROOT,
    )


async def test_a_session_is_busy_while_its_files_are_used():
    backend = FakeBackend()
    async with AsyncSandbox(backend=backend) as box:
        going, gate = asyncio.Event(), asyncio.Event()

        async def read(*_: object):
            going.set()
            await gate.wait()
            yield b'x'

        box._machine.files.read = read
        box.last_used = 0.0
        reading = asyncio.create_task(box.read('f'))
        await going.wait()
        assert box.busy
        assert box.last_used > 0.0
        box.last_used = 0.0
        gate.set()
        assert await reading == b'x'
        assert not box.busy
        assert box.last_used > 0.0


async def test_an_upload_is_no_artifact_and_costs_no_listing(monkeypatch):
    async with AsyncSandbox(backend=FakeBackend()) as box:
        await box.execute('')
        listings = []
        listing = box._machine.files.list

        async def counted(*args, **options):
            listings.append(args)
            return await listing(*args, **options)

        monkeypatch.setattr(box._machine.files, 'list', counted)
        info = await box.upload(b'data', name='a')
        assert (info.size, info.modified > 1e9, listings) == (4, True, [])
        assert (await box.execute('')).artifacts == ()
        assert await box.files() == [info]


async def test_a_machine_that_knows_of_no_change_is_not_asked_for_its_files():
    backend = GatedBackend()
    async with AsyncSandbox(backend=backend) as box:
        assert (await box.execute('1')).artifacts == ()
        (machine,) = backend.machines
        data = b'made by a cell that says nothing of it'

        async def chunks():
            yield data

        await machine.files.write('new.txt', len(data), chunks())
        machine.unchanged = True
        assert (await box.execute('2')).artifacts == ()
        machine.unchanged = False
        assert [info.path for info in (await box.execute('3')).artifacts] == ['new.txt']
