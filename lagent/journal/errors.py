"""What can go wrong between a run and its journal.

::

    JournalError
    ├── NoSuchRun         the journal has no run of that id
    ├── RunLocked         another process or thread is executing the run
    ├── LeaseLost         somebody else has taken the run over in the meantime
    ├── Diverged          the code took another way than the journal says
    ├── NotRecordable     a value has a type that no codec is registered for
    ├── NotReadable       a record holds what this program can't read
    ├── NothingToDecide   the run does not wait for a decision
    ├── PolicyMissing     the run began with an approval policy, and is resumed without it
    ├── JournalUnavailable  the file or server can't be reached or written
    └── SchemaTooNew      a later version of lagent wrote the journal
"""

from typing import Any

from lagent.errors import JournalError, LagentError


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
    """The code took another way than the journal says; nothing was done.

    Attributes:
        position: the first effect that differs.
        recorded: what the journal has there, as text; None for nothing.
        asked: what the code asks for now; None for nothing.
    """

    code = 'diverged'

    def __init__(
        self, position: str, recorded: str | None, asked: str | None, difference: str = ''
    ) -> None:
        super().__init__(
            f'The run took another way than its journal, first at effect {position}.\n'
            f'recorded: {recorded or "nothing more"}\n'
            f'now:      {asked or "the run ends"}\n'
            f'{difference}'
            'Nothing was done. Resume it with the code, prompts and tools that it began with, or '
            'begin a new run.'
        )
        self.position, self.recorded, self.asked = position, recorded, asked
        self.difference = difference

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.position, self.recorded, self.asked, self.difference)


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


class JournalUnavailable(JournalError):
    """The journal's file or server can't be reached, read or written."""

    code = 'journal_unavailable'
    retryable = True


class SchemaTooNew(JournalError):
    """A later version of lagent wrote the journal; nothing was changed."""

    code = 'schema_too_new'


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
