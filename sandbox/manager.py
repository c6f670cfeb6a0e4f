"""`SandboxManager` and `AsyncSandboxManager`: sessions by id, made on demand, closed when idle."""

import asyncio
import functools
import logging
import os
import secrets
import time
from collections import OrderedDict
from dataclasses import fields
from types import TracebackType
from typing import Generic, Self, TypeVar

from sandbox.backends import Backend, get_backend
from sandbox.core import Session, check_process
from sandbox.counts import many
from sandbox.errors import CapacityExceeded, PolicyError, SandboxClosed, SandboxError
from sandbox.policy import SandboxPolicy
from sandbox.pool import Pool
from sandbox.portal import blocking
from sandbox.session import AsyncSandbox, Sandbox
from sandbox.survival import Survival
from sandbox.uncopied import Uncopied

Box = TypeVar('Box', bound=Session)

_MAX_REMEMBERED = 1_000
_LONGEST_SWEEP = 30.0

_LOG = logging.getLogger(__name__)


class Manager(Uncopied, Generic[Box]):
    """What both faces share; see `SandboxManager`."""

    _box: type[Box]

    def __init__(
        self,
        policy: SandboxPolicy = SandboxPolicy(),  # noqa: B008 - it is a frozen value
        backend: str | Backend = 'docker',
        image: str | None = None,
        *,
        max_sessions: int = 32,
        warm: int = 0,
        start_concurrency: int = 4,
        idle_ttl: float = 900.0,
        acquire_timeout: float = 30.0,
        unsafe: bool = False,
        survival: Survival | None = None,
    ) -> None:
        if max_sessions < 1 or idle_ttl <= 0 or acquire_timeout < 0:
            raise PolicyError('max_sessions and idle_ttl must be positive, acquire_timeout >= 0.')
        if warm < 0 or start_concurrency < 1:
            raise PolicyError('warm must be >= 0, and start_concurrency positive.')
        self.survival = survival
        self.policy = policy = self._applied(policy)
        self.max_sessions = max_sessions
        self.warm = warm
        self.idle_ttl = idle_ttl
        self.acquire_timeout = acquire_timeout
        self._backend = get_backend(backend, image=image, unsafe=unsafe)
        self._pool = Pool(
            self._backend,
            policy,
            secrets.token_hex(6),
            warm=warm,
            start_concurrency=start_concurrency,
        )
        self._places = asyncio.Semaphore(max_sessions)
        self._boxes: dict[str, Box] = {}
        self._opening: dict[str, asyncio.Task[Box]] = {}
        self._expired: OrderedDict[str, float] = OrderedDict()
        self._sweeper: asyncio.Task[None] | None = None
        self._closed = False
        self._process = os.getpid()

    def __repr__(self) -> str:
        state = (
            'closed'
            if self._closed
            else f'{len(self._boxes)} of {many(self.max_sessions, "session")}, '
            f'{self.ready} of {self.warm} warm'
        )
        return f'<{type(self).__name__} on {self._backend.name}: {state}>'

    @property
    def closed(self) -> bool:
        """Whether the manager was closed."""
        return self._closed

    @property
    def ready(self) -> int:
        """How many warm sandboxes wait for a session."""
        return self._pool.ready

    def sessions(self) -> list[str]:
        """Return the ids of the sessions that are open."""
        return sorted(self._boxes)

    def _applied(self, policy: SandboxPolicy) -> SandboxPolicy:
        return policy if self.survival is None else self.survival.applied(policy)

    async def _begin(self) -> None:
        self._check_open()
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(), name='sandbox-sweeper')
            self._pool.tend()

    def _check_open(self) -> None:
        check_process('the manager', self._process)
        if self._closed:
            raise SandboxClosed('the manager is closed.', hint='Make a new SandboxManager.')

    async def _open(self, id: str, policy: SandboxPolicy) -> Box:  # noqa: A002 - the public name
        if id in self._boxes:  # closed by its user
            await self._boxes[id]._shut()
        box = self._box(policy, self._backend, id=id, survival=self.survival)
        box._source = self._pool.machine
        try:
            async with asyncio.timeout(self.acquire_timeout):
                await self._places.acquire()
        except TimeoutError:
            raise CapacityExceeded(
                f'max_sessions={self.max_sessions} are in use and none became free within '
                f'{self.acquire_timeout:g} s.',
                hint='Close a session, raise max_sessions or acquire_timeout, or lower idle_ttl.',
            ) from None
        try:
            self._check_open()
            await box._any_machine()
        except BaseException:
            self._places.release()
            raise
        if (idle := self._expired.pop(id, None)) is not None:
            box._note(
                f'the session had been idle for {idle:.0f} s and was closed; this is a new one: '
                'variables, imports and files from before are lost'
            )
        self._boxes[id] = box
        box._on_closed = functools.partial(self._closed_box, box)
        return box

    def _closed_box(self, box: Box) -> None:
        if self._boxes.get(box.id) is box:  # it may be another one by now
            del self._boxes[box.id]
            self._places.release()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(self.idle_ttl / 4, _LONGEST_SWEEP))
            for id_, box in list(self._boxes.items()):
                try:
                    await self._visit(id_, box)
                except Exception:  # noqa: BLE001 - the other sessions still need it
                    _LOG.warning(
                        'session %r could not be closed; it is tried again', id_, exc_info=True
                    )

    async def _visit(self, id: str, box: Box) -> None:  # noqa: A002 - the public name
        idle = time.monotonic() - box.last_used
        if idle >= self.idle_ttl and not box.busy:
            await box._shut()
            self._expired[id] = idle
            if len(self._expired) > _MAX_REMEMBERED:
                self._expired.popitem(last=False)

    async def _shut_all(self) -> list[BaseException]:
        ends = await asyncio.gather(
            *(box._shut() for box in self._boxes.values()), return_exceptions=True
        )
        return [end for end in ends if isinstance(end, BaseException)]


