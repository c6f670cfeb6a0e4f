"""Who watches what is done from outside: the calls of agents, and every effect.

An interceptor may change an effect, and stands where its stage says; a watcher changes nothing and
stands around everything, so that it also sees effects whose result is known from before. Nobody
watches by default, and then this costs a look at an empty tuple.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lagent._variables import reset
from lagent.context import RunContext
from lagent.flow import Flow

if TYPE_CHECKING:
    from lagent.effects import Effect

T = TypeVar('T')


class Watcher(Protocol):
    """Sees what is done; each method but the last runs a flow and gives what that gives."""

    def call(self, agent: Any, context: RunContext, flow: Flow[T]) -> Flow[T]:
        """Watch a call of an agent.

        Args:
            agent: who is called.
            context: the run.
            flow: the call.

        Returns:
            The flow that does the same, watched.
        """

    def effect(self, effect: 'Effect', context: RunContext, flow: Flow[T]) -> Flow[T]:
        """Watch an effect.

        Args:
            effect: the effect.
            context: the run.
            flow: what performs it.

        Returns:
            The flow that does the same, watched.
        """

    def replayed(self, effect: 'Effect') -> None:
        """Learn, inside of `effect`, that nothing is done: the result is known from before.

        Args:
            effect: the effect.
        """


_everywhere: tuple[Watcher, ...] = ()
_here: ContextVar[tuple[Watcher, ...]] = ContextVar('lagent_watchers', default=())


def watchers() -> tuple[Watcher, ...]:
    """Who watches the calling code, the outermost first."""
    return _everywhere + _here.get()


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Let somebody watch what the ``with`` block does.

    Args:
        watcher: who watches.
    """
    token = _here.set((*_here.get(), watcher))
    try:
        yield
    finally:
        reset(_here, token)


def watch_everywhere(watcher: Watcher) -> Callable[[], None]:
    """Let somebody watch the whole process, whatever thread or task does something.

    Args:
        watcher: who watches.

    Returns:
        A function that ends it.
    """
    global _everywhere  # noqa: PLW0603 - one a process is what is asked for
    _everywhere = (*_everywhere, watcher)

    def end() -> None:
        global _everywhere  # noqa: PLW0603
        _everywhere = tuple(each for each in _everywhere if each is not watcher)

    return end


def watched_call(agent: Any, context: RunContext, flow: Flow[T]) -> Flow[T]:
    """The flow of an agent's call, as it is watched.

    Args:
        agent: who is called.
        context: the run.
        flow: the call.

    Returns:
        The same flow where nobody watches.
    """
    for watcher in reversed(watchers()):
        flow = watcher.call(agent, context, flow)
    return flow


def watched_effect(effect: 'Effect', context: RunContext, flow: Flow[T]) -> Flow[T]:
    """The flow of an effect, as it is watched.

    Args:
        effect: the effect.
        context: the run.
        flow: what performs it.

    Returns:
        The same flow where nobody watches.
    """
    for watcher in reversed(watchers()):
        flow = watcher.effect(effect, context, flow)
    return flow
