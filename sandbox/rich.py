"""Tables and charts that came with an output, as values. What the kernel sent is checked here.

The kernel is hostile: what does not have the form, or is larger than the sandbox's own formatters
make it, is no table and no chart, and nothing is raised.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

TABLE_MIME = 'application/vnd.lagent.table+json'
CHART_MIME = 'application/vnd.lagent.chart+json'
DATA_MIMES = frozenset((TABLE_MIME, CHART_MIME))
"""What says as data what the output's other representations say, too."""

ChartKind = Literal['line', 'scatter', 'bar', 'hist', 'pie', 'image', 'unknown']
Value = str | int | float | bool | None

MOST_ROWS, MOST_COLUMNS, MOST_LEVELS = 100, 50, 8
MOST_AXES, MOST_SERIES, MOST_POINTS, MOST_TICKS = 16, 20, 200, 100
MOST_TEXT = 200
_MOST_COUNT = 1 << 53
_KINDS = ('line', 'scatter', 'bar', 'hist', 'pie', 'image', 'unknown')
_T = TypeVar('_T')


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its name; the levels of one that has several are separated by `' / '`.
        dtype: The name that its library gives to the type of its values.
        nulls: How many values are missing in all of it; None if they were too many to be counted.
    """

    name: str
    dtype: str
    nulls: int | None


@dataclass(frozen=True)
class Table:
    """A data frame or series that a cell has shown: its schema, its first rows, and its size.

    Attributes:
        kind: `frame`, or `series` for a table of one column.
        columns: The first columns, at most 50.
        rows: Values of these columns in the first rows, at most 100 and about 32 KiB. Numbers,
            truth values and texts; dates and all else as texts of at most 200 characters; None for
            what is missing; integers that floating point cannot hold, and infinities, as texts.
        labels: The label of each of these rows: one value for each level of the index.
        index: Names of the levels of the index, `''` for one without a name; none in polars.
        total_rows: Rows of the whole.
        total_columns: Columns of the whole.
    """

    kind: Literal['frame', 'series']
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    labels: tuple[tuple[Value, ...], ...]
    index: tuple[str, ...]
    total_rows: int
    total_columns: int


@dataclass(frozen=True)
class ChartSeries:
    """What was drawn at once: a line, the bars of a group, a cloud of points.

    Attributes:
        kind: `line`, `scatter`, `bar`, `hist`, `pie` or `image`.
        name: Its name in a legend, or `''`.
        x: Values along the horizontal axis, at most 200, evenly taken from all of them: numbers;
            texts for dates and categories; the middle of each bar of a histogram; the labels of the
            wedges of a pie. None of an image.
        y: As many values along the vertical axis; the shares of the wedges of a pie.
        points: How many there are in the drawing; the pixels of an image.
    """

    kind: ChartKind
    name: str
    x: tuple[Value, ...]
    y: tuple[Value, ...]
    points: int


@dataclass(frozen=True)
class ChartAxis:
    """An axis.

    Attributes:
        label: What is written on it.
        scale: `linear`, `log` and the like.
        ticks: The names along it, at most 100, where it has names at fixed places.
    """

    label: str
    scale: str
    ticks: tuple[str, ...]


@dataclass(frozen=True)
class ChartAxes:
    """One plot of a figure.

    Attributes:
        kind: That of the first series; `unknown` if none could be read.
        title: What is written above it.
        x: The horizontal axis.
        y: The vertical axis.
        series: What could be read, at most 20.
        series_left_out: How many more could be read, but found no room.
        unread: How many parts of the drawing are of another kind.
    """

    kind: ChartKind
    title: str
    x: ChartAxis
    y: ChartAxis
    series: tuple[ChartSeries, ...]
    series_left_out: int
    unread: int


@dataclass(frozen=True)
class Chart:
    """A figure that a cell has shown, as far as it can be read.

    Attributes:
        title: What is written above all of it.
        axes: Its plots, at most 16, colour bars not among them.
        axes_left_out: How many more there are.
    """

    title: str
    axes: tuple[ChartAxes, ...]
    axes_left_out: int


class _MalformedError(Exception):
    """What the kernel sent has another form."""


def read_table(sent: object) -> Table | None:
    """Return the table that a representation of the type `TABLE_MIME` says, or None."""
    try:
        return _table(_mapping(sent))
    except _MalformedError:
        return None


def read_chart(sent: object) -> Chart | None:
    """Return the chart that a representation of the type `CHART_MIME` says, or None."""
    try:
        return _chart(_mapping(sent))
    except _MalformedError:
        return None


def _table(sent: Mapping[str, Any]) -> Table:
    columns = _all(sent, 'columns', _column, MOST_COLUMNS)
    index = _all(sent, 'index', _text, MOST_LEVELS)
    table = Table(
        kind=cast(Literal['frame', 'series'], _one_of(sent.get('kind'), ('frame', 'series'))),
        columns=columns,
        rows=_all(sent, 'rows', lambda row: _row(row, len(columns)), MOST_ROWS),
        labels=_all(sent, 'labels', lambda row: _row(row, len(index)), MOST_ROWS),
        index=index,
        total_rows=_count(sent.get('total_rows')),
        total_columns=_count(sent.get('total_columns')),
    )
    _check(len(table.labels) == len(table.rows) <= table.total_rows)
    _check(len(columns) <= table.total_columns)
    return table


def _column(sent: object) -> Column:
    column = _mapping(sent)
    nulls = column.get('nulls')
    return Column(
        _text(column.get('name')),
        _text(column.get('dtype')),
        None if nulls is None else _count(nulls),
    )


def _chart(sent: Mapping[str, Any]) -> Chart:
    return Chart(
        title=_text(sent.get('title')),
        axes=_all(sent, 'axes', _axes, MOST_AXES),
        axes_left_out=_count(sent.get('axes_left_out')),
    )


def _axes(sent: object) -> ChartAxes:
    axes = _mapping(sent)
    return ChartAxes(
        kind=_kind(axes.get('kind')),
        title=_text(axes.get('title')),
        x=_axis(axes.get('x')),
        y=_axis(axes.get('y')),
        series=_all(axes, 'series', _series, MOST_SERIES),
        series_left_out=_count(axes.get('series_left_out')),
        unread=_count(axes.get('unread')),
    )


def _axis(sent: object) -> ChartAxis:
    axis = _mapping(sent)
    return ChartAxis(
        label=_text(axis.get('label')),
        scale=_text(axis.get('scale')),
        ticks=_all(axis, 'ticks', _text, MOST_TICKS),
    )


def _series(sent: object) -> ChartSeries:
    series = _mapping(sent)
    x, y = (_all(series, name, _value, MOST_POINTS) for name in 'xy')
    points = _count(series.get('points'))
    _check(len(x) == len(y) <= points)
    return ChartSeries(_kind(series.get('kind')), _text(series.get('name')), x, y, points)


def _check(holds: bool) -> None:
    if not holds:
        raise _MalformedError


def _mapping(sent: object) -> Mapping[str, Any]:
    if not isinstance(sent, Mapping):
        raise _MalformedError
    return sent


def _all(
    sent: Mapping[str, Any], name: str, read: Callable[[Any], _T], most: int
) -> tuple[_T, ...]:
    values = sent.get(name)
    if not isinstance(values, list) or len(values) > most:
        raise _MalformedError
    return tuple(map(read, values))


def _row(sent: object, width: int) -> tuple[Value, ...]:
    if not isinstance(sent, list) or len(sent) != width:
        raise _MalformedError
    return tuple(map(_value, sent))


def _value(sent: object) -> Value:
    if isinstance(sent, str):
        return _text(sent)
    if sent is None or isinstance(sent, bool | float):
        return sent
    if isinstance(sent, int) and -_MOST_COUNT < sent < _MOST_COUNT:
        return sent
    raise _MalformedError


def _text(sent: object) -> str:
    if not isinstance(sent, str) or len(sent) > MOST_TEXT:
        raise _MalformedError
    return sent


def _count(sent: object) -> int:
    if not isinstance(sent, int) or isinstance(sent, bool) or not 0 <= sent < _MOST_COUNT:
        raise _MalformedError
    return sent


def _kind(sent: object) -> ChartKind:
    return cast(ChartKind, _one_of(sent, _KINDS))


def _one_of(sent: object, names: tuple[str, ...]) -> str:
    if sent not in names:
        raise _MalformedError
    return sent
