"""Tables as text: which sign separates the fields, and what the columns hold."""

import collections
import csv
import io
from pathlib import Path
from typing import Any

from .columns import column, looks_like_data
from .encodings import decode
from .words import many

HEAD_BYTES = 256 * 1024
COUNTED_BYTES = 32 * 1024 * 1024
SAMPLE_ROWS = 1_000
SHOWN_ROWS = 5
MAX_COLUMNS = 200
_DELIMITERS = (',', ';', '\t', '|', ':')
_CONSISTENT = 0.9
_TABLES = ('.csv', '.tsv', '.tab', '.psv')
_MAYBE_TABLES = ('', '.txt', '.dat', '.log', '.asc')

Profile = dict[str, Any]


def text_profile(path: Path, size: int) -> Profile | None:
    """Describe a file of text, as a table if it is one; None for a file that is no text."""
    with path.open('rb') as file:
        head = file.read(HEAD_BYTES)
    whole = len(head) >= size
    found = decode(head, whole=whole)
    if found is None:
        return None
    text, encoding, guessed = found
    if not whole:
        text = text[: text.rfind('\n') + 1] or text  # the last line is cut
    named = path.suffix.lower() in _TABLES
    about = {'encoding': encoding}
    notes = ['the encoding is a guess'] if guessed else []
    delimiter, share = _delimiter(text)
    likely = path.suffix.lower() in _MAYBE_TABLES and text.count('\n') > 1
    if named or (likely and delimiter and delimiter != ':' and share >= _CONSISTENT):
        table = _table(path, size, text, encoding, delimiter)
        return {'kind': 'table', **about, **table, 'notes': notes + table['notes']}
    lines = text.splitlines()
    count = len(lines) if whole else len(lines) * size // max(len(head), 1)
    counted = f'{"" if whole else "about "}{many(count, "line")}'
    return {'kind': 'text', **about, 'text': text[:2_000], 'notes': [*notes, counted]}


def _rows(text: str, delimiter: str | None, limit: int) -> list[list[str]]:
    csv.field_size_limit(HEAD_BYTES * 4)
    if delimiter is None:
        return [[line] for line in text.splitlines() if line.strip()][:limit]
    rows = []
    reader = csv.reader(io.StringIO(text, newline=''), delimiter=delimiter)
    try:
        for row in reader:
            if row:
                rows.append(row)
            if len(rows) >= limit:
                break
    except csv.Error:
        pass  # what came before is a fair sample
    return rows


def _delimiter(text: str) -> tuple[str | None, float]:
    """Return the sign that gives most lines the same number of fields, and their share."""
    best: tuple[float, int, str | None] = (0.0, 1, None)
    for delimiter in _DELIMITERS:
        rows = _rows(text, delimiter, 200)
        if not rows:
            continue
        width, count = collections.Counter(map(len, rows)).most_common(1)[0]
        if width > 1 and (share := count / len(rows)) >= 0.5:
            best = max(best, (round(share, 1), width, delimiter), key=lambda one: one[:2])
    return best[2], best[0]


def _table(path: Path, size: int, text: str, encoding: str, delimiter: str | None) -> Profile:
    rows = _rows(text, delimiter, SAMPLE_ROWS)
    if not rows:
        return {'delimiter': delimiter, 'tables': [], 'notes': ['there are no rows']}
    width = collections.Counter(map(len, rows)).most_common(1)[0][0]
    skip = next(number for number, row in enumerate(rows) if len(row) == width)
    body = rows[skip:]
    header = _has_header(body)
    names = body[0] if header else [f'column {number}' for number in range(1, width + 1)]
    data = body[1:] if header else body
    even = [row for row in data if len(row) == width]
    columns = [
        column(name, [row[number] for row in even])
        for number, name in enumerate(names[:MAX_COLUMNS])
    ]
    total, estimated = _total(path, size, text, encoding, delimiter)
    notes = []
    if skip:
        notes.append(f'{many(skip, "line")} before the table with another number of fields')
    if not header:
        notes.append('the first line is data: there is no header')
    if len(even) < len(data):
        odd = len(data) - len(even)
        notes.append(f'rows with another number of fields: {odd} of the first {len(data):,}')
    signs = {sign: value for one in columns for sign, value in one.items() if _is_sign(sign)}
    table = {
        'name': '',
        'columns': [{k: v for k, v in one.items() if not _is_sign(k)} for one in columns],
        'width': width,
        'rows': [row[:MAX_COLUMNS] for row in data[:SHOWN_ROWS]],
        'sample': len(even),
        'total': max(total - skip - header, 0),
        'estimated': estimated,
    }
    if signs.get('thousands') == signs.get('decimal'):
        signs.pop('thousands', None)  # 1,234 beside 1,5: the comma stands before decimals
    lines = _line_of(text, delimiter, skip) if skip else 0
    reading = {'delimiter': delimiter, 'header': header, 'skip': lines, **signs}
    return {**reading, 'tables': [table], 'notes': notes}


def _line_of(text: str, delimiter: str | None, number: int) -> int:
    """Return how many lines come before a row; empty ones are lines but no rows."""
    reader = csv.reader(io.StringIO(text, newline=''), delimiter=delimiter or '\0')
    before = 0
    for row in reader:
        if row and number == 0:
            break
        number -= bool(row)
        before = reader.line_num
    return before


def _is_sign(key: str) -> bool:
    return key in ('decimal', 'thousands')


def _has_header(rows: list[list[str]]) -> bool:
    first = [cell.strip() for cell in rows[0]]
    if any(map(looks_like_data, first)) or not any(first):
        return False
    if len(rows) == 1:
        return True
    named = [cell for cell in first if cell]
    return len(set(named)) == len(named) or any(map(looks_like_data, rows[1]))


def _total(
    path: Path, size: int, text: str, encoding: str, delimiter: str | None
) -> tuple[int, bool]:
    """Return the number of rows, and whether it is an estimate from the first ones."""
    if size > COUNTED_BYTES:
        sample = _rows(text, delimiter, len(text))
        length = len(text.encode(encoding, 'replace'))
        return len(sample) * size // max(length, 1), True
    with path.open(encoding=encoding, errors='replace', newline='') as file:
        if delimiter is None:
            return sum(1 for line in file if line.strip()), False
        try:
            return sum(1 for row in csv.reader(file, delimiter=delimiter) if row), False
        except csv.Error:
            file.seek(0)
            return sum(1 for line in file if line.strip()), True
