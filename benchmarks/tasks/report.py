"""The results of a run as Markdown."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from benchmarks.tasks.run import FAILURES, Result, Results

_CELL = 80  # characters of an answer or a reason in a table


def markdown(results: Results) -> str:
    """Write tables: the whole, the themes, the failures, and each task.

    Args:
        results: the results of a run.

    Returns:
        The tables, with a heading.
    """
    # Tasks that ran at the same time ended in any order.
    every = sorted(results.by_id.values(), key=lambda result: (result.theme, result.id))
    counted = [result for result in every if result.counts]
    settings = results.settings
    limits = (
        f'At most {settings.max_turn} runs of code, {settings.tokens:,} tokens '
        f'and {settings.seconds:g} s a task; back end: {settings.backend}.'
    )
    lines = [f'# {_cell(settings.model)}', '', f'{_rate(counted)}. {limits}']
    if broken := len(every) - len(counted):
        lines += ['', f'{broken} more could not be tried, and count as nothing: see below.']
    themes = dict.fromkeys(result.theme for result in every)
    rows = [(theme, [each for each in counted if each.theme == theme]) for theme in themes]
    head = ('', 'tasks', 'solved', 'steps', 'tokens', 'seconds')
    lines += ['', *_table(head, [_costs(*row) for row in (*rows, ('all', counted))])]
    lines += ['', 'Steps, tokens and seconds are medians; a step is a run of code.']
    counts = Counter(result.outcome for result in every)
    failures = [(kind, str(counts[kind])) for kind in FAILURES if counts[kind]]
    if failures:
        lines += ['', *_table(('failure', 'tasks'), failures)]
    lines += ['', *_table(('task', 'outcome', 'steps', 'answer', 'reason'), map(_row, every))]
    return '\n'.join(lines) + '\n'


def interval(solved: int, of: int) -> tuple[float, float]:
    """Bound a rate by Wilson's score interval at 95 %, in percent.

    Args:
        solved: how many were solved.
        of: how many were tried.

    Returns:
        The lower and the upper bound.
    """
    if not of:
        return 0.0, 100.0
    z, rate = 1.96, solved / of
    middle = rate + z * z / (2 * of)
    reach = z * math.sqrt(rate * (1 - rate) / of + z * z / (4 * of * of))
    scale = 100 / (1 + z * z / of)
    return max(0.0, (middle - reach) * scale), min(100.0, (middle + reach) * scale)


def _rate(results: Sequence[Result]) -> str:
    solved, of = sum(result.outcome == 'solved' for result in results), len(results)
    if not of:
        return 'No task was tried'
    low, high = interval(solved, of)
    percent = 100 * solved / of
    return f'Solved {solved} of {of}: {percent:.0f} % (95 % interval: {low:.0f} to {high:.0f} %)'


def _costs(name: str, results: Sequence[Result]) -> tuple[str, ...]:
    solved = sum(result.outcome == 'solved' for result in results)
    if not results:
        return (name, '0', '0', '', '', '')
    steps, tokens, seconds = (
        statistics.median(getattr(result, key) for result in results)
        for key in ('steps', 'tokens', 'seconds')
    )
    # A model that reports no tokens has not cost none.
    shown = f'{tokens:,.0f}' if any(result.tokens for result in results) else 'unknown'
    return (name, str(len(results)), str(solved), f'{steps:g}', shown, f'{seconds:.1f}')


def _row(result: Result) -> tuple[str, ...]:
    cells = (result.answer, result.reason)
    return (result.id, result.outcome, str(result.steps), *map(_cell, cells))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    body = [f'| {" | ".join(row)} |' for row in rows]
    return [f'| {" | ".join(head)} |', f'|{"---|" * len(head)}', *body]


def _cell(text: str) -> str:
    """A model's words in one line, that can't be taken for a part of the table."""
    line = ' '.join(''.join(c if c.isprintable() else ' ' for c in text).split())
    short = line if len(line) <= _CELL else f'{line[:_CELL]}…'
    for mark in '\\|<>[]`*_':
        short = short.replace(mark, f'\\{mark}')
    return short
