"""The portal: blocking calls into the one event loop that this process keeps on a thread.

Everything that waits is written once, as async code; the blocking classes bind the same methods
through here. It works with and without a running loop in the caller's thread, and after a fork.
"""

import asyncio
import collections.abc
import contextlib
import contextvars
import functools
import inspect
import os
import threading
import types
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from sandbox.errors import PortalError, SandboxError

T = TypeVar('T')
P = ParamSpec('P')

_CANCEL_GRACE = 15.0  # seconds that a cancelled call may take to clean up behind itself


class _Job(Generic[T]):
    """A result that one thread waits for and another delivers."""

    __slots__ = ('_done', '_error', '_value', 'task')

    def __init__(self) -> None:
        self._done = threading.Lock()  # released when it is; a tenth of what an event costs
        self._done.acquire()
        self._value: T
        self._error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None

    def resolve(self, value: Any) -> None:
        self._value = value
        self._done.release()

    def fail(self, error: BaseException) -> None:
        self._error = error
        self._done.release()

    def wait(self, timeout: float = -1) -> bool:
        if not self._done.acquire(timeout=timeout):
            return False
        self._done.release()
        return True

    def result(self) -> T:
        if self._error is None:
            return self._value
        try:
            raise self._error
        finally:
            self._error = None  # the traceback refers to this frame: don't keep a cycle


class Portal:
    """One daemon thread with one event loop. Use `get_portal()`."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name='sandbox-portal', daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def call(
        self, async_fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `async_fn(*args, **kwargs)` on the loop and wait for what it returns.

        It runs in a copy of the caller's context variables, and its errors arrive untouched. When
        the wait is broken (Ctrl-C), the call is cancelled, given a bounded time to clean up, and
        the interrupt is raised again.

        Raises:
            PortalError: Called on the loop's own thread, where the wait could never end.
        """
        self._refuse_own_thread(async_fn)
        job = _Job[T]()

        async def run() -> None:
            try:
                job.resolve(await async_fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
                job.fail(error)

        return self._wait(job, functools.partial(self._spawn, job, run))

    def iterate(
        self, async_gen_fn: Callable[P, AsyncIterator[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Iterator[T]:
        """Iterate over `async_gen_fn(*args, **kwargs)`, one step at a time.

        The whole generator runs in one task, and each step only when it is asked for. Closing or
        abandoning the iterator closes the generator.

        Raises:
            PortalError: Called on the loop's own thread, where the wait could never end.
        """
        self._refuse_own_thread(async_gen_fn)
        return self._iterate(cast('AsyncGenerator[T, None]', async_gen_fn(*args, **kwargs)))

    def _iterate(self, source: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        requests: asyncio.Queue[_Job[T] | None] = asyncio.Queue()
        pump = _Job[None]()

        async def run() -> None:
            try:
                async with contextlib.aclosing(source):
                    while (step := await requests.get()) is not None:
                        try:
                            step.resolve(await anext(source))
                        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
                            step.fail(error)
                            break
            except BaseException as error:  # noqa: BLE001 - raised when the iterator is closed
                pump.fail(error)
            else:
                pump.resolve(None)

        self._refuse_fork()
        self._post(functools.partial(self._spawn, pump, run))
        try:
            while True:
                step = _Job[T]()
                try:
                    value = self._wait(step, functools.partial(requests.put_nowait, step), pump)
                except StopAsyncIteration:
                    return
                yield value
        finally:
            here = os.getpid() == self._process  # a forked child has a copy that nobody answers
            if here:
                self._post(functools.partial(requests.put_nowait, None))
            # The collector may finalize an abandoned iterator on any thread, the loop's too.
            if here and threading.current_thread() is not self._thread and pump.wait(_CANCEL_GRACE):
                with contextlib.suppress(asyncio.CancelledError):
                    pump.result()

    def _wait(self, job: _Job[T], begin: Callable[[], None], owner: '_Job[Any] | None' = None) -> T:
        self._refuse_fork()
        try:
            self._post(begin)
            job.wait()
        except BaseException:
            self._post(functools.partial(_cancel, owner or job))
            job.wait(_CANCEL_GRACE)
            raise
        return job.result()

    def _post(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(callback, context=contextvars.copy_context())

    def _spawn(self, job: _Job[Any], run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        job.task = self._loop.create_task(run())

    def _refuse_fork(self) -> None:
        if os.getpid() != self._process:
            raise SandboxError(
                f'this iterator belongs to process {self._process}, which forked this one, and can '
                'only be used there; nothing was changed.',
                hint='Make a Sandbox of its own in each process, after the fork.',
            )

    def _refuse_own_thread(self, fn: Callable[..., object]) -> None:
        if threading.current_thread() is self._thread:
            name = getattr(fn, '__qualname__', repr(fn))
            raise PortalError(
                f'the blocking form of {name} was called on the thread of the event loop that '
                'would have to run it; nothing was run.',
                hint='Use the async form (AsyncSandbox, ...) and await it.',
            )


def _cancel(job: _Job[Any]) -> None:
    if job.task is not None:
        job.task.cancel()


class _PortalHolder:
    """The portal of this process, made anew in a forked child, which has no such thread."""

    def __init__(self) -> None:
        self._portal: Portal | None = None
        self._lock = threading.Lock()
        self._hooked = False
        self._left_behind: list[Portal] = []

    def portal(self) -> Portal:
        if self._portal is not None:
            return self._portal
        with self._lock:
            if not self._hooked:
                os.register_at_fork(after_in_child=self._forget)
                self._hooked = True
            if self._portal is None:
                self._portal = Portal()
            return self._portal

    def _forget(self) -> None:
        if self._portal is not None:
            # Collecting the loop would touch the selector that it shares with the parent.
            self._left_behind.append(self._portal)
        self._portal = None
        self._lock = threading.Lock()  # whoever held it does not exist in the child


_holder = _PortalHolder()


def get_portal() -> Portal:
    """Return the portal of this process; it is started when first asked for."""
    return _holder.portal()


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Make the blocking form of an async method: same name, documentation and signature."""

    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return get_portal().call(method, self, *args, **kwargs)

    _dress(call, method, inspect.signature(method))
    return call


def blocking_iterator(
    method: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """Make the blocking form of an async generator method: a plain iterator."""

    def iterate(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return get_portal().iterate(method, self, *args, **kwargs)

    signature = inspect.signature(method)
    items = getattr(signature.return_annotation, '__args__', (Any,))
    iterator = types.GenericAlias(collections.abc.Iterator, items)
    _dress(iterate, method, signature.replace(return_annotation=iterator))
    return iterate


def _dress(wrapper: Any, method: Any, signature: inspect.Signature) -> None:
    functools.update_wrapper(wrapper, method)
    del wrapper.__wrapped__
    wrapper.__signature__ = signature
    wrapper.__qualname__ = method.__qualname__.removeprefix('Async')
