"""Tables as data: what a frame or a series holds, its first rows, and how many there are.

No library is imported here: what is read comes with its own methods.
"""

import json
from typing import Any

from .values import name, plain, text

MIME = 'application/vnd.lagent.table+json'
MOST_ROWS, MOST_COLUMNS, MOST_LEVELS = 100, 50, 8
MOST_BYTES = 32 * 1024
MOST_COUNTED = 500_000  # cells in which missing values are counted: that takes milliseconds

Table = dict[str, Any]


def pandas_frame(frame: Any) -> Table:
    """Return a `pandas.DataFrame` as data."""
    total, width = map(int, frame.shape)
    head = frame.iloc[:MOST_ROWS, :MOST_COLUMNS]
    nulls: list[int] | list[None] = [None] * MOST_COLUMNS
    if total * min(width, MOST_COLUMNS) <= MOST_COUNTED:
        nulls = frame.iloc[:, :MOST_COLUMNS].isna().to_numpy().sum(axis=0).tolist()
    columns = [
        {'name': name(label), 'dtype': text(dtype), 'nulls': nulls[at]}
        for at, (label, dtype) in enumerate(zip(head.columns, head.dtypes, strict=True))
    ]
    rows = zip(*(head.iloc[:, at].tolist() for at in range(len(columns))), strict=True)
    return _table('frame', columns, [*rows], (total, width), head.index)


def pandas_series(series: Any) -> Table:
    """Return a `pandas.Series` as data: a table of one column."""
    total = len(series)
    head = series.iloc[:MOST_ROWS]
    column = {
        'name': name(series.name),
        'dtype': text(series.dtype),
        'nulls': int(series.isna().sum()) if total <= MOST_COUNTED else None,
    }
    return _table('series', [column], [(each,) for each in head.tolist()], (total, 1), head.index)


def polars_frame(frame: Any) -> Table:
    """Return a `polars.DataFrame` as data."""
    total, width = frame.shape
    columns = [_polars_column(each) for each in frame.get_columns()[:MOST_COLUMNS]]
    rows = frame[:, :MOST_COLUMNS].head(MOST_ROWS).rows()
    return _table('frame', columns, rows, (total, width))


def polars_series(series: Any) -> Table:
    """Return a `polars.Series` as data: a table of one column."""
    rows = [(each,) for each in series.head(MOST_ROWS).to_list()]
    return _table('series', [_polars_column(series)], rows, (len(series), 1))


def _polars_column(series: Any) -> dict[str, Any]:
    return {
        'name': name(series.name),
        'dtype': text(series.dtype),
        'nulls': int(series.null_count()),
    }


def _table(
    kind: str,
    columns: list[dict[str, Any]],
    rows: list[Any],
    shape: tuple[int, int],
    index: Any = None,
) -> Table:
    levels = [] if index is None else list(index.names)[:MOST_LEVELS]
    labels = [] if index is None else index.tolist()
    if len(levels) == 1:
        labels = [(each,) for each in labels]
    table = {
        'kind': kind,
        'columns': columns,
        'index': [name(level) for level in levels],
        'rows': [],
        'labels': [],
        'total_rows': shape[0],
        'total_columns': shape[1],
    }
    room = MOST_BYTES - len(json.dumps(table))
    for at, row in enumerate(rows):
        cells = [plain(value) for value in row]
        label = [plain(value) for value in labels[at][: len(levels)]] if levels else []
        room -= len(json.dumps((cells, label)))
        if room < 0:
            break
        table['rows'].append(cells)
        table['labels'].append(label)
    return table
