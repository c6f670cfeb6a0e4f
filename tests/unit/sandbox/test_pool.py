"""The pool of warm machines, with a back end that starts, fails and loses them when told to."""

import asyncio
import logging
from collections.abc import Iterator

import pytest

import sandbox.pool
from sandbox import AsyncSandboxManager, FakeBackend, SandboxClosed, SandboxError, SandboxPolicy
from sandbox.backends.fake import FakeMachine
from sandbox.owner import POOL_LABEL, SESSION_LABEL
from sandbox.policy import HOST_SIDE
from sandbox.pool import StartQueue


class Machine(FakeMachine):
    """One that can be lost, and that knows how often it was used and removed."""

    def __init__(self, script, policy, labels):
        super().__init__(script, policy)
        self.labels = labels
        self.session = None
        self.lost = asyncio.Event()
        self.refusals = 0
        self.closed = 0

    def assign(self, session, policy):
        assert self.session is None, 'a machine is given away once'
        self.session = session
        super().assign(session, policy)

    async def gone(self):
        await self.lost.wait()

    def lose(self):
        self.loss = 'the test says so'
        self.lost.set()

    async def close(self):
        self.lost.set()  # whoever watches it sees its connections end
        await asyncio.sleep(0)
        if self.refusals:
            self.refusals -= 1
            raise SandboxError('not today')
        self.closed += 1
        assert self.closed == 1, 'a machine is removed once'


class Factory(FakeBackend):
    """Starts a machine for each permission that `allow` gives; by default as many as wanted."""

    def __init__(self, permissions=1_000_000):
        super().__init__()
        self.machines = []
        self.starting = self.most = self.asked = 0
        self.failure = None
        self._permissions = asyncio.Semaphore(permissions)

    def allow(self, count=1):
        for _ in range(count):
            self._permissions.release()

    @property
    def living(self):
        return [machine for machine in self.machines if not machine.closed]

    async def start(self, policy, *, labels):
        self.asked += 1
        self.starting += 1
        self.most = max(self.most, self.starting)
        try:
            await self._permissions.acquire()
            if self.failure:
                raise self.failure
            self.machines.append(Machine(self._script, policy, labels))
            return self.machines[-1]
        finally:
            self.starting -= 1


async def until(condition) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nothing tells of it but this
            await asyncio.sleep(0.001)


@pytest.fixture
def quick(monkeypatch) -> Iterator[None]:
    monkeypatch.setattr(sandbox.pool, '_SHORTEST_PAUSE', 0.01)
    monkeypatch.setattr(sandbox.pool, '_LONGEST_PAUSE', 0.02)


async def test_a_session_takes_a_warm_one_once_and_the_pool_is_refilled():
    backend = Factory()
    async with AsyncSandboxManager(backend=backend, warm=2) as manager:
        await manager.start()
        first, second = backend.machines
        assert [machine.labels.keys() for machine in backend.machines] == [{POOL_LABEL}] * 2
        box = await manager.session('a')
        assert box._machine is first
        assert first.session == 'a'
        await manager.start()
        assert (manager.ready, len(backend.machines)) == (2, 3)
        await manager.close_session('a')
        assert first.closed == 1
        assert (await manager.session('a'))._machine is second
    assert backend.living == []


async def test_without_a_pool_the_container_bears_the_name_of_its_session():
    backend = Factory()
    async with AsyncSandboxManager(backend=backend) as manager:
        await manager.session('a')
        assert dict(backend.machines[0].labels) == {SESSION_LABEL: 'a'}


async def test_entering_begins_to_fill_the_pool_but_does_not_wait():
    backend = Factory(permissions=0)
    async with AsyncSandboxManager(backend=backend, warm=1) as manager:
        assert manager.ready == 0
        backend.allow()
        await until(lambda: manager.ready == 1)


async def test_an_empty_pool_is_a_cold_start_and_what_is_ready_first_is_taken():
    backend = Factory(permissions=0)
    async with AsyncSandboxManager(backend=backend, warm=1) as manager:
        await until(lambda: backend.starting == 1)  # the refill
        asking = [asyncio.create_task(manager.session(name)) for name in 'abc']
        await until(lambda: backend.starting == 4)
        for number in range(3):
            backend.allow()
            await asking[number]  # first come, first served
            assert not any(task.done() for task in asking[number + 1 :])
        backend.allow()
        await until(lambda: manager.ready == 1)
        assert backend.asked == 4


async def test_starts_are_bounded_and_refills_leave_a_turn_to_who_waits():
    backend = Factory(permissions=0)
    async with AsyncSandboxManager(backend=backend, warm=8, start_concurrency=4) as manager:
        await until(lambda: backend.starting == 2)
        await asyncio.sleep(0.01)
        assert backend.starting == 2
        waiting = asyncio.create_task(manager.session('a'))
        await until(lambda: backend.starting == 3)
        others = [asyncio.create_task(manager.session(name)) for name in 'bcd']
        await until(lambda: backend.starting == 4)
        backend.allow(100)
        await asyncio.gather(waiting, *others)
        await until(lambda: manager.ready == 8)
        assert backend.most == 4


