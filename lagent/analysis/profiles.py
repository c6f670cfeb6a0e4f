"""What is known of a file: typed, bounded, and believed by nobody."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from lagent.utils.counts import many
from lagent.view.controls import without_controls
from lagent.view.sizes import size_text

_MAX_TEXT = 204  # what the guest shortens names and cells to, with the dots behind them
_MAX_COLUMNS = 200
_MAX_ROWS = 5
_MAX_TABLES = 30
_MAX_NOTES = 60
_MAX_HEAD = 2_000
_MAX_ERROR = 1_000

_SUFFIXES = {'gzip': '.gz', 'bz2': '.bz2', 'xz': '.xz'}  # by which pandas knows them itself

_SHOWN_COLUMNS = 30
_SHOWN_CELL = 40


def _clean(value: Any) -> Any:
    return without_controls(value[:_MAX_TEXT]) if isinstance(value, str) else value


def _text(longest: int) -> BeforeValidator:
    return BeforeValidator(lambda value: without_controls(str(value)[:longest]))


def _first(count: int) -> BeforeValidator:
    return BeforeValidator(lambda value: value[:count] if isinstance(value, list) else value)


Short = Annotated[str, BeforeValidator(_clean)]
Count = Annotated[int, Field(ge=0, le=2**63)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra='ignore')


class Column(_Part):
    """A column of a table.

    Attributes:
        name: its heading.
        type: what its values are, in words: of a text file as far as a sample tells.
        missing: cells of the sample without a value; None where nobody looked.
    """

    name: Short
    type: Short
    missing: Count | None = None


class TableProfile(_Part):
    """A table: a text file, a sheet of a workbook, a table of a database.

    Attributes:
        name: the sheet's or table's name; ``''`` where there is one table only.
        columns: its columns, the first 200 of them.
        width: how many columns there are.
        rows: the first rows, as text.
        total: how many rows there are; None when they were not counted.
        estimated: whether `total` is only an estimate.
        sample: how many rows the types are told from.
        header_rows: how many rows the heading takes.
        notes: what else there is to say.
    """

    name: Short = ''
    columns: Annotated[tuple[Column, ...], _first(_MAX_COLUMNS)] = ()
    width: Count = 0
    rows: Annotated[
        tuple[Annotated[tuple[Short, ...], _first(_MAX_COLUMNS)], ...], _first(_MAX_ROWS)
    ] = ()
    total: Count | None = None
    estimated: bool = False
    sample: Count | None = None
    header_rows: Count = 1
    notes: Annotated[tuple[Short, ...], _first(_MAX_NOTES)] = ()


class FileProfile(_Part):
    """What a look at a file inside the sandbox has found. Nothing of it is certain.

    Attributes:
        path: where it lies in the workspace.
        size: bytes.
        kind: what it is: ``'table'`` (text with separated fields), ``'workbook'``, ``'json'``,
            ``'json lines'``, ``'parquet'``, ``'database'``, ``'archive'``, ``'image'``,
            ``'pdf'``, ``'text'``, ``'binary'``, ``'empty'`` or ``'unknown'``.
        compression: what it was compressed with, by its name in pandas; `kind` and all else are
            of what is inside.
        encoding: name of the encoding of a text.
        delimiter: what separates the fields of a table; None for a single column.
        decimal: what stands before the decimals of its numbers.
        thousands: what groups their digits.
        header: whether the first row of a table names its columns.
        skip: lines before the table.
        tables: the tables in it.
        text: how a text begins.
        notes: what else there is to say.
        error: why it could not be looked at.
    """

    path: str
    size: Count = 0
    kind: Short = 'unknown'
    compression: Literal['gzip', 'bz2', 'xz'] | None = None
    encoding: Short | None = None
    delimiter: Annotated[str, Field(max_length=1)] | None = None
    decimal: Annotated[str, Field(max_length=1)] = '.'
    thousands: Annotated[str, Field(max_length=1)] | None = None
    header: bool = True
    skip: Count = 0
    tables: Annotated[tuple[TableProfile, ...], _first(_MAX_TABLES)] = ()
    text: Annotated[str, _text(_MAX_HEAD)] = ''
    notes: Annotated[tuple[Short, ...], _first(_MAX_NOTES)] = ()
    error: Annotated[str, _text(_MAX_ERROR)] | None = None

    @property
    def reading(self) -> str:
        """How pandas reads it; ``''`` where no plain call does."""
        name = repr(self.path)
        if self.kind == 'table':
            options = [*self._csv_options(), *self._unpacking()]
            return f'pd.read_csv({", ".join([name, *options])})'
        if self.kind in ('json', 'json lines'):
            lines = ['lines=True'] if self.kind == 'json lines' else []
            options = [*lines, *self._unpacking()]
            return f'pd.read_json({", ".join([name, *options])})' if lines or self.tables else ''
        if self.compression:
            return ''
        if self.kind == 'workbook':
            sheets = [f'sheet_name={table.name!r}' for table in self.tables[:1]]
            rows = max((table.header_rows for table in self.tables[:1]), default=1)
            header = [f'header={list(range(rows))}'] if rows > 1 else []
            return f'pd.read_excel({", ".join([name, *sheets, *header])})'
        return f'pd.read_parquet({name})' if self.kind == 'parquet' else ''

    def _unpacking(self) -> Iterable[str]:
        if (
            self.compression
            and PurePosixPath(self.path).suffix.lower() != _SUFFIXES[self.compression]
        ):
            yield f'compression={self.compression!r}'

    def _csv_options(self) -> Iterable[str]:
        if self.delimiter not in (None, ','):
            yield f'sep={self.delimiter!r}'
        if self.encoding not in (None, 'utf-8'):
            yield f'encoding={self.encoding!r}'
        if self.decimal != '.':
            yield f'decimal={self.decimal!r}'
        if self.thousands:
            yield f'thousands={self.thousands!r}'
        if self.skip:
            yield f'skiprows={self.skip}'
        if not self.header:
            yield 'header=None'


def parse_profile(path: str, size: int, found: Any) -> FileProfile:
    """Make a profile of what came out of the sandbox.

    Args:
        path: the file, as the host knows it.
        size: its size, as the host knows it.
        found: what came back; anything.

    Returns:
        The profile; one that says so where `found` is no profile.
    """
    if isinstance(found, Mapping):
        with suppress(ValidationError):
            return FileProfile.model_validate({**found, 'path': path, 'size': size})
    return FileProfile(path=path, size=size, error='nothing credible came back from the look at it')


def describe(profile: FileProfile) -> str:
    """The words in which a model is told of a file.

    Args:
        profile: what is known of it.

    Returns:
        A few lines without an empty one.
    """
    facts = [_one_line(profile.kind), size_text(profile.size)]
    if profile.encoding:
        facts.append(f'encoding {_one_line(profile.encoding)}')
    if profile.kind == 'table':
        facts.append(f'delimiter {profile.delimiter!r}' if profile.delimiter else 'one column')
    if profile.decimal != '.':
        facts.append(f'decimal sign {profile.decimal!r}')
    lines = [f'{profile.path!r}: {", ".join(facts)}']
    if profile.error:
        lines.append(f'  {_one_line(profile.error)}')
    lines += [f'  {_one_line(note)}' for note in profile.notes]
    for table in profile.tables:
        lines += [f'  {line}' for line in _table(table)]
    if profile.text:
        lines += ['  it begins:', *(f'  | {line}' for line in profile.text.splitlines()[:10])]
    if profile.reading and profile.tables:
        lines.append(f'  read it with {profile.reading}')
    return '\n'.join(lines)


def _table(table: TableProfile) -> Iterable[str]:
    named = f'{table.name!r}: ' if table.name else ''
    about = 'about ' if table.estimated else ''
    rows = 'rows not counted' if table.total is None else about + many(table.total, 'row')
    yield f'{named}{rows}, {many(table.width, "column")}'
    for note in table.notes:
        yield f'  {_one_line(note)}'
    columns = [_column(column) for column in table.columns[:_SHOWN_COLUMNS]]
    if more := table.width - len(columns):
        columns.append(f'and {more} more')
    if columns:
        yield f'  columns: {"; ".join(columns)}'
    for number, row in enumerate(table.rows[:3], 1):
        cells = [_cell(cell) for cell in row[:_SHOWN_COLUMNS]]
        yield f'  row {number}: {" | ".join(cells)}'


def _column(column: Column) -> str:
    missing = f', {column.missing} missing' if column.missing else ''
    return f'{column.name!r} ({_one_line(column.type)}{missing})'


def _cell(cell: str) -> str:
    text = _one_line(cell)
    return text if len(text) <= _SHOWN_CELL else f'{text[:_SHOWN_CELL]}...'


def _one_line(text: str) -> str:
    return ' '.join(text.split())
