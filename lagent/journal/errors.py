"""What can go wrong between a run and its journal.

::

    JournalError
    ├── NoSuchRun         the journal has no run of that id
    ├── RunLocked         another process or thread is executing the run
    ├── LeaseLost         somebody else has taken the run over in the meantime
    ├── Diverged          the code took another way than the journal says
    │   └── EndedOtherwise  ... only at its end: another answer, or another failure
    ├── Unfinished        the journal does not say how an effect, or the run, ended
    ├── NotRecordable     a value has a type that no codec is registered for
    ├── NotReadable       a record holds what this program can't read
    ├── NothingToDecide   the run does not wait for a decision
    ├── PolicyMissing     the run began with an approval policy, and is resumed without it
    ├── RedactorMissing   the run began with a redactor of the caller's, and goes on without it
    ├── JournalUnavailable  the file or server can't be reached or written
    └── SchemaTooNew      a later version of lagent wrote the journal
"""

import os
from collections.abc import Sequence
from typing import Any

from lagent.errors import JournalError as JournalError  # noqa: PLC0414 - it is public here, too
from lagent.errors import LagentError
from lagent.utils.counts import many


class NoSuchRun(JournalError):
    """The journal has no run of that id."""

    code = 'no_such_run'


class RunLocked(JournalError):
    """Another process or thread is executing the run."""

    code = 'run_locked'
    retryable = True


class LeaseLost(JournalError):
    """The lease ran out, and somebody else has taken the run over; nothing more is recorded."""

    code = 'lease_lost'


class Diverged(JournalError):
    """The code took another way than the journal says; nothing more was done.

    Attributes:
        position: the first effect that differs.
        recorded: what the journal has there, as text; None for nothing.
        asked: what the code asks for now; None for nothing.
        done: whether something new was done in this attempt before it was seen.
    """

    code = 'diverged'

    def __init__(
        self,
        position: str,
        recorded: str | None,
        asked: str | None,
        difference: str = '',
        done: bool = False,
    ) -> None:
        what = 'What this attempt has done is recorded, nothing more' if done else 'Nothing'
        super().__init__(
            f'The run took another way than its journal, first at effect {position}.\n'
            f'recorded: {recorded or "nothing more"}\n'
            f'now:      {asked or "the run ends"}\n'
            f'{difference}'
            f'{what} was done. Use the code, prompts and tools that it began with, or begin a new '
            'run.'
        )
        self.position, self.recorded, self.asked = position, recorded, asked
        self.difference, self.done = difference, done

    def __reduce__(self) -> tuple[Any, ...]:
        made_of = (self.position, self.recorded, self.asked, self.difference, self.done)
        return type(self), made_of


class EndedOtherwise(Diverged):
    """The code took the way that the journal says, and ended otherwise.

    Attributes:
        recorded: how the run ended, as text.
        asked: how it ends now.
    """

    code = 'ended_otherwise'

    def __init__(self, recorded: str, now: str, lines: Sequence[str] = ()) -> None:
        difference = ''.join(f'  {line}\n' for line in lines)
        super().__init__('', recorded, now, difference)
        self.lines = tuple(lines)
        self.args = (
            'The run took the way of its journal, and ended otherwise.\n'
            + (difference or f'recorded: {recorded}\nnow:      {now}\n')
            + 'Nothing was done.',
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.recorded, self.asked, self.lines)


class Unfinished(JournalError):
    """A run is answered by its journal alone, and that does not say how something ended.

    Attributes:
        run_id: the run.
        status: what the journal says of it.
        what: what it does not say the end of.
    """

    code = 'unfinished'

    def __init__(self, run_id: str, status: str, what: str) -> None:
        super().__init__(
            f'The same way up to here, where the journal ends: run {run_id!r} is {status}, and '
            f'nothing is recorded of {what}. Nothing was done. Resume the run to have the rest.'
        )
        self.run_id, self.status, self.what = run_id, status, what

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.run_id, self.status, self.what)


class NotRecordable(JournalError):
    """A value has a type that can't be written to a journal and read back as it was."""

    code = 'not_recordable'