def _open_otherwise(box: Session, policy: SandboxPolicy) -> PolicyError:
    names = [
        f.name for f in fields(policy) if getattr(policy, f.name) != getattr(box.policy, f.name)
    ]
    return PolicyError(
        f'the session {box.id!r} is open with another policy ({", ".join(names)}); nothing was '
        'changed.',
        hint='Close the session first, or leave policy out to use it as it is.',
    )


class _AsyncFace(Manager[Box]):
    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Wait until all warm sandboxes are ready; the first session starts them as well.

        Raises:
            SandboxClosed: The manager was closed.
            SandboxError: One could not be started. It is tried again in the background.
        """
        await self._begin()
        await self._pool.fill()

    async def session(
        self,
        id: str,  # noqa: A002 - the public name
        policy: SandboxPolicy | None = None,
    ) -> Box:
        """Return the session of this id; it is started if there is none.

        The same id gives the same live session, also to callers that ask at the same time.

        Args:
            id: Any name, for instance of a user or a conversation.
            policy: A stricter policy for this session, such as `manager.policy.tighten(...)`. Give
                it in every call that may start the session: without it the manager's holds.

        Raises:
            PolicyError: It would loosen the manager's policy, or the session is open with another.
            CapacityExceeded: All places are taken, and none became free in time.
            SandboxClosed: The manager was closed.
            SandboxError: The sandbox could not be started.
        """
        await self._begin()
        policy = policy and self._applied(policy)
        if policy is not None and policy != self.policy:
            self.policy.tighten(**{f.name: getattr(policy, f.name) for f in fields(policy)})
        box = self._boxes.get(id)
        if box is None or box._closing:
            if id not in self._opening:
                opening = self._open(id, self.policy if policy is None else policy)
                task = asyncio.create_task(opening, name=f'sandbox-open-{id}')
                self._opening[id] = task
                task.add_done_callback(lambda _: self._opening.pop(id))
            # One caller's cancellation is no reason to take the session from the others.
            box = await asyncio.shield(self._opening[id])
        if policy is not None and policy != box.policy:
            raise _open_otherwise(box, policy)
        box.last_used = time.monotonic()
        return box

    async def close_session(self, id: str) -> None:  # noqa: A002 - the public name
        """Close the session of this id; without one, do nothing.

        Raises:
            SandboxError: Its sandbox may still be there; call again.
        """
        check_process('the manager', self._process)
        if (task := self._opening.get(id)) is not None:
            await asyncio.wait({task})
        if (box := self._boxes.get(id)) is not None:
            await box._shut()

    async def close(self) -> None:
        """Close all sessions. May be repeated.

        Raises:
            SandboxError: A sandbox may still be there; call again.
        """
        if os.getpid() != self._process:
            return  # the sessions are those of the process that forked this one
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait({self._sweeper})
        pool, errors = await asyncio.gather(
            self._pool.close(), self._shut_all(), return_exceptions=True
        )
        if self._opening:  # what waited for a place has one now, and sees that it is too late
            await asyncio.wait(list(self._opening.values()))
            errors = await self._shut_all()
        assert isinstance(errors, list)
        if errors:
            raise SandboxError(
                f'{many(len(errors), "session")} could not be removed: {errors[0]}',
                hint='Call close() again.',
            ) from errors[0]
        if isinstance(pool, BaseException):
            raise pool


class AsyncSandboxManager(_AsyncFace[AsyncSandbox]):
    """Sessions by id for asyncio: made on demand, at most so many, closed when idle.

    Its arguments are those of `SandboxManager`.

    Example:
        >>> async with AsyncSandboxManager(max_sessions=8) as manager:
        ...     box = await manager.session('user-42')
        ...     await box.execute('x = 1')
    """

    _box = AsyncSandbox


class SandboxManager(Manager[Sandbox]):
    """Sessions by id: made on demand, at most so many, closed when idle.

    It belongs to the process that made it: in a forked child every call raises `SandboxError`, and
    `close()` does nothing.

    At most `max_sessions` sandboxes serve sessions, and at most `warm` more wait for the next ones.

    Args:
        policy: What each sandbox may use and do; a session may ask for less.
        backend: `'docker'`, `'bubblewrap'`, `'auto'` (Docker, or else bubblewrap), `'local'`,
            `'fake'`, or a back end.
        image: Kernel image of the Docker back end; the one of this version if None.
        max_sessions: Most sessions at a time. Who comes then waits, first come, first served.
        warm: Sandboxes to start ahead: a new session takes one of them at once, and none is ever
            used twice.
        start_concurrency: Sandboxes that may be starting at a time. Sessions that wait for theirs
            come before the warm ones.
        idle_ttl: Seconds after its last use when a session is closed.
        acquire_timeout: Seconds that a new session may wait for a place.
        unsafe: Consent to a back end that isolates nothing (`'local'`).
        survival: Lets sandboxes outlive this program for a while, so that its sessions have them
            again in its next process; see `Survival`.

    Raises:
        ValueError: An argument is out of range, or there is no such back end.

    Example:
        >>> with SandboxManager(max_sessions=8) as manager:
        ...     box = manager.session('user-42')
        ...     box.execute('x = 1')
    """

    _box = Sandbox

    _enter = blocking(Manager[Sandbox]._begin)
    start = blocking(_AsyncFace[Sandbox].start)
    session = blocking(_AsyncFace[Sandbox].session)
    close_session = blocking(_AsyncFace[Sandbox].close_session)
    close = blocking(_AsyncFace[Sandbox].close)

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
