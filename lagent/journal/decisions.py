"""What a person decides about a run that waits: to allow, forbid or change what it asked for."""

import time
from typing import Any

from lagent.journal.codec import Decoder, Encoder, canonical
from lagent.journal.contract import Journal, Record
from lagent.journal.errors import NothingToDecide, NotRecordable
from lagent.journal.redact import Redactor
from lagent.journal.redactor_check import check_redactor
from lagent.journal.secret_fields import REDACTED
from lagent.journal.validation import records_of


def pending(journal: Journal, run_id: str, position: str | None = None) -> Record:
    """What a suspended run waits for.

    Args:
        journal: where it is recorded.
        run_id: the run.
        position: the effect that it should be about; any by default.

    Returns:
        The first request that nothing is decided about.

    Raises:
        NoSuchRun: there is no such run.
        NothingToDecide: it does not wait for a decision.
    """
    run = journal.run(run_id)
    waiting: dict[str, Record] = {}
    for record in records_of(journal, run_id):
        if record.type == 'request':
            waiting[record.position] = record
        elif record.type != 'note':  # a decision, or it was done by another policy
            waiting.pop(record.position, None)
    if not waiting or run.status == 'done':
        raise NothingToDecide(f'Run {run_id!r} is {run.status} and does not wait for a decision.')
    if position is None:
        return next(iter(waiting.values()))
    if position not in waiting:
        raise NothingToDecide(
            f'Run {run_id!r} does not wait for a decision about effect {position} (any more), but '
            f'about {", ".join(waiting)}. Look at that first.'
        )
    return waiting[position]


def approve(journal: Journal, run_id: str, position: str | None = None) -> Record:
    """Allow what a suspended run waits for; it goes on when it is resumed.

    Args:
        journal: where it is recorded.
        run_id: the run.
        position: the effect that was looked at (`Record.position` of what `pending` gave, or
            `RunSuspended.position`); by default whatever the run waits for now.

    Returns:
        The request.

    Raises:
        NothingToDecide: it does not wait for a decision.
    """
    return _decide(journal, run_id, {'verdict': 'approve'}, position)


def reject(
    journal: Journal,
    run_id: str,
    reason: str = '',
    position: str | None = None,
    *,
    redactor: Redactor | None = None,
) -> Record:
    """Forbid what a suspended run waits for; when it is resumed, its model is told why.

    Args:
        journal: where it is recorded.
        run_id: the run.
        reason: for the model.
        position: see `approve`.
        redactor: takes secrets out of the reason; the one of the run, if it has one.

    Returns:
        The request.

    Raises:
        NothingToDecide: it does not wait for a decision.
        RedactorMissing: there is a reason, and the run began with a redactor that hides what this
            one does not.
    """
    if reason:
        check_redactor(journal.run(run_id), redactor)
    verdict = {'verdict': 'reject', 'reason': reason}
    return _decide(journal, run_id, verdict, position, redactor)


def edit(
    journal: Journal,
    run_id: str,
    payload: Any,
    position: str | None = None,
    *,
    redactor: Redactor | None = None,
) -> Record:
    """Have something else done than what a suspended run waits for.

    Args:
        journal: where it is recorded.
        run_id: the run.
        payload: the code to run, or the parameters of the tool.
        position: see `approve`.
        redactor: the one of the run, if it has one.

    Returns:
        The request.

    Raises:
        NotRecordable: the payload holds a secret, or ``[redacted]`` in the place of one: the
            journal, from which it is going to be done, keeps none.
        NothingToDecide: it does not wait for a decision, or for one that can't be edited.
        RedactorMissing: the run began with a redactor that hides what this one does not.
    """
    check_redactor(journal.run(run_id), redactor)
    request = pending(journal, run_id, position)
    if not request.body['editable']:
        raise NothingToDecide(
            f'The {request.kind} call of run {run_id!r} can only be approved or rejected.'
        )
    encoder = Encoder(redactor := redactor or Redactor())
    tree = encoder.encode(payload)
    is_kept = Decoder(encoder.blobs.__getitem__).decode(tree) == payload
    holes = [canonical(tree).encode(), *encoder.blobs.values()]
    if not is_kept or any(REDACTED.encode() in data for data in holes):
        raise NotRecordable(
            'What is to be done instead holds a secret, or [redacted] in the place of one. It '
            'would be done without it, as a journal keeps no secrets. Nothing was decided: let the '
            'code or the tool read it from where it is kept.'
        )
    verdict = {'verdict': 'edit', 'payload': payload}
    return _decide(journal, run_id, verdict, request.position, redactor)


def _decide(
    journal: Journal,
    run_id: str,
    verdict: dict[str, Any],
    position: str | None,
    redactor: Redactor | None = None,
) -> Record:
    request = pending(journal, run_id, position)
    encoder = Encoder(redactor or Redactor())
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
