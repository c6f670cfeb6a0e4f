"""The plots of a run."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Measurement

_OURS, _FLOOR, _GOAL = '#1f6f8b', '#b8b8b8', '#c0392b'


def draw(measurements: Sequence[Measurement], folder: Path) -> list[Path]:
    """Draw what there are figures for.

    Args:
        measurements: The figures of a run.
        folder: Where the images go.

    Returns:
        The images.
    """
    import matplotlib as mpl

    mpl.use('agg')
    from matplotlib import pyplot as plt

    plt.rcParams.update({'font.size': 9, 'axes.spines.top': False, 'axes.spines.right': False})
    drawn = []
    for name, plot in (
        ('ratios', _ratios),
        ('starts', _starts),
        ('round-trips', _round_trips),
        ('sessions', _sessions),
    ):
        figure = plot(measurements, plt)
        if figure is not None:
            path = folder / f'{name}.png'
            figure.savefig(path, dpi=130, bbox_inches='tight', metadata={'Software': None})
            plt.close(figure)
            drawn.append(path)
    return drawn


def _ratios(measurements: Sequence[Measurement], plt: Any) -> Any:
    """Every figure with a goal for its ratio: where it is, and where it should be."""
    wanted = [
        (m, goal)
        for m in reversed(measurements)
        for goal in m.goals
        if goal.of == 'ratio' and m.ratio is not None
    ]
    if not wanted:
        return None
    figure, axes = plt.subplots(figsize=(7, 0.5 + 0.36 * len(wanted)))
    rows = range(len(wanted))
    axes.barh(rows, [m.ratio for m, _ in wanted], color=_OURS, height=0.55, label='ours / floor')
    limits = [goal.limit for _, goal in wanted]
    axes.scatter(limits, rows, marker='|', s=260, color=_GOAL, zorder=3, label='goal')
    for row, (m, goal) in enumerate(wanted):
        sign = '≥' if goal.at_least else '≤'
        place = max(m.ratio or 0, goal.limit)
        axes.annotate(
            f'{m.ratio:.2f} ({sign} {goal.limit:g})',
            (place, row),
            (6, -3),
            textcoords='offset points',
            fontsize=8,
            bbox={'facecolor': 'white', 'edgecolor': 'none', 'pad': 1},
        )
    axes.axvline(1, color='black', linewidth=0.6)
    axes.set_yticks(rows, [m.name for m, _ in wanted])
    axes.set_xlim(0, 1.25 * max([*limits, *(m.ratio or 0 for m, _ in wanted)]))
    axes.set_xlabel('ratio to the floor of the same run')
    axes.legend(loc='lower right', bbox_to_anchor=(1, 1), ncols=2, frameon=False, markerscale=0.4)
    return figure


def _starts(measurements: Sequence[Measurement], plt: Any) -> Any:
    """How long it takes until a session can be used, each way to get one."""
    from matplotlib.patches import Patch

    wanted = [m for m in reversed(measurements) if m.key == 'start']
    if not wanted:
        return None
    figure, axes = plt.subplots(figsize=(7, 0.6 + 0.55 * len(wanted)))
    for row, m in enumerate(wanted):
        for samples, color, shift in ((m.ours, _OURS, 0.17), (m.floor, _FLOOR, -0.17)):
            if samples:
                middle = statistics.median(samples)
                spread = [[middle - min(samples)], [max(samples) - middle]]
                axes.barh(
                    row + shift,
                    middle,
                    0.32,
                    color=color,
                    xerr=spread,
                    error_kw={'elinewidth': 0.8, 'capsize': 2},
                )
                axes.annotate(
                    f'{middle:,.0f}' if middle >= 10 else f'{middle:.1f}',
                    (max(samples), row + shift),
                    (5, -3),
                    textcoords='offset points',
                    fontsize=8,
                )
    axes.set_yticks(range(len(wanted)), [m.name for m in wanted])
    axes.set_xscale('log')
    axes.set_xlim(left=1)
    axes.xaxis.set_major_formatter('{x:,.0f}')
    axes.set_xlabel('milliseconds (median, smallest and largest)')
    key = [Patch(color=_OURS, label='the sandbox'), Patch(color=_FLOOR, label='its floor')]
    axes.legend(handles=key, loc='lower right', bbox_to_anchor=(1, 1), ncols=2, frameon=False)
    return figure


def _round_trips(measurements: Sequence[Measurement], plt: Any) -> Any:
    """How round trips are distributed."""
    wanted = [m for m in measurements if m.key == 'round trip']
    if not wanted:
        return None
    lines: dict[str, Sequence[float]] = {}
    for m in wanted:
        name = 'blocking API' if 'blocking' in m.name else 'async API'
        lines.setdefault(name, m.ours)
        if 'blocking' not in m.name:
            lines.setdefault(m.floor_is, m.floor)
    figure, axes = plt.subplots(figsize=(7, 3.2))
    for name, samples in lines.items():
        ordered = sorted(samples)
        share = [(number + 1) / len(ordered) * 100 for number in range(len(ordered))]
        axes.plot(ordered, share, label=f'{name}: p50 {statistics.median(ordered):.2f} ms')
    axes.set_xlim(0, 2 * max(statistics.median(samples) for samples in lines.values()))
    axes.set_xlabel('milliseconds for `1 + 1`')
    axes.set_ylabel('percent of the cells')
    axes.legend(frameon=False, loc='lower left', bbox_to_anchor=(0, 1), ncols=2)
    return figure


def _sessions(measurements: Sequence[Measurement], plt: Any) -> Any:
    """Throughput and latency over the number of live sessions."""
    from matplotlib.ticker import LogLocator, NullLocator

    def series(what: str) -> list[Measurement]:
        return [m for m in measurements if m.key == f'sessions: {what}' and m.x is not None]

    rates = series('throughput')
    if len(rates) < 2:
        return None
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2))
    sizes = [m.x for m in rates]
    left.plot(sizes, [m.value for m in rates], 'o-', color=_OURS, label='the sandbox')
    floors = [statistics.median(m.floor) for m in rates]
    left.plot(sizes, floors, 'o--', color=_FLOOR, label=rates[0].floor_is)
    left.set_ylabel('cells a second, all sessions together')
    left.set_ylim(0, 1.1 * max([*floors, *(m.value for m in rates)]))
    for what, style in (('p50', 'o-'), ('p99', 'o--')):
        found = series(what)
        right.plot([m.x for m in found], [m.value for m in found], style, color=_OURS, label=what)
    right.set_ylabel('milliseconds for a cell')
    right.set_yscale('log')
    right.yaxis.set_major_formatter('{x:,g}')
    right.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    right.yaxis.set_minor_locator(NullLocator())
    for axes in (left, right):
        axes.set_xscale('log')
        axes.set_xticks(sizes, [f'{size:.0f}' for size in sizes])
        axes.set_xticks([], minor=True)
        axes.set_xlabel('live sessions, all of them busy')
        axes.legend(frameon=False)
    figure.tight_layout()
    return figure
