"""Processes that are killed around the restart or the end of a session whose sandbox survives."""

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import reaper

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json, os, signal, sys
from lagent.actions import Interpreter
from lagent.actions.sandboxes import Sandboxes
from lagent.journal import record
from sandbox import Survival

journal, scope, method, dies = sys.argv[1:]


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def container():
    print(interpreter._preparations.open_boxes()[0][0].container_id, flush=True)


with Interpreter(survival=Survival(scope, 60)) as interpreter:
    if dies == 'in the first effect':
        interpreter.execute('x = 1; open("f", "w").close()')
        container()
    with record(journal, 'r') as run:
        if not dies.endswith('first effect'):
            interpreter.execute('x = 1; open("f", "w").close()')
            if dies != 'never':
                container()
        if dies == 'before':
            die()
        if dies.startswith('in'):
            setattr(Sandboxes, f'_{method}', die)
        getattr(interpreter, method)()
        if dies == 'behind':
            die()
        first = interpreter.execute('y = 2')
        if dies == 'a cell later':
            die()
        look = 'import os; "x" in globals(), "y" in globals(), os.path.exists("f")'
        last = interpreter.execute(look)
        container()
        print(json.dumps([last.result, *first.notices, *last.notices]), flush=True)
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the run is, and the sandboxes' sockets; what is alive in the end is left over."""
    with tempfile.TemporaryDirectory() as name:
        monkeypatch.setenv('XDG_RUNTIME_DIR', name)
        yield Path(name)
        assert alive(Path(name)) == []


def alive(folder: Path) -> list[str]:
    return [each.id for each in reaper.containers() if str(folder) in str(each.labels)]


def attempt(folder: Path, *how: str) -> 'subprocess.CompletedProcess[str]':
    command = [sys.executable, '-c', PROGRAM, str(folder / 'runs.db'), folder.name, *how]
    return subprocess.run(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, timeout=300, check=False
    )


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.parametrize('method', ['restart', 'close_session'])
@pytest.mark.parametrize(
    'dies', ['before', 'in it', 'behind', 'a cell later', 'in the first effect']
)
def test_killed_around_it(folder, method, dies):
    died = attempt(folder, method, dies)
    assert died.returncode == -signal.SIGKILL
    before = died.stdout.strip()
    is_over = method == 'close_session' and dies in ('behind', 'a cell later')
    assert (before in alive(folder)) != is_over
    how = 'never in the first effect' if 'first' in dies else 'never'
    lived = attempt(folder, method, how)
    assert lived.returncode == 0
    after, said = lived.stdout.splitlines()
    assert json.loads(said) == [str((False, True, method == 'restart'))]
    assert (after == before) == (method == 'restart')


@pytest.mark.docker
@pytest.mark.slow
def test_the_container_is_gone_as_well(folder):
    (before,) = attempt(folder, 'restart', 'before').stdout.split()
    subprocess.run(['docker', 'rm', '-f', before], check=True, capture_output=True)
    lived = attempt(folder, 'restart', 'never')
    _, said = lived.stdout.splitlines()
    seen, told, *more = json.loads(said)
    assert (seen, more) == ('(False, True, False)', [])
    assert 'a new sandbox: files from before it are lost' in told
