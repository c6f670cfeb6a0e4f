"""The one seam through which everything passes that leaves the process.

A model call, a tool call and the execution of code are *effects*. Each is performed by `perform`,
whoever asks for it: there the run's limits are charged, and there subscribers learn that the
effect begins, what it gives while it lasts, and how it ends.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from lagent.context import RunContext, run_context
from lagent.flow import Flow, call

T = TypeVar('T')

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Effect:
    """Something that a run asks the world for.

    Attributes:
        kind: ``'model'``, ``'tool'`` or ``'kernel'``.
        name: which model, tool or interpreter is asked.
        payload: what is asked: messages, parameters, or source code.
    """

    kind: Literal['model', 'tool', 'kernel']
    name: str
    payload: Any


@dataclass(frozen=True, slots=True)
class Event:
    """What a subscriber is told.

    Attributes:
        type: ``'begin'``, ``'delta'``, ``'end'`` or ``'error'``.
        effect: the effect it is about.
        data: nothing at the beginning; a piece of the result (a model's text chunk, a kernel's
            output); the result; or the exception.
        run: the run that the effect belongs to.
        elapsed: seconds since the effect began.
    """

    type: Literal['begin', 'delta', 'end', 'error']
    effect: Effect
    data: Any
    run: RunContext
    elapsed: float


Subscriber = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class _Running:
    effect: Effect
    run: RunContext
    started: float

    def publish(self, type_: Literal['begin', 'delta', 'end', 'error'], data: Any = None) -> None:
        subscribers = _subscribers.get()
        if not subscribers:
            return
        event = Event(type_, self.effect, data, self.run, time.monotonic() - self.started)
        for subscriber in subscribers:
            try:
                subscriber(event)
            except Exception:
                if type_ in ('begin', 'delta'):
                    raise
                # The effect is over: what it gave must not be lost with what shows it.
                _log.exception('a subscriber failed when a %s effect had ended', self.effect.kind)


_subscribers: ContextVar[tuple[Subscriber, ...]] = ContextVar('lagent_subscribers', default=())
_running: ContextVar[_Running | None] = ContextVar('lagent_effect', default=None)


@contextmanager
def subscribe(subscriber: Subscriber) -> Iterator[None]:
    """Be told about every effect that is performed inside the ``with`` block.

    Args:
        subscriber: called with each `Event`, in order, on the thread that performs the effect
            (for models and sandboxes that may be the portal's). What it raises ends the effect;
            when that has ended already, it is logged.
    """
    token = _subscribers.set((*_subscribers.get(), subscriber))
    try:
        yield
    finally:
        _subscribers.reset(token)


def listening() -> bool:
    """Whether anybody wants the deltas of the effect that is being performed.

    Returns:
        True when `emit` would reach a subscriber.
    """
    return bool(_subscribers.get()) and _running.get() is not None


def is_performing(kind: Literal['model', 'tool', 'kernel']) -> bool:
    """Whether the calling code is part of an effect.

    Args:
        kind: the kind of effect.

    Returns:
        True when the innermost effect that is being performed is of this kind.
    """
    running = _running.get()
    return running is not None and running.effect.kind == kind


def emit(data: Any) -> None:
    """Publish a piece of the result of the effect that is being performed.

    Args:
        data: a model's text chunk, or a kernel's output.
    """
    running = _running.get()
    if running is not None:
        running.publish('delta', data)


def perform(effect: Effect, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Flow[Any]:
    """The flow of an effect that one function call brings about.

    Args:
        effect: what is asked of whom.
        fn: the function that does it.
        args: its positional arguments.
        kwargs: its keyword arguments.

    Returns:
        What the function gives.

    Raises:
        LimitExceeded: the run's limits do not allow the effect; the function was not called.
        RunCancelled: the run was cancelled; the function was not called.
    """
    return (yield from within(effect, call(fn, *args, **kwargs)))


def within(effect: Effect, flow: Flow[T]) -> Flow[T]:
    """The flow of an effect that another flow brings about, such as the reading of a stream.

    A model call inside a model call is part of it: an agent's call that ends in a model class of
    ours, which performs an effect itself for those who call it directly, counts once.

    Args:
        effect: what is asked of whom.
        flow: the flow that does it.

    Returns:
        The flow's result.

    Raises:
        LimitExceeded: the run's limits do not allow the effect; the flow was not begun.
        RunCancelled: the run was cancelled; the flow was not begun.
    """
    outer = _running.get()
    if outer is not None and outer.effect.kind == effect.kind == 'model':
        return (yield from flow)
    with run_context() as context:
        _charge(effect, context)
        running = _Running(effect, context, time.monotonic())
        token = _running.set(running)
        try:
            running.publish('begin')
            result = yield from flow
        except BaseException as error:
            running.publish('error', error)
            raise
        finally:
            # An abandoned stream is ended by the collector, in whatever context that runs.
            with suppress(ValueError):
                _running.reset(token)
        if effect.kind == 'model':
            context.usage.count_reply(result)
        running.publish('end', result)
        return result


def _charge(effect: Effect, context: RunContext) -> None:
    context.check()
    if effect.kind == 'model':
        context.usage.count_model_call(context.limits)
    else:
        caller = (context.session_id, effect.name)
        context.usage.count_tool_call(context.limits, caller, repr(effect.payload))
