"""What of a kernel's outputs goes into the page, and what is served beside it.

The page itself gets text and cleaned tables. Images, and HTML with its own styles, are kept under
the digest of their bytes, and served from addresses of their own with policies that let nothing
run.
"""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from lagent.analysis.sanitize import is_simple, safe_html, styled_html
from lagent.console import drawn_cell
from lagent.ui.formulas import is_formula
from lagent.ui.text import shown
from lagent.utils.counts import many

IMAGES = ('image/png', 'image/jpeg', 'image/gif', 'image/webp', 'image/svg+xml')
_LARGEST = 16 << 20  # bytes of one image
_ALL = 128 << 20  # bytes of all that a session keeps
_CELL_HTML = 200_000  # characters of a cell's HTML that are cleaned
_CELL_CLEANED = 1_000_000  # bytes of it that are kept
_ALT = 300


class Media:
    """Images and HTML of a session, by the digest of their bytes; the oldest go first."""

    def __init__(self, limit: int = _ALL) -> None:
        self._limit, self._size = limit, 0
        self._kept: OrderedDict[str, tuple[str, bytes]] = OrderedDict()

    def keep(self, mime: str, data: bytes) -> str | None:
        """Keep something.

        Args:
            mime: what it is.
            data: its bytes.

        Returns:
            Its name; None for what is too large.
        """
        if len(data) > min(_LARGEST, self._limit):
            return None
        name = hashlib.sha256(mime.encode() + b'\0' + data).hexdigest()[:32]
        if name not in self._kept:
            self._kept[name] = (mime, data)
            self._size += len(data)
        self._kept.move_to_end(name)
        while self._size > self._limit:
            _, (_, dropped) = self._kept.popitem(last=False)
            self._size -= len(dropped)
        return name

    def get(self, name: str) -> tuple[str, bytes] | None:
        """What is kept under a name.

        Args:
            name: the name.

        Returns:
            What it is, and its bytes; None where there is nothing.
        """
        return self._kept.get(name)

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self._size = 0


class Html:
    """Cleans the HTML of one cell, each piece once, until there is too much of it.

    Args:
        media: where HTML with its own styles is kept.
        tables: where HTML for the page itself is kept.
    """

    def __init__(self, media: Media, tables: Media) -> None:
        self._media, self._tables = media, tables
        self._cleaned: dict[str, tuple[str | None, str | None]] = {}
        self._given = self._kept = 0

    def clean(self, html: str) -> tuple[str | None, str | None] | None:
        """Clean HTML.

        Args:
            html: any HTML.

        Returns:
            The names of what is for the page itself, and of what has its own styles; None for
            what is too large.
        """
        if html in self._cleaned:
            return self._cleaned[html]
        if self._given + len(html) > _CELL_HTML or not is_simple(html):
            return None
        self._given += len(html)
        is_plain = 'class="dataframe"' in html  # pandas' own, which has no styles to lose
        table, frame = (
            cleaned.strip().encode('utf-8', 'replace')
            for cleaned in (safe_html(html), '' if is_plain else styled_html(html))
        )
        if self._kept + len(table) + len(frame) > _CELL_CLEANED:
            return None
        self._kept += len(table) + len(frame)
        names = (
            self._tables.keep('text/html', table) if table else None,
            self._media.keep('text/html', frame) if frame else None,
        )
        self._cleaned[html] = names
        return names


