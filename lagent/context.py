"""Who is asking: the run that the current code belongs to.

A context is opened by the outermost agent call and travels in a context variable, through
threads that the portal starts as well. Nothing of it is ever a tool's parameter or part of a
provider's request.
"""

import os
import time
from collections.abc import Hashable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from lagent._variables import reset
from lagent.errors import RunCancelled
from lagent.limits import NOT_GIVEN, RunLimits, RunUsage

DEFAULT_SESSION = 0


class Flag:
    """What can be set once and looked at; waiting for it would need a `threading.Event`."""

    _set = False

    def set(self) -> None:
        """Set it."""
        self._set = True

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._set


@dataclass(frozen=True, slots=True)
class RunContext:
    """One run of an outermost agent.

    Attributes:
        session_id: whose memory, sandbox and trace the run works with.
        run_id: unique name of the run.
        usage: what it has used, and may use.
        cancel: set it, from any thread, to end the run before its next effect.
        ended: set when the run is over.
    """

    session_id: Hashable = DEFAULT_SESSION
    run_id: str = field(default_factory=lambda: os.urandom(16).hex())
    usage: RunUsage = field(default_factory=RunUsage)
    cancel: Flag = field(default_factory=Flag)
    ended: Flag = field(default_factory=Flag)

    @property
    def limits(self) -> RunLimits:
        """What the run may use; see `RunUsage` for runs inside others that have limits, too."""
        return self.usage.limits

    @property
    def deadline(self) -> float | None:
        """When the run must end, on `time.monotonic()`; None without a limit of time."""
        return self.usage.deadline

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline, at least 0; None without a limit of time."""
        deadline = self.deadline
        return None if deadline is None else max(deadline - time.monotonic(), 0.0)

    def check(self) -> None:
        """Refuse to go on when the run was cancelled or its time is over.

        Raises:
            RunCancelled: `cancel` is set.
            LimitExceeded: the deadline has passed.
        """
        if self.cancel.is_set():
            raise RunCancelled(
                'The run was cancelled. Memory holds everything up to this point; '
                'call the agent again to go on.'
            )
        self.usage.check_time()


_context: ContextVar[RunContext | None] = ContextVar('lagent_run', default=None)


def current_context() -> RunContext | None:
    """The run that the calling code belongs to.

    Returns:
        The context, or None outside of any run.
    """
    return _context.get()


def resolve_session(session_id: Hashable | None) -> Hashable:
    """The session that a call without an explicit one belongs to.

    Args:
        session_id: what the caller gave; None for nothing.

    Returns:
        The given one, else that of the current run, else session 0.
    """
    if session_id is not None:
        return session_id
    context = _context.get()
    return DEFAULT_SESSION if context is None else context.session_id


class _Block:
    """The ``with`` block of a run; a generator would take longer than all that it does."""

    __slots__ = ('_context', '_opens', '_token')

    def __init__(self, context: RunContext, opens: bool) -> None:
        self._context = context
        self._opens = opens

    def __enter__(self) -> RunContext:
        self._token = _context.set(self._context)
        return self._context

    def __exit__(self, *_: object) -> None:
        if self._opens:
            self._context.ended.set()
        reset(_context, self._token)


def run_context(
    session_id: Hashable | None = None,
    limits: RunLimits | None = None,
    run_id: str | None = None,
) -> AbstractContextManager[RunContext, None]:
    """Join the current run, or open one when there is none.

    Args:
        session_id: the session that a new run is opened for. Inside a run it names another
            session of the same run: limits, usage and cancellation are shared.
        limits: limits of a new run; inside a run, of what is used in the ``with`` block. That is
            charged to the outer run as well, whose own limits go on to count.
        run_id: name of a new run, which has one of its own by default; inside a run, the name of
            what is in the ``with`` block.

    Returns:
        What gives the run's context to a ``with`` block.
    """
    outer = _context.get()
    session = resolve_session(session_id)
    if outer is None:
        context = RunContext(session, usage=RunUsage(limits=limits or NOT_GIVEN))
    elif limits is not None and limits is not outer.limits:
        usage = RunUsage(limits=limits, outer=outer.usage)
        context = replace(outer, session_id=session, usage=usage)
    elif outer.session_id == session:
        context = outer
    else:
        context = replace(outer, session_id=session)
    if run_id is not None and context.run_id != run_id:
        context = replace(context, run_id=run_id)
    return _Block(context, opens=outer is None)
