import asyncio
import gc
import threading
import tracemalloc

import pytest

from sandbox import (
    AsyncSandboxManager,
    CapacityExceeded,
    FakeBackend,
    PolicyError,
    SandboxClosed,
    SandboxError,
    SandboxManager,
    SandboxPolicy,
)
from sandbox.backends.fake import FakeMachine
from sandbox.policy import MIB


class SlowBackend(FakeBackend):
    """Counts its starts, and lets other tasks run meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.started = 0

    async def start(self, policy, *, labels):
        self.started += 1
        await asyncio.sleep(0.01)
        return await super().start(policy, labels=labels)


class StubbornMachine(FakeMachine):
    """Cannot be removed the first time."""

    refusals = 1

    async def close(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise SandboxError('the engine does not answer')
        await super().close()


class StubbornBackend(FakeBackend):
    async def start(self, policy, *, labels):
        return StubbornMachine(self._script, policy)


async def test_the_same_id_is_the_same_session_even_when_asked_at_once():
    backend = SlowBackend()
    async with AsyncSandboxManager(backend=backend) as manager:
        boxes = await asyncio.gather(*(manager.session('a') for _ in range(10)))
        assert len({id(box) for box in boxes}) == 1
        assert backend.started == 1
        assert await manager.session('b') is not boxes[0]
        assert manager.sessions() == ['a', 'b']
        assert boxes[0].id == 'a'


async def test_a_caller_that_gives_up_does_not_take_the_session_from_others():
    async with AsyncSandboxManager(backend=SlowBackend()) as manager:
        first = asyncio.create_task(manager.session('a'))
        second = asyncio.create_task(manager.session('a'))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).id == 'a'


async def test_at_capacity_a_session_waits_its_turn_and_not_for_ever():
    async with AsyncSandboxManager(
        backend=FakeBackend(), max_sessions=1, acquire_timeout=0.05
    ) as manager:
        await manager.session('a')
        with pytest.raises(CapacityExceeded, match=r'(?s)=1 are in use.*lower idle_ttl'):
            await manager.session('b')
        manager.acquire_timeout = 30.0
        waiting = [asyncio.create_task(manager.session(name)) for name in 'bc']
        await asyncio.sleep(0)
        await manager.close_session('a')
        assert (await waiting[0]).id == 'b'
        assert not waiting[1].done()
        await manager.close_session('b')
        assert (await waiting[1]).id == 'c'


async def test_a_start_that_fails_gives_its_place_back():
    class Broken(FakeBackend):
        async def start(self, policy, *, labels):
            raise SandboxError('no')

    async with AsyncSandboxManager(backend=Broken(), max_sessions=1) as manager:
        for _ in range(3):
            with pytest.raises(SandboxError, match='no'):
                await manager.session('a')
        assert manager.sessions() == []


async def test_an_idle_session_is_closed_and_the_next_one_says_so():
    async with AsyncSandboxManager(backend=FakeBackend(), idle_ttl=0.05) as manager:
        box = await manager.session('a')
        while not box.closed:  # noqa: ASYNC110 - nothing tells of it but this
            await asyncio.sleep(0.01)
        with pytest.raises(SandboxClosed):
            await box.execute('')
        manager.idle_ttl = 100.0
        result = await (await manager.session('a')).execute('')
        assert 'idle' in result.notices[0]
        assert not result.state_preserved
        assert (await (await manager.session('a')).execute('')).notices == ()


async def test_a_session_closed_by_its_user_is_replaced():
    async with AsyncSandboxManager(backend=FakeBackend(), max_sessions=1) as manager:
        box = await manager.session('a')
        await box.close()
        assert await manager.session('a') is not box


async def test_a_session_that_cannot_be_removed_is_kept():
    manager = AsyncSandboxManager(backend=StubbornBackend())
    box = await manager.session('a')
    with pytest.raises(SandboxError, match='does not answer'):
        await manager.close_session('a')
    assert not box.closed
    assert manager.sessions() == ['a']
    await manager.close_session('a')
    assert box.closed
    await manager.session('b')
    with pytest.raises(SandboxError, match='1 session could not be removed'):
        await manager.close()
    await manager.close()
    await manager.close()
    assert manager.sessions() == []
    with pytest.raises(SandboxClosed):
        await manager.session('c')


async def test_closing_ends_those_who_wait():
    manager = AsyncSandboxManager(backend=FakeBackend(), max_sessions=1)
    await manager.session('a')
    waiting = asyncio.create_task(manager.session('b'))
    await asyncio.sleep(0)
    await manager.close()
    with pytest.raises(SandboxClosed):
        await waiting


async def test_a_manager_shows_what_it_holds():
    async with AsyncSandboxManager(backend=FakeBackend(), max_sessions=3, warm=1) as manager:
        await manager.session('a')
        await manager.start()
        assert repr(manager) == '<AsyncSandboxManager on fake: 1 of 3 sessions, 1 of 1 warm>'
    assert repr(manager) == '<AsyncSandboxManager on fake: closed>'


@pytest.mark.parametrize(
    'options',
    [
        {'max_sessions': 0},
        {'idle_ttl': 0.0},
        {'acquire_timeout': -1.0},
        {'warm': -1},
        {'start_concurrency': 0},
    ],
)
def test_arguments_are_checked(options):
    with pytest.raises(ValueError, match='must be'):
        SandboxManager(backend=FakeBackend(), **options)


def test_threads_share_a_session():
    backend = SlowBackend()
    with SandboxManager(backend=backend) as manager:
        boxes = []
        threads = [
            threading.Thread(target=lambda: boxes.append(manager.session('a'))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({id(box) for box in boxes}) == 1
        assert backend.started == 1
    assert boxes[0].closed


async def test_two_who_close_a_session_do_not_take_the_next_one_of_its_id():
    first, late = asyncio.Event(), asyncio.Event()
    gates = [first, late]

    class Slow(FakeMachine):
        async def close(self) -> None:
            if gates:
                await gates.pop(0).wait()

    class Backend(FakeBackend):
        async def start(self, policy, *, labels):
            return Slow(self._script, policy)

    async with AsyncSandboxManager(backend=Backend(), max_sessions=1) as manager:
        await manager.session('a')
        closing = [asyncio.create_task(manager.close_session('a')) for _ in range(2)]
        while gates:  # noqa: ASYNC110 - nothing tells of it but this
            await asyncio.sleep(0)
        first.set()
        await closing[0]
        box = await manager.session('a')
        late.set()
        await closing[1]
        assert manager.sessions() == ['a']
        assert await manager.session('a') is box


async def test_an_idle_session_that_fails_in_an_unforeseen_way_is_tried_again(caplog):
    class Odd(StubbornMachine):
        async def close(self) -> None:
            if self.refusals:
                self.refusals -= 1
                raise RuntimeError('unforeseen')
            await super().close()

    class Backend(FakeBackend):
        async def start(self, policy, *, labels):
            return Odd(self._script, policy)

    async with AsyncSandboxManager(backend=Backend(), idle_ttl=0.05) as manager:
        box = await manager.session('a')
        async with asyncio.timeout(10):
            while not box.closed:  # noqa: ASYNC110 - nothing tells of it but this
                await asyncio.sleep(0.01)
    assert "session 'a' could not be closed" in caplog.text


async def test_a_session_may_ask_for_a_stricter_policy_and_for_no_other():
    base = SandboxPolicy(memory=512 * MIB, network='full')
    async with AsyncSandboxManager(base, FakeBackend()) as manager:
        strict = base.tighten(network='none', timeout=5.0)
        box = await manager.session('a', policy=strict)
        assert box.policy == strict
        assert await manager.session('a') is box
        assert await manager.session('a', policy=base.tighten(network='none', timeout=5.0)) is box
        with pytest.raises(
            PolicyError, match=r"'a' is open with another policy \(network, timeout"
        ):
            await manager.session('a', policy=base)
        with pytest.raises(PolicyError, match=r'memory=\d+ would loosen'):
            await manager.session('b', policy=SandboxPolicy(memory=1024 * MIB))
        assert manager.sessions() == ['a']
        assert (await manager.session('b', policy=base)).policy is base
        with pytest.raises(PolicyError, match='another policy'):
            await asyncio.gather(
                manager.session('c', policy=strict), manager.session('c', policy=base)
            )
        assert manager.sessions() == ['a', 'b', 'c']


async def test_a_manager_forgets_the_sessions_it_has_seen():
    async with AsyncSandboxManager(backend=FakeBackend(), warm=2, max_sessions=4) as manager:

        async def visit(first: int, count: int) -> None:
            for number in range(first, first + count):
                await manager.session(f'user-{number}')
                await manager.close_session(f'user-{number}')

        await visit(0, 200)
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            await visit(200, 2_000)
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert grown < 60_000  # 30 bytes a session: not even its name is kept


async def test_idle_sessions_are_remembered_up_to_a_bound():
    async with AsyncSandboxManager(backend=FakeBackend(), max_sessions=4) as manager:
        for number in range(1_200):
            box = await manager.session(f'user-{number}')
            box.last_used -= 10_000.0
            await manager._visit(box.id, box)
        assert len(manager._expired) == 1_000


async def test_a_session_closed_by_its_user_gives_its_place_to_the_next():
    async with AsyncSandboxManager(backend=FakeBackend(), max_sessions=1) as manager:
        box = await manager.session('a')
        waiting = asyncio.create_task(manager.session('b'))
        await asyncio.sleep(0)
        await box.close()
        assert (await waiting).id == 'b'
        assert manager.sessions() == ['b']


def test_entering_a_blocking_manager_begins_to_fill_its_pool():
    with SandboxManager(backend=FakeBackend(), warm=3) as manager:
        manager.start()
        assert manager.ready == 3
        first = manager.session('a')
        assert first.execute('').ok
    assert first.closed
    assert manager.ready == 0
