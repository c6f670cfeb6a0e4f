"""Figures as data: what is drawn on which axes, as far as it can be read from a figure.

No library is imported here. A series keeps at most some of its points, evenly over all of them, and
what could not be read, or found no room, is counted.
"""

import bisect
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from .values import places, plain, text

MIME = 'application/vnd.lagent.chart+json'
MOST_AXES, MOST_SERIES, MOST_POINTS, MOST_TICKS = 16, 20, 200, 100
MOST_BYTES = 32 * 1024
_MOST_LOOKED_AT = 2_000  # ticks of one axis
_HIDDEN = '_nolegend_'  # what matplotlib calls the parts of a larger thing, such as a box

Chart = dict[str, Any]
Series = dict[str, Any]


def figure(drawn: Any) -> Chart:
    """Return a `matplotlib.figure.Figure` as data."""
    shown = [axes for axes in drawn.axes if axes.get_label() != '<colorbar>' and axes.get_visible()]
    title = getattr(drawn, '_suptitle', None)
    chart: Chart = {
        'title': text(title.get_text()) if title else '',
        'axes': [],
        'axes_left_out': max(len(shown) - MOST_AXES, 0),
    }
    room = MOST_BYTES
    for axes in shown[:MOST_AXES]:
        read = _axes(axes, room)
        room -= len(json.dumps(read))
        if room < 0:
            chart['axes_left_out'] += 1
        else:
            chart['axes'].append(read)
    return chart


def _axes(axes: Any, room: int) -> dict[str, Any]:
    found = list(_Reader(axes).series())
    kept: list[Series] = []
    for series in found[:MOST_SERIES]:
        room -= len(json.dumps(series))
        if room < 0:
            break
        kept.append(series)
    drawn = len(axes.lines) + len(axes.collections) + len(axes.images) + len(axes.patches)
    return {
        'kind': found[0]['kind'] if found else 'unknown',
        'title': text(axes.get_title()),
        'x': _axis(axes.xaxis),
        'y': _axis(axes.yaxis),
        'series': kept,
        'series_left_out': len(found) - len(kept),
        'unread': max(drawn - sum(series.pop('artists') for series in found), 0),
    }


def _axis(axis: Any) -> dict[str, Any]:
    return {
        'label': text(axis.get_label_text()),
        'scale': text(axis.get_scale()),
        'ticks': [label for _, label in _categories(axis)[:MOST_TICKS]],
    }


class _Reader:
    """Reads the series of one pair of axes."""

    def __init__(self, axes: Any) -> None:
        self._axes = axes
        self._x, self._y = _Labels(axes.xaxis), _Labels(axes.yaxis)

    def series(self) -> Iterator[Series]:
        """Yield what can be read; `artists` says of how many parts of the drawing it was made."""
        if self._axes.name == '3d':
            return
        yield from self._bars()
        yield from self._lines()
        for each in self._axes.collections:
            if type(each).__name__ == 'PathCollection' and self._is_data(
                each.get_offset_transform()
            ):
                points = each.get_offsets()
                yield self._points('scatter', each.get_label(), points[:, 0], points[:, 1])
            elif type(each).__name__ == 'QuadMesh':
                yield _image(each)
        yield from map(_image, self._axes.images)
        wedges = [each for each in self._axes.patches if type(each).__name__ == 'Wedge']
        if wedges:
            yield _pie(wedges)

    def _is_data(self, transform: Any) -> bool:
        return bool(transform == self._axes.transData)

    def _bars(self) -> Iterator[Series]:
        for container in self._axes.containers:
            if type(container).__name__ != 'BarContainer' or not container.patches:
                continue
            bars = container.patches
            upright = getattr(container, 'orientation', None) != 'horizontal'
            along, names = ('x', self._x) if upright else ('y', self._y)
            start, length = ('get_x', 'get_width') if upright else ('get_y', 'get_height')
            spans = [(float(getattr(b, start)()), float(getattr(b, length)())) for b in bars]
            heights = [float(b.get_height() if upright else b.get_width()) for b in bars]
            kind = 'hist' if not names.categories and _touch(spans) else 'bar'
            at = places(len(bars), MOST_POINTS)
            middles = names.of([spans[n][0] + spans[n][1] / 2 for n in at], near=0.5)
            values = [plain(heights[n]) for n in at]
            x, y = (middles, values) if along == 'x' else (values, middles)
            yield _series(kind, container.get_label(), x, y, len(bars), artists=len(bars))

    def _lines(self) -> Iterator[Series]:
        named = {
            id(container[0]): container.get_label()
            for container in self._axes.containers
            if type(container).__name__ in ('ErrorbarContainer', 'StemContainer') and container
        }
        lines = [line for line in self._axes.lines if self._is_data(line.get_transform())]
        shown = [line for line in lines if line.get_label() != _HIDDEN or id(line) in named]
        if len(shown) * 2 < len(lines):
            return  # these are the parts of boxes
        for line in shown:
            kind = 'scatter' if line.get_linestyle() in ('None', 'none', ' ', '') else 'line'
            label = named.get(id(line), line.get_label())
            yield self._points(kind, label, line.get_xdata(orig=False), line.get_ydata(orig=False))

    def _points(self, kind: str, label: Any, xs: Any, ys: Any) -> Series:
        at = places(len(xs), MOST_POINTS)
        x = self._x.of([float(xs[n]) for n in at])
        y = self._y.of([float(ys[n]) for n in at])
        return _series(kind, label, x, y, len(xs))


