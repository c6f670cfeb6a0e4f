"""Runs as a whole: begin one, take it up again, and how it ended."""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from lagent.context import run_context
from lagent.errors import JournalError, RunSuspended
from lagent.journal.approval import Approval
from lagent.journal.codec import Decoder, Encoder
from lagent.journal.contract import Journal, Run
from lagent.journal.errors import (
    NoSuchRun,
    PolicyMissing,
    RunLocked,
    Unfinished,
)
from lagent.journal.failures import decode_error
from lagent.journal.lease import LEASE, new_owner, release_owner
from lagent.journal.recording import Approver, OnUnknown, Recording
from lagent.journal.redact import Redactor
from lagent.journal.redacted import warn_redacted
from lagent.journal.redactor_check import check_redactor, noted
from lagent.journal.rerun import is_rerunning
from lagent.journal.store import SqliteJournal, SqlJournal
from lagent.journal.validation import damaged, opening

Where = Journal | str | os.PathLike[str]
"""A journal, the path of a file, or the URL of a database that SQLAlchemy knows."""

Access = Literal['make', 'change', 'read']
"""What is done with a journal: one is made if there is none, is changed, or only read."""

_LONGEST_ID = 200  # characters, as the tables have it
_TITLE = 120  # characters
_OWN_POLICY = 'of the caller'  # instead of a policy that can't be written


def _can_be_kept(policy: Approver) -> bool:
    return type(policy) is Approval and policy.when is None


def open_journal(where: Where, access: Access = 'make') -> tuple[Journal, bool]:
    """A journal, opened if it is not one already; waits for the disk or the server.

    Args:
        where: see `Where`.
        access: see `Access`.

    Returns:
        The journal, and whether it was opened here and so is to be closed by the caller.

    Raises:
        JournalError: there is no journal, and none is to be made.
    """
    if where is None:
        raise JournalError('There is no journal: give a Journal, a path, or the URL of a database.')
    if not isinstance(where, str | os.PathLike):
        return where, False
    is_url = isinstance(where, str) and '://' in where
    kind: type[SqlJournal] = SqlJournal if is_url else SqliteJournal
    if access == 'make':
        return kind(where), True
    if not is_url and not Path(where).exists():
        raise JournalError(
            f'There is no journal {os.fspath(where)}. Name the one that has the run; '
            'on the command line with --journal.'
        )
    journal = kind(where, read_only=True)
    if access == 'change':  # it is one, and nobody else's database
        journal.close()
        journal = kind(where)
    return journal, True


@contextmanager
def opened(where: Where, access: Access = 'make') -> Iterator[Journal]:
    """A journal, which is closed again if it was opened here.

    Args:
        where: see `Where`.
        access: see `Access`.

    Yields:
        The journal.
    """
    journal, is_own = open_journal(where, access)
    try:
        yield journal
    finally:
        if is_own:
            journal.close()


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """How a run is recorded.

    Attributes:
        run_id: the run's name; one that the journal has is resumed. A new one by default.
        approval: see `Recording`. Resumed without one, a run has that which it began with.
        on_unknown: see `Recording`; ``'tell'``, or resumed without one, what the run began with.
        redactor: see `Recording`.
        factory: ``module:function`` that makes what is run, for ``lagent runs resume``.
    """

    run_id: str | None = None
    approval: Approver | None = None
    on_unknown: OnUnknown | None = None
    redactor: Redactor | None = None
    factory: str = ''

    def __post_init__(self) -> None:
        name: Any = self.run_id
        if name is None:
            return
        if not isinstance(name, str) or not name or '\0' in name or not _is_whole(name):
            raise ValueError(
                f'A run_id is a text of 1 to {_LONGEST_ID} characters, or None for a new one; not '
                f'{name!r}. Nothing was done.'
            )

    def recording(self, journal: Journal, run: Run, owner: str) -> Recording:
        """An attempt at a run with these options, under a lease that is held already."""
        return Recording(
            journal,
            run,
            owner,
            approval=self.approval,
            on_unknown=self.on_unknown or 'tell',
            redactor=self.redactor,
        )


def _is_whole(text: str) -> bool:
    """Whether a text has no halves of characters, which nothing outside of Python knows."""
    return text.isascii() or not any('\ud800' <= each <= '\udfff' for each in text)


def find(journal: Journal, run_id: str | None) -> Run | None:
    """A run, or None for one that is new; waits for the journal."""
    if run_id is None:
        return None
    try:
        return journal.run(run_id)
    except NoSuchRun:
        return None


def begin(journal: Journal, options: Options, run_id: str, title: str, value: Any) -> Recording:
    """Add a run, and hold its lease; waits for the journal.

    Args:
        journal: where.
        options: how.
        run_id: its name.
        title: what it is about.
        value: all that is needed to begin it again.

    Returns:
        The first attempt.

    Raises:
        RunLocked: somebody else has begun a run of that id.
        NotRecordable: something of the value can't be written.
    """
    _refuse_while_rerunning(run_id)
    if len(run_id) > _LONGEST_ID:
        raise ValueError(
            f'A run_id has up to {_LONGEST_ID} characters, not {len(run_id)}. Nothing was done.'
        )
    redactor = options.redactor or Redactor()
    encoder, now = Encoder(redactor), time.time()
    policy = options.approval
    kept = policy if policy is None or _can_be_kept(policy) else _OWN_POLICY
    run = Run(
        id=run_id,
        title=_title(redactor.text(title)),
        created=now,
        updated=now,
        opening={
            'value': encoder.encode(value),
            'approval': encoder.encode(kept),
            'on_unknown': options.on_unknown,
            'redactor': noted(options.redactor),
        },
        factory=options.factory,
        owner=(owner := new_owner()),
        expires=now + LEASE,
    )
    with _lease(journal, run, owner):
        journal.begin(run, encoder.blobs)
        return options.recording(journal, run, owner)


