"""A process that is killed while it builds a surviving sandbox anew, or soon after it."""

import json
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from sandbox import reaper

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json, os, signal, sys
from lagent.actions import Interpreter
from lagent.journal import record
from sandbox import Sandbox, Survival

journal, scope, rebuild, kill_at, *reads = sys.argv[1:]
CELLS = ['x = [1]; open("f", "w").close()', 'x.append(2)', '"x" in globals() and x']
execute, executed = Sandbox.execute, 0


def dying(self, code, **options):
    global executed
    executed += 1
    if kill_at == f'before {executed}':
        die(self)
    result = execute(self, code, **options)
    if kill_at == f'after {executed}':
        die(self)
    return result


def die(box):
    print(box.container_id, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


Sandbox.execute = dying
survival = Survival(scope, 60)
with Interpreter(survival=survival, rebuild=rebuild) as interpreter, record(journal, 'r'):
    for number, cell in enumerate(CELLS):
        if kill_at == f'cell {number}':
            die(interpreter._open_box('s'))
        if reads and number:
            interpreter.read('f', 's')
        result = interpreter.execute(cell, 's')
    print(json.dumps([result.result, result.state_preserved, *result.notices]))
"""
LOST = 'variables, imports and files from before it are lost'


def attempt(tmp_path: Path, scope: str, rebuild: str, kill_at: str, *reads: str) -> str:
    journal = str(tmp_path / 'j.db')
    command = [sys.executable, '-c', PROGRAM, journal, scope, rebuild, kill_at, *reads]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False
    )
    assert done.returncode == (-signal.SIGKILL if kill_at else 0), done.stderr
    return done.stdout.strip()


@pytest.mark.alone
@pytest.mark.docker
@pytest.mark.parametrize(
    ('rebuild', 'kill_at', 'value', 'told'),
    [
        ('rerun', 'after 1', '[1, 2]', 'the 2 cells before this one ran again'),
        ('rerun', 'before 3', '[1, 2]', 'the 2 cells before this one ran again'),
        ('rerun', 'after 3', '[1, 2]', 'the 2 cells before this one ran again'),
        ('fresh', 'before 1', 'False', LOST),
        ('fresh', 'after 1', 'False', LOST),
        ('snapshot', 'after 1', '[1, 2]', 'Restored: x (list)'),
        ('snapshot', 'before 2', '[1, 2]', 'Restored: x (list)'),
    ],
)
def test_what_was_half_built_is_built_anew_and_news_is_told(
    tmp_path, rebuild, kill_at, value, told
):
    scope = uuid.uuid4().hex
    first = attempt(tmp_path, scope, rebuild, 'cell 2')
    subprocess.run(['docker', 'rm', '-f', first], check=True, capture_output=True)
    second = attempt(tmp_path, scope, rebuild, kill_at)
    assert second != first
    result, is_preserved, *notices = json.loads(attempt(tmp_path, scope, rebuild, ''))
    assert (result, is_preserved) == (value, rebuild != 'fresh')
    assert told in ' '.join(notices)
    assert not {first, second} & {each.id for each in reaper.containers()}


@pytest.mark.alone
@pytest.mark.docker
def test_a_cell_that_was_sent_is_not_sent_again_after_something_that_is_no_cell(tmp_path):
    """Reading a file has the sandbox built anew before anybody asks what became of the cell."""
    scope = uuid.uuid4().hex
    first = attempt(tmp_path, scope, 'rerun', 'after 2', 'reads')
    subprocess.run(['docker', 'rm', '-f', first], check=True, capture_output=True)
    result, *_ = json.loads(attempt(tmp_path, scope, 'rerun', '', 'reads'))
    assert result == '[1]'  # the second cell may have been done, and nobody knows
