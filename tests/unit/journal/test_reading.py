"""Journals that are only read, that are damaged, and leases that must not outlive their attempt."""

import os
import shutil
import sqlite3
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lagent.actions import ActionExecutor, tool_api
from lagent.agents import Agent
from lagent.cli import app
from lagent.journal import (
    JournalUnavailable,
    NothingToDecide,
    NotReadable,
    NotRecordable,
    Record,
    Run,
    RunLocked,
    SchemaTooNew,
    SqliteJournal,
    SqlJournal,
    record,
)
from lagent.journal.lease import new_owner
from lagent.journal.runs import Options, find, take_up
from lagent.llms import ScriptedModel
from lagent.positions import branch
from lagent.schema import AgentMessage, FunctionCall

SOON = 60.0
AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason='files of others can only be made by root')


@tool_api(idempotent=True)
def act(x: str) -> str:
    """Act.

    Args:
        x (str): on what.
    """
    return 'y' * 5000


class Acting(Agent):
    fails = False

    def forward(self, *message: Any, **kwargs: Any) -> str:
        for number in range(2):
            call = FunctionCall('act', {'x': 'z' * 5000 + str(number)})
            ActionExecutor([act])(AgentMessage(content=call))
        if self.fails:
            raise RuntimeError('tired')
        return 'done'


def acting(*, fails: bool = False) -> Acting:
    agent = Acting(ScriptedModel([]))
    agent.fails = fails
    return agent


def make() -> Acting:
    return acting()


