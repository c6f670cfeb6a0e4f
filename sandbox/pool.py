"""Warm machines: started, hardened, connected and never used. One that was used is never kept.

Machines of a pool are started without a name and go to whoever is first in line: a session that
finds the pool empty asks for one more start and takes what is ready first, be it a refill that was
under way. So a pool never makes anybody wait longer than a start of his own would take.

Nothing here runs by itself: every change ends in `Pool.tend`, which starts what is missing.
"""

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import fields

from sandbox.backends.base import Backend
from sandbox.errors import SandboxClosed, SandboxError
from sandbox.kernel.contract import Machine
from sandbox.kernel.machine import open_machine
from sandbox.owner import POOL_LABEL, SESSION_LABEL
from sandbox.policy import HOST_SIDE, SandboxPolicy
from sandbox.sweep import sweep_soon

_LOG = logging.getLogger(__name__)

_PULSE = 30.0  # seconds between looks at a machine that waits
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0  # seconds until a failed refill is tried again
_DOUBLINGS = 5


async def cold_start(backend: Backend, policy: SandboxPolicy, session: str) -> Machine:
    """Start a machine for a session.

    Raises:
        SandboxError: It could not be started; nothing is left.
    """
    return await _start(backend, policy, {SESSION_LABEL: session})


async def _start(backend: Backend, policy: SandboxPolicy, labels: Mapping[str, str]) -> Machine:
    try:
        return await open_machine(backend, policy, labels)
    finally:
        sweep_soon(backend.name)  # by now `'auto'` has chosen


