"""Runs as a whole: begin one or take it up again, and decide what a suspended one waits for."""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lagent.context import run_context
from lagent.errors import JournalError, RunSuspended
from lagent.journal.approval import Approval
from lagent.journal.codec import Decoder, Encoder
from lagent.journal.contract import Journal, Record, Run
from lagent.journal.errors import (
    NoSuchRun,
    NothingToDecide,
    PolicyMissing,
    RunLocked,
    Unfinished,
)
from lagent.journal.failures import decode_error
from lagent.journal.lease import LEASE, new_owner
from lagent.journal.own_redactor import check_redactor, noted
from lagent.journal.recording import Approver, OnUnknown, Recording
from lagent.journal.redact import Redactor
from lagent.journal.rerunning import is_rerunning
from lagent.journal.store import SqliteJournal, SqlJournal

Where = Journal | str | os.PathLike[str]
"""A journal, the path of a file, or the URL of a database that SQLAlchemy knows."""

_TITLE = 120  # characters
_OWN_POLICY = 'of the caller'  # instead of a policy that can't be written


def _can_be_kept(policy: Approver) -> bool:
    return type(policy) is Approval and policy.when is None


def open_journal(where: Where) -> tuple[Journal, bool]:
    """A journal, opened if it is not one already; waits for the disk or the server.

    Args:
        where: see `Where`.

    Returns:
        The journal, and whether it was opened here and so is to be closed by the caller.
    """
    if not isinstance(where, str | os.PathLike):
        return where, False
    is_url = isinstance(where, str) and '://' in where
    return (SqlJournal(where) if is_url else SqliteJournal(where)), True


def check_there(where: Where) -> None:
    """Refuse to make the file of a journal that is only going to be read.

    Raises:
        JournalError: there is none.
    """
    if not isinstance(where, str | os.PathLike) or '://' in (path := os.fspath(where)):
        return
    if not Path(path).exists():
        raise JournalError(f'There is no journal {path}. Name the one that has the run.')


@contextmanager
def opened(where: Where) -> Iterator[Journal]:
    """A journal, which is closed again if it was opened here.

    Args:
        where: see `Where`.

    Yields:
        The journal.
    """
    journal, is_own = open_journal(where)
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
        on_unknown: see `Recording`.
        redactor: see `Recording`.
        factory: ``module:function`` that makes what is run, for ``lagent runs resume``.
    """

    run_id: str | None = None
    approval: Approver | None = None
    on_unknown: OnUnknown = 'tell'
    redactor: Redactor | None = None
    factory: str = ''

    def recording(self, journal: Journal, run: Run, owner: str) -> Recording:
        """An attempt at a run with these options, under a lease that is held already."""
        return Recording(
            journal,
            run,
            owner,
            approval=self.approval,
            on_unknown=self.on_unknown,
            redactor=self.redactor,
        )


def find(journal: Journal, run_id: str | None) -> Run | None:
    """A run, or None for one that is new; waits for the journal."""
    if run_id is None:
        return None
    try:
        return journal.run(run_id)
    except NoSuchRun:
        return None


def begin(journal: Journal, options: Options, run_id: str, title: str, opening: Any) -> Recording:
    """Add a run, and hold its lease; waits for the journal.

    Args:
        journal: where.
        options: how.
        run_id: its name.
        title: what it is about.
        opening: all that is needed to begin it again.

    Returns:
        The first attempt.

    Raises:
        RunLocked: somebody else has begun a run of that id.
        NotRecordable: something of the opening can't be written.
    """
    _refuse_while_rerunning(run_id)
    redactor = options.redactor or Redactor()
    encoder, now, owner = Encoder(redactor), time.time(), new_owner()
    policy = options.approval
    kept = policy if policy is None or _can_be_kept(policy) else _OWN_POLICY
    run = Run(
        id=run_id,
        title=redactor.text(' '.join(title.split()))[:_TITLE],
        created=now,
        updated=now,
        opening={
            'value': encoder.encode(opening),
            'approval': encoder.encode(kept),
            'redactor': noted(options.redactor),
        },
        factory=options.factory,
        owner=owner,
        expires=now + LEASE,
    )
    journal.begin(run, encoder.blobs)
    return options.recording(journal, run, owner)


def take_up(journal: Journal, options: Options, run_id: str) -> Recording:
    """Hold the lease of a run that was begun earlier; waits for the journal.

    Raises:
        RunLocked: somebody else executes it.
        PolicyMissing: it began with an approval policy that can't be kept, and none is given now.
    """
    _refuse_while_rerunning(run_id)
    policy = options.approval
    if policy is None:
        begun = journal.run(run_id).opening
        policy = Decoder(journal.blob).decode(begun['approval']) if begun else None
        if policy == _OWN_POLICY:
            raise PolicyMissing(
                f'Run {run_id!r} began with an approval policy of your own. Resume it with the '
                'same one, or with Approval() if nothing needs a yes any more.'
            )
        options = replace(options, approval=policy)
    owner = new_owner()
    run = journal.acquire(run_id, owner, time.time() + LEASE)
    if run.status == 'done':
        journal.release(run_id, owner, 'done', run.outcome, {})
        raise RunLocked(f'Run {run_id!r} was ended by somebody else at this moment.')
    return options.recording(journal, run, owner)


def _refuse_while_rerunning(run_id: str) -> None:
    if is_rerunning():
        raise Unfinished(run_id, 'part of a run that only its journal answers', 'its end')


def opening_of(journal: Journal, run: Run) -> Any:
    """What a run began with, as `begin` was given it; waits for the journal."""
    return Decoder(journal.blob).decode((run.opening or {}).get('value'))


def answer_of(journal: Journal, run: Run) -> Any:
    """What a run has ended with.

    Args:
        journal: where it is recorded.
        run: the run.

    Returns:
        The answer, or the exception; None if it has not ended.
    """
    decoder = Decoder(journal.blob)
    outcome = run.outcome or {}
    if 'error' in outcome:
        return decode_error(outcome['error'], decoder)
    return decoder.decode(outcome.get('answer'))


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
    on_unknown: OnUnknown = 'tell',
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
        on_unknown: see `Recording`.
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
        if found is not None and found.status == 'done':
            yield RecordedRun(found.id, answer_of(journal, found), is_done=True)
            return
        if found is None:
            recording = begin(journal, options, run_id or uuid.uuid4().hex, title, None)
        else:
            check_redactor(found, redactor)
            recording = take_up(journal, options, found.id)
        run = RecordedRun(recording.run.id)
        try:
            with run_context(run_id=run.id), recording.active():
                yield run
                recording.check_end()
        except BaseException as error:
            fail(recording, error)
            raise
        recording.release('done', run.answer)


def fail(recording: Recording, error: BaseException) -> None:
    """Say that an attempt has failed or is suspended; its own troubles don't hide why."""
    status = 'suspended' if isinstance(error, RunSuspended) else 'failed'
    with suppress(JournalError):
        recording.release(status, error)  # type: ignore[arg-type]


