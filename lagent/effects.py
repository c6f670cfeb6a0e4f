"""The one seam through which everything passes that leaves the process.

A model call, a tool call and the execution of code are *effects*. Each is performed by `perform`,
whoever asks for it, in a chain of a fixed order: the run's limits are charged; interceptors see
the effect, in the order of their `Stage`; subscribers learn that it begins, what it gives while it
lasts, and how it ends; it is done. An interceptor that answers in place of what comes after it,
such as a journal that knows the result from an earlier attempt, tells subscribers by
`publish_replayed`.
"""

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, NamedTuple, TypeVar

from lagent._variables import reset
from lagent.context import RunContext, current_context, run_context
from lagent.flow import Flow, call
from lagent.watch import watched_effect, watchers

T = TypeVar('T')

_log = logging.getLogger(__name__)


class Effect(NamedTuple):
    """Something that a run asks the world for.

    Attributes:
        kind: ``'model'``, ``'tool'`` or ``'kernel'``.
        name: which model, tool or interpreter is asked.
        payload: what is asked: messages, parameters, or source code.
        idempotent: whether doing it twice is as good as once; always so for a model's reply.
        network: whether it can reach other machines, as far as its owner knows.
        runs_code: whether it runs code that the model wrote; always so for the kind ``'kernel'``.
        aside: whether it is the program's own, see `beside`.
        inquire: makes the flow that finds out how the effect ended, if it was begun in an earlier
            process: it is given the effect's id (see `effect_id`) and returns `Ended`, or
            ``'not_begun'``, or None where nothing can be known.
        edited: makes the flow that does the effect with another payload, of somebody's choice.
        provider: whose API or engine the model is asked through; ``''`` where that is not known.
        call_id: what the model's provider calls the tool call, where it has a name.
    """

    kind: Literal['model', 'tool', 'kernel']
    name: str
    payload: Any
    idempotent: bool = False
    network: bool = False
    runs_code: bool = False
    aside: bool = False
    inquire: 'Inquiry | None' = None
    edited: 'Callable[[Any], Flow[Any]] | None' = None
    provider: str = ''
    call_id: str | None = None

    @property
    def repeatable(self) -> bool:
        """Whether it may be done again when nobody knows how it ended."""
        return self.idempotent or self.kind == 'model'


@dataclass(frozen=True, slots=True)
class Ended:
    """What an inquiry found: the effect was done, and gave this.

    Attributes:
        result: what the effect would have returned.
    """

    result: Any


Inquiry = Callable[[str], Flow[Ended | Literal['not_begun'] | None]]


@dataclass(frozen=True, slots=True)
class Event:
    """What a subscriber is told.

    Attributes:
        type: ``'begin'``, ``'delta'``, ``'end'`` or ``'error'``.
        effect: the effect it is about.
        data: nothing at the beginning; a piece of the result (a model's text chunk, a kernel's
            output); the result; or the exception.
        run: the run that the effect belongs to.
        elapsed: seconds since the effect began; of a replayed one those that it once took.
        replayed: whether nothing was done now: the result is known from before.
    """

    type: Literal['begin', 'delta', 'end', 'error']
    effect: Effect
    data: Any
    run: RunContext
    elapsed: float
    replayed: bool = False


Subscriber = Callable[[Event], None]


class Stage(IntEnum):
    """Where in the chain an interceptor stands: the lower one is asked first."""

    JOURNAL = 10
    """Knows results from before; approval is asked here, for effects that are not known yet."""
    CASSETTE = 15
    """Stands for the world: gives what it gave when it was recorded, to the journal, too."""
    LIVE = 20
    """Sees only what is really going to be done."""


Interceptor = Callable[[Effect, RunContext, Flow[Any]], Flow[Any]]
"""Makes a flow of the effect, the run, and the flow that does the effect.

It runs that with ``yield from`` and gives its result, or does not run it and gives another one. As
every flow it works under the synchronous, the asynchronous and the streaming drivers.
"""


@dataclass(slots=True)
class _Running:
    effect: Effect
    run: RunContext
    started: float

    def publish(self, type_: Literal['begin', 'delta', 'end', 'error'], data: Any = None) -> None:
        if _subscribers.get():
            _publish(Event(type_, self.effect, data, self.run, time.monotonic() - self.started))


def _publish(event: Event) -> None:
    for subscriber in _subscribers.get():
        try:
            subscriber(event)
        except Exception as error:
            if event.type == 'begin':
                mark_not_begun(error)
            if event.type in ('begin', 'delta'):
                raise
            # The effect is over: what it gave must not be lost with what shows it.
            _log.exception('a subscriber failed when a %s effect had ended', event.effect.kind)


