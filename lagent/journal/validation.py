"""Records as a program may rely on them: a file may have been damaged, or changed by hand."""

from collections.abc import Iterable
from typing import Any

from lagent.journal.contract import Journal, Record, Run
from lagent.journal.errors import NotReadable

_PARTS = {
    'error': ('type', 'words', 'final', 'harmless'),
    'request': ('why', 'words', 'payload', 'editable'),
    'decision': ('why', 'verdict'),
}
_BY_VERDICT = {'approve': (), 'reject': ('reason',), 'edit': ('payload',)}


def damaged(what: str) -> NotReadable:
    """The error for what nothing that records runs has written.

    Args:
        what: what is wrong.
    """
    return NotReadable(
        f'The journal is damaged: {what}. The run can not be read. Restore the journal from a '
        'copy, or begin a new run under another id.'
    )


def records_of(journal: Journal, run_id: str) -> list[Record]:
    """All records of a run; waits for the journal.

    Args:
        journal: where it is recorded.
        run_id: the run.

    Returns:
        The records, in order: each outcome and decision belongs to an effect before it.

    Raises:
        NotReadable: the journal is damaged.
        JournalUnavailable: it can't be read.
    """
    return list(_checked(journal.records(run_id)))


def _checked(records: Iterable[Record]) -> Iterable[Record]:
    known: set[str] = set()
    for record in records:
        if record.type in ('intent', 'request'):
            known.add(record.position)
        elif record.type != 'note' and record.position not in known:
            raise damaged(f'record {record.seq} is of an effect that was never begun')
        parts = _PARTS.get(record.type, ())
        if parts and not _has(record.body, parts):
            raise damaged(f'record {record.seq} lacks parts of its {record.type}')
        if record.type == 'decision':
            verdict = record.body['verdict']
            if verdict not in _BY_VERDICT or not _has(record.body, _BY_VERDICT[verdict]):
                raise damaged(f'record {record.seq} has no such verdict')
        yield record


def opening(run: Run) -> dict[str, Any]:
    """What a run began with, encoded.

    Args:
        run: the run.

    Returns:
        ``value`` and ``approval``.

    Raises:
        NotReadable: the journal is damaged.
    """
    if not _has(run.opening, ('value', 'approval')):
        raise damaged(f'it does not say what run {run.id!r} began with')
    begun: dict[str, Any] = run.opening
    return begun


def _has(body: Any, parts: tuple[str, ...]) -> bool:
    return isinstance(body, dict) and all(part in body for part in parts)
