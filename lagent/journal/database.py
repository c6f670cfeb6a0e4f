"""The two ways to a database: the standard library's SQLite, and SQLAlchemy for any other."""

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from lagent._extras import require
from lagent.journal.errors import JournalUnavailable, NotRecordable

_PATIENCE = 30.0  # seconds that a writer waits for another one
_ESCAPED = '\x1b"'


class Done(NamedTuple):
    """What a statement gave: rows, or how many rows it changed."""

    rows: Sequence[Sequence[Any]]
    changed: int


Execute = Callable[[str, Mapping[str, Any]], Done]


class Database(Protocol):
    """What a store needs of a database; any thread may use it.

    Attributes:
        dialect: its name, as SQLAlchemy has it.
    """

    dialect: str

    def has_table(self, name: str) -> bool:
        """Whether there is a table; nothing is made or changed.

        Args:
            name: of the table.

        Raises:
            JournalUnavailable: the database can't be read.
        """

    def transaction(
        self, *, writes: bool = True, durable: bool = True
    ) -> AbstractContextManager[Execute]:
        """All the statements of a ``with`` block or none, durable at its end.

        Args:
            writes: whether it changes anything; it waits for others that do.
            durable: whether it survives that the machine loses power, and not only that the process
                dies.

        Raises:
            JournalUnavailable: the database can't be reached, read or written.
        """

    def close(self) -> None:
        """Let go of files and connections."""


