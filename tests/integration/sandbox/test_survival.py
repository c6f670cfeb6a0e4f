"""Sandboxes that outlive their program: killed while it is idle, and in the middle of a cell."""

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandbox import (
    Allowlist,
    Outcome,
    PolicyError,
    Sandbox,
    SandboxError,
    SandboxManager,
    SandboxPolicy,
    Survival,
    reaper,
)
from sandbox.backends.detach import SessionLock

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys, time
from sandbox import Sandbox, Survival

scope, seconds, code, limit = sys.argv[1:]
box = Sandbox(id='s', survival=Survival(scope, float(seconds)))
box.execute('x = 41; open("f", "w").write("kept")', tag='first')
print(box.container_id, flush=True)
if code:
    box.execute(code, tag='last', timeout=float(limit))
time.sleep(600)
"""
HEIR = """
import sys
from sandbox import Sandbox, SandboxError, Survival

box = Sandbox(id='s', survival=Survival(sys.argv[1], 60))
print('ready', flush=True)
sys.stdin.readline()
try:
    print(box.execute('x').result, box.adopted, flush=True)
except SandboxError as error:
    print('refused', flush=True)
sys.stdin.readline()
box.close()
"""
TICKS = """
import time
for number in range(10):
    print(number, flush=True)
    time.sleep(0.1)
x += 1
x
"""

pytestmark = [pytest.mark.docker, pytest.mark.alone]


@pytest.fixture
def scope() -> Iterator[str]:
    """A scope of the test's own, of which nothing may be left."""
    scope = uuid.uuid4().hex
    yield scope
    for orphan in reaper.containers():
        assert scope not in str(orphan.labels)
    lock = SessionLock.take(scope, 's')
    assert lock is not None
    lock.release()