async def test_callers_get_turns_before_refills_and_in_order():
    turns, order = StartQueue(1), []

    async def start(name, refill):
        async with turns.turn(refill=refill):
            order.append(name)
            await asyncio.sleep(0)

    names = ['refill', 'r1', 'a', 'r2', 'b', 'c']
    tasks = [asyncio.create_task(start(name, name.startswith('r'))) for name in names]
    await asyncio.sleep(0)
    tasks[4].cancel()
    await asyncio.wait(tasks)
    assert order == ['refill', 'a', 'c', 'r1', 'r2']


async def test_one_that_is_lost_while_it_waits_is_replaced(quick):
    backend = Factory()
    async with AsyncSandboxManager(backend=backend, warm=2) as manager:
        await manager.start()
        backend.machines[0].lose()
        await until(lambda: len(backend.machines) == 3 and manager.ready == 2)
        assert backend.machines[0].closed == 1


async def test_one_that_was_lost_just_now_is_not_handed_out():
    backend = Factory()
    async with AsyncSandboxManager(backend=backend, warm=2) as manager:
        await manager.start()
        backend.machines[0].loss = 'nobody was told yet'
        assert (await manager.session('a'))._machine is backend.machines[1]
        await until(lambda: backend.machines[0].closed == 1)


async def test_one_that_does_not_answer_any_more_is_replaced(monkeypatch, quick):
    monkeypatch.setattr(sandbox.pool, '_PULSE', 0.01)
    backend = Factory()
    async with AsyncSandboxManager(backend=backend, warm=1) as manager:
        await manager.start()
        machine = backend.machines[0]

        async def probe():
            machine.loss = 'it is paused'

        machine.probe = probe
        await until(lambda: machine.closed == 1 and manager.ready == 1)


async def test_a_failed_refill_is_logged_once_and_tried_again(quick, caplog):
    backend = Factory()
    backend.failure = SandboxError('no engine')
    with caplog.at_level(logging.WARNING):
        async with AsyncSandboxManager(backend=backend, warm=3) as manager:
            with pytest.raises(SandboxError, match='no engine'):
                await manager.start()
            await until(lambda: backend.asked >= 9)
            backend.failure = None
            await until(lambda: manager.ready == 3)
    assert [record.message for record in caplog.records] == [
        'No warm sandbox could be started, it is tried again: no engine'
    ]


async def test_failed_refills_do_not_spin():
    backend = Factory()
    backend.failure = SandboxError('no engine')
    async with AsyncSandboxManager(backend=backend, warm=2) as manager:
        await until(lambda: backend.asked == 2)
        await asyncio.sleep(0.1)
        assert backend.asked == 2
        # Who asks for a session is no refill: it gets its own try, and its own error.
        with pytest.raises(SandboxError, match='no engine'):
            await manager.session('a')
        assert backend.asked == 3
        backend.failure = None
        await manager.session('a')


async def test_a_pool_that_has_failed_for_hours_still_tries_again(quick):
    backend = Factory()
    backend.failure = SandboxError('no engine')
    async with AsyncSandboxManager(backend=backend, warm=1) as manager:
        await until(lambda: manager._pool._failures)
        manager._pool._failures = 10_000  # two to that power is no float
        asked = backend.asked
        await until(lambda: backend.asked > asked + 2)
        backend.failure = None
        await until(lambda: manager.ready == 1)


async def test_the_failure_of_a_refill_is_nobody_elses():
    backend = Factory(permissions=0)
    async with AsyncSandboxManager(backend=backend, warm=1) as manager:
        await until(lambda: backend.starting == 1)
        waiting = asyncio.create_task(manager.session('a'))
        await until(lambda: backend.starting == 2)
        backend.failure = SandboxError('no')
        backend.allow()
        await until(lambda: backend.starting == 1)
        backend.failure = None
        backend.allow()
        assert (await waiting).id == 'a'