class StartQueue:
    """Lets so many machines start at a time.

    Those that somebody waits for come first, in order. Refills take turns that are left over, and
    no more than half of them: the cells that run meanwhile need the processors as well.

    Args:
        limit: Starts at a time.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._running = 0
        self._wanted: deque[asyncio.Future[None]] = deque()
        self._refills: deque[asyncio.Future[None]] = deque()

    @contextlib.asynccontextmanager
    async def turn(self, *, refill: bool = False) -> AsyncIterator[None]:
        """Wait for a turn, and hold it for the length of a block."""
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._refills if refill else self._wanted).append(ticket)
        self._call_next()
        try:
            await ticket
            yield
        finally:
            if not ticket.cancelled():
                self._running -= 1
                self._call_next()

    def _call_next(self) -> None:
        for queue, limit in (
            (self._wanted, self._limit),
            (self._refills, max(1, self._limit // 2)),
        ):
            while queue and self._running < limit:
                if not (ticket := queue.popleft()).done():
                    self._running += 1
                    ticket.set_result(None)


class Pool:
    """Gives machines to the sessions of a manager, warm ones where it can.

    It belongs to the event loop that first asks it for a machine.

    Args:
        backend: Starts the machines.
        policy: What each may use and do.
        name: Tells its containers from those of other managers.
        warm: Machines to hold ready.
        start_concurrency: Starts at a time, of all kinds together.
    """

    def __init__(
        self,
        backend: Backend,
        policy: SandboxPolicy,
        name: str,
        *,
        warm: int,
        start_concurrency: int,
    ) -> None:
        self._backend, self._policy, self._name, self._warm = backend, policy, name, warm
        self._turns = StartQueue(start_concurrency)
        self._ready: dict[Machine, asyncio.Task[None]] = {}  # oldest first; who watches each
        self._waiting: deque[asyncio.Future[Machine]] = deque()
        self._starting: dict[asyncio.Task[Machine], bool] = {}  # whether each is a refill
        self._removals: set[asyncio.Task[None]] = set()
        self._left: dict[Machine, Exception] = {}  # could not be removed, and why
        self._full: asyncio.Future[None] | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._failures = 0
        self._closed = False

    @property
    def ready(self) -> int:
        """How many warm machines wait for a session."""
        return len(self._ready)

    async def machine(self, policy: SandboxPolicy, session: str) -> Machine:
        """Return a machine for a session.

        It is a warm one where the policy lets it be: what a running sandbox enforces itself cannot
        be changed any more, only what the host does about it.

        Args:
            policy: The session's policy.
            session: The session's name.

        Raises:
            SandboxClosed: The pool was closed.
            SandboxError: No machine could be started.
        """
        if self._warm and _same_sandbox(policy, self._policy):
            machine = await self._next()
            machine.assign(session, policy)
            return machine
        async with self._turns.turn():
            self._check_open()
            return await cold_start(self._backend, policy, session)

    async def fill(self) -> None:
        """Wait until as many machines as wanted are ready.

        Raises:
            SandboxClosed: The pool was closed.
            SandboxError: A machine could not be started; it is tried again all the same.
        """
        self._check_open()
        self._end_pause()
        if len(self._ready) < self._warm:
            if self._full is None or self._full.done():
                self._full = asyncio.get_running_loop().create_future()
            self.tend()
            await asyncio.shield(self._full)

    def tend(self) -> None:
        """Start what is missing."""
        if self._closed:
            return
        wanted = max(0, len(self._waiting) - self._starts_for_sessions())
        total = len(self._waiting) + max(0, self._warm - len(self._ready)) - len(self._starting)
        refills = 0 if self._pause else max(0, total - wanted)
        for refill in [False] * wanted + [True] * refills:
            task = asyncio.create_task(self._start(refill=refill), name='sandbox-warm-up')
            self._starting[task] = refill
            task.add_done_callback(self._started)

    def _starts_for_sessions(self) -> int:
        # A refill may be ready first, but as long as others start it may not even get its turn.
        return sum(not refill for refill in self._starting.values())

    async def close(self) -> None:
        """Remove all machines that no session has. May be repeated.

        Raises:
            SandboxError: Some may still be there; call again.
        """
        self._closed = True
        self._end_pause()
        closed = SandboxClosed('the manager is closed.', hint='Make a new SandboxManager.')
        while self._waiting:
            _fail(self._waiting.popleft(), closed)
        _fail(self._full, closed)
        for task in self._starting:
            task.cancel()
        if self._starting:
            await asyncio.wait(self._starting)
        for machine in [*self._ready, *self._left]:
            self._remove(machine)
        while self._removals:
            await asyncio.wait(self._removals)
        if self._left:
            error = next(iter(self._left.values()))
            raise SandboxError(
                f'{len(self._left)} warm sandboxes could not be removed: {error}',
                hint='Call close() again.',
            ) from error

    def _check_open(self) -> None:
        if self._closed:
            raise SandboxClosed('the manager is closed.', hint='Make a new SandboxManager.')

    async def _next(self) -> Machine:
        self._check_open()
        while self._ready:
            machine = next(iter(self._ready))
            if machine.loss is None and machine.has_kernel:
                self._ready.pop(machine).cancel()
                self.tend()
                return machine
            self._remove(machine)
        place: asyncio.Future[Machine] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self.tend()
        try:
            return await place
        except asyncio.CancelledError:
            if place.cancelled():
                with contextlib.suppress(ValueError):  # its turn came in this very moment
                    self._waiting.remove(place)
            elif place.exception() is None:
                self._deliver(place.result())
            raise

    async def _start(self, *, refill: bool) -> Machine:
        async with self._turns.turn(refill=refill):
            machine = await _start(self._backend, self._policy, {POOL_LABEL: self._name})
            if refill:
                await self._preload(machine)
            return machine

    async def _preload(self, machine: Machine) -> None:
        try:
            await machine.warm()
        except BaseException:
            await machine.close()
            raise

    def _started(self, task: asyncio.Task[Machine]) -> None:
        del self._starting[task]
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._failed(error)
        else:
            self._failures = 0
            self._deliver(task.result())
            for machine in list(self._left):
                self._remove(machine)
        self.tend()

    def _deliver(self, machine: Machine) -> None:
        while self._waiting:
            if not (place := self._waiting.popleft()).done():
                place.set_result(machine)
                return
        if self._closed or len(self._ready) >= self._warm:
            self._remove(machine)
            return
        self._ready[machine] = asyncio.create_task(self._watch(machine), name='sandbox-watch')
        if len(self._ready) >= self._warm and self._full is not None and not self._full.done():
            self._full.set_result(None)

    def _failed(self, error: BaseException) -> None:
        # As long as there is a start for each who waits, nobody is failed by this one.
        if self._starts_for_sessions() < len(self._waiting):
            _fail(self._waiting.popleft(), error)
        _fail(self._full, error)
        if self._pause is None:
            self._failures += 1
            if self._failures == 1 and self._warm:
                _LOG.warning('No warm sandbox could be started, it is tried again: %s', error)
            # Bounded before it is used: after half a day of failures it would be no float any more.
            doublings = min(self._failures - 1, _DOUBLINGS)
            self._rest(min(_LONGEST_PAUSE, _SHORTEST_PAUSE * 2**doublings))

    def _rest(self, longest: float) -> None:
        """Start no refills for a while."""
        if self._pause is None and not self._closed:
            seconds = longest * random.uniform(0.5, 1.0)  # noqa: S311 - only to spread them
            self._pause = asyncio.get_running_loop().call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._end_pause()
        self.tend()

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    async def _watch(self, machine: Machine) -> None:
        """Replace a machine that is lost while it waits."""
        while machine.loss is None:
            try:
                async with asyncio.timeout(_PULSE):
                    await machine.gone()
                    break
            except TimeoutError:
                await machine.probe()
        _LOG.info('A warm sandbox was lost, another one takes its place: %s', machine.id)
        self._remove(machine)
        self._rest(_SHORTEST_PAUSE)  # whatever has ended it may end the next one as well
        self.tend()

    def _remove(self, machine: Machine) -> None:
        watch = self._ready.pop(machine, None)
        if watch is not None and watch is not asyncio.current_task():
            watch.cancel()  # else it would see a loss in this
        self._left.pop(machine, None)
        task = asyncio.create_task(self._removed(machine), name='sandbox-warm-removal')
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)

    async def _removed(self, machine: Machine) -> None:
        try:
            await machine.close()
        except Exception as error:  # noqa: BLE001 - told when the pool is closed
            _LOG.warning('A warm sandbox could not be removed; it is tried again: %s', error)
            self._left[machine] = error


def _fail(
    future: 'asyncio.Future[Machine] | asyncio.Future[None] | None', error: BaseException
) -> None:
    if future is not None and not future.done():
        future.set_exception(error)
        future.exception()  # nobody may be left who waits for it


def _same_sandbox(one: SandboxPolicy, other: SandboxPolicy) -> bool:
    names = {field.name for field in fields(one)} - HOST_SIDE
    return one is other or all(getattr(one, name) == getattr(other, name) for name in names)
