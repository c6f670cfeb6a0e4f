"""Files that hold several things: workbooks, Parquet, databases and archives."""

import sqlite3
import time
import zipfile
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from .columns import column
from .delimited import MAX_COLUMNS, SHOWN_ROWS
from .documents import Unreadable, needed
from .words import many

MAX_TABLES = 30
_SAMPLE = 200
_MAX_MEMBERS = 30
_UNPACKED_BYTES = 64 * 1024 * 1024  # a workbook over this is only streamed through
_COUNT_SECONDS = 1.0

Profile = dict[str, Any]


def archive_profile(path: Path) -> Profile:
    """Describe a ZIP file, or the workbook that it is."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, NotImplementedError, UnicodeError) as error:
        raise Unreadable(f'it could not be read as ZIP: {error}') from None
    names = {member.filename for member in members}
    unpacked = sum(member.file_size for member in members)
    if 'xl/workbook.xml' in names:
        return _workbook(path, unpacked <= _UNPACKED_BYTES)
    files = [member for member in members if not member.is_dir()]
    listed = [
        f'{member.filename} ({many(member.file_size, "byte")})' for member in files[:_MAX_MEMBERS]
    ]
    if more := len(files) - len(listed):
        listed.append(f'and {more:,} more')
    notes = [f'{many(len(files), "file")}, {many(unpacked, "byte")} unpacked', *listed]
    if any(member.flag_bits & 1 for member in files):
        notes.insert(1, 'some of them are encrypted')
    return {'kind': 'archive', 'notes': notes}


def _workbook(path: Path, small: bool) -> Profile:
    openpyxl = needed('openpyxl')
    try:
        # Only a workbook that is loaded whole knows its merged cells.
        book = openpyxl.load_workbook(path, read_only=not small, data_only=True)
        tables = [_sheet(sheet, small) for sheet in book.worksheets[:MAX_TABLES]]
        count = len(book.worksheets)
        book.close()
    except Exception as error:
        name = type(error).__name__
        raise Unreadable(f'it could not be read as a workbook: {name}: {error}') from error
    notes = [] if small else ['a large workbook: merged cells were not looked for']
    if count > len(tables):
        notes.append(f'only the first {len(tables)} of {count} sheets were looked at')
    return {'kind': 'workbook', 'tables': tables, 'notes': notes}


def _sheet(sheet: Any, small: bool) -> Profile:
    width = min(sheet.max_column or 0, MAX_COLUMNS)
    rows = [
        ['' if value is None else str(value) for value in row]
        for row in islice(sheet.iter_rows(max_col=width or None, values_only=True), _SAMPLE)
    ]
    notes = []
    if sheet.sheet_state != 'visible':
        notes.append(f'the sheet is {sheet.sheet_state}')
    header = 1
    merged = list(sheet.merged_cells.ranges) if small else []
    if merged:
        named = ', '.join(str(area) for area in merged[:10])
        notes.append(f'merged cells: {named}' + (' and more' if len(merged) > 10 else ''))
        top = [area for area in merged if area.min_row == 1 and area.max_row < len(rows)]
        if any(area.max_col > area.min_col for area in top):
            header = 1 + max(area.max_row for area in top)
            notes.append(f'the header has merged cells over {header} rows')
    if not any(map(any, rows)):
        return {'name': sheet.title, 'notes': ['the sheet is empty']}
    names = _headings(rows[:header], [area.bounds for area in merged])
    body = rows[header:]
    return {
        'name': sheet.title,
        'columns': [column(name, (row[n] for row in body)) for n, name in enumerate(names)],
        'width': sheet.max_column or len(names),
        'rows': body[:SHOWN_ROWS],
        'sample': len(body),
        'header_rows': header,
        'total': max((sheet.max_row or len(rows)) - header, 0),
        'notes': notes,
    }


def _headings(rows: list[list[str]], merged: Sequence[Sequence[int]]) -> list[str]:
    """Return a name for each column; of several header rows, their parts joined by a slash."""
    filled = [list(row) for row in rows]
    for left, top, right, _ in merged:
        if top <= len(filled):
            filled[top - 1][left - 1 : right] = [filled[top - 1][left - 1]] * (right - left + 1)
    parts = ([part for part in column if part] for column in zip(*filled, strict=False))
    return [' / '.join(dict.fromkeys(names)) for names in parts]


def parquet_profile(path: Path) -> Profile:
    """Describe a Parquet file by its schema and first rows."""
    parquet = needed('pyarrow.parquet')
    try:
        with parquet.ParquetFile(path) as file:
            fields = list(file.schema_arrow)[:MAX_COLUMNS]
            names = [field.name for field in fields]
            batches = file.iter_batches(batch_size=SHOWN_ROWS, columns=names)
            records = next(iter(batches)).to_pylist() if file.metadata.num_rows else []
            table = {
                'name': '',
                'columns': [{'name': f.name, 'type': str(f.type)} for f in fields],
                'width': len(file.schema_arrow),
                'rows': [[str(record[name])[:200] for name in names] for record in records],
                'total': file.metadata.num_rows,
            }
    except Exception as error:
        raise Unreadable(f'it could not be read as Parquet: {type(error).__name__}') from error
    return {'kind': 'parquet', 'tables': [table], 'notes': []}


def database_profile(path: Path) -> Profile:
    """Describe an SQLite database by its tables and views, without changing it."""
    uri = f'{path.resolve().as_uri()}?mode=ro&immutable=1'
    try:
        connection = sqlite3.connect(uri, uri=True)
        connection.text_factory = lambda data: data.decode('utf-8', 'replace')
        try:
            named = connection.execute(
                "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view')"
                " AND name NOT LIKE 'sqlite_%' ORDER BY type, name"
            ).fetchall()
            tables = [_relation(connection, *one) for one in named[:MAX_TABLES]]
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise Unreadable(f'it could not be read as SQLite: {error}') from None
    notes = [f'tables and views: {len(named):,}']
    if len(named) > len(tables):
        notes.append(f'only the first {len(tables)} were looked at')
    return {'kind': 'database', 'tables': tables, 'notes': notes}


def _relation(connection: sqlite3.Connection, name: str, kind: str) -> Profile:
    quoted = '"' + name.replace('"', '""') + '"'
    about = _all(connection, f'PRAGMA table_info({quoted})')[:MAX_COLUMNS]
    notes = ['a view'] if kind == 'view' else []
    deadline = time.monotonic() + _COUNT_SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
    rows: Iterable[Sequence[Any]] = []
    total = None
    try:
        # A name in SQL can't be a parameter; it is quoted above.
        rows = _all(connection, f'SELECT * FROM {quoted} LIMIT {SHOWN_ROWS}')  # noqa: S608
        total = _all(connection, f'SELECT count(*) FROM {quoted}')[0][0]  # noqa: S608
    except sqlite3.OperationalError as error:
        notes.append(f'not counted: {error}')
    finally:
        connection.set_progress_handler(None, 0)
    return {
        'name': name,
        'columns': [{'name': field[1], 'type': field[2].lower() or 'any'} for field in about],
        'width': len(about),
        'rows': [[_shown(value) for value in row[:MAX_COLUMNS]] for row in rows],
        'total': total,
        'notes': notes,
    }


def _all(connection: sqlite3.Connection, query: str) -> list[Sequence[Any]]:
    return connection.execute(query).fetchall()


def _shown(value: Any) -> str:
    if value is None:
        return ''
    return f'<{many(len(value), "byte")}>' if isinstance(value, bytes) else str(value)[:200]
