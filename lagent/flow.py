"""Control flow that is written once and driven four ways.

The body of an agent is a generator, a *flow*. Where it needs something done it yields a `Call`
and is sent back the result, or has the exception thrown in; where it has something to show
before it ends it yields an `Emit`. A driver performs the calls: `run` as they are, `arun` awaiting
those that give an awaitable, `stream` and `astream` handing out what is emitted on the way. A flow
does not know which one drives it, so a synchronous and an asynchronous agent can't drift apart.
"""

import asyncio
import contextvars
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar('T')


class Call:
    """A request to call `fn` and to send its (awaited) result into the flow."""

    __slots__ = ('args', 'fn', 'kwargs')

    def __init__(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.fn, self.args, self.kwargs = fn, args, kwargs

    def __call__(self) -> Any:
        """Make the call."""
        return self.fn(*self.args, **self.kwargs)

    def on_loop(self) -> Any:
        """Make the call from an event loop; it may give an awaitable."""
        return self()


class BlockingCall(Call):
    """A call that waits for a disk or the like, which an event loop must not wait for."""

    __slots__ = ()

    def on_loop(self) -> Any:
        """Make the call in a worker thread; a cancellation waits for its end."""
        return _to_its_end(self)


@dataclass(frozen=True, slots=True)
class Emit:
    """A value for whoever consumes the flow's stream."""

    item: Any


class ConsumerLeft(BaseException):
    """Raised in a flow whose stream nobody reads any more.

    A `GeneratorExit` would not do: ``yield from`` turns it into a `close`, after which a flow could
    make no more calls, and so could not close what it reads from.
    """


async def _to_its_end(call: Call) -> Any:
    calling = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(calling)
    except asyncio.CancelledError:
        await asyncio.wait([calling])
        if not calling.cancelled():
            calling.exception()  # it is nobody's any more
        raise


Flow = Generator[Call | Emit, Any, T]


def call(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Flow[Any]:
    """The flow of a single function call, to be used with ``yield from``.

    Args:
        fn: a function; under an asynchronous driver it may give an awaitable.
        args: its positional arguments.
        kwargs: its keyword arguments.

    Returns:
        What the function returns. What it raises is raised here.
    """
    return (yield Call(fn, args, kwargs))


def blocking_call(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Flow[Any]:
    """The flow of a call of a plain function that waits; asynchronous drivers use a thread.

    Args:
        fn: a function. It is never left half done: a flow that is cancelled waits for its end.
        args: its positional arguments.
        kwargs: its keyword arguments.

    Returns:
        What the function returns. What it raises is raised here.
    """
    return (yield BlockingCall(fn, args, kwargs))


_END: Any = object()


def each(items: Any, convert: Callable[[Any], Any]) -> Flow[None]:
    """The flow that emits every item of an iterable, or of an asynchronous iterable.

    Args:
        items: what a generator-like function gave. It is closed when its consumer leaves early.
        convert: makes of an item what is emitted.
    """
    waits = hasattr(items, '__aiter__')
    iterator = aiter(items) if waits else iter(items)
    advance: Callable[..., Any] = anext if waits else next
    close = getattr(iterator, 'aclose' if waits else 'close', None)
    try:
        while (item := (yield from call(advance, iterator, _END))) is not _END:
            yield Emit(convert(item))
    except GeneratorExit:
        close = None  # the flow was dropped, and nobody is there to make a call
        raise
    finally:
        if close is not None:
            yield from call(close)


class _Stepper:
    """Advances a flow from one request to the next."""

    def __init__(self, flow: Flow[Any]) -> None:
        self.flow = flow
        self.value: Any = None
        self.error: BaseException | None = None

    def __call__(self) -> Call | Emit:
        error, value, self.error, self.value = self.error, self.value, None, None
        return self.flow.send(value) if error is None else self.flow.throw(error)


def run(flow: Flow[T]) -> T:
    """Drive a flow to its end, synchronously; what it emits is dropped.

    Args:
        flow: the flow.

    Returns:
        The flow's return value.
    """
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            request = flow.send(value) if error is None else flow.throw(error)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        value, error = None, None
        if isinstance(request, Emit):
            continue
        try:
            value = request()
        except BaseException as raised:  # noqa: BLE001 - the flow decides what to do with it
            error = raised


async def arun(flow: Flow[T]) -> T:
    """Drive a flow to its end, awaiting the calls that give an awaitable.

    Args:
        flow: the flow.

    Returns:
        The flow's return value.
    """
    step = _Stepper(flow)
    while True:
        try:
            request = step()
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        if isinstance(request, Emit):
            continue
        try:
            value = request.on_loop()
            step.value = await value if inspect.isawaitable(value) else value
        except BaseException as error:  # noqa: BLE001 - the flow decides what to do with it
            step.error = error


class _Streaming:
    """A flow that hands out what it emits, in a copy of the caller's context."""

    def __init__(self, flow: Flow[Any]) -> None:
        self.step = _Stepper(flow)
        self.context = contextvars.copy_context()
        self.left = False

    def advance(self) -> Call | Emit | None:
        """Run to the next request that the driver has to serve; None at the end."""
        while True:
            try:
                request = self.context.run(self.step)
            except (StopIteration, ConsumerLeft):
                return None
            if not (self.left and isinstance(request, Emit)):
                return request

    def leave(self) -> None:
        """Tell the flow that nobody reads what it emits."""
        self.step.error, self.left = ConsumerLeft(), True


def stream(flow: Flow[Any]) -> Generator[Any, None, None]:
    """Drive a flow and hand out what it emits.

    The flow runs in a copy of the caller's context, so that the context variables it sets between
    two items are not seen by the consumer. A consumer that leaves early ends the flow.

    Args:
        flow: the flow.

    Yields:
        The emitted items, in order.
    """
    streaming = _Streaming(flow)
    while (request := streaming.advance()) is not None:
        if isinstance(request, Emit):
            try:
                yield request.item
            except GeneratorExit:
                streaming.leave()
            continue
        try:
            streaming.step.value = streaming.context.run(request)
        except BaseException as error:  # noqa: BLE001 - the flow decides what to do with it
            streaming.step.error = error


async def astream(flow: Flow[Any]) -> AsyncGenerator[Any, None]:
    """Drive a flow like `stream`, awaiting the calls that give an awaitable.

    They are awaited in the task that reads the stream, so that `asyncio.timeout` and `TaskGroup`
    work in what is called.

    Args:
        flow: the flow.

    Yields:
        The emitted items, in order.
    """
    streaming = _Streaming(flow)
    while (request := streaming.advance()) is not None:
        if isinstance(request, Emit):
            try:
                yield request.item
            except GeneratorExit:
                streaming.leave()
            continue
        try:
            value = streaming.context.run(request.on_loop)
            if inspect.isawaitable(value):
                value = await _Inside(streaming.context, value)
            streaming.step.value = value
        except BaseException as error:  # noqa: BLE001 - the flow decides what to do with it
            streaming.step.error = error


class _Inside:
    """Awaits something inside a context, in the current task.

    A task of its own would do so as well, but then `asyncio.current_task` would be another one for
    each call, and what cancels "the current task" later on would miss.
    """

    def __init__(self, context: contextvars.Context, value: Awaitable[Any]) -> None:
        self.context = context
        self.steps = _awaiting(value)

    def __await__(self) -> Generator[Any, Any, Any]:
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                if error is None:
                    waits_for = self.context.run(self.steps.send, value)
                else:
                    waits_for = self.context.run(self.steps.throw, error)
            except StopIteration as stop:
                return stop.value
            value, error = None, None
            try:
                value = yield waits_for
            except BaseException as thrown:  # noqa: BLE001 - for what is awaited to handle
                error = thrown


async def _awaiting(value: Awaitable[Any]) -> Any:
    return await value
