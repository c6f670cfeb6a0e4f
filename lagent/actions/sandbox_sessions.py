"""What an interpreter keeps about its sessions: the names of their sandboxes, and their state."""

import hashlib
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from numbers import Integral
from typing import Any, SupportsInt, TypeGuard, TypeVar
from uuid import UUID

from lagent.flow import Flow, call

T = TypeVar('T')

_MARK = '#'


@dataclass(frozen=True, slots=True)
class Scoped:
    """A session that a run, or the model in it, asked for by an id of its own.

    Attributes:
        owner: the run's session.
        name: what was asked for.
    """

    owner: Hashable
    name: Hashable


class SessionNames:
    """The names that a manager knows sessions by: different sessions never share one.

    See `lasting_name`. What has none is numbered, in a name that no other manager gives, and is
    kept for that as long as this one.
    """

    def __init__(self) -> None:
        self._numbered: dict[Hashable, str] = {}
        self._numbers = itertools.count(1)
        self._own = os.urandom(8).hex()
        self._lock = threading.Lock()

    def of(self, session_id: Hashable) -> str:
        """The name of a session.

        Args:
            session_id: the session.

        Returns:
            The same name for the same session.
        """
        if (name := lasting_name(session_id)) is not None:
            return name
        with self._lock:
            if session_id not in self._numbered:
                number, kind = next(self._numbers), type(session_id).__name__
                self._numbered[session_id] = f'{_MARK}{number}-{kind}-{self._own}'
            return self._numbered[session_id]


def lasting_name(session_id: Hashable) -> str | None:
    """The name that a session has in every process.

    A text is its own name and a whole number ``n`` is ``#n``. What begins with the mark itself, and
    other numbers, bytes, UUIDs, None, and tuples of all these, have a digest for a name.

    Args:
        session_id: the session.

    Returns:
        The name; None if other processes could not tell the session from others of its kind.
    """
    if isinstance(session_id, str) and not session_id.startswith(_MARK):
        return session_id
    if _is_whole(session_id):
        return f'{_MARK}{int(session_id)}'
    if (spelled := _spelled(session_id)) is None:
        return None
    digest = hashlib.sha256(spelled.encode('utf-8', 'surrogatepass')).hexdigest()
    return f'{_MARK}:{digest[:32]}'


def _is_whole(value: Any) -> TypeGuard[SupportsInt]:
    return isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())


def _spelled(value: Hashable) -> str | None:
    """A text that no other value has, or None for a value of an unknown kind."""
    if isinstance(value, str):
        return f's{len(value)}:{str.__str__(value)}'
    if _is_whole(value):
        return f'i{int(value)};'
    if value is None or type(value) in (float, bytes, UUID):
        return f'{type(value).__name__}{len(text := str(value))}:{text}'
    if type(value) not in (tuple, Scoped):
        return None
    parts = value if isinstance(value, tuple) else (value.owner, value.name)  # type: ignore[attr-defined]
    inner = [_spelled(part) for part in parts]
    if None in inner:
        return None
    return f'{type(value).__name__}{len(inner)}:{"".join(filter(None, inner))}'


_names: weakref.WeakKeyDictionary[Any, SessionNames] = weakref.WeakKeyDictionary()
_naming = threading.Lock()


def names_of(manager: Any) -> SessionNames:
    """The names of a manager's sessions; interpreters that share a manager agree on them.

    Args:
        manager: the manager.

    Returns:
        Its names.
    """
    with _naming:
        return _names.setdefault(manager, SessionNames())


@dataclass(eq=False, slots=True)
class Readiness:
    """How far a sandbox is prepared for the cells of its session.

    Attributes:
        session: whose sandbox it is.
        supplied: whether its files were put into it.
        container: the container that they were put into; a new one starts empty.
        set_up: whether its kernel has run the set-up code.
        preparing: done when the preparation that is going on has ended, however it did.
    """

    session: Hashable
    supplied: bool = False
    container: str | None = None
    set_up: bool = False
    preparing: 'Future[None] | None' = None


class Preparations:
    """Prepares each sandbox once; who needs it at the same time waits for that."""

    def __init__(self) -> None:
        self._readiness: weakref.WeakKeyDictionary[Any, Readiness] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def once(
        self,
        box: Any,
        session: Hashable,
        is_unprepared: Callable[[Any, Readiness], bool],
        prepare: Callable[[Any, Readiness], Flow[T]],
        wait: Callable[['Future[None]'], Any],
    ) -> Flow[T | None]:
        """The flow that prepares a sandbox if it isn't.

        Args:
            box: the sandbox.
            session: whose it is.
            is_unprepared: tells whether there is something to do.
            prepare: the flow that does it and notes it. If it fails, the next one tries it again.
            wait: waits for another one's preparation to end.

        Returns:
            What the preparation gave; None if there was nothing to do.
        """
        own: Future[None] = Future()
        # Running, it can't be cancelled, and so not by one of those who wait for it.
        own.set_running_or_notify_cancel()
        while True:
            with self._lock:
                ready = self._readiness.setdefault(box, Readiness(session))
                if not is_unprepared(box, ready):
                    return None
                others = ready.preparing
                if others is None:
                    ready.preparing = own
                    break
            yield from call(wait, others)
        try:
            return (yield from prepare(box, ready))
        finally:
            ready.preparing = None
            own.set_result(None)

    def forget(self, box: Any, *, kernel: bool = False, files: bool = False) -> None:
        """Note what a sandbox has lost.

        Args:
            box: the sandbox.
            kernel: whether its kernel is a new one.
            files: whether it has none of its files any more.
        """
        ready = self._readiness.get(box, Readiness(None))
        ready.set_up = ready.set_up and not kernel
        ready.supplied = ready.supplied and not files

    def open_boxes(self) -> list[tuple[Any, Hashable]]:
        """The sandboxes that are open.

        Returns:
            Each with its session.
        """
        return [(box, ready.session) for box, ready in self._readiness.items() if not box.closed]
