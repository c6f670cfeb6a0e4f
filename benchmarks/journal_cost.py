"""What an effect costs that is recorded: two commits that are on the disk when they return."""

import sqlite3
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.harness import MS, US, Goal, Measurement, Run, Side, interleave

from lagent.effects import Effect, perform
from lagent.flow import run as drive
from lagent.journal import SqliteJournal, record
from lagent.llms import Completion

_EFFECTS = 20  # of one sample
_REPLY = Completion('The answer is 42.', token_ids=range(6))


async def measure(run: Run) -> AsyncIterator[Measurement]:
    """Measure recorded effects with short and long prompts, replayed ones, and the seam alone."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # /tmp may be in memory
        path = Path(folder)
        with SqliteJournal(path / 'runs.db') as journal:
            for messages, goals in ((10, (Goal('value', 1.0),)), (100, (Goal('value', 1.0),))):
                mine, theirs = await interleave(
                    run.n(60, 10),
                    _recorded(journal, _prompt(messages)),
                    _commits(path / 'floor.db', len(str(_prompt(messages)))),
                    warm_up=3,
                )
                yield Measurement(
                    f'effect recorded in SQLite, a prompt of {messages} messages',
                    'ms',
                    mine,
                    theirs,
                    'two commits of the same size, by sqlite3 alone',
                    goals,
                )
            mine, theirs = await interleave(
                run.n(60, 10), _replayed(journal, _prompt(10)), _alone(_prompt(10)), warm_up=3
            )
            yield Measurement(
                'effect given back from the journal', 'us', mine, theirs, 'the effect, not recorded'
            )


def _prompt(messages: int) -> list[dict[str, str]]:
    roles = ('user', 'assistant')
    return [{'role': roles[i % 2], 'content': f'{i} ' + 'x' * 200} for i in range(messages)]


def _work(prompt: Any) -> None:
    effect = Effect('model', 'bench', prompt)
    for _ in range(_EFFECTS):
        drive(perform(effect, lambda: _REPLY))


def _recorded(journal: SqliteJournal, prompt: Any) -> Side:
    async def side() -> float:
        with record(journal):
            return _timed(lambda: _work(prompt)) * MS / _EFFECTS

    return side


def _replayed(journal: SqliteJournal, prompt: Any) -> Side:
    async def side() -> float:
        name = uuid.uuid4().hex
        with suppress(ZeroDivisionError), record(journal, name):
            _work(prompt)
            1 / 0  # noqa: B018 - a run that has ended would give its answer and nothing else
        with record(journal, name):
            return _timed(lambda: _work(prompt)) * US / _EFFECTS

    return side


def _alone(prompt: Any) -> Side:
    async def side() -> float:
        return _timed(lambda: _work(prompt)) * US / _EFFECTS

    return side


def _commits(path: Path, size: int) -> Side:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute('PRAGMA journal_mode = WAL')
    connection.execute('PRAGMA synchronous = FULL')
    connection.execute('CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, body TEXT)')

    def commit(body: str) -> None:
        connection.execute('BEGIN IMMEDIATE')
        connection.execute('INSERT INTO t (body) VALUES (?)', (body,))
        connection.execute('COMMIT')

    def commits() -> None:
        for _ in range(_EFFECTS):
            commit('x' * size)
            commit('x' * len(_REPLY))

    async def side() -> float:
        return _timed(commits) * MS / _EFFECTS

    return side


def _timed(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