def lagent(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ['runs', *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def recorded(path: Path) -> Path:
    acting().run('q', run_id='r', journal=path)
    return path


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


READING: list[tuple[str, ...]] = [
    ('list',),
    ('show', 'r'),
    ('export', 'r', '-f', 'trajectory'),
    ('diff', 'r', 'r'),
    ('replay', 'r', '--agent', f'{__name__}:make'),
]


@pytest.mark.parametrize('command', READING, ids=lambda command: command[0])
def test_reading_changes_nothing_and_makes_no_file(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    path = recorded(tmp_path / 'runs.db')
    before = files(tmp_path)
    assert set(before) == {'runs.db'}
    code, said = lagent(*command, '-j', str(path))
    assert code == 0, said
    assert files(tmp_path) == before


@AS_ROOT
def test_a_journal_is_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    folder = Path('/var/tmp') / f'lagent-{os.getpid()}'  # pytest's own may not be entered by others
    folder.mkdir()
    try:
        path = recorded(folder / 'runs.db')
        path.chmod(0o444)
        folder.chmod(0o555)
        if (pid := os.fork()) == 0:  # another user
            code = 2
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                with SqliteJournal(path, read_only=True) as journal:
                    code = 0 if len(journal.records(journal.run('r').id)) == 4 else 1
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_what_is_being_written_can_be_read_with_its_latest_records(tmp_path: Path) -> None:
    path = tmp_path / 'runs.db'
    with SqliteJournal(path) as writing, SqliteJournal(path, read_only=True) as reading:
        for number in range(3):
            begun(writing, f'r{number}')
            assert len(reading.runs()) == number + 1
    with SqliteJournal(path, read_only=True) as reading:
        assert len(reading.runs()) == 3
        with SqliteJournal(path) as writing:
            begun(writing, 'late')
        assert len(reading.runs()) == 4
        with pytest.raises(JournalUnavailable, match='read only'):
            begun(reading, 'x')


@pytest.mark.parametrize('command', [*READING, ('prune',), ('approve', 'r'), ('resume', 'r')])
def test_the_database_of_somebody_else_is_left_alone(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / 'places.sqlite'
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute('CREATE TABLE moz_places (a)')
    before = files(tmp_path)
    code, said = lagent(*command, '-j', str(path))
    assert code == 2
    assert 'There is no journal' in said
    assert files(tmp_path) == before


def test_an_old_journal_is_read_without_being_migrated(tmp_path: Path) -> None:
    path = tmp_path / 'old.db'
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript((Path(__file__).parent / 'version1.sql').read_text())
    before = path.read_bytes()
    with SqliteJournal(path, read_only=True) as journal:
        assert [run.factory for run in journal.runs()] == ['']
        assert journal.run('old-run').title == 'how many rows'
    assert path.read_bytes() == before


def test_a_later_version_is_not_read(tmp_path: Path) -> None:
    path = recorded(tmp_path / 'runs.db')
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute('INSERT INTO lagent_schema VALUES (99)')
    with pytest.raises(SchemaTooNew, match='99'):
        SqliteJournal(path, read_only=True)


def test_postgresql_is_read_only_where_it_is_asked_to_be(postgres: str) -> None:
    import sqlalchemy

    server = sqlalchemy.create_engine(postgres, isolation_level='AUTOCOMMIT')
    with server.connect() as connection:
        connection.execute(sqlalchemy.text('CREATE DATABASE only_read'))
    url = postgres.replace('/postgres?', '/only_read?')
    with pytest.raises(JournalUnavailable, match='There is no journal'):
        SqlJournal(url, read_only=True)
    with SqlJournal(url) as writing, SqlJournal(url, read_only=True) as reading:
        begun(writing)
        assert len(reading.runs()) == 1
        with pytest.raises(JournalUnavailable, match='read only'):
            begun(reading, 'x')
        with (
            pytest.raises(JournalUnavailable, match='read-only transaction'),
            reading._database.transaction(writes=False) as execute,
        ):
            execute('DELETE FROM lagent_runs', {})
    server.dispose()


def begun(journal: SqlJournal, run_id: str = 'r', **fields: Any) -> str:
    owner, now = new_owner(), time.time()
    run = Run(id=run_id, created=now, updated=now, owner=owner, expires=now + SOON, **fields)
    journal.begin(run, {})
    return owner


DAMAGE = {
    'bad json': "UPDATE lagent_records SET body = '{bad' WHERE seq = 3",
    'deep json': f"UPDATE lagent_records SET body = '{'[' * 100_000}' WHERE seq = 3",
    'no blobs': 'DELETE FROM lagent_blobs',
    'other blobs': "UPDATE lagent_blobs SET data = x'00'",
    'no opening': "UPDATE lagent_bodies SET body = 'null' WHERE name = 'opening'",
    'empty opening': "UPDATE lagent_bodies SET body = '{}' WHERE name = 'opening'",
    'other opening': """UPDATE lagent_bodies SET body = '{"value":[1],"approval":null}'
        WHERE name = 'opening'""",
    'listed opening': "UPDATE lagent_bodies SET body = '[1]' WHERE name = 'opening'",
    'redactor as a number': """UPDATE lagent_bodies SET body = json_set(body, '$.redactor', 5)
        WHERE name = 'opening'""",
    'opening in words': """UPDATE lagent_bodies SET body = '"x"' WHERE name = 'opening'""",
    **{
        f'{what} in the opening': 'UPDATE lagent_bodies SET body = '
        f"json_set(body, '$.{what}', json('{value}')) WHERE name = 'opening'"
        for what, value in {
            'redactor': '{"type":"x","values":"1","rules":0}',
            'approval': '5',
            'value.messages': '1',
            'value.session': '[]',
            'value.kwargs': '1',
            'value.state': '1',
        }.items()
    },
    'no intent': "DELETE FROM lagent_records WHERE type = 'intent' AND seq = 3",
    'no value': """UPDATE lagent_records SET body = '{"$":"tuple"}' WHERE type = 'result'""",
    'bad value': """UPDATE lagent_records SET body = '{"$":"uuid","v":"x"}'
        WHERE type = 'result'""",
    'bad error': "UPDATE lagent_records SET body = '7', type = 'error' WHERE seq = 4",
}


@pytest.mark.parametrize('damage', DAMAGE)
def test_a_damaged_journal_says_what_to_do_and_locks_nobody_out(
    damage: str, tmp_path: Path
) -> None:
    path = tmp_path / 'runs.db'
    with pytest.raises(RuntimeError, match='tired'):
        acting(fails=True).run('q', run_id='r', journal=path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(DAMAGE[damage])
    for _ in range(2):
        with pytest.raises(NotReadable, match=r'damaged'):
            acting().run('q', run_id='r', journal=path)
    for command in READING[:4]:
        code, said = lagent(*command, '-j', str(path))
        assert code in (0, 2), said


def test_a_lease_is_given_back_if_the_attempt_does_not_begin(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ZeroDivisionError), record(journal, 'r'):
        1 / 0  # noqa: B018 - so that there is something to resume
    before = journal.run('r')
    records = journal.records
    for error in (NotReadable('gone'), JournalUnavailable('gone'), KeyError('x')):

        def broken(*_: Any, error: Exception = error) -> Any:
            raise error

        monkeypatch.setattr(journal, 'records', broken)
        with pytest.raises(type(error)):
            take_up(journal, Options(run_id='r'), 'r')
        with pytest.raises(type(error)), record(journal, f'new {error!r}'):
            pass
        monkeypatch.setattr(journal, 'records', records)
        assert journal.run('r').owner == ''
        assert (journal.run('r').status, journal.run('r').outcome) == ('failed', before.outcome)
        with record(journal, f'new {error!r}') as run:
            run.answer = 1


def test_an_attempt_that_could_not_say_that_it_ended_is_over_for_its_own_process(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = journal.release

    def full(*_: Any) -> None:
        raise JournalUnavailable('the disk is full')

    monkeypatch.setattr(journal, 'release', full)
    with pytest.raises(JournalUnavailable), record(journal, 'r') as run:
        run.answer = 1
    monkeypatch.setattr(journal, 'release', release)
    assert journal.run('r').owner != ''
    with record(journal, 'r') as run:
        assert not run.is_done
        with pytest.raises(RunLocked), record(journal, 'r'):
            pass
        run.answer = 2
    assert find(journal, 'r').status == 'done'  # type: ignore[union-attr]


def test_an_answer_that_can_not_be_written_locks_nobody_out(journal: SqliteJournal) -> None:
    with pytest.raises(NotRecordable), record(journal, 'r') as run:
        run.answer = object()
    with record(journal, 'r') as run:
        run.answer = 1


@pytest.mark.parametrize('run_id', ['', 5, 'a\ud800', 'a\0b', 'x' * 201, b'r'])
def test_what_can_be_no_run_is_refused(journal: SqliteJournal, run_id: Any) -> None:
    model = ScriptedModel(['never'])
    with pytest.raises(ValueError, match='run_id'):
        Agent(model).run('q', run_id=run_id, journal=journal)
    with pytest.raises(ValueError, match='run_id'), record(journal, run_id):
        pass
    assert journal.runs() == []


ODD = ['hi \ud800 there', 'a\0b', '\x1b"x"', '"x"', '\udc80\0']


@pytest.mark.parametrize('text', ODD)
def test_any_text_comes_back(any_journal: SqlJournal, text: str) -> None:
    said = Agent(ScriptedModel([f'{text} ok'])).run(text, run_id='r', journal=any_journal)
    again = Agent(ScriptedModel([])).run(text, run_id='r', journal=any_journal)
    assert again.content == said.content == f'{text} ok'
    any_journal.run('r').title.encode()

    class Calling(Agent):
        def forward(self, *message: Any, **kwargs: Any) -> str:
            with branch(text):
                call = FunctionCall(text, {'x': text})
                return str(ActionExecutor([])(AgentMessage(content=call)).content)

    owner = begun(any_journal, 'odd', factory=text)
    odd = Record(type='intent', position=f'{text}.1', time=1.0, kind='tool', name=text, body=text)
    any_journal.append('odd', owner, time.time() + SOON, [odd], {})
    [back] = any_journal.records('odd')
    assert (back.position, back.name, back.body) == (f'{text}.1', text, text)
    assert any_journal.run('odd').factory == text
    first = Calling(ScriptedModel([])).run(text, run_id='s', journal=any_journal)
    assert Calling(ScriptedModel([])).run(text, run_id='s', journal=any_journal) == first
    assert find(any_journal, text) is None


def test_what_a_column_does_not_hold_is_no_trouble_of_the_server(postgres: str) -> None:
    with SqlJournal(postgres) as journal:
        owner = begun(journal, 'long')
        secret = 'never in an error'
        long = Record(type='intent', position='x' * 600, time=1.0, body=secret)
        with pytest.raises(NotRecordable, match='up to 500') as caught:
            journal.append('long', owner, time.time() + SOON, [long], {})
        assert secret not in str(caught.value)
        assert journal.records('long') == []


def test_two_people_decide_at_the_same_moment_and_one_is_told(any_journal: SqlJournal) -> None:
    request = Record(type='request', position='1', time=1.0, body={'why': 'approval'})
    for number in range(15):
        run_id, told = f'r{number}', []
        owner = begun(any_journal, run_id)
        any_journal.append(run_id, owner, time.time() + SOON, [request], {})
        any_journal.release(run_id, owner, 'suspended', None, {})
        ready = threading.Barrier(2)

        def decide(
            verdict: str, run_id: str = run_id, ready: Any = ready, told: Any = told
        ) -> None:
            decision = Record(
                type='decision',
                position='1',
                time=2.0,
                body={'why': 'approval', 'verdict': verdict},
            )
            ready.wait()
            try:
                any_journal.decide(run_id, 1, decision, {})
            except NothingToDecide:
                told.append(verdict)

        threads = [threading.Thread(target=decide, args=(each,)) for each in ('approve', 'reject')]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(told) == 1
        assert [each.type for each in any_journal.records(run_id)] == ['request', 'decision']
