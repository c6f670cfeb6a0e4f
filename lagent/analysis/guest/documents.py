"""JSON and PDF."""

import importlib
import json
from pathlib import Path
from typing import Any

from .columns import column
from .delimited import HEAD_BYTES, MAX_COLUMNS, SHOWN_ROWS
from .encodings import decode
from .words import many

_WHOLE_BYTES = 32 * 1024 * 1024
_SAMPLE = 1_000

Profile = dict[str, Any]


class Unreadable(Exception):
    """A file that is not what it seems to be, or that nothing here can read."""


def needed(module: str) -> Any:
    """Import a library that reads a format.

    Raises:
        Unreadable: It is not installed here.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition('.')[0]
        raise Unreadable(f'cannot be read here: {package} is not installed') from None


def json_profile(path: Path, size: int) -> Profile:
    """Describe a file with one JSON value."""
    if size > _WHOLE_BYTES:
        return {'kind': 'json', 'notes': [f'over {_WHOLE_BYTES >> 20} MiB, so it was not parsed']}
    found = decode(path.read_bytes(), whole=True)
    if found is None:
        raise Unreadable('it is no text')
    text, encoding, _ = found
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f'it is no valid JSON: {error}') from None
    return {'kind': 'json', 'encoding': encoding, **_value(value)}


def lines_profile(path: Path, size: int) -> Profile:
    """Describe a file with one JSON value a line."""
    with path.open('rb') as file:
        head = file.read(HEAD_BYTES)
    found = decode(head, whole=len(head) >= size)
    if found is None:
        raise Unreadable('it is no text')
    lines = [line for line in found[0].splitlines() if line.strip()]
    if len(head) < size:
        lines.pop()
    values, bad = [], 0
    for line in lines[:_SAMPLE]:
        try:
            values.append(json.loads(line))
        except (ValueError, RecursionError):
            bad += 1
    if not values:
        raise Unreadable('no line of it is valid JSON')
    table = _records(values)
    estimated = size > _WHOLE_BYTES
    if estimated:
        table['total'] = len(lines) * size // len(head)
    else:
        with path.open('rb') as file:
            table['total'] = sum(1 for line in file if line.strip())
    table['estimated'] = estimated
    notes = (
        [f'lines that are no valid JSON: {bad} of the first {len(lines[:_SAMPLE]):,}']
        if bad
        else []
    )
    return {'kind': 'json lines', 'encoding': found[1], 'tables': [table], 'notes': notes}


def _value(value: Any) -> Profile:
    if isinstance(value, list):
        if value and all(isinstance(item, dict) for item in value[:_SAMPLE]):
            return {'tables': [{**_records(value[:_SAMPLE]), 'total': len(value)}], 'notes': []}
        kinds = sorted({_kind(item) for item in value[:_SAMPLE]})
        return {'notes': [f'a list of {many(len(value), "item")}: {", ".join(kinds) or "none"}']}
    if isinstance(value, dict):
        keys = [f'{key}: {_kind(item)}' for key, item in list(value.items())[:MAX_COLUMNS]]
        return {'notes': [f'an object with {many(len(value), "key")}', *keys[:50]]}
    return {'notes': [f'one {_kind(value)}']}


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return f'list of {len(value):,}'
    if isinstance(value, dict):
        return f'object with {many(len(value), "key")}'
    names = {str: 'text', bool: 'boolean', int: 'integer', float: 'number', type(None): 'null'}
    return names[type(value)]


def _records(values: list[Any]) -> Profile:
    records = [value if isinstance(value, dict) else {'value': value} for value in values]
    names = list(dict.fromkeys(key for record in records for key in record))[:MAX_COLUMNS]
    shown = [[_cell(record.get(name)) for name in names] for record in records]
    columns = [
        _typed(name, [record.get(name) for record in records], [row[n] for row in shown])
        for n, name in enumerate(names)
    ]
    return {
        'name': '',
        'columns': columns,
        'width': len(names),
        'rows': shown[:SHOWN_ROWS],
        'sample': len(records),
        'total': len(records),
    }


def _typed(name: str, values: list[Any], cells: list[str]) -> Profile:
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {str}:
        return column(name, cells)
    names = {bool: 'boolean', int: 'integer', float: 'number', str: 'text'}
    kind = ' or '.join(sorted({names.get(k, k.__name__) for k in kinds}))
    return {'name': name, 'type': kind, 'missing': sum(value is None for value in values)}


def _cell(value: Any) -> str:
    if value is None:
        return ''
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text[:200]


def pdf_profile(path: Path) -> Profile:
    """Describe a PDF by its number of pages and the text of the first ones."""
    pypdf = needed('pypdf')
    try:
        reader = pypdf.PdfReader(path)
        is_open = not reader.is_encrypted or reader.decrypt('')
        count = len(reader.pages) if is_open else 0
        texts = [page.extract_text() or '' for page in reader.pages[:3]] if is_open else []
    except Exception as error:
        raise Unreadable(f'it could not be read as PDF: {type(error).__name__}') from error
    if not is_open:
        raise Unreadable('it is encrypted')
    return {'kind': 'pdf', 'text': '\n'.join(texts)[:2_000], 'notes': [many(count, 'page')]}