def killed(
    scope: str, code: str = '', *, after: float = 0.4, limit: float = 30, wait: float = 60
) -> str:
    """Run a program that has a session, kill it, and return the id of its container."""
    command = [sys.executable, '-c', PROGRAM, scope, str(wait), code, str(limit)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as program:
        assert program.stdout is not None
        container = program.stdout.readline().strip()
        time.sleep(after)
        program.kill()
    return container


def successor(scope: str, **options: object) -> Sandbox:
    return Sandbox(id='s', survival=Survival(scope, 60), **options)


def test_the_next_process_has_variables_and_files(scope):
    container = killed(scope)
    with successor(scope) as box:
        assert box.adopted
        assert box.container_id == container
        result = box.execute('x, open("f").read()')
        assert (result.result, result.notices) == ("(41, 'kept')", ())
        assert box.recall('first').result == '4'
        assert box.recall('other') == 'not_begun'
        assert box.recall('first') is not None
    assert container not in {each.id for each in reaper.containers()}


def test_a_cell_that_ran_on_is_waited_for_and_told_whole(scope):
    killed(scope, TICKS)
    with successor(scope) as box:
        result = box.recall('last')
        assert (result.outcome, result.result) == (Outcome.OK, '42')
        assert result.stdout.split() == [str(number) for number in range(10)]
        assert 'read again from the sandbox' in result.notices[0]
        assert box.recall('first') is None  # the kernel keeps the last one
        assert box.execute('x').result == '42'
        assert box.recall('last') is not None


def test_a_cell_that_failed_unseen(scope):
    killed(scope, 'print("a"); 1 / 0', after=1.0)
    with successor(scope) as box:
        result = box.recall('last')
        assert (result.outcome, result.stdout) == (Outcome.ERROR, 'a\n')
        assert result.error.name == 'ZeroDivisionError'
        assert [output.kind for output in result.outputs] == ['stdout', 'error']


def test_a_cell_that_ended_the_kernel_unseen(scope):
    killed(scope, 'import os, time; time.sleep(0.8); os._exit(3)')
    time.sleep(1.0)
    with successor(scope) as box:
        result = box.recall('last')
        assert (result.outcome, result.exit_code) == (Outcome.KERNEL_DIED, 3)
        assert not result.state_preserved
        assert box.execute('open("f").read()').result == "'kept'"


def test_a_cell_has_the_rest_of_its_time(scope):
    killed(scope, 'while True: pass', limit=2)
    with successor(scope) as box:
        result = box.recall('last')
        assert (result.outcome, result.steps) == (Outcome.TIMEOUT, ('interrupt',))
        assert box.execute('x').result == '41'


def test_more_output_than_the_kernel_keeps_is_counted(scope):
    killed(scope, 'for _ in range(40): print("y" * 100_000)', after=1.5)
    with successor(scope) as box:
        result = box.recall('last')
        assert result.outcome is Outcome.OK
        assert result.truncated.messages > 0
        assert result.truncated.bytes > 1 << 20
        assert result.stdout.startswith('y' * 1_000)


def test_of_many_heirs_one_has_it(scope):
    killed(scope)
    successors = [
        subprocess.Popen(
            [sys.executable, '-c', HEIR, scope],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for _ in range(4)
    ]
    try:
        assert [each.stdout.readline() for each in successors] == ['ready\n'] * 4
        for each in successors:
            each.stdin.write('\n')
            each.stdin.flush()
        with ThreadPoolExecutor() as pool:
            answers = list(pool.map(lambda each: each.stdout.readline().strip(), successors))
        assert sorted(answers) == ['41 True', 'refused', 'refused', 'refused']
    finally:
        for each in successors:
            each.communicate('\n', timeout=60)


def test_of_a_living_process_nothing_is_taken(scope):
    other = successor(scope)
    with successor(scope) as box:
        box.execute('x = 1')
        with pytest.raises(SandboxError, match='living process'):
            other.execute('x')
    assert other.execute('"x" in globals()').result == 'False'
    assert not other.adopted
    other.close()


def test_a_stranger_is_not_given_it(scope):
    container = killed(scope)
    with Sandbox(id='s', survival=Survival(f'{scope}2', 60)) as stranger:
        assert stranger.container_id != container
        assert not stranger.adopted
    with successor(scope) as box:
        assert box.container_id == container


def test_another_policy_gets_another_sandbox(scope):
    container = killed(scope)
    with successor(scope, policy=SandboxPolicy(pids=64)) as box:
        result = box.execute('"x" in globals()')
        assert result.result == 'False'
        assert 'made by another policy' in result.notices[0]
        assert container not in {each.id for each in reaper.containers()}


def test_a_sandbox_that_is_gone_is_told(scope):
    container = killed(scope)
    subprocess.run(['docker', 'rm', '-f', container], check=True, capture_output=True)
    with successor(scope) as box:
        result = box.execute('"x" in globals()')
        assert (result.result, result.state_preserved) == ('False', False)
        assert 'variables, imports and files from before it are lost' in result.notices[0]


def test_a_sweep_waits_for_its_time(scope):
    container = killed(scope, wait=4)
    reaper.collect_garbage()
    (mine,) = [each for each in reaper.containers() if each.id == container]
    assert mine.owner_state == 'dead'
    deadline = time.monotonic() + 30
    while container in {each.id for each in reaper.containers()}:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    folder = mine.labels['lagent.sandbox.folder']
    reaper.collect_garbage()
    assert not Path(folder).exists()


def test_a_manager_takes_over_session_by_session(scope):
    killed(scope)
    with SandboxManager(survival=Survival(scope, 60), warm=1) as manager:
        box = manager.session('s')
        assert box.adopted
        assert box.execute('x').result == '41'
        assert not manager.session('t').adopted


@pytest.mark.parametrize(
    ('options', 'words'),
    [
        ({'backend': 'local', 'unsafe': True}, "'local' cannot outlive"),
        ({'backend': 'fake'}, "'fake' cannot outlive"),
        ({'policy': SandboxPolicy(network=Allowlist(['example.org']))}, 'allow-list'),
        ({'policy': SandboxPolicy(runtime='runsc')}, 'gVisor'),
    ],
)
def test_what_cannot_survive_is_refused(options, words):
    with pytest.raises(PolicyError, match=words):
        Sandbox(survival=Survival('s'), **options)
