"""Values of cells and points as JSON: short, and whatever they are."""

import math
import reprlib
from typing import Any

MOST_TEXT = 200
_LARGEST_INT = 1 << 53  # beyond it, what reads JSON as floating point would show another number
_MISSING = frozenset(('NAType', 'NaTType'))
_TIMES = frozenset(('datetime64', 'timedelta64'))  # their items may be bare numbers


def plain(value: Any) -> Any:
    """Return a number, a truth value, a short text, or None for what is missing."""
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if -_LARGEST_INT < value < _LARGEST_INT else text(value)
    if kind is float:
        return value if math.isfinite(value) else None if math.isnan(value) else str(value)
    if kind.__name__ in _MISSING:
        return None
    if kind.__module__ == 'numpy' and kind.__name__ not in _TIMES and not getattr(value, 'ndim', 1):
        item = value.item()
        return text(value) if type(item) is kind else plain(item)
    return text(value)


def text(value: Any) -> str:
    """Return the text of a value, cut where it is long."""
    if isinstance(value, str | bytes):
        value = value[:MOST_TEXT]
    if isinstance(value, list | tuple | dict | set | frozenset):
        return reprlib.repr(value)[:MOST_TEXT]
    try:
        return str(value)[:MOST_TEXT]
    except Exception:
        return f'<{type(value).__name__}>'


def name(parts: Any) -> str:
    """Return the name of a column; one of several levels has a stroke between them."""
    if isinstance(parts, tuple):
        return ' / '.join(map(text, parts))[:MOST_TEXT]
    return '' if parts is None else text(parts)


def places(count: int, most: int) -> list[int]:
    """Return at most so many places of a sequence, evenly over all of it, its ends among them."""
    if count <= most:
        return list(range(count))
    return [round(at * (count - 1) / (most - 1)) for at in range(most)]
