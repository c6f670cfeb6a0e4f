"""Both databases keep the contract: all or nothing, durable, one executor at a time."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lagent.errors import ExtraMissing
from lagent.journal import (
    JournalUnavailable,
    LeaseLost,
    NoSuchRun,
    NothingToDecide,
    NotReadable,
    Record,
    Run,
    RunLocked,
    SchemaTooNew,
    SqliteJournal,
    SqlJournal,
    lease,
    tables,
)
from lagent.journal.codec import digest_of
from lagent.journal.lease import Heartbeat, describe, is_gone, new_owner
from lagent.journal.migration import migrate

SOON = 60.0
DATA = b'\0\xff'
DIGEST = digest_of(DATA)
SHARED = digest_of(b's')


def begun(journal: SqlJournal, run_id: str = 'r', **fields: Any) -> str:
    owner = new_owner()
    now = time.time()
    run = Run(id=run_id, created=now, updated=now, owner=owner, expires=now + SOON, **fields)
    journal.begin(run, {})
    return owner


def intent(position: str = '1', **fields: Any) -> Record:
    values = {'type': 'intent', 'position': position, 'time': 1.5, 'kind': 'tool', 'name': 'x'}
    return Record(**{**values, **fields})


def test_what_was_appended_is_there(any_journal: SqlJournal) -> None:
    owner = begun(any_journal, title='a title', opening={'a': [1, 'ä\ud800']}, factory='m:f')
    records = [
        intent(digest='d' * 64, body={'$': 'tuple', 'v': [None, True, 1.5]}),
        Record(type='result', position='1', time=2.5, elapsed=0.25, usage={'prompt_tokens': 3}),
    ]
    any_journal.append('r', owner, time.time() + SOON, records, {DIGEST: DATA})
    again = any_journal.records('r')
    assert [record.seq for record in again] == [1, 2]
    assert again[0].body == records[0].body
    assert (again[1].elapsed, again[1].usage, again[0].elapsed) == (
        0.25,
        {'prompt_tokens': 3},
        None,
    )
    assert any_journal.records('r', after=1) == again[1:]
    assert any_journal.blob(DIGEST) == DATA
    run = any_journal.run('r')
    assert (run.title, run.opening, run.factory) == ('a title', {'a': [1, 'ä\ud800']}, 'm:f')


def test_what_is_not_there_has_a_typed_error(any_journal: SqlJournal) -> None:
    with pytest.raises(NoSuchRun):
        any_journal.run('r')
    with pytest.raises(NotReadable):
        any_journal.blob('0' * 64)
    assert any_journal.records('r') == any_journal.runs() == []


def test_a_run_is_begun_once(any_journal: SqlJournal) -> None:
    begun(any_journal)
    with pytest.raises(RunLocked):
        begun(any_journal)


def test_one_of_many_takes_the_lease(any_journal: SqlJournal) -> None:
    owner = begun(any_journal)
    any_journal.release('r', owner, 'failed', None, {})

    def take(_: int) -> bool:
        try:
            any_journal.acquire('r', new_owner(), time.time() + SOON)
        except RunLocked:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(take, range(16))) == 1


def test_a_lease_that_ran_out_is_taken_over_and_its_holder_is_fenced_off(
    any_journal: SqlJournal,
) -> None:
    slow = begun(any_journal)
    any_journal.renew('r', slow, time.time() - 1)
    quick = new_owner()
    any_journal.acquire('r', quick, time.time() + SOON)
    for late in (
        lambda: any_journal.append('r', slow, time.time() + SOON, [intent()], {'b': b'b'}),
        lambda: any_journal.renew('r', slow, time.time() + SOON),
        lambda: any_journal.release('r', slow, 'done', None, {}),
    ):
        with pytest.raises(LeaseLost):
            late()
    assert any_journal.records('r') == []
    with pytest.raises(NotReadable):
        any_journal.blob('b')


def test_a_process_that_cannot_be_seen_is_not_taken_for_a_dead_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = new_owner()
    monkeypatch.setattr(lease, '_started', lambda pid: None)  # as with hidepid for /proc
    assert not is_gone(mine)

    def of_another_user(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, 'kill', of_another_user)
    assert not is_gone(mine)


def test_a_dead_holder_is_seen_at_once(any_journal: SqlJournal) -> None:
    script = 'from lagent.journal.lease import new_owner; print(new_owner())'
    done = subprocess.run(
        [sys.executable, '-c', script], capture_output=True, text=True, check=True, timeout=60
    )
    dead = done.stdout.strip()
    assert is_gone(dead)
    assert not is_gone(new_owner())
    assert describe(dead).startswith('process ')
    elsewhere = json.dumps({**json.loads(dead), 'boot': 'another machine'})
    assert not is_gone(elsewhere)
    assert not is_gone('what is this')
    now = time.time()
    any_journal.begin(Run(id='r', created=now, updated=now, owner=dead, expires=now + SOON), {})
    any_journal.acquire('r', new_owner(), now + SOON)
    any_journal.begin(
        Run(id='s', created=now, updated=now, owner=elsewhere, expires=now + SOON), {}
    )
    with pytest.raises(RunLocked, match='process'):
        any_journal.acquire('s', new_owner(), now + SOON)


def test_a_decision_is_made_once(any_journal: SqlJournal) -> None:
    owner = begun(any_journal)
    request = intent(type='request', body={'why': 'approval'})
    any_journal.append('r', owner, time.time() + SOON, [request], {})
    decision = intent(type='decision', body={'why': 'approval', 'verdict': 'approve'})
    with pytest.raises(NothingToDecide):  # it is still being executed
        any_journal.decide('r', 1, decision, {})
    any_journal.release('r', owner, 'suspended', None, {})
    any_journal.decide('r', 1, decision, {})
    assert any_journal.run('r').status == 'ready'
    with pytest.raises(NothingToDecide):
        any_journal.decide('r', 1, decision, {})
    assert [record.type for record in any_journal.records('r')] == ['request', 'decision']


def test_pruning_keeps_what_others_use(any_journal: SqlJournal) -> None:
    for run_id, status in (('old', 'done'), ('failed', 'failed')):
        owner = begun(any_journal, run_id)
        blobs = {SHARED: b's', f'of {run_id}': b'o'}
        any_journal.append(run_id, owner, time.time() + SOON, [intent()], blobs)
        any_journal.release(run_id, owner, status, None, {})  # type: ignore[arg-type]
    begun(any_journal, 'running')
    assert any_journal.prune(time.time() - SOON) == 0
    assert any_journal.prune(time.time() + SOON) == 1
    assert {run.id for run in any_journal.runs()} == {'failed', 'running'}
    assert any_journal.records('old') == []
    assert any_journal.blob(SHARED) == b's'
    with pytest.raises(NotReadable):
        any_journal.blob('of old')
    assert any_journal.prune(time.time() + SOON, ['running']) == 0


def test_lists_are_of_one_status_and_newest_first(any_journal: SqlJournal) -> None:
    for name in 'abc':
        begun(any_journal, name, title=name)
        time.sleep(0.002)
    any_journal.release('b', any_journal.run('b').owner, 'done', {'answer': 'x'}, {})
    assert [run.id for run in any_journal.runs()] == ['c', 'b', 'a']
    assert [run.id for run in any_journal.runs('done')] == ['b']
    assert [run.id for run in any_journal.runs(prefix='b')] == ['b']
    assert any_journal.runs('running', prefix='b') == any_journal.runs(prefix='%') == []
    assert len(any_journal.runs(limit=2)) == 2
    assert any_journal.runs('done')[0].outcome is None
    assert any_journal.run('b').outcome == {'answer': 'x'}


def test_runs_in_many_threads_do_not_mix(any_journal: SqlJournal) -> None:
    def work(number: int) -> None:
        run_id = f'run {number}'
        owner = begun(any_journal, run_id)
        for step in range(5):
            record = intent(str(step), name=run_id)
            blobs = {'shared': b's', 'also shared': b'a', run_id: b'o'}
            any_journal.append(run_id, owner, time.time() + SOON, [record], blobs)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(12)))
    for number in range(12):
        records = any_journal.records(f'run {number}')
        assert [record.seq for record in records] == [1, 2, 3, 4, 5]
        assert {record.name for record in records} == {f'run {number}'}


def test_processes_share_a_file(tmp_path: Path) -> None:
    script = """
