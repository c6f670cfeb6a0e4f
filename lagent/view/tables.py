"""A data frame that is too wide to be read, shortened by columns and rows."""

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any

from lagent.utils.counts import many

_MOST_HTML = 200_000  # characters that are looked at; pandas writes fewer
_MOST_CELL = 24
_MOST_NAMES = 20
_WRAPPED = re.compile(r' \\$', re.MULTILINE)
_SHAPE = re.compile(r'(\d{1,15}) rows (?:x|×) (\d{1,15}) columns')
_FOOTER = re.compile(r'\n\[\d{1,15} rows x \d{1,15} columns\]\Z')
_GAP = '...'

Grid = list[list[str]]


def is_wrapped(text: str) -> bool:
    """Whether the text of a data frame shows its columns in several blocks.

    Args:
        text: what pandas prints.

    Returns:
        True if lines end in its sign for that.
    """
    return bool(_WRAPPED.search(text))


def is_cut(text: str) -> bool:
    """Whether the text of a data frame leaves rows or columns out.

    Args:
        text: what pandas prints.

    Returns:
        True if it ends with the shape of the whole.
    """
    return bool(_FOOTER.search(text))


def short_table(html: str, columns: int, rows: int, data: Any = None) -> str | None:
    """The table of a data frame, with its first and last columns and rows.

    Args:
        html: what pandas writes for notebooks.
        columns: how many columns may be shown, that of the index included.
        rows: how many rows may be shown, that of the headings included.
        data: the same as a `sandbox.Table`, if there is one: it knows the shape and the columns.

    Returns:
        Its text, with the whole table's shape below it. None for another table, or one whose cells
        span several columns or rows.
    """
    if len(html) > _MOST_HTML or 'class="dataframe"' not in html:
        return None
    reader = _Reader()
    try:
        reader.feed(html)
    except AssertionError:  # how the parser says that a declaration is malformed
        return None
    grid = reader.grid
    width = len(grid[0]) if grid else 0
    if reader.spans or width < 2 or any(len(row) != width for row in grid):
        return None
    shape = _SHAPE.search(reader.below)
    if data is not None:
        total = data.total_rows, data.total_columns
    else:
        total = (int(shape[1]), int(shape[2])) if shape else (len(grid) - 1, width - 1)
    short = _shortened(grid, rows)
    shown = [
        list(row) for row in zip(*_shortened(list(zip(*short, strict=True)), columns), strict=True)
    ]
    below = [f'[{total[0]:,} rows x {total[1]:,} columns]']
    if data is not None:
        below += [_hidden(shown, data), missing(data)]
    return '\n'.join([_aligned(shown), *filter(None, below)])


def missing(data: Any) -> str:
    """The columns of a table in which values are missing.

    Args:
        data: a `sandbox.Table`.

    Returns:
        A line with the names of the first ones and how many values are missing; ``''`` if none is.
    """
    lacking = [(column.name, column.nulls) for column in data.columns if column.nulls]
    return _listed('missing', [f'{_cell(name)}: {nulls:,}' for name, nulls in lacking])


def _hidden(shown: Grid, data: Any) -> str:
    gap = _gap(list(zip(*shown, strict=True)))
    if gap is None:
        return ''
    first = max(gap - len(data.index), 0)
    end = data.total_columns - (len(shown[0]) - gap - 1)
    names = [f'{_cell(column.name)} ({column.dtype})' for column in data.columns[first:end]]
    count = max(end - first, 0)
    if not names:
        return f'[not shown: {many(count, "column")}]' if count else ''
    return _listed('not shown', names, count - len(names))


def _listed(what: str, parts: Sequence[str], more: int = 0) -> str:
    more += max(len(parts) - _MOST_NAMES, 0)
    rest = [f'and {more:,} more'] if more else []
    return f'[{what}: {", ".join([*parts[:_MOST_NAMES], *rest])}]' if parts else ''


class _Reader(HTMLParser):
    """Takes the cells out of one table."""

    def __init__(self) -> None:
        super().__init__()
        self.grid: Grid = []
        self.below = ''
        self.spans = False
        self._in_cell = False
        self._inside = False
        self._hidden = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden = tag in ('style', 'script')
        if tag == 'table':
            self._inside = True
        elif tag == 'tr' and self._inside:
            self.grid.append([])
            self._in_cell = False
        elif tag in ('td', 'th') and self.grid:
            self.grid[-1].append('')
            self._in_cell = True
            self.spans |= any(
                key in ('colspan', 'rowspan') and value != '1' for key, value in attrs
            )

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False
        if tag in ('td', 'th'):
            self._in_cell = False
        elif tag == 'table':
            self._inside = False

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.grid[-1][-1] += data
        elif not self._hidden:
            self.below += data


def _shortened(lines: Sequence[Sequence[str]], count: int) -> list[Sequence[str]]:
    """The first and last lines, with dots between them; pandas may have put its own there."""
    gap = _gap(lines)
    if gap is None and len(lines) <= count:
        return list(lines)
    middle = len(lines) // 2 if gap is None else gap
    half = (count - 2) // 2  # the first line is a heading
    head = lines[: min(count - half - 1, middle)]
    after = lines[middle if gap is None else gap + 1 :]
    return [*head, [_GAP] * len(lines[0]), *after[max(len(after) - half, 0) :]]


def _gap(lines: Sequence[Sequence[str]]) -> int | None:
    """Where the dots are that stand for lines left out."""
    return next((n for n, line in enumerate(lines) if n and set(line) == {_GAP}), None)


def _aligned(grid: Sequence[Sequence[str]]) -> str:
    cells = [[_cell(cell) for cell in row] for row in grid]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        '  '.join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in cells
    )
    return '\n'.join(line.rstrip() for line in lines)


def _cell(text: str) -> str:
    text = ' '.join(text.split())
    return text if len(text) <= _MOST_CELL else f'{text[: _MOST_CELL - 3]}...'