async def test_nobody_waits_for_a_refill_that_gets_no_turn(monkeypatch):
    monkeypatch.setattr(sandbox.pool, '_SHORTEST_PAUSE', 600.0)
    backend = Factory(permissions=0)
    async with AsyncSandboxManager(backend=backend, warm=4, start_concurrency=2) as manager:
        await until(lambda: backend.starting == 1)
        smaller = manager.policy.tighten(memory=manager.policy.memory // 2)
        other = asyncio.create_task(manager.session('other', policy=smaller))
        await until(lambda: backend.starting == 2)
        backend.failure = SandboxError('no')
        backend.allow()
        await until(lambda: backend.starting == 1)  # three refills are left, behind the other one
        backend.failure = None
        waiting = asyncio.create_task(manager.session('a'))
        await until(lambda: backend.starting == 2)
        backend.allow(2)
        assert [box.id for box in await asyncio.gather(waiting, other)] == ['a', 'other']


async def test_a_caller_that_gives_up_leaves_its_machine_to_the_next():
    backend = Factory(permissions=0)
    async with AsyncSandboxManager(backend=backend, warm=1) as manager:
        pool = manager._pool
        one, two = (asyncio.create_task(pool.machine(SandboxPolicy(), name)) for name in 'ab')
        await until(lambda: backend.starting == 3)
        one.cancel()
        backend.allow()
        await two
        last = asyncio.create_task(pool.machine(SandboxPolicy(), 'c'))
        await until(lambda: pool._waiting)
        backend.machines.append(Machine(backend._script, SandboxPolicy(), {}))
        pool._deliver(backend.machines[-1])
        last.cancel()  # in the very moment when it has got one
        with pytest.raises(asyncio.CancelledError):
            await last
        assert list(pool._ready) == backend.machines[-1:]
        backend.allow(10)
        await until(lambda: len(backend.machines) == backend.asked + 1)
        await until(lambda: not pool._removals)
        assert backend.living == backend.machines[:2]  # b's and the warm one
        await two.result().close()
    assert backend.living == []


@pytest.mark.parametrize('turns', range(0, 40, 3))
async def test_closing_in_the_middle_of_everything_leaves_nothing(turns):
    backend = Factory(permissions=turns % 5)
    manager = AsyncSandboxManager(backend=backend, warm=3, start_concurrency=2, max_sessions=4)
    asking = [asyncio.create_task(manager.session(str(number))) for number in range(6)]
    for _ in range(turns):
        await asyncio.sleep(0)
        if turns % 2:
            backend.allow()
    closing = asyncio.create_task(manager.close())
    backend.allow(10)
    await closing
    outcomes = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(each, SandboxClosed) or each.closed for each in outcomes)
    assert backend.living == []
    assert backend.starting == 0
    assert manager.ready == 0
    with pytest.raises(SandboxClosed):
        await manager.session('late')
    with pytest.raises(SandboxClosed):
        await manager.start()


async def test_what_could_not_be_removed_is_told_and_removed_by_the_next_close():
    backend = Factory()
    manager = AsyncSandboxManager(backend=backend, warm=2)
    await manager.start()
    backend.machines[0].refusals = 1
    with pytest.raises(SandboxError, match='1 warm sandboxes could not be removed: not today'):
        await manager.close()
    assert backend.living == backend.machines[:1]
    await manager.close()
    assert backend.living == []


async def test_no_more_warm_ones_than_wanted_are_kept():
    backend = Factory(permissions=0)
    async with AsyncSandboxManager(backend=backend, warm=1) as manager:
        asking = [asyncio.create_task(manager._pool.machine(SandboxPolicy(), 'a')) for _ in 'abc']
        await until(lambda: backend.starting == 4)
        for task in asking:
            task.cancel()
        backend.allow(10)
        await until(lambda: len(backend.machines) == 4 and len(backend.living) == 1)
        assert manager.ready == 1


async def test_a_session_that_lost_its_machine_takes_the_next_one():
    backend = Factory()
    async with AsyncSandboxManager(backend=backend, warm=1) as manager:
        await manager.start()
        box = await manager.session('a')
        box._machine.loss = 'gone'
        await manager.start()
        result = await box.execute('')
        assert 'gone' in result.notices[0]
        assert backend.machines[1].session == 'a'


async def test_sessions_beyond_the_limit_wait_in_order_with_a_pool_as_well():
    backend = Factory()
    async with AsyncSandboxManager(backend=backend, warm=2, max_sessions=1) as manager:
        await manager.start()
        await manager.session('a')
        waiting = [asyncio.create_task(manager.session(name)) for name in 'bc']
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in waiting)
        await (await manager.session('a')).close()  # by its user
        box = await waiting[0]
        assert not waiting[1].done()
        await manager.close_session(box.id)
        await waiting[1]
        assert len(backend.living) <= 3


async def test_what_the_host_enforces_may_change_on_a_warm_one_and_nothing_else():
    backend = Factory()
    policy = SandboxPolicy(network='full')
    async with AsyncSandboxManager(policy, backend, warm=1) as manager:
        await manager.start()
        box = await manager.session('a', policy=policy.tighten(timeout=1.0, output_chars=2_000))
        assert box._machine is backend.machines[0]
        assert box._machine._policy is box.policy
        await manager.start()
        strict = policy.tighten(network='none')
        other = (await manager.session('b', policy=strict))._machine
        assert other not in backend.machines[:2]
        assert other._policy is strict
        assert dict(other.labels) == {SESSION_LABEL: 'b'}
        assert manager.ready == 1


def test_each_field_is_enforced_by_the_host_or_by_the_sandbox():
    names = set(SandboxPolicy.__dataclass_fields__)
    assert names > HOST_SIDE
    in_the_sandbox = {'cpus', 'memory', 'pids', 'disk', 'tmp', 'shm', 'network', 'runtime', 'uid'}
    assert not HOST_SIDE & {*in_the_sandbox, 'env', 'orphan_grace', 'max_message_bytes'}