class _Labels:
    """What numbers on an axis stand for: themselves, dates, or names."""

    def __init__(self, axis: Any) -> None:
        self.categories = _categories(axis)
        self._date = _date(axis)

    def of(self, values: list[float], near: float = 1e-9) -> list[Any]:
        """Return the values as they are to be read; names only where all of them have one."""
        if self._date is not None:
            return [None if value != value else self._date(value) for value in values]
        if self.categories and values:
            nearest = [self._nearest(value) for value in values]
            if all(abs(n[0] - v) <= near for n, v in zip(nearest, values, strict=True)):
                return [label for _, label in nearest]
        return [plain(value) for value in values]

    def _nearest(self, value: float) -> tuple[float, str]:
        at = bisect.bisect_left(self.categories, (value,))
        around = self.categories[max(at - 1, 0) : at + 1]
        return min(around, key=lambda category: abs(category[0] - value))


def _categories(axis: Any) -> list[tuple[float, str]]:
    """Return places and names, where an axis has names at fixed places."""
    formatter, locator = axis.get_major_formatter(), axis.get_major_locator()
    kind, fixed = type(formatter).__name__, type(locator).__name__ == 'FixedLocator'
    if kind != 'StrCategoryFormatter' and not (
        fixed and kind in ('FixedFormatter', 'FuncFormatter')
    ):
        return []
    at = [float(place) for place in axis.get_ticklocs()]
    if len(at) > _MOST_LOOKED_AT:
        return []
    return sorted(zip(at, map(text, formatter.format_ticks(at)), strict=True))


def _date(axis: Any) -> Callable[[float], str] | None:
    """Return what makes dates of numbers, where an axis has dates."""
    kind = type(axis.get_major_formatter()).__name__
    if kind.startswith('TimeSeries_'):  # that of pandas counts periods
        period, frequency = sys.modules['pandas'].Period, axis.axes.freq
        return lambda value: str(period(ordinal=int(value), freq=frequency))
    if 'Date' in kind:
        to_date = sys.modules['matplotlib.dates'].num2date
        return lambda value: str(to_date(value).replace(tzinfo=None))
    return None


def _touch(spans: list[tuple[float, float]]) -> bool:
    """Tell whether each bar begins where the last one ends, as in a histogram."""
    return len(spans) > 1 and all(
        abs(start + width - after) <= abs(width) * 1e-6
        for (start, width), (after, _) in itertools.pairwise(spans)
    )


def _pie(wedges: list[Any]) -> Series:
    at = places(len(wedges), MOST_POINTS)
    shares = [round((wedges[n].theta2 - wedges[n].theta1) / 360, 6) for n in at]
    names = [text(wedges[n].get_label()) for n in at]
    shares = [plain(float(share)) for share in shares]
    return _series('pie', '', names, shares, len(wedges), artists=len(wedges))


def _image(image: Any) -> Series:
    pixels = image.get_array()
    return _series('image', image.get_label(), [], [], int(pixels.shape[0] * pixels.shape[1]))


def _series(
    kind: str, label: Any, x: list[Any], y: list[Any], points: int, artists: int = 1
) -> Series:
    name = text(label or '')
    name = '' if name.startswith('_') else name
    return {'kind': kind, 'name': name, 'x': x, 'y': y, 'points': points, 'artists': artists}
