"""What an effect costs that is recorded: two commits that are on the disk when they return."""

import sqlite3
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import MS, US, Goal, Measurement, Run, Side, interleave
from lagent.context import run_context
from lagent.effects import Effect, perform
from lagent.flow import run as drive
from lagent.journal import SqliteJournal, record
from lagent.limits import RunLimits
from lagent.llms import Completion

Clock = Callable[[], float]

_EFFECTS = 20  # of one sample
_REPLY = Completion('The answer is 42.', token_ids=range(6))


async def measure(run: Run) -> AsyncIterator[Measurement]:
    """Measure recorded effects of conversations that grow, replayed ones, and the seam alone."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # /tmp may be in memory
        path = Path(folder)
        with SqliteJournal(path / 'runs.db') as journal:
            for kind, messages in (('model', 10), ('tool', 10), ('model', 100)):
                effects = _growing(kind, messages)
                mine, theirs, processor = await interleave(
                    run.n(60, 10),
                    _recorded(journal, effects, time.perf_counter),
                    _commits(path / 'floor.db', effects[0]),
                    _recorded(journal, effects, time.thread_time),
                    warm_up=3,
                )
                name = f'{kind} call recorded in SQLite, {messages} messages'
                yield Measurement(
                    name,
                    'ms',
                    mine,
                    theirs,
                    'as many commits, of what is new, by sqlite3 alone',
                    (Goal('value', 1.0),),
                )
                yield Measurement(f'{name}: processor time', 'ms', processor)
            effects = _growing('model', 10)
            mine, theirs = await interleave(
                run.n(60, 10), _replayed(journal, effects), _alone(effects), warm_up=3
            )
            yield Measurement(
                'effect given back from the journal', 'us', mine, theirs, 'the effect, not recorded'
            )


def _growing(kind: Any, messages: int) -> list[Effect]:
    """Effects of one conversation, each of which asks for one message more than the last."""
    roles = ('user', 'assistant')
    whole = [
        {'role': roles[i % 2], 'content': f'{i} ' + 'x' * 200} for i in range(messages + _EFFECTS)
    ]
    return [
        Effect(kind, 'bench', [dict(message) for message in whole[: messages + number]])
        for number in range(_EFFECTS)
    ]


def _work(effects: list[Effect], clock: Clock) -> float:
    """The median of some effects, in seconds: now and then a commit also tidies up the file."""
    with run_context(limits=RunLimits(repeated_calls=None)):
        return median(
            _timed(partial(drive, perform(effect, lambda: _REPLY)), clock) for effect in effects
        )


def _recorded(journal: SqliteJournal, effects: list[Effect], clock: Clock) -> Side:
    async def side() -> float:
        with record(journal):
            return _work(effects, clock) * MS

    return side


def _replayed(journal: SqliteJournal, effects: list[Effect]) -> Side:
    async def side() -> float:
        name = uuid.uuid4().hex
        with suppress(ZeroDivisionError), record(journal, name):
            _work(effects, time.perf_counter)
            1 / 0  # noqa: B018 - a run that has ended would give its answer and nothing else
        with record(journal, name):
            return _work(effects, time.perf_counter) * US

    return side


def _alone(effects: list[Effect]) -> Side:
    async def side() -> float:
        return _work(effects, time.perf_counter) * US

    return side


def _commits(path: Path, effect: Effect) -> Side:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute('PRAGMA journal_mode = WAL')
    connection.execute('CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, body TEXT)')
    size = len(str(effect.payload[-1]))

    def commit(body: str, synchronous: str) -> None:
        connection.execute(f'PRAGMA synchronous = {synchronous}')
        connection.execute('BEGIN IMMEDIATE')
        connection.execute('INSERT INTO t (body) VALUES (?)', (body,))
        connection.execute('COMMIT')

    def both() -> None:
        commit('x' * size, 'NORMAL' if effect.repeatable else 'FULL')
        commit('x' * len(_REPLY), 'FULL')

    async def side() -> float:
        return median(_timed(both, time.perf_counter) for _ in range(_EFFECTS)) * MS

    return side


def _timed(work: Callable[[], object], clock: Clock) -> float:
    started = clock()
    work()
    return clock() - started