class NotReadable(JournalError):
    """A record holds what this program can't read."""

    code = 'not_readable'


class NothingToDecide(JournalError):
    """The run does not wait for a decision."""

    code = 'nothing_to_decide'


class PolicyMissing(JournalError):
    """A run began with an approval policy that can't be recorded, and is resumed without one."""

    code = 'policy_missing'


class RedactorMissing(JournalError):
    """A run began with a redactor of the caller's own, and its secrets would not be hidden now."""

    code = 'redactor_missing'


class JournalUnavailable(JournalError):
    """The journal's file or server can't be reached, read or written."""

    code = 'journal_unavailable'
    retryable = True


class SchemaTooNew(JournalError):
    """A later version of lagent wrote the journal or cassette; nothing was changed."""

    code = 'schema_too_new'


_AGAIN = (
    "record it again (pytest --lagent-record=all, or replay(..., record='all')) and read the "
    'difference'
)


class BadCassette(JournalError):
    """A cassette can't be read, is damaged, or is of a version that is no longer read.

    Attributes:
        path: the file.
        line: the line, from 1.
        reason: what is wrong with it.
    """

    code = 'bad_cassette'

    def __init__(self, path: str | os.PathLike[str], line: int, reason: str) -> None:
        super().__init__(
            f'{os.fspath(path)}, line {line}: {reason}. Restore it from version control, or '
            f'{_AGAIN}.'
        )
        self.path, self.line, self.reason = os.fspath(path), line, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.line, self.reason)


class NotRecorded(JournalError):
    """A call is not in the cassette; nothing was done.

    Attributes:
        path: the cassette.
        asked: the call, in a line.
        reason: how it differs from what is recorded, with the lines that do.
    """

    code = 'not_recorded'

    def __init__(self, path: str | os.PathLike[str], asked: str, reason: str) -> None:
        super().__init__(
            f'{os.fspath(path)} has no recording of this call:\n{asked}\n{reason.rstrip()}\n'
            f'Nothing was done. If the change is meant, {_AGAIN}. If only times, ids or paths '
            'differ, give normalise=[...].'
        )
        self.path, self.asked, self.reason = os.fspath(path), asked, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.asked, self.reason)


class NotCaptured(JournalError):
    """Something is asked for that no recording holds, such as a file of a sandbox."""

    code = 'not_captured'


class Unused(JournalError):
    """A cassette has calls that were not made: the run took another way, or ended early.

    Attributes:
        path: the cassette.
        calls: the calls, a line each.
    """

    code = 'unused'

    def __init__(self, path: str | os.PathLike[str], calls: Sequence[str]) -> None:
        listed = ''.join(f'  {call}\n' for call in calls[:10])
        more = f'  … and {len(calls) - 10} more\n' if len(calls) > 10 else ''
        super().__init__(
            f'{os.fspath(path)} has calls that were not made:\n{listed}{more}If the change is '
            f"meant, {_AGAIN}. unused='warn' only warns."
        )
        self.path, self.calls = os.fspath(path), tuple(calls)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.calls)


class OutputsDiffer(JournalError):
    """Cells that were executed again have given something else than their recording.

    Attributes:
        path: the cassette.
        differences: a text for each cell.
    """

    code = 'outputs_differ'

    def __init__(self, path: str | os.PathLike[str], differences: Sequence[str]) -> None:
        super().__init__(
            f'Not as {os.fspath(path)} says: {many(len(differences), "cell")}.\n'
            + '\n'.join(differences)
            + f'\nIf the change is meant, {_AGAIN}.'
        )
        self.path, self.differences = os.fspath(path), tuple(differences)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.differences)


class RecordedFailure(LagentError):
    """What an effect raised in an earlier attempt, where the exception itself can't be rebuilt.

    Attributes:
        type_name: the class of the exception.
    """

    code = 'recorded_failure'

    def __init__(self, type_name: str, words: str) -> None:
        super().__init__(f'{type_name}: {words}')
        self.type_name, self.words = type_name, words

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.type_name, self.words)
