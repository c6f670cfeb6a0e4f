"""A result as a notebook shows it: HTML that runs and loads nothing, whatever the cell put out."""

import base64
from collections.abc import Iterable
from html import escape

from sandbox.counts import many
from sandbox.rich import Table
from sandbox.svg import safe_svg
from sandbox.types import ExecutionResult, Output

_BITMAPS = ('image/png', 'image/jpeg')
_SVG = 'image/svg+xml'


def as_html(result: ExecutionResult) -> str:
    """Return notices and outputs in order. HTML of the cell is not in it; its texts are escaped."""
    notices = (f'<p><em>{escape(notice)}</em></p>' for notice in result.notices)
    return '\n'.join((*notices, *map(_output, result.outputs)))


def _output(output: Output) -> str:
    for mime in _BITMAPS:
        if isinstance(bitmap := output.data.get(mime), bytes):
            return _image(mime, bitmap)
    # Not as a part of the page: it could be of any size there, and lie over other outputs.
    if isinstance(drawing := output.data.get(_SVG), str) and (safe := safe_svg(drawing)):
        return _image(_SVG, safe.encode())
    if (table := output.table) is not None:
        return _table(table)
    return f'<pre>{escape(output.text)}</pre>'


def _image(mime: str, data: bytes) -> str:
    return f'<img src="data:{mime};base64,{base64.b64encode(data).decode("ascii")}">'


def _table(table: Table) -> str:
    head = _row('th', (*table.index, *(column.name for column in table.columns)))
    rows = (
        f'<tr>{_cells("th", labels)}{_cells("td", values)}</tr>'
        for labels, values in zip(table.labels, table.rows, strict=True)
    )
    size = f'{many(table.total_rows, "row")}, {many(table.total_columns, "column")}'
    return f'<table>{head}{"".join(rows)}</table><p>{size}</p>'


def _row(kind: str, values: Iterable[object]) -> str:
    return f'<tr>{_cells(kind, values)}</tr>'


def _cells(kind: str, values: Iterable[object]) -> str:
    return ''.join(f'<{kind}>{escape(str(value))}</{kind}>' for value in values)
