"""Brings the tables of a database to the version that this lagent writes, or reads older ones."""

import time

from lagent.journal import tables
from lagent.journal.database import Database, Execute
from lagent.journal.errors import JournalUnavailable, SchemaTooNew

_TRIES = 5  # others may be making the tables as well


def migrate(database: Database) -> None:
    """Make the tables where there are none, and bring older ones up to date.

    Args:
        database: where the journal is, or is to be.

    Raises:
        SchemaTooNew: a later version of lagent wrote it; nothing was changed.
        JournalUnavailable: it can't be reached, read or written.
    """
    if _version_of(database) == len(tables.VERSIONS):
        return
    for attempt in range(1, _TRIES + 1):
        try:
            with database.transaction() as execute:
                _migrate(execute, database.dialect)
            return
        except JournalUnavailable:
            if attempt == _TRIES:
                raise
            time.sleep(0.05 * attempt)


def run_columns(database: Database) -> str:
    """What a run is selected by in a journal that is only read, and so may be an older one.

    Args:
        database: where the journal is.

    Returns:
        The columns of `tables.RUN`, in SQL; those that the journal has not are empty.

    Raises:
        SchemaTooNew: a later version of lagent wrote it.
        JournalUnavailable: it can't be reached or read, or is no journal.
    """
    version = _version_of(database)
    if not version:
        raise JournalUnavailable(
            'There is no journal: the database has none of its tables. It was not changed; '
            'name the one that has the run.'
        )
    return tables.RUN_BEFORE.get(version, tables.RUN)


def _version_of(database: Database) -> int:
    """The version of the journal; 0 for none."""
    if not database.has_table('lagent_schema'):
        return 0
    with database.transaction(writes=False) as execute:
        return _known_version(execute)


def _known_version(execute: Execute) -> int:
    version: int = execute(tables.READ_VERSION, {}).rows[0][0] or 0
    newest = len(tables.VERSIONS)
    if version > newest:
        raise SchemaTooNew(
            f'The journal has version {version}, this lagent knows {newest}. Nothing was '
            'changed; use the version of lagent that wrote it, or a later one.'
        )
    return version


def _migrate(execute: Execute, dialect: str) -> None:
    execute(tables.CREATE_VERSIONS, {})
    for number in range(_known_version(execute) + 1, len(tables.VERSIONS) + 1):
        for statement in tables.statements(number, dialect):
            execute(statement, {})
        execute(tables.WRITE_VERSION, {'version': number})
