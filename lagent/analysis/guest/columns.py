"""What the values of a column are, as far as a sample tells."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

_MISSING = frozenset(('', 'na', 'n/a', 'nan', 'null', 'none', '-', '#n/a'))
_BOOLEAN = frozenset(('true', 'false', 'yes', 'no', 't', 'f', 'y', 'n'))
_INTEGER = re.compile(r'[+-]?\d+\Z')
_ZEROS = re.compile(r'[+-]?0\d')
_POINT = re.compile(r'[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z')
_POINT_GROUPS = re.compile(r'[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?\Z')
_COMMA = re.compile(r'[+-]?\d+,\d+\Z')
_COMMA_GROUPS = re.compile(r'[+-]?\d{1,3}(?:\.\d{3})+(?:,\d+)?\Z')
_DATE = re.compile(r'(?:\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}|\d{4}/\d{1,2}/\d{1,2})')
_TIME = re.compile(r'[ T]\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?\Z')
_MOSTLY = 0.8

Column = dict[str, Any]


def is_missing(value: str) -> bool:
    """Return whether a cell says that there is no value."""
    return value.strip().lower() in _MISSING


def looks_like_data(value: str) -> bool:
    """Return whether a cell is a number or a date, as a heading hardly is."""
    value = value.strip()
    return bool(_is_number(value) or _DATE.match(value))


def column(name: str, values: Iterable[str]) -> Column:
    """Describe a column of text cells.

    Args:
        name: Its heading.
        values: A sample of its cells.

    Returns:
        Its name, its type in words, how many cells of the sample are missing, and, for numbers that
        are not written the usual way, their `decimal` and `thousands` signs.
    """
    cells = [value.strip() for value in values]
    present = [cell for cell in cells if not is_missing(cell)]
    kind, signs = _type(present)
    return {'name': name, 'type': kind, 'missing': len(cells) - len(present), **signs}


def _type(cells: Sequence[str]) -> tuple[str, dict[str, str]]:
    if not cells:
        return 'empty', {}
    if all(map(_INTEGER.match, cells)):
        zeros = any(map(_ZEROS.match, cells))
        return ('text (digits, some with leading zeros)' if zeros else 'integer'), {}
    if all(cell.lower() in _BOOLEAN for cell in cells):
        return 'boolean', {}
    if signs := _number_signs(cells):
        return 'number', signs[0]
    if all(_DATE.match(cell) for cell in cells):
        if all(_DATE.fullmatch(cell) for cell in cells):
            return 'date', {}
        rests = (cell[match.end() :] for cell in cells if (match := _DATE.match(cell)))
        if all(not rest or _TIME.match(rest) for rest in rests):
            return 'date and time', {}
    numbers = sum(map(_is_number, cells))
    return ('text (mostly numbers)' if numbers >= _MOSTLY * len(cells) else 'text'), {}


def _number_signs(cells: Sequence[str]) -> list[dict[str, str]]:
    """Return the signs that the numbers are written with, in a list; nothing for other cells."""
    if all(map(_POINT.match, cells)):
        return [{}]
    if all(_COMMA.match(c) or _COMMA_GROUPS.match(c) or _INTEGER.match(c) for c in cells):
        # 1,234 alone may be either; a point for groups, or another number of digits, decides.
        groups = any('.' in cell for cell in cells)
        if groups or not all(_POINT_GROUPS.match(c) or _INTEGER.match(c) for c in cells):
            return [{'decimal': ',', **({'thousands': '.'} if groups else {})}]
    if all(_POINT.match(cell) or _POINT_GROUPS.match(cell) for cell in cells):
        return [{'thousands': ','}]
    return []


def _is_number(cell: str) -> bool:
    return any(p.match(cell) for p in (_POINT, _POINT_GROUPS, _COMMA, _COMMA_GROUPS))
