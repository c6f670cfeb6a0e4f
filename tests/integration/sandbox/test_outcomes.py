"""Ends of cells that take a program of its own, or an engine.

How cells end on every back end is in `sandbox.conformance`.
"""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox import Outcome, Sandbox, SandboxError, StartFailed

ROOT = Path(__file__).parents[3]


CTRL_C = """
import sys
from sandbox import Sandbox

with Sandbox(backend=sys.argv[1], unsafe=sys.argv[1] == 'local') as box:
    box.execute('kept = 1')
    print('ready', flush=True)
    try:
        for event in box.stream('import time\\nprint(1, flush=True)\\ntime.sleep(60)'):
            print('running', flush=True)
    except KeyboardInterrupt:
        print('interrupted', flush=True)
    print(box.execute('print(kept)').stdout, end='', flush=True)
"""


def test_ctrl_c_in_the_program_leaves_the_session_usable(backend):
    with subprocess.Popen(
        [sys.executable, '-c', CTRL_C, backend], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout.readline() == 'ready\n'
        assert process.stdout.readline() == 'running\n'
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert out == 'interrupted\n1\n'
    assert process.returncode == 0


def docker(*command: str) -> None:
    for attempt in range(5):
        done = subprocess.run(['docker', *command], check=False, capture_output=True, text=True)
        # On a busy machine the engine may fail to freeze a control group in time.
        if 'unable to freeze' not in done.stderr or attempt == 4:
            done.check_returncode()
            return


BEHIND_ITS_BACK = [('stop', '-t', '1'), ('kill',), ('pause',), ('rm', '-f')]


@pytest.mark.docker
@pytest.mark.parametrize('command', BEHIND_ITS_BACK, ids=lambda command: command[0])
def test_a_container_that_goes_between_cells(make_docker, command):
    box = make_docker()
    box.execute('x = 1')
    before = box.container_id
    docker(*command, before)
    result = box.execute("print('hello')")
    assert result.stdout == 'hello\n'
    assert not result.state_preserved
    assert 'variables, imports and files from before it are lost' in result.notices[0]
    assert command != ('pause',) or 'paused' in result.notices[0]
    assert box.container_id != before
    assert box.execute('1').notices == ()


@pytest.mark.docker
@pytest.mark.parametrize('command', BEHIND_ITS_BACK, ids=lambda command: command[0])
def test_a_container_that_goes_during_a_cell(make_docker, command):
    box = make_docker()
    for event in box.stream("import time\nprint('on', flush=True)\ntime.sleep(60)", timeout=60):
        if event.output:
            docker(*command, box.container_id)
        result = event.result
    assert result.outcome is Outcome.SANDBOX_LOST
    assert result.stdout == 'on\n'
    assert result.timings.running < 40
    assert command != ('pause',) or 'paused' in result.text
    assert box.execute("print('hello')").stdout == 'hello\n'


@pytest.fixture
def engine_path(tmp_path, monkeypatch) -> Iterator[Path]:
    """A way to the engine that a test may take away."""
    path = tmp_path / 'docker.sock'
    path.symlink_to('/var/run/docker.sock')
    monkeypatch.setenv('DOCKER_HOST', f'unix://{path}')
    yield path
    path.unlink(missing_ok=True)


@pytest.mark.docker
def test_an_engine_that_goes_away_takes_no_session_with_it(engine_path):
    box = Sandbox()
    assert box.execute('x = 41').ok
    engine_path.unlink()
    assert box.execute('x + 1').result == '42'
    assert box.execute('import os; os._exit(1)').outcome is Outcome.KERNEL_DIED
    assert box.execute('1 + 1').result == '2'
    with pytest.raises(SandboxError):
        box.close()
    assert not box.closed
    engine_path.symlink_to('/var/run/docker.sock')
    box.close()
    assert box.closed


@pytest.mark.docker
def test_an_engine_that_hangs_does_not_hide_a_loss(engine_path):
    box = Sandbox()
    assert box.execute('1').ok
    engine_path.unlink()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(engine_path))
        silent.listen()
        for event in box.stream("import time\nprint('on', flush=True)\ntime.sleep(60)"):
            if event.output:
                subprocess.run(
                    ['docker', '-H', 'unix:///var/run/docker.sock', 'kill', box.container_id],
                    check=True,
                    capture_output=True,
                )
            result = event.result
        assert result.outcome is Outcome.SANDBOX_LOST
        assert result.timings.running < 20
        engine_path.unlink()
    engine_path.symlink_to('/var/run/docker.sock')
    box.close()


@pytest.fixture
def unfit(make) -> Sandbox:
    """A sandbox whose sockets will not be found in order when a kernel is started again."""

    async def seal() -> None:
        raise StartFailed("The sandbox left 'x' among its sockets and was not used.")

    box = make()
    box.execute('x = 1')
    box._machine._instance.seal = seal
    return box


def test_a_sandbox_that_is_found_unfit_after_a_death_is_replaced(unfit):
    died = unfit.execute('import os; os._exit(1)')
    assert died.outcome is Outcome.KERNEL_DIED
    assert 'variables, imports and files are lost' in died.notices[-1]
    result = unfit.execute('1 + 1')
    assert result.result == '2'
    assert "left 'x' among its sockets" in result.notices[0]
    assert unfit.execute('1').notices == ()


def test_a_sandbox_that_is_found_unfit_after_a_restart_is_replaced(unfit):
    unfit.restart()
    result = unfit.execute('1 + 1')
    assert result.result == '2'
    assert 'files from before it are lost' in result.notices[0]


def test_a_kernel_that_starts_too_slowly_takes_no_files_with_it(make):
    box = make()
    box.upload(b'x', name='f')
    machine, policy = box._machine, box._machine._policy
    machine._policy = replace(policy, start_timeout=0.001)
    with pytest.raises(StartFailed, match='its files are kept'):
        box.restart()
    machine._policy = policy
    assert box.read('f') == b'x'
    assert box.execute('1 + 1').result == '2'
