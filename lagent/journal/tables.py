"""The tables of a journal, the same in SQLite and behind SQLAlchemy, and how they came about.

Statements are written for every database: parameters as ``:name``, and ``{bytes}``, ``{text}`` and
``{number}`` for the names of types that differ. A version is never edited once it is released: what
changes is a new entry of `VERSIONS`.
"""

from typing import Any

VERSIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE lagent_runs (
            id VARCHAR(200) PRIMARY KEY,
            status VARCHAR(20) NOT NULL,
            title {text} NOT NULL,
            created {number} NOT NULL,
            updated {number} NOT NULL,
            owner {text} NOT NULL,
            expires {number} NOT NULL
        )""",
        # Beside the run, whose row is written again with every record.
        """CREATE TABLE lagent_bodies (
            run_id VARCHAR(200) NOT NULL,
            name VARCHAR(20) NOT NULL,
            body {text} NOT NULL,
            PRIMARY KEY (run_id, name)
        )""",
        """CREATE TABLE lagent_records (
            run_id VARCHAR(200) NOT NULL,
            seq INTEGER NOT NULL,
            type VARCHAR(20) NOT NULL,
            position VARCHAR(500) NOT NULL,
            time {number} NOT NULL,
            kind VARCHAR(20) NOT NULL,
            name {text} NOT NULL,
            digest VARCHAR(64) NOT NULL,
            body {text} NOT NULL,
            elapsed {number},
            cost {text} NOT NULL,
            PRIMARY KEY (run_id, seq)
        )""",
        'CREATE TABLE lagent_blobs (digest VARCHAR(64) PRIMARY KEY, data {bytes} NOT NULL)',
        """CREATE TABLE lagent_blob_uses (
            run_id VARCHAR(200) NOT NULL,
            digest VARCHAR(64) NOT NULL,
            PRIMARY KEY (run_id, digest)
        )""",
    ),
    ("ALTER TABLE lagent_runs ADD COLUMN factory {text} DEFAULT '' NOT NULL",),
)

TYPES = {
    'sqlite': {'bytes': 'BLOB', 'text': 'TEXT', 'number': 'REAL'},
    'postgresql': {'bytes': 'BYTEA', 'text': 'TEXT', 'number': 'DOUBLE PRECISION'},
}
OTHER_TYPES = {'bytes': 'BLOB', 'text': 'TEXT', 'number': 'DOUBLE PRECISION'}

# What is removed with the last run that uses it must not be taken into use at the same time.
LOCKS = {
    'postgresql': 'LOCK TABLE lagent_runs, lagent_blobs, lagent_blob_uses IN EXCLUSIVE MODE',
}

READ_VERSION = 'SELECT max(version) FROM lagent_schema'
WRITE_VERSION = 'INSERT INTO lagent_schema (version) VALUES (:version)'
CREATE_VERSIONS = 'CREATE TABLE IF NOT EXISTS lagent_schema (version INTEGER PRIMARY KEY)'

# What was asked for and then done without an answer, by another policy, is not waited for.
SUSPEND_IF_WAITING = """UPDATE lagent_runs SET status = 'suspended' WHERE id = :id AND EXISTS (
    SELECT 1 FROM lagent_records request
    WHERE request.run_id = :id AND request.type = 'request' AND NOT EXISTS (
        SELECT 1 FROM lagent_records later
        WHERE later.run_id = :id AND later.position = request.position
        AND later.seq > request.seq AND later.type <> 'note'
    )
)"""

RUN = 'id, status, title, created, updated, factory, owner, expires'
RUN_BEFORE = {1: RUN.replace('factory', "'' AS factory")}  # of a journal that is only read
RECORD = 'type, position, time, kind, name, digest, body, elapsed, cost, seq'


def statements(version: int, dialect: str) -> list[str]:
    """What makes a journal of one version out of one of the version before.

    Args:
        version: the version, from 1.
        dialect: name of the database, as SQLAlchemy has it.

    Returns:
        SQL statements, in order.
    """
    types: dict[str, Any] = TYPES.get(dialect, OTHER_TYPES)
    return [
        statement.format(**types) if '{' in statement else statement
        for statement in VERSIONS[version - 1]
    ]
