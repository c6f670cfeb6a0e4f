"""A run that hides secrets of its caller's own goes on only where they are hidden again.

The secrets can't be kept with the run, nor anything that is derived from them: only how many there
are.
"""

from typing import Any

from lagent.journal.contract import Run
from lagent.journal.errors import RedactorMissing
from lagent.journal.redact import Redactor
from lagent.journal.validation import damaged, opening
from lagent.utils.counts import many


def noted(redactor: Redactor | None) -> dict[str, Any] | None:
    """What a journal keeps of a redactor; None if it hides no more than any other.

    Args:
        redactor: what the run begins with.
    """
    if redactor is None or (type(redactor) is Redactor and redactor.own == (0, 0)):
        return None
    values, rules = redactor.own
    return {'type': _name(type(redactor)), 'values': values, 'rules': rules}


def check_redactor(run: Run, redactor: Redactor | None) -> None:
    """Refuse to go on with a run whose secrets would not be hidden.

    Args:
        run: the run.
        redactor: what is going to take out secrets now.

    Raises:
        RedactorMissing: it began with a redactor, and this is none, one of another class, or one
            with fewer secrets or rules.
        NotReadable: the journal is damaged.
    """
    begun = opening(run).get('redactor')
    if begun is None:
        return
    if not _is_noted(begun):
        raise damaged(f'it does not say with which redactor run {run.id!r} began')
    values, rules = (0, 0) if redactor is None else redactor.own
    kinds = {_name(kind) for kind in type(redactor).__mro__}
    if begun['type'] in kinds and values >= begun['values'] and rules >= begun['rules']:
        return
    now = 'none is given now' if redactor is None else f'this one has {values} and {rules}'
    raise RedactorMissing(
        f'Run {run.id!r} began with a redactor of your own ({many(begun["values"], "value")} '
        f'and {many(begun["rules"], "rule")}), and {now}: its secrets would be written and shown. '
        'Nothing was done. Give the same redactor to run(redactor=...), rerun, record, edit or '
        'reject, or let the function that makes the agent set its `redactor`: name it with --agent '
        'MODULE:FUNCTION, unless the run has it as its factory.'
    )


def _is_noted(begun: Any) -> bool:
    kinds = {'type': str, 'values': int, 'rules': int}
    return isinstance(begun, dict) and all(
        isinstance(begun.get(name), kind) for name, kind in kinds.items()
    )


def _name(kind: type) -> str:
    return f'{kind.__module__}:{kind.__qualname__}'
