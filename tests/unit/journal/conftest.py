"""Journals to test with: a file, and a PostgreSQL server of the tests' own."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lagent.journal import SqliteJournal, SqlJournal

USER = 'postgres'  # the server refuses to run as root


def binaries() -> Path | None:
    """The newest installed server; Debian keeps it off the PATH."""
    found = shutil.which('initdb')
    if found:
        return Path(found).parent
    installed = sorted(
        Path('/usr/lib/postgresql').glob('*/bin/initdb'), key=lambda path: int(path.parts[-3])
    )
    return installed[-1].parent if installed else None


@pytest.fixture(scope='session')
def postgres() -> Iterator[str]:
    """URL of an empty database, on a unix socket in a folder of its own."""
    folder = binaries()
    if folder is None:
        reason = 'there is no PostgreSQL server: apt install postgresql'
        if os.environ.get('LAGENT_TEST_REQUIRE_ALL') == '1':
            pytest.fail(reason)
        pytest.skip(reason)
    pytest.importorskip('sqlalchemy')
    pytest.importorskip('psycopg')
    root = Path(tempfile.mkdtemp(prefix='lagent-pg-'))  # pytest's own may not be entered by others
    is_root = os.getuid() == 0
    if is_root:
        shutil.chown(root, USER)
    as_user: dict[str, Any] = {'user': USER, 'group': USER, 'extra_groups': []} if is_root else {}

    def call(*command: str) -> None:
        subprocess.run(
            [folder / command[0], *command[1:]],
            check=True,
            capture_output=True,
            cwd=root,
            timeout=60,
            **as_user,
        )

    data = str(root / 'data')
    call('initdb', '-D', data, '-U', USER, '--auth=trust', '--no-sync', '-E', 'UTF8')
    options = f"-k {root} -c listen_addresses='' -c shared_buffers=16MB"
    call('pg_ctl', 'start', '-w', '-D', data, '-l', str(root / 'log'), '-o', options)
    try:
        yield f'postgresql+psycopg://{USER}@/postgres?host={root}'
    finally:
        call('pg_ctl', 'stop', '-w', '-D', data, '-m', 'immediate')
        shutil.rmtree(root)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    with SqliteJournal(tmp_path / 'runs.db') as journal:
        yield journal


@pytest.fixture(params=['sqlite', 'postgresql'])
def any_journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlJournal]:
    """A fresh journal in each kind of database."""
    if request.param == 'sqlite':
        with SqliteJournal(tmp_path / 'runs.db') as journal:
            yield journal
        return
    import sqlalchemy

    engine = sqlalchemy.create_engine(request.getfixturevalue('postgres'))
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text('DROP SCHEMA public CASCADE'))
        connection.execute(sqlalchemy.text('CREATE SCHEMA public'))
    try:
        with SqlJournal(engine) as journal:
            yield journal
    finally:
        engine.dispose()


@pytest.fixture
def cassette_file(tmp_path: Path) -> Path:
    """Where a cassette may be put."""
    return tmp_path / 'cassettes' / 'run.jsonl'