def _title(text: str) -> str:
    """A line for people, of characters that every database takes."""
    line = ' '.join(text.replace('\0', '\N{REPLACEMENT CHARACTER}').split())[:_TITLE]
    return line.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')


def take_up(journal: Journal, options: Options, run_id: str) -> Recording:
    """Hold the lease of a run that was begun earlier; waits for the journal.

    Raises:
        RunLocked: somebody else executes it.
        PolicyMissing: it began with an approval policy that can't be kept, and none is given now.
    """
    _refuse_while_rerunning(run_id)
    policy, begun = options.approval, opening(journal.run(run_id))
    options = replace(options, on_unknown=options.on_unknown or begun.get('on_unknown'))
    if policy is None:
        policy = Decoder(journal.blob).decode(begun['approval'])
        if policy not in (None, _OWN_POLICY) and not callable(policy):
            raise damaged(f'it does not say which policy run {run_id!r} began with')
        if policy == _OWN_POLICY:
            raise PolicyMissing(
                f'Run {run_id!r} began with an approval policy of your own. Resume it with the '
                'same one, or with Approval() if nothing needs a yes any more.'
            )
        options = replace(options, approval=policy)
    owner = new_owner()
    run = journal.acquire(run_id, owner, time.time() + LEASE)
    with _lease(journal, run, owner):
        if run.status == 'done':
            raise RunLocked(f'Run {run_id!r} was ended by somebody else at this moment.')
        return options.recording(journal, run, owner)


@contextmanager
def _lease(journal: Journal, run: Run, owner: str) -> Iterator[None]:
    """Give a lease back, with the run as it was, if what it is for does not begin."""
    try:
        yield
    except BaseException:
        release_owner(owner)
        with suppress(JournalError):
            journal.release(run.id, owner, run.status, run.outcome, {})
        raise


def _refuse_while_rerunning(run_id: str) -> None:
    if is_rerunning():
        raise Unfinished(run_id, 'part of a run that only its journal answers', 'its end')


def opening_of(journal: Journal, run: Run) -> Any:
    """What a run began with, as `begin` was given it; waits for the journal."""
    return Decoder(journal.blob).decode(opening(_whole(journal, run))['value'])


def answer_of(journal: Journal, run: Run) -> Any:
    """What a run has ended with.

    Args:
        journal: where it is recorded.
        run: the run.

    Returns:
        The answer, or the exception; None if it has not ended.
    """
    decoder = Decoder(journal.blob)
    outcome = _whole(journal, run).outcome or {}
    warn_redacted(outcome.get('answer'), journal.blob, run.id, 'its answer')
    if 'error' in outcome:
        return decode_error(outcome['error'], decoder)
    return decoder.decode(outcome.get('answer'))


def _whole(journal: Journal, run: Run) -> Run:
    """A run with its opening and outcome, which one of `Journal.runs` lacks."""
    return journal.run(run.id) if run.opening is None else run


class RecordedRun:
    """What `record` gives.

    Attributes:
        id: the run's name.
        is_done: whether it had ended before; then nothing needs to be done.
        answer: set it to what the run gives; of one that had ended before, what it gave.
    """

    def __init__(self, run_id: str, answer: Any = None, *, is_done: bool = False) -> None:
        self.id, self.answer, self.is_done = run_id, answer, is_done


@contextmanager
def record(
    where: Where,
    run_id: str | None = None,
    *,
    title: str = '',
    approval: Approver | None = None,
    on_unknown: OnUnknown | None = None,
    redactor: Redactor | None = None,
) -> Iterator[RecordedRun]:
    """Record the effects of plain code, or give them back when it was executed before.

    The code between effects is executed every time and must take the same way: build agents anew
    inside the block, and let what it does to the world be an effect. See `Agent.run` for one agent,
    whose memory is kept as well.

    Args:
        where: the journal.
        run_id: the run; one that the journal has is resumed. A new one by default.
        title: what it is about, in a line.
        approval: see `Recording`.
        on_unknown: see `Options`.
        redactor: see `Recording`.

    Yields:
        The run; set its `answer`.

    Raises:
        RunLocked: somebody else executes it.
        RedactorMissing: it began with a redactor that hides what this one does not.
        Diverged: the code took another way than the journal says.
        RunSuspended: an effect needs a decision.
    """
    options = Options(run_id=run_id, approval=approval, on_unknown=on_unknown, redactor=redactor)
    with opened(where) as journal:
        found = find(journal, run_id)
        if found is not None:
            check_redactor(found, redactor)
        if found is not None and found.status == 'done':
            yield RecordedRun(found.id, answer_of(journal, found), is_done=True)
            return
        if found is None:
            recording = begin(journal, options, run_id or uuid.uuid4().hex, title, None)
        else:
            recording = take_up(journal, options, found.id)
        run = RecordedRun(recording.run.id)
        try:
            with run_context(run_id=run.id), recording.active():
                yield run
                recording.check_end()
            recording.release('done', run.answer)
        except BaseException as error:
            fail(recording, error)
            raise


def fail(recording: Recording, error: BaseException) -> None:
    """Say that an attempt has failed or is suspended; its own troubles don't hide why."""
    status = 'suspended' if isinstance(error, RunSuspended) else 'failed'
    try:
        recording.release(status, error)  # type: ignore[arg-type]
    except JournalError:
        recording.abandon()  # this process may go on with it at once, others when the lease ends