_interceptors: ContextVar[tuple[tuple[Stage, Interceptor], ...]] = ContextVar(
    'lagent_interceptors', default=()
)
_subscribers: ContextVar[tuple[Subscriber, ...]] = ContextVar('lagent_subscribers', default=())
_running: ContextVar[_Running | None] = ContextVar('lagent_effect', default=None)
_offline: ContextVar[frozenset[str]] = ContextVar('lagent_offline', default=frozenset())


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
        reset(_subscribers, token)


@contextmanager
def intercept(interceptor: Interceptor, stage: Stage) -> Iterator[None]:
    """Let an interceptor see every effect that is performed inside the ``with`` block.

    Args:
        interceptor: see `Interceptor`.
        stage: where it stands. Of several in one stage the outermost is asked first.
    """
    chain = sorted([*_interceptors.get(), (stage, interceptor)], key=lambda entry: entry[0])
    token = _interceptors.set(tuple(chain))
    try:
        yield
    finally:
        reset(_interceptors, token)


@contextmanager
def offline(kinds: Iterable[str]) -> Iterator[None]:
    """Say that all effects of some kinds inside the ``with`` block are known from before.

    Args:
        kinds: ``'model'``, ``'tool'``, ``'kernel'``.
    """
    token = _offline.set(_offline.get() | frozenset(kinds))
    try:
        yield
    finally:
        reset(_offline, token)


def is_offline(kind: str) -> bool:
    """Whether nothing of a kind is done here, so that what does it may be missing.

    Args:
        kind: ``'model'``: a model may be made without its key. ``'kernel'``: there is no sandbox.
    """
    return kind in _offline.get()


def publish_replayed(
    effect: Effect, context: RunContext, elapsed: float, result: Any, *, failed: bool = False
) -> None:
    """Tell subscribers of an effect whose result is known without doing it again.

    Of what a program does aside they are never told.

    Args:
        effect: the effect.
        context: the run.
        elapsed: seconds that it once took.
        result: what it gave, or the exception that it raised.
        failed: whether it is that.
    """
    if effect.aside:
        return
    for watcher in watchers():
        watcher.replayed(effect)
    _publish(Event('begin', effect, None, context, 0.0, replayed=True))
    if effect.kind == 'model' and not failed:
        context.usage.count_reply(result, effect.name)
    kind: Literal['error', 'end'] = 'error' if failed else 'end'
    _publish(Event(kind, effect, result, context, elapsed, replayed=True))


_NOT_BEGUN = 'lagent: the effect was not begun'


def mark_not_begun(error: BaseException) -> None:
    """Say of an exception that it was raised before the effect could have happened.

    Args:
        error: what is going to be raised in the flow of the effect.
    """
    error.add_note(_NOT_BEGUN)


def is_not_begun(error: BaseException) -> bool:
    """Whether `mark_not_begun` was called for an exception."""
    return _NOT_BEGUN in getattr(error, '__notes__', ())


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
    return within(effect, call(fn, *args, **kwargs))


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
    context = current_context()
    if context is None:  # then it is a run of its own
        with run_context():
            return (yield from within(effect, flow))
    _charge(effect, context)
    doing = _done(effect, context, flow)
    for _, interceptor in reversed(_interceptors.get()):
        doing = interceptor(effect, context, doing)
    return (yield from watched_effect(effect, context, doing))


def beside(effect: Effect, flow: Flow[T], session: Hashable | None = None) -> Flow[T]:
    """The flow of what a program does for itself where its agents do their effects.

    Such as a look at the files of a sandbox: it is charged to no limit, needs nobody's yes, and
    nobody is told of it. Journals and cassettes hold it, since it is not possible without the
    sandbox.

    Args:
        effect: what is asked of whom.
        flow: the flow that does it.
        session: the session; that of the run by default.

    Returns:
        The flow's result.
    """
    with run_context(session) as context:
        effect, doing = effect._replace(aside=True), flow
        for stage, interceptor in reversed(_interceptors.get()):
            if stage is not Stage.LIVE:
                doing = interceptor(effect, context, doing)
        return (yield from doing)


def _done(effect: Effect, context: RunContext, flow: Flow[T]) -> Flow[T]:
    running = _Running(effect, context, time.monotonic())
    token = _running.set(running)
    try:
        running.publish('begin')
        result = yield from flow
    except BaseException as error:
        running.publish('error', error)
        raise
    finally:
        reset(_running, token)
    if effect.kind == 'model':
        context.usage.count_reply(result, effect.name)
    running.publish('end', result)
    return result


def _charge(effect: Effect, context: RunContext) -> None:
    context.check()
    if effect.kind == 'model':
        context.usage.count_model_call(effect.name)
    else:
        caller = (context.session_id, effect.name)
        context.usage.count_tool_call(caller, repr(effect.payload))
