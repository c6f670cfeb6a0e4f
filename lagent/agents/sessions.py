"""One call at a time in a session: the queue before an agent's memory.

The outermost agent of a run holds its session from the first hook to the last; calls of the same
agent in the same session queue behind it, in order. Agents inside the run pass: they are part of
the call that holds the session, which makes a wait in a circle impossible.
"""

import asyncio
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from lagent._variables import reset
from lagent.context import RunContext
from lagent.errors import SessionBusy
from lagent.flow import Emit, Flow, call

T = TypeVar('T')
Key = tuple[int, Hashable]

_LOOK_AGAIN = 1.0  # seconds after which a waiting call looks whether the holder has gone away

_inside: ContextVar[bool] = ContextVar('lagent_inside_a_call', default=False)


def is_inside() -> bool:
    """Whether the calling code is part of an agent's call.

    Returns:
        True inside of a call that holds its session.
    """
    return _inside.get()


class Seat:
    """A call's place in the queue of its session.

    Attributes:
        has_turn: whether the session is the call's own.
        stream: the generator that a streaming call was answered with.
        reader: the thread or task that has that generator's last item; None while it runs. Only
            a reference, because a task may hold the generator, which could never be dropped.
        loop: the event loop that an asynchronous call runs on.
    """

    __slots__ = ('_turn', '_turn_on_loop', 'has_turn', 'loop', 'reader', 'stream')

    def __init__(
        self,
        stream: 'weakref.ref[Any] | None' = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.has_turn = False
        self.stream = stream
        self.loop = loop
        self.reader: weakref.ref[threading.Thread | asyncio.Task[Any]] | None = None
        self._turn: Future[None] | None = None
        self._turn_on_loop: asyncio.Future[None] | None = None

    def take_turn(self) -> None:
        """Have the session; under the lock of the queues."""
        if not self.has_turn:
            self.has_turn = True
            if self._turn is not None:
                self._turn.set_result(None)

    def turn(self) -> 'Future[None]':
        """What is done when the session is the call's own; only a call that waits needs it."""
        with _queues.lock:
            if self._turn is None:
                self._turn = Future()
                if self.has_turn:
                    self._turn.set_result(None)
            return self._turn

    def turn_on_loop(self) -> 'asyncio.Future[None]':
        """The turn, as the event loop can wait for it; made once."""
        if self._turn_on_loop is None:
            self._turn_on_loop = asyncio.wrap_future(self.turn())
        return self._turn_on_loop

    def is_lost(self) -> bool:
        """Whether the call can never go on, nor end by itself."""
        if self.loop is None:
            return False
        # While its loop runs, a stream that was dropped is about to be closed there.
        is_dropped = self.stream is not None and self.stream() is None
        return self.loop.is_closed() or (is_dropped and not self.loop.is_running())

    def watched(self, flow: Flow[T]) -> Flow[T]:
        """The same flow; while it hands out an item, `reader` says to whom."""
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                request = flow.send(value) if error is None else flow.throw(error)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            value, error = None, None
            if isinstance(request, Emit) and self.stream is not None:
                is_async = hasattr(self.stream(), 'aclose')
                reader = _current_task() if is_async else threading.current_thread()
                self.reader = None if reader is None else weakref.ref(reader)
            try:
                value = yield request
            except BaseException as thrown:  # noqa: BLE001 - the flow decides what to do with it
                error = thrown
            self.reader = None


class _Queues:
    """The queues of all sessions in use; a session that nobody uses has none."""

    def __init__(self) -> None:
        self._renew()

    def _renew(self) -> None:
        self._pid = os.getpid()
        # The collector may end an abandoned stream, and so leave a queue, inside of this code.
        self.lock = threading.RLock()
        self._queues: dict[Key, deque[Seat]] = {}

    def join(self, key: Key, seat: Seat) -> None:
        if self._pid != os.getpid():
            self._renew()  # the calls that a forked process has inherited run in its parent
        with self.lock:
            while True:
                queue = self._queues.setdefault(key, deque())
                queue.append(seat)
                if self._queues.get(key) is queue:
                    break
            queue[0].take_turn()

    def leave(self, key: Key, seat: Seat) -> None:
        with self.lock:
            queue = self._queues.get(key)
            if queue is None or seat not in queue:
                return
            queue.remove(seat)
            if queue:
                queue[0].take_turn()
            else:
                del self._queues[key]

    def holder(self, key: Key) -> Seat:
        with self.lock:
            return self._queues[key][0]

    def __len__(self) -> int:
        return len(self._queues)


_queues = _Queues()


def exclusive(
    owner: object,
    context: RunContext,
    flow: Flow[T],
    wait_for: Callable[[Seat, float], Any],
    stream: 'weakref.ref[Any] | None' = None,
) -> Flow[T]:
    """The flow of a call that has its session to itself.

    Args:
        owner: the agent that is called.
        context: the run.
        flow: what the call does. Inside of another agent's call nothing else happens.
        wait_for: waits for a seat's turn, or for so many seconds: `wait_blocking` or `wait_async`.
        stream: the generator that drives all this, where there is one.

    Returns:
        What the flow gives.

    Raises:
        SessionBusy: the session is in use, and waiting is not wanted or could never end.
        LimitExceeded: the run's time was over before the session was free.
    """
    if is_inside():
        return (yield from flow)
    loop = asyncio.get_running_loop() if wait_for is wait_async else None
    key, seat = (id(owner), context.session_id), Seat(stream, loop)
    token = _inside.set(True)
    try:
        _queues.join(key, seat)
        while not seat.has_turn:
            yield from _end_abandoned(key)
            if seat.has_turn:
                break
            if any(usage.limits.on_busy == 'raise' for usage in context.usage.bounded()):
                raise SessionBusy(
                    f'Session {context.session_id!r} is in use by another call of this agent. '
                    'Nothing was changed; call again when that one has ended.'
                )
            context.check()
            yield from call(wait_for, seat, _patience(context))
        return (yield from (flow if stream is None else seat.watched(flow)))
    finally:
        _queues.leave(key, seat)
        reset(_inside, token)


def wait_blocking(seat: Seat, seconds: float) -> None:
    """Wait for a seat's turn in this thread.

    Args:
        seat: the seat.
        seconds: how long at most.
    """
    wait([seat.turn()], seconds)


async def wait_async(seat: Seat, seconds: float) -> None:
    """Wait for a seat's turn without holding up the event loop.

    Args:
        seat: the seat; its turn is not cancelled with the wait.
        seconds: how long at most.
    """
    await asyncio.wait([seat.turn_on_loop()], timeout=seconds)


def _patience(context: RunContext) -> float:
    left = context.seconds_left
    return _LOOK_AGAIN if left is None else min(left, _LOOK_AGAIN)


def _end_abandoned(key: Key) -> Flow[None]:
    """End the holder's stream if its reader can't read on: it has ended, or it is who waits here.

    A holder that can't go on at all, such as one whose event loop was closed, loses its seat.
    """
    holder = _queues.holder(key)
    reader, is_lost = holder.reader, holder.is_lost()
    stream: Any = None if holder.stream is None else holder.stream()
    if reader is not None and stream is not None and (is_lost or _is_gone(reader(), key)):
        with suppress(Exception):  # what it raises while it unwinds is nobody's answer
            yield from call(stream.aclose if hasattr(stream, 'aclose') else stream.close)
    if is_lost:
        _queues.leave(key, holder)


def _is_gone(reader: threading.Thread | asyncio.Task[Any] | None, key: Key) -> bool:
    if isinstance(reader, asyncio.Task):
        return reader.done() or reader is _current_task()
    if reader is None or not reader.is_alive():
        return True
    if reader is not threading.current_thread():
        return False
    if reader is not threading.main_thread():
        # In a pool of threads the next item may be read by another one: not ours to end.
        raise SessionBusy(
            f'Session {key[1]!r} is in use by a stream that this thread has not '
            'read to its end. Read it, or close() it, and call again.'
        )
    return True


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop is running
        return None
