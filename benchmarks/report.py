"""Results as JSON, as Markdown tables, and as plots."""

import json
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import Goal, Measurement, percentile

DOCS = Path('docs/performance.md')
IMAGES = Path('docs/images')
_SECTIONS = ('machine', 'figures', 'sessions')
_SYMBOLS = {'value': '', 'ratio': 'ratio ', 'excess': 'excess '}


@dataclass(frozen=True, slots=True)
class Results:
    """What a run gave.

    Attributes:
        machine: What it ran on, by name.
        measurements: Its figures.
        quick: Whether it was a quick one.
    """

    machine: dict[str, str]
    measurements: list[Measurement]
    quick: bool = False

    def to_json(self) -> str:
        """Return it as JSON; `from_json` reads it."""
        rows = [measurement.to_json() for measurement in self.measurements]
        lines = ',\n  '.join(json.dumps(row) for row in rows)
        machine, quick = json.dumps(self.machine, indent=1), json.dumps(self.quick)
        return f'{{"quick": {quick},\n "machine": {machine},\n "measurements": [\n  {lines}]}}\n'

    @classmethod
    def from_json(cls, text: str) -> 'Results':
        """Make the results of what `to_json` gave."""
        fields: dict[str, Any] = json.loads(text)
        rows = [Measurement.from_json(row) for row in fields['measurements']]
        return cls(fields['machine'], rows, quick=fields['quick'])


def write(results: Results, folder: Path) -> None:
    """Write `latest.json` and `latest.md` into a folder, made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'latest.json').write_text(results.to_json(), encoding='utf-8')
    (folder / 'latest.md').write_text(tables(results), encoding='utf-8')


def write_docs(results: Results, docs: Path = DOCS, images: Path = IMAGES) -> None:
    """Write the tables between the marks of a page, the plots that it shows, and their samples.

    Raises:
        ValueError: The page lacks a mark.
    """
    from benchmarks import plots

    docs.write_text(filled(docs.read_text(encoding='utf-8'), results), encoding='utf-8')
    docs.with_suffix('.json').write_text(results.to_json(), encoding='utf-8')
    images.mkdir(parents=True, exist_ok=True)
    plots.draw(results.measurements, images)


def filled(page: str, results: Results) -> str:
    """Return a page with the tables of these results between its marks.

    Raises:
        ValueError: The page lacks a mark.
    """
    texts = (machine_table(results), figures_table(results), sessions_table(results))
    for name, text in zip(_SECTIONS, texts, strict=True):
        page = fill(page, name, text)
    return page


def fill(page: str, name: str, text: str) -> str:
    """Return a page with a text between the marks of this name.

    Raises:
        ValueError: The page lacks them.
    """
    mark = re.compile(rf'(<!-- {name} -->\n).*?(<!-- /{name} -->)', re.DOTALL)
    if not mark.search(page):
        raise ValueError(f'the page has no marks <!-- {name} --> and <!-- /{name} -->')
    return mark.sub(lambda found: f'{found[1]}{text}{found[2]}', page)


def tables(results: Results) -> str:
    """Return all tables as Markdown."""
    parts = (machine_table(results), figures_table(results), sessions_table(results))
    return '\n'.join(part for part in parts if part)


def machine_table(results: Results) -> str:
    """Return what the results were measured on."""
    rows = [*results.machine.items(), ('run', 'quick' if results.quick else 'full')]
    return table(('machine', ''), rows)


def figures_table(results: Results) -> str:
    """Return every figure beside its floor and its goal."""
    rows = [_row(m) for m in results.measurements if not m.key.startswith('sessions: ')]
    head = ('', 'unit', 'ours', 'floor', 'what the floor is', 'ratio', 'goal', '', 'n')
    return table(head, rows) if rows else ''


def sessions_table(results: Results) -> str:
    """Return what depends on the number of live sessions, a column for each number."""
    mine = [m for m in results.measurements if m.key.startswith('sessions: ')]
    sizes = sorted({m.x for m in mine if m.x is not None})
    rows: dict[str, dict[float, str]] = {}
    for m in mine:
        what = m.key.removeprefix('sessions: ')
        label = f'{what}, {m.unit}' if m.unit else what
        assert m.x is not None
        rows.setdefault(label, {})[m.x] = _number(m.value)
        if m.ratio is not None:
            rows.setdefault(f'{what}, ratio to {m.floor_is}', {})[m.x] = _number(m.ratio)
    head = ('live sessions', *(f'{size:,.0f}' for size in sizes))
    body = [(name, *(row.get(size, '') for size in sizes)) for name, row in rows.items()]
    return table(head, body) if body else ''


def line(measurement: Measurement) -> str:
    """Return one figure as a line of text."""
    ours, floor, ratio, goal, met = _cells(measurement)
    parts = [
        f'{ours} {measurement.unit}',
        f'floor {floor}' if floor else '',
        f'ratio {ratio}' if ratio else '',
        f'goal {goal}: {met}' if goal else '',
    ]
    return f'{measurement.name}: ' + ', '.join(filter(None, parts))


def _row(m: Measurement) -> tuple[str, ...]:
    ours, floor, ratio, goal, met = _cells(m)
    return (m.name, m.unit, ours, floor, m.floor_is, ratio, goal, met, str(len(m.ours)))


def _cells(m: Measurement) -> tuple[str, str, str, str, str]:
    goals = ', '.join(map(_goal, m.goals))
    met = '' if not m.goals else 'reached' if all(map(m.meets, m.goals)) else 'missed'
    ratio = '' if m.ratio is None else f'{m.ratio:.2f}'
    return _spread(m.ours), _spread(m.floor) if m.floor else '', ratio, goals, met


def _goal(goal: Goal) -> str:
    return f'{_SYMBOLS[goal.of]}{">=" if goal.at_least else "<="} {_number(goal.limit)}'


def _spread(samples: Sequence[float]) -> str:
    """Median, smallest and largest; of many, the 99th percentile as well."""
    middle = _number(statistics.median(samples))
    if len(samples) == 1:
        return middle
    high = f'{_number(percentile(samples, 99))} p99, ' if len(samples) >= 100 else ''
    return f'{middle} [{_number(min(samples))} - {high}{_number(max(samples))}]'


def _number(value: float) -> str:
    if value == 0 or abs(value) >= 100:
        return f'{value:,.0f}'
    return f'{value:.2f}' if abs(value) < 10 else f'{value:.1f}'


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return '\n'.join(_lines(head, rows)) + '\n'


def _lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f'| {" | ".join(head)} |'
    yield f'|{"---|" * len(head)}'
    for row in rows:
        yield f'| {" | ".join(row)} |'