class SqliteDatabase:
    """A file, which many processes and threads may use at the same time.

    It is in WAL mode with ``synchronous=FULL``: a commit is on the disk when it returns. One that
    need not be durable is ``NORMAL``: it is in the file, and on the disk with the next one.

    One that is only read is changed in nothing, and no file is made beside it as long as nobody is
    writing it, so it may lie where nothing can be written.

    Args:
        path: the file; it and its folder are made when they are not there.
        read_only: only read it.
    """

    dialect = 'sqlite'

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self.path, self._read_only = Path(path), read_only
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0
        self._still: tuple[int, ...] | None = None

    @contextmanager
    def transaction(self, *, writes: bool = True, durable: bool = True) -> Iterator[Execute]:
        """See `Database.transaction`."""
        _refuse_writes(writes and self._read_only, self.path)
        with self._lock:
            try:
                connection = self._connected()
                connection.execute(f'PRAGMA synchronous = {"FULL" if durable else "NORMAL"}')
                connection.execute('BEGIN IMMEDIATE' if writes else 'BEGIN')
                try:
                    yield lambda sql, values: _done(connection.execute(sql, _fitting(values)))
                    connection.execute('COMMIT')
                except BaseException:
                    if connection.in_transaction:  # SQLite itself ends one when the disk is full
                        connection.execute('ROLLBACK')
                    raise
                self._see_it_was_still()
            except (sqlite3.Error, OSError) as error:
                what = (
                    'It was only read; see that it is a journal, and that it can be read with what '
                    f'{self._wal().name} has, if there is such a file: where no file can be made, '
                    'copy both to another folder'
                    if self._read_only
                    else 'Nothing was changed by this; see that the disk has room and the file is '
                    'writable, then try again'
                )
                raise JournalUnavailable(
                    f'The journal {self.path} can not be used: {error}. {what}.'
                ) from error

    def has_table(self, name: str) -> bool:
        """See `Database.has_table`."""
        sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name"
        with self.transaction(writes=False) as execute:
            return bool(execute(sql, {'name': name}).rows)

    def _connected(self) -> sqlite3.Connection:
        # A connection must not be carried over a fork: the file would be damaged.
        if self._connection is None or self._pid != os.getpid():
            self._connection = self._to_read() if self._read_only else self._to_write()
            self._pid = os.getpid()
        return self._connection

    def _to_write(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(
            self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute('PRAGMA journal_mode = WAL')
        except BaseException:
            connection.close()
            raise
        return connection

    def _to_read(self) -> sqlite3.Connection:
        # Readers of a file in WAL mode make files, too. Where nobody writes, it can be read as it
        # is, if it is not kept open: what is written meanwhile would not be seen.
        self._still = self._state()
        how = 'mode=ro' if self._still is None else 'mode=ro&immutable=1'
        return sqlite3.connect(
            f'{self.path.resolve().as_uri()}?{how}',
            uri=True,
            timeout=_PATIENCE,
            isolation_level=None,
            check_same_thread=False,
        )

    def _see_it_was_still(self) -> None:
        if self._still is not None and self._connection is not None:
            self._connection.close()
            self._connection, before, self._still = None, self._still, None
            if self._state() != before:
                raise JournalUnavailable(
                    f'The journal {self.path} was changed while it was read. Try again.'
                )

    def _state(self) -> tuple[int, ...] | None:
        """What the file is like while nobody writes it; None if somebody may be."""
        path = self.path.resolve()
        for end in ('wal', 'journal'):
            beside = path.with_name(f'{path.name}-{end}')
            if beside.exists() and beside.stat().st_size:
                return None
        known = path.stat()
        return known.st_ino, known.st_size, known.st_mtime_ns

    def _wal(self) -> Path:
        return self.path.with_name(f'{self.path.name}-wal')

    def close(self) -> None:
        """See `Database.close`; using it again opens the file again."""
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None


def _done(cursor: sqlite3.Cursor) -> Done:
    return Done(_fitted(cursor.fetchall()), cursor.rowcount)


def _refuse_writes(is_refused: bool, where: object) -> None:
    if is_refused:
        raise JournalUnavailable(f'The journal {where} was opened to be read only.')


def _fitting(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values that every database takes: NUL and halves of characters are escaped, as in JSON."""
    return {name: _escaped(value) for name, value in values.items()}


def _escaped(value: Any) -> Any:
    if type(value) is not str:
        return value
    if '\0' not in value and not value.startswith(_ESCAPED):
        if value.isascii():
            return value
        try:
            value.encode()
            return value
        except UnicodeEncodeError:
            pass
    return f'\x1b{json.dumps(value)}'


def _fitted(rows: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
    """Rows as they were before `_fitting`."""
    return [
        [
            json.loads(value[1:]) if type(value) is str and value.startswith(_ESCAPED) else value
            for value in row
        ]
        for row in rows
    ]


class AlchemyDatabase:
    """Any database that SQLAlchemy knows; tested with PostgreSQL.

    Args:
        url: its URL, such as ``postgresql+psycopg://user@host/name``, or an engine.
        read_only: only read it.

    Raises:
        ExtraMissing: SQLAlchemy is not installed.
    """

    def __init__(self, url: Any, *, read_only: bool = False) -> None:
        self._sqlalchemy = require('sqlalchemy', 'sql')
        is_engine = hasattr(url, 'begin')
        self._engine = url if is_engine else self._sqlalchemy.create_engine(url, pool_pre_ping=True)
        self._owns_engine, self._read_only = not is_engine, read_only
        self.dialect: str = self._engine.dialect.name

    @contextmanager
    def transaction(self, *, writes: bool = True, durable: bool = True) -> Iterator[Execute]:
        """See `Database.transaction`."""
        _refuse_writes(writes and self._read_only, self._url())
        text = self._sqlalchemy.text
        with self._told(), self._engine.begin() as connection:

            def execute(sql: str, values: Mapping[str, Any]) -> Done:
                result = connection.execute(text(sql), _fitting(values))
                rows = _fitted(result.fetchall()) if result.returns_rows else ()
                return Done(rows, result.rowcount)

            if self.dialect == 'postgresql':
                if self._read_only:
                    execute('SET TRANSACTION READ ONLY', {})
                elif not durable:
                    execute('SET LOCAL synchronous_commit TO off', {})
            yield execute

    def has_table(self, name: str) -> bool:
        """See `Database.has_table`."""
        with self._told(), self._engine.connect() as connection:
            return bool(self._sqlalchemy.inspect(connection).has_table(name))

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except self._sqlalchemy.exc.SQLAlchemyError as error:
            # Not the statement: that has the whole conversation with it.
            words = ' '.join(str(getattr(error, 'orig', None) or error).split())
            if isinstance(error, self._sqlalchemy.exc.DataError):
                raise NotRecordable(
                    f'The journal in {self._url()} can not take this: {words}. Nothing was changed '
                    'by this; ids of runs have up to 200 characters, positions with the names of '
                    'their branches up to 500.'
                ) from error
            raise JournalUnavailable(
                f'The journal in {self._url()} can not be used: {words}. Nothing was changed by '
                'this; see that the server can be reached and the user may write, then try again.'
            ) from error

    def _url(self) -> str:
        return str(self._engine.url.render_as_string(hide_password=True))

    def close(self) -> None:
        """See `Database.close`; an engine that was given is left open."""
        if self._owns_engine:
            self._engine.dispose()
