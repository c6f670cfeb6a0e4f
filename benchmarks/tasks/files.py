"""Whether the files that a task asks for were made. What is in them is not to be trusted."""

import csv
import json
import warnings
from pathlib import Path
from typing import Any

from benchmarks.tasks.checks import is_same
from benchmarks.tasks.task import Artifact
from lagent.utils.counts import many

MOST_BYTES = 8 << 20
_LEAST_SIDE, _MOST_PIXELS = 100, 50_000_000


def problem(expected: Artifact, path: Path) -> str:
    """Find out what is wrong with a file.

    Args:
        expected: what the file should be.
        path: a copy of it on the host.

    Returns:
        What is wrong, in words; empty if nothing is.
    """
    if path.stat().st_size > MOST_BYTES:
        return f'it has more than {MOST_BYTES:,} bytes'
    if expected.kind == 'png':
        return _picture(path)
    try:
        text = path.read_text(encoding='utf-8-sig')
        return _table(expected, text) if expected.kind == 'csv' else _object(expected, text)
    except (UnicodeDecodeError, csv.Error, json.JSONDecodeError, RecursionError) as error:
        return f'it could not be read: {error}'


def _picture(path: Path) -> str:
    from PIL import Image, UnidentifiedImageError

    broken = (UnidentifiedImageError, Image.DecompressionBombError)
    try:
        with warnings.catch_warnings(action='error'), Image.open(path, formats=['PNG']) as image:
            width, height = image.size
            if min(width, height) < _LEAST_SIDE or width * height > _MOST_PIXELS:
                return f'it is {width} by {height} pixels'
            low, high = image.convert('L').getextrema()
    except (*broken, OSError, SyntaxError, ValueError, Warning) as error:
        return f'it is no picture: {error}'
    return 'all of its pixels are alike' if low == high else ''


def _table(expected: Artifact, text: str) -> str:
    header, *rows = [row for row in csv.reader(text.splitlines(), strict=True) if row] or [[]]
    if sorted(header) != sorted(expected.columns):
        return f'its columns are {header!r:.200}'
    if expected.count is not None and len(rows) != expected.count:
        return f'it has {many(len(rows), "row")}'
    if any(len(row) != len(header) for row in rows):
        return 'its rows are not all as long as its header'
    order = [header.index(name) for name in expected.columns]
    found = [[row[at] for at in order] for row in rows]
    for right in expected.rows:
        if not any(_alike(row, right, expected.decimals) for row in found):
            return f'it has no row {list(right)}'
    return ''


def _alike(row: list[str], right: tuple[Any, ...], decimals: int | None) -> bool:
    return all(is_same(value, each, decimals) for value, each in zip(row, right, strict=True))


def _object(expected: Artifact, text: str) -> str:
    content, right = json.loads(text), expected.equals or {}
    if not isinstance(content, dict) or content.keys() != right.keys():
        return f'it is no object with the keys {", ".join(right)}'
    for name, value in right.items():
        given = content[name]
        if isinstance(given, str) != isinstance(value, str) or not is_same(
            given, value, expected.decimals
        ):
            return f'its {name} is {given!r:.100}'
    return ''