def pending(journal: Journal, run_id: str) -> Record:
    """What a suspended run waits for.

    Args:
        journal: where it is recorded.
        run_id: the run.

    Returns:
        The first request that nothing is decided about.

    Raises:
        NoSuchRun: there is no such run.
        NothingToDecide: it does not wait for a decision.
    """
    run = journal.run(run_id)
    waiting: dict[str, Record] = {}
    for record_ in journal.records(run_id):
        if record_.type == 'request':
            waiting[record_.position] = record_
        elif record_.type == 'decision':
            waiting.pop(record_.position, None)
    if not waiting or run.status == 'done':
        raise NothingToDecide(f'Run {run_id!r} is {run.status} and does not wait for a decision.')
    return next(iter(waiting.values()))


def approve(journal: Journal, run_id: str) -> Record:
    """Allow what a suspended run waits for; it goes on when it is resumed.

    Args:
        journal: where it is recorded.
        run_id: the run.

    Returns:
        The request.

    Raises:
        NothingToDecide: it does not wait for a decision.
    """
    return _decide(journal, run_id, {'verdict': 'approve'})


def reject(journal: Journal, run_id: str, reason: str = '') -> Record:
    """Forbid what a suspended run waits for; when it is resumed, its model is told why.

    Args:
        journal: where it is recorded.
        run_id: the run.
        reason: for the model.

    Returns:
        The request.

    Raises:
        NothingToDecide: it does not wait for a decision.
    """
    return _decide(journal, run_id, {'verdict': 'reject', 'reason': reason})


def edit(journal: Journal, run_id: str, payload: Any) -> Record:
    """Have something else done than what a suspended run waits for.

    Args:
        journal: where it is recorded.
        run_id: the run.
        payload: the code to run, or the parameters of the tool.

    Returns:
        The request.

    Raises:
        NothingToDecide: it does not wait for a decision, or for one that can't be edited.
    """
    request = pending(journal, run_id)
    if not request.body['editable']:
        raise NothingToDecide(
            f'The {request.kind} call of run {run_id!r} can only be approved or rejected.'
        )
    return _decide(journal, run_id, {'verdict': 'edit', 'payload': payload})


def _decide(journal: Journal, run_id: str, verdict: dict[str, Any]) -> Record:
    request = pending(journal, run_id)
    encoder = Encoder(Redactor())
    decision = Record(
        type='decision',
        position=request.position,
        time=time.time(),
        kind=request.kind,
        name=request.name,
        digest=request.digest,
        body={'why': request.body['why'], **{k: encoder.encode(v) for k, v in verdict.items()}},
    )
    journal.decide(run_id, request.seq, decision, encoder.blobs)
    return request
