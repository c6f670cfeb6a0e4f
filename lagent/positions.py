"""Where in a run an effect stands: a path that is the same whenever the run takes the same way.

Effects of one scope are numbered as they begin: ``1``, ``2``. What is performed while an effect
lasts is in a scope of its own: ``2.1``. Things that run at the same time get a scope each, so that
it does not matter which of them is faster: ``3+[0].1`` and ``3+[1].1``, behind the effect ``3``
of the same task. Without anybody who asks for positions there is no scope, and nothing is counted.
"""

import itertools
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from lagent._variables import reset
from lagent.flow import Flow

_BRACKETS = str.maketrans({'[': r'\x5b', ']': r'\x5d'})


class Scope:
    """A sequence of effects.

    Attributes:
        run_id: the run.
        path: position of the effect or the branch whose scope this is; ``''`` for a whole run.
    """

    __slots__ = ('_batches', '_branches', '_numbers', 'path', 'run_id')

    def __init__(self, run_id: str, path: str = '') -> None:
        self.run_id, self.path = run_id, path
        self._numbers = itertools.count(1)
        self._branches: dict[str, Scope] = {}
        self._batches: dict[str, int] = {}

    def next(self) -> str:
        """The position of the effect that begins now."""
        number = next(self._numbers)
        return f'{self.path}.{number}' if self.path else str(number)

    def branch(self, key: Hashable) -> 'Scope':
        """The scope of one of several things that are done at the same time; one for each key."""
        # 1 and '1' are two keys, 1 and True as well, and no key ends before its bracket does.
        name = f'[{repr(key).translate(_BRACKETS)}]'
        return self._branches.setdefault(name, Scope(self.run_id, f'{self.path}{name}'))

    def batch(self) -> 'Scope':
        """The scope of things that are done at the same time, such as the calls of one message.

        It is named after the effect that the same task has had before, so that it does not matter
        which of several tasks comes first.
        """
        scope, after = _last.get() or (None, '')
        if scope is not self:
            after = f'{self.path}.0' if self.path else '0'
        number = self._batches[after] = self._batches.get(after, 0) + 1
        return Scope(self.run_id, f'{after}{"+" * number}')


_last: ContextVar[tuple[Scope, str] | None] = ContextVar('lagent_last_effect', default=None)
_scope: ContextVar[Scope | None] = ContextVar('lagent_scope', default=None)


def current_scope() -> Scope | None:
    """The scope that an effect of the calling code would be in.

    Returns:
        The scope, or None when nobody counts.
    """
    return _scope.get()


def effect_id() -> str | None:
    """What names the effect that is being done, in this attempt and every later one.

    A tool may give it to a service as an idempotency key.

    Returns:
        ``RUN:POSITION``; None when nothing records the run, or outside of an effect.
    """
    scope = _scope.get()
    return f'{scope.run_id}:{scope.path}' if scope is not None and scope.path else None


def passed(scope: Scope, position: str) -> None:
    """Note that the calling task has had an effect.

    Args:
        scope: the scope of the effect.
        position: its position.
    """
    _last.set((scope, position))


def came_before(run_id: str) -> str | None:
    """The effect that the calling task, or the one that has begun it, has had before.

    Args:
        run_id: the run that it should be part of.

    Returns:
        Its position; None if there was none.
    """
    scope, position = _last.get() or (None, '')
    return position if scope is not None and scope.run_id == run_id else None


@contextmanager
def entered(scope: Scope) -> Iterator[None]:
    """Count the effects of the ``with`` block in a scope.

    Args:
        scope: the scope.
    """
    token, last = _scope.set(scope), _last.set(_last.get())
    try:
        yield
    finally:
        reset(_scope, token)
        reset(_last, last)  # what was done in there may be given back without being done again


@contextmanager
def branch(key: Hashable) -> Iterator[None]:
    """Mark one of several things that are done at the same time, such as a task of a gathering.

    Args:
        key: what tells it from the others, and is written the same in every attempt: an index, or a
            name.
    """
    scope = _scope.get()
    if scope is None:
        yield
        return
    with entered(scope.branch(key)):
        yield


def branched(flows: Sequence[Flow[Any]]) -> list[Flow[Any]]:
    """The same flows, each in a branch of its own.

    Args:
        flows: what is going to be done at the same time.

    Returns:
        The flows, in the same order.
    """
    scope = _scope.get()
    if scope is None:
        return list(flows)
    group = scope.batch()
    return [_inside(group.branch(index), flow) for index, flow in enumerate(flows)]


def _inside(scope: Scope, flow: Flow[Any]) -> Flow[Any]:
    with entered(scope):
        return (yield from flow)
