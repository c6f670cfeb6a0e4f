"""The two ways to a database: the standard library's SQLite, and SQLAlchemy for any other."""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from lagent._extras import require
from lagent.journal.errors import JournalUnavailable

_PATIENCE = 30.0  # seconds that a writer waits for another one


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

    Args:
        path: the file; it and its folder are made when they are not there.
    """

    dialect = 'sqlite'

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0

    @contextmanager
    def transaction(self, *, writes: bool = True, durable: bool = True) -> Iterator[Execute]:
        """See `Database.transaction`."""
        with self._lock:
            try:
                connection = self._connected()
                connection.execute(f'PRAGMA synchronous = {"FULL" if durable else "NORMAL"}')
                connection.execute('BEGIN IMMEDIATE' if writes else 'BEGIN')
                try:
                    yield lambda sql, values: _done(connection.execute(sql, dict(values)))
                except BaseException:
                    connection.execute('ROLLBACK')
                    raise
                connection.execute('COMMIT')
            except (sqlite3.Error, OSError) as error:
                raise JournalUnavailable(
                    f'The journal {self.path} can not be used: {error}. Nothing was changed by '
                    'this; see that the disk has room and the file is writable, then try again.'
                ) from error

    def _connected(self) -> sqlite3.Connection:
        # A connection must not be carried over a fork: the file would be damaged.
        if self._connection is None or self._pid != os.getpid():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
            connection.execute('PRAGMA journal_mode = WAL')
            self._connection, self._pid = connection, os.getpid()
        return self._connection

    def close(self) -> None:
        """See `Database.close`; using it again opens the file again."""
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None


def _done(cursor: sqlite3.Cursor) -> Done:
    return Done(cursor.fetchall(), cursor.rowcount)


class AlchemyDatabase:
    """Any database that SQLAlchemy knows; tested with PostgreSQL.

    Args:
        url: its URL, such as ``postgresql+psycopg://user@host/name``, or an engine.

    Raises:
        ExtraMissing: SQLAlchemy is not installed.
    """

    def __init__(self, url: Any) -> None:
        self._sqlalchemy = require('sqlalchemy', 'sql')
        is_engine = hasattr(url, 'begin')
        self._engine = url if is_engine else self._sqlalchemy.create_engine(url, pool_pre_ping=True)
        self._owns_engine = not is_engine
        self.dialect: str = self._engine.dialect.name

    @contextmanager
    def transaction(self, *, writes: bool = True, durable: bool = True) -> Iterator[Execute]:
        """See `Database.transaction`."""
        text = self._sqlalchemy.text
        try:
            with self._engine.begin() as connection:

                def execute(sql: str, values: Mapping[str, Any]) -> Done:
                    result = connection.execute(text(sql), dict(values))
                    return Done(result.fetchall() if result.returns_rows else (), result.rowcount)

                if not durable and self.dialect == 'postgresql':
                    execute('SET LOCAL synchronous_commit TO off', {})
                yield execute
        except self._sqlalchemy.exc.SQLAlchemyError as error:
            raise JournalUnavailable(
                f'The journal in {self._engine.url.render_as_string(hide_password=True)} can not '
                f'be used: {error}. Nothing was changed by this; see that the server can be '
                'reached and the user may write, then try again.'
            ) from error

    def close(self) -> None:
        """See `Database.close`; an engine that was given is left open."""
        if self._owns_engine:
            self._engine.dispose()