import sys, time
from lagent.journal import Record, Run, SqliteJournal
path, name = sys.argv[1:]
with SqliteJournal(path) as journal:
    journal.begin(Run(id=name, owner=name, expires=time.time() + 60), {})
    for step in range(20):
        record = Record(type='note', position=str(step), time=0.0, body=name)
        journal.append(name, name, time.time() + 60, [record], {})
"""
    path = tmp_path / 'runs.db'
    running = [subprocess.Popen([sys.executable, '-c', script, str(path), name]) for name in 'abcd']
    assert [process.wait(60) for process in running] == [0] * 4
    with SqliteJournal(path) as journal:
        assert {name: len(journal.records(name)) for name in 'abcd'} == dict.fromkeys('abcd', 20)


def test_a_commit_is_on_the_disk(journal: SqliteJournal) -> None:
    with journal._database.transaction() as execute:
        assert execute('PRAGMA journal_mode', {}).rows[0][0] == 'wal'
        assert execute('PRAGMA synchronous', {}).rows[0][0] == 2  # FULL
    with journal._database.transaction(durable=False) as execute:
        assert execute('PRAGMA synchronous', {}).rows[0][0] == 1  # NORMAL


def test_what_need_not_be_durable_is_there_for_others(any_journal: SqlJournal) -> None:
    owner = begun(any_journal)
    any_journal.append('r', owner, time.time() + SOON, [intent()], {}, durable=False)
    assert len(any_journal.records('r')) == 1


def test_nothing_of_a_failed_transaction_is_kept(any_journal: SqlJournal) -> None:
    owner = begun(any_journal)
    broken = intent('2', name=object())
    with pytest.raises((JournalUnavailable, TypeError)):
        any_journal.append('r', owner, time.time() + SOON, [intent(), broken], {'b': b'b'})
    assert any_journal.records('r') == []
    any_journal.append('r', owner, time.time() + SOON, [intent()], {})
    assert len(any_journal.records('r')) == 1


def test_a_full_disk_is_told_as_such_and_the_journal_goes_on(journal: SqliteJournal) -> None:
    owner = begun(journal)
    connection = journal._database._connection
    pages = connection.execute('PRAGMA page_count').fetchone()[0]
    connection.execute(f'PRAGMA max_page_count = {pages}')
    with pytest.raises(JournalUnavailable, match='database or disk is full'):
        journal.append('r', owner, time.time() + SOON, [intent()], {DIGEST: bytes(1_000_000)})
    connection.execute(f'PRAGMA max_page_count = {1_000 * pages}')
    journal.append('r', owner, time.time() + SOON, [intent()], {})
    assert len(journal.records('r')) == 1


def test_a_commit_that_fails_leaves_no_transaction_open(journal: SqliteJournal) -> None:
    owner = begun(journal)
    database = journal._database
    database._connection.execute('PRAGMA foreign_keys = ON')
    with database.transaction() as execute:
        execute(
            'CREATE TABLE t (x TEXT REFERENCES lagent_runs (id) DEFERRABLE INITIALLY DEFERRED)', {}
        )
    with (
        pytest.raises(JournalUnavailable, match='FOREIGN KEY'),
        database.transaction() as execute,
    ):
        execute("INSERT INTO t VALUES ('nobody')", {})
    journal.append('r', owner, time.time() + SOON, [intent()], {})
    assert len(journal.records('r')) == 1


def test_a_file_that_is_no_journal_says_so(tmp_path: Path) -> None:
    path = tmp_path / 'x.db'
    path.write_bytes(b'this is not a database, whatever its name says' * 40)
    with pytest.raises(JournalUnavailable, match=r'x\.db'):
        SqliteJournal(path)


def test_a_journal_of_the_first_version_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / 'old.db'
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript((Path(__file__).parent / 'version1.sql').read_text())
    with SqliteJournal(path) as journal:
        run = journal.run('old-run')
        assert (run.title, run.status, run.factory) == ('how many rows', 'failed', '')
        assert (run.opening, run.outcome) == ({'session': 7}, None)
        assert [record.type for record in journal.records('old-run')] == ['intent', 'result']
        begun(journal, 'new', factory='m:f')
        assert journal.run('new').factory == 'm:f'
    with SqliteJournal(path) as journal:  # and it is migrated once
        assert len(journal.runs()) == 2


def test_a_journal_of_a_later_version_is_left_alone(any_journal: SqlJournal) -> None:
    with any_journal._database.transaction() as execute:
        execute(tables.WRITE_VERSION, {'version': 99})
    with pytest.raises(SchemaTooNew, match='99'):
        migrate(any_journal._database)


def test_another_database_needs_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'sqlalchemy', None)
    with pytest.raises((ExtraMissing, ImportError)):
        SqlJournal('postgresql://nowhere/db')


def test_a_password_is_not_in_the_error() -> None:
    pytest.importorskip('psycopg')
    with pytest.raises(JournalUnavailable) as caught:
        SqlJournal('postgresql+psycopg://user:hunter22@127.0.0.1:1/db?connect_timeout=2')
    assert 'hunter22' not in str(caught.value)


def test_a_heartbeat_renews_until_it_is_stopped() -> None:
    beats = threading.Semaphore(0)
    heartbeat = Heartbeat(beats.release, 0.01)
    assert beats.acquire(timeout=10)
    assert beats.acquire(timeout=10)
    heartbeat.stop()
    heartbeat._thread.join(10)
    assert not heartbeat._thread.is_alive()


def test_a_heartbeat_outlives_a_journal_that_is_away() -> None:
    tries = threading.Semaphore(0)

    def away() -> None:
        tries.release()
        raise JournalUnavailable('for a while')

    heartbeat = Heartbeat(away, 0.01)
    assert tries.acquire(timeout=10)
    assert tries.acquire(timeout=10)
    heartbeat.stop()


def test_a_heartbeat_ends_with_the_lease() -> None:
    def lost() -> None:
        raise LeaseLost('gone')

    renew: Callable[[], None] = lost
    heartbeat = Heartbeat(renew, 0.01)
    heartbeat._thread.join(10)
    assert not heartbeat._thread.is_alive()
