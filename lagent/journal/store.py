"""Journals in a database: the contract written once, in SQL that every database understands."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from lagent.journal import tables
from lagent.journal.codec import digest_of, written
from lagent.journal.contract import Record, Run, Status
from lagent.journal.database import AlchemyDatabase, Database, Execute, SqliteDatabase
from lagent.journal.errors import LeaseLost, NoSuchRun, NothingToDecide, RunLocked
from lagent.journal.lease import describe, is_gone
from lagent.journal.migration import migrate, run_columns
from lagent.journal.validation import damaged


class SqlJournal:
    """A `Journal` in a database behind SQLAlchemy.

    Args:
        url: the database's URL, or an engine.
        read_only: only read it: nothing is made, migrated or written.

    Raises:
        ExtraMissing: SQLAlchemy is not installed.
        SchemaTooNew: a later version of lagent wrote it.
        JournalUnavailable: it can't be reached, or is only read and is no journal.
    """

    def __init__(self, url: Any, *, read_only: bool = False) -> None:
        self._open(AlchemyDatabase(url, read_only=read_only), read_only)

    def _open(self, database: Database, read_only: bool) -> None:
        self._database = database
        self._run_columns = tables.RUN
        try:
            if read_only:
                self._run_columns = run_columns(database)
            else:
                migrate(database)
        except BaseException:
            database.close()
            raise

    def begin(self, run: Run, blobs: Mapping[str, bytes]) -> None:
        """See `Journal.begin`."""
        row = {name: getattr(run, name) for name in tables.RUN.split(', ')}
        values = ', '.join(f':{name}' for name in row)
        with self._database.transaction() as execute:
            added = execute(
                f'INSERT INTO lagent_runs ({tables.RUN}) VALUES ({values}) '  # noqa: S608
                'ON CONFLICT (id) DO NOTHING',
                row,
            )
            if not added.changed:
                raise RunLocked(f'There is a run {run.id!r} already; somebody else has begun it.')
            _write(execute, run.id, 'opening', run.opening)
            _keep(execute, run.id, blobs)

    def run(self, run_id: str) -> Run:
        """See `Journal.run`."""
        with self._database.transaction(writes=False) as execute:
            return _run(execute, run_id, self._run_columns)

    def runs(
        self, status: Status | None = None, limit: int = 100, *, prefix: str = ''
    ) -> list[Run]:
        """See `Journal.runs`."""
        values: dict[str, Any] = {'limit': limit, 'prefix': prefix, 'length': len(prefix)}
        where = 'WHERE substr(id, 1, :length) = :prefix '
        if status is not None:
            where, values['status'] = f'{where}AND status = :status ', status
        sql = (
            f'SELECT {self._run_columns} FROM lagent_runs {where}'  # noqa: S608
            'ORDER BY created DESC, id LIMIT :limit'
        )
        with self._database.transaction(writes=False) as execute:
            return [_as_run(row) for row in execute(sql, values).rows]

    def records(self, run_id: str, after: int = 0) -> list[Record]:
        """See `Journal.records`."""
        sql = (
            f'SELECT {tables.RECORD} FROM lagent_records '  # noqa: S608
            'WHERE run_id = :run_id AND seq > :after ORDER BY seq'
        )
        with self._database.transaction(writes=False) as execute:
            rows = execute(sql, {'run_id': run_id, 'after': after}).rows
        return [_as_record(row) for row in rows]

    def blob(self, digest: str) -> bytes:
        """See `Journal.blob`."""
        with self._database.transaction(writes=False) as execute:
            rows = execute(
                'SELECT data FROM lagent_blobs WHERE digest = :digest', {'digest': digest}
            ).rows
        data = bytes(rows[0][0]) if rows else b''
        if digest_of(data) != digest:
            lost = 'was changed' if rows else 'is lost'
            raise damaged(f'the blob {digest[:12]}… {lost}')
        return data

    def acquire(self, run_id: str, owner: str, expires: float) -> Run:
        """See `Journal.acquire`."""
        with self._database.transaction() as execute:
            run = _run(execute, run_id)
            now = time.time()
            if run.owner and run.expires > now and not is_gone(run.owner):
                raise RunLocked(
                    f'Run {run_id!r} is being executed by {describe(run.owner)}. Wait for it, or '
                    f'try again when its lease has ended, in {run.expires - now:.0f} s at most.'
                )
            taken = execute(
                'UPDATE lagent_runs SET owner = :owner, expires = :expires, updated = :now '
                'WHERE id = :id AND owner = :seen',
                {'owner': owner, 'expires': expires, 'now': now, 'id': run_id, 'seen': run.owner},
            )
            if not taken.changed:
                raise RunLocked(f'Run {run_id!r} was taken by somebody else at this moment.')
            return run

    def renew(self, run_id: str, owner: str, expires: float) -> None:
        """See `Journal.renew`."""
        with self._database.transaction() as execute:
            _hold(execute, run_id, owner, expires)

    def append(
        self,
        run_id: str,
        owner: str,
        expires: float,
        records: Sequence[Record],
        blobs: Mapping[str, bytes],
        *,
        durable: bool = True,
    ) -> None:
        """See `Journal.append`."""
        with self._database.transaction(durable=durable) as execute:
            _hold(execute, run_id, owner, expires)
            for record in records:
                _add(execute, run_id, record)
            _keep(execute, run_id, blobs)

    def release(
        self, run_id: str, owner: str, status: Status, outcome: Any, blobs: Mapping[str, bytes]
    ) -> None:
        """See `Journal.release`."""
        values = {
            'id': run_id,
            'owner': owner,
            'status': status,
            'now': time.time(),
        }
        with self._database.transaction() as execute:
            released = execute(
                "UPDATE lagent_runs SET owner = '', expires = 0, status = :status, "
                'updated = :now WHERE id = :id AND owner = :owner',
                values,
            )
            if not released.changed:
                raise _lost(run_id)
            _write(execute, run_id, 'outcome', outcome)
            _keep(execute, run_id, blobs)

    def decide(
        self, run_id: str, request: int, decision: Record, blobs: Mapping[str, bytes]
    ) -> None:
        """See `Journal.decide`."""
        with self._database.transaction() as execute:
            # Only once the row is locked does a statement see what others have decided meanwhile.
            execute('UPDATE lagent_runs SET updated = updated WHERE id = :id', {'id': run_id})
            made = execute(
                "UPDATE lagent_runs SET status = 'ready', updated = :now WHERE id = :id AND "
                "status <> 'done' AND (owner = '' OR expires < :now) AND "
                'NOT EXISTS (SELECT 1 FROM lagent_records WHERE run_id = :id AND '
                "type = 'decision' AND position = :position AND seq > :request)",
                {
                    'id': run_id,
                    'request': request,
                    'position': decision.position,
                    'now': time.time(),
                },
            )
            if not made.changed:
                raise NothingToDecide(
                    f'Run {run_id!r} does not wait for this decision (any more). Look at it again.'
                )
            _add(execute, run_id, decision)
            execute(tables.SUSPEND_IF_WAITING, {'id': run_id})
            _keep(execute, run_id, blobs)

    def prune(self, before: float, statuses: Sequence[Status] = ('done',)) -> int:
        """See `Journal.prune`."""
        names = {f's{index}': status for index, status in enumerate(statuses)}
        listed = ', '.join(f':{name}' for name in names)
        values = {'before': before, 'now': time.time(), **names}
        with self._database.transaction() as execute:
            if (lock := tables.LOCKS.get(self._database.dialect)) is not None:
                execute(lock, {})
            rows = execute(
                'SELECT id FROM lagent_runs WHERE updated < :before '  # noqa: S608
                f"AND (owner = '' OR expires < :now) AND status IN ({listed})",
                values,
            ).rows
            for (run_id,) in rows:
                for table in ('lagent_records', 'lagent_bodies', 'lagent_blob_uses'):
                    execute(f'DELETE FROM {table} WHERE run_id = :id', {'id': run_id})  # noqa: S608
                execute('DELETE FROM lagent_runs WHERE id = :id', {'id': run_id})
            if rows:
                execute(
                    'DELETE FROM lagent_blobs WHERE NOT EXISTS (SELECT 1 FROM lagent_blob_uses u '
                    'WHERE u.digest = lagent_blobs.digest)',
                    {},
                )
        return len(rows)

    def close(self) -> None:
        """See `Journal.close`."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class SqliteJournal(SqlJournal):
    """A `Journal` in a file, which many processes and threads may use; needs nothing installed.

    Args:
        path: the file; it and its folder are made when they are not there.
        read_only: only read it: nothing is made, migrated or written.

    Raises:
        SchemaTooNew: a later version of lagent wrote it.
        JournalUnavailable: it can't be opened, or is only read and is no journal.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self._open(SqliteDatabase(path, read_only=read_only), read_only)


def _run(execute: Execute, run_id: str, columns: str = tables.RUN) -> Run:
    sql = f'SELECT {columns} FROM lagent_runs WHERE id = :id'  # noqa: S608
    rows = execute(sql, {'id': run_id}).rows
    if not rows:
        raise NoSuchRun(f'The journal has no run {run_id!r}.')
    bodies = execute('SELECT name, body FROM lagent_bodies WHERE run_id = :id', {'id': run_id}).rows
    read = {name: _tree(body, f'the {name} of run {run_id!r}') for name, body in bodies}
    return replace(_as_run(rows[0]), **read)


def _as_run(row: Sequence[Any]) -> Run:
    return Run(**dict(zip(tables.RUN.split(', '), row, strict=True)))


def _as_record(row: Sequence[Any]) -> Record:
    values: dict[str, Any] = dict(zip(tables.RECORD.split(', '), row, strict=True))
    what = f'record {values["seq"]} of the run'
    values['body'] = _tree(values['body'], what)
    values['usage'] = _tree(values.pop('cost'), what)
    return Record(**values)


def _tree(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise damaged(f'{what} is no JSON ({error})') from error


def _hold(execute: Execute, run_id: str, owner: str, expires: float) -> None:
    held = execute(
        'UPDATE lagent_runs SET expires = :expires, updated = :now, status = :status '
        'WHERE id = :id AND owner = :owner',
        {
            'expires': expires,
            'now': time.time(),
            'status': 'running',
            'id': run_id,
            'owner': owner,
        },
    )
    if not held.changed:
        raise _lost(run_id)


def _lost(run_id: str) -> LeaseLost:
    return LeaseLost(
        f'The lease of run {run_id!r} ran out, and somebody else has taken the run over. Nothing '
        'more is recorded here; what this process was doing then may be done again there.'
    )


def _add(execute: Execute, run_id: str, record: Record) -> None:
    # The statement before it has locked the run's row: numbers are given one at a time.
    row: dict[str, Any] = {
        'run_id': run_id,
        'type': record.type,
        'position': record.position,
        'time': record.time,
        'kind': record.kind,
        'name': record.name,
        'digest': record.digest,
        'body': written(record.body),
        'elapsed': record.elapsed,
        'cost': written(dict(record.usage)),
    }
    columns, values = ', '.join(row), ', '.join(f':{name}' for name in row)
    execute(
        f'INSERT INTO lagent_records (seq, {columns}) VALUES ('  # noqa: S608
        'coalesce((SELECT max(seq) FROM lagent_records WHERE run_id = :run_id), 0) + 1, '
        f'{values})',
        row,
    )


def _write(execute: Execute, run_id: str, name: str, tree: Any) -> None:
    values = {'run_id': run_id, 'name': name, 'body': written(tree)}
    execute(
        'INSERT INTO lagent_bodies (run_id, name, body) VALUES (:run_id, :name, :body) '
        'ON CONFLICT (run_id, name) DO UPDATE SET body = excluded.body',
        values,
    )


def _keep(execute: Execute, run_id: str, blobs: Mapping[str, bytes]) -> None:
    for digest, data in sorted(blobs.items()):  # in one order, or two writers may wait in a circle
        execute(
            'INSERT INTO lagent_blobs (digest, data) VALUES (:digest, :data) '
            'ON CONFLICT (digest) DO NOTHING',
            {'digest': digest, 'data': data},
        )
        execute(
            'INSERT INTO lagent_blob_uses (run_id, digest) VALUES (:run_id, :digest) '
            'ON CONFLICT (run_id, digest) DO NOTHING',
            {'run_id': run_id, 'digest': digest},
        )