@dataclass(frozen=True)
class Grid:
    """A data frame as the page shows it.

    Attributes:
        heads: of each column its name, its type, and whether its values are numbers.
        levels: how many of the columns are the index.
        rows: the values of the first rows, as text.
        words: how large the whole is.
    """

    heads: tuple[tuple[str, str, bool], ...]
    levels: int
    rows: tuple[tuple[str, ...], ...]
    words: str

    @classmethod
    def of(cls, table: Any) -> 'Grid':
        """That of a `sandbox.Table`."""
        rows = [(*label, *row) for label, row in zip(table.labels, table.rows, strict=True)]
        named = [*((name, 'index') for name in table.index)]
        named += [(column.name, column.dtype) for column in table.columns]
        heads = tuple(
            (
                drawn_cell(name),
                shown(kind, 100),
                all(row[at] is None or isinstance(row[at], int | float) for row in rows),
            )
            for at, (name, kind) in enumerate(named)
        )
        words = f'{many(table.total_rows, "row")} × {many(table.total_columns, "column")}'
        if (len(rows), len(table.columns)) != (table.total_rows, table.total_columns):
            words += f'; the first {len(rows):,} × {len(table.columns):,} are shown'
        cells = tuple(tuple(map(drawn_cell, row)) for row in rows)
        return cls(heads, len(table.index), cells, words)


@dataclass(frozen=True)
class Shown:
    """An output as the page shows it.

    Attributes:
        kind: see `sandbox.Output`.
        text: its plain text, or what an image shows.
        image: name of its image in `Media`.
        grid: the data frame that it is.
        markdown: its Markdown.
        table: name of its HTML for the page itself; see `Html`.
        frame: name of its HTML in `Media`, with its own styles.
        notes: what is left out.
    """

    kind: str
    text: str = ''
    image: str | None = None
    grid: Grid | None = None
    markdown: str = ''
    table: str | None = None
    frame: str | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of_text(cls, kind: str, text: str) -> 'Shown':
        """What was printed.

        Args:
            kind: ``'stdout'`` or ``'stderr'``.
            text: what.

        Returns:
            How it is shown.
        """
        return cls(kind, shown(text))

    @classmethod
    def of(cls, output: Any, media: Media, html: Html) -> 'Shown':
        """Any output.

        Args:
            output: a `sandbox.Output`.
            media: where its image is kept.
            html: cleans its HTML.

        Returns:
            How it is shown.
        """
        text = shown(output.text)
        notes = tuple(
            f'{shown(mime, 100)}, {size:,} bytes, is too large and was left out'
            for mime, size in output.missing.items()
        )
        for mime in IMAGES:
            if (data := _bytes(output.data.get(mime))) is None:
                continue
            if name := media.keep(mime, data):
                words = chart_words(output.chart) or text or 'plot'
                return cls(output.kind, words[:_ALT], image=name, notes=notes)
            notes += (f'{mime}, {len(data):,} bytes, is too large to be shown',)
        if output.table is not None and output.table.columns:
            return cls(output.kind, text, grid=Grid.of(output.table), notes=notes)
        source = output.data.get('text/html')
        if isinstance(source, str) and source.strip():
            if (names := html.clean(source)) is None:
                notes += (f'text/html, {len(source):,} characters, is too large to be shown',)
                return cls(output.kind, text, notes=notes)
            return cls(output.kind, text, table=names[0], frame=names[1], notes=notes)
        if isinstance(markdown := output.data.get('text/markdown'), str):
            return cls(output.kind, text, markdown=shown(markdown), notes=notes)
        if isinstance(latex := output.data.get('text/latex'), str):
            text = shown(latex)
            if is_formula(text):
                return cls(output.kind, text, markdown=text, notes=notes)
        return cls(output.kind, text, notes=notes)


def chart_words(chart: Any) -> str:
    """A figure in words, for those who do not see it.

    Args:
        chart: a `sandbox.Chart`, or None.

    Returns:
        What kind of plots it has, of what; ``''`` for what could not be read.
    """
    if chart is None:
        return ''
    plots = []
    for axes in chart.axes:
        labels = ' against '.join(filter(None, (axes.y.label, axes.x.label)))
        names = ', '.join(series.name for series in axes.series if series.name)
        kind = '' if axes.kind == 'unknown' else f'{axes.kind} plot'
        plots.append(': '.join(filter(None, (kind, axes.title, labels, names))))
    return shown('; '.join(filter(None, (chart.title, *plots))), 4 * _ALT)


def _bytes(data: Any) -> bytes | None:
    return data.encode('utf-8', 'replace') if isinstance(data, str) else data
