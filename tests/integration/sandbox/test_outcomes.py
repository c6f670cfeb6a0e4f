"""How cells end: each end is told truthfully, soon, and leaves the session usable."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandbox import AsyncSandbox, Outcome, SandboxClosed

ROOT = Path(__file__).parents[3]
SWALLOW = """
import time
print('working', flush=True)
while True:
    try:
        time.sleep(60)
    except BaseException:
        pass
"""
DEATHS = {
    'SIGKILL': ('import os, signal\nos.kill(os.getpid(), signal.SIGKILL)', None, 9),
    '_exit': ('import os\nos._exit(3)', 3, None),
    'segfault': ('import ctypes\nctypes.string_at(0)', None, 11),
    'abort': ('import os\nos.abort()', None, 6),
}


def test_a_timeout_that_an_interrupt_ends_keeps_the_state(make):
    box = make()
    box.execute('kept = 1')
    result = box.execute('import time\nprint("partial", flush=True)\ntime.sleep(60)', timeout=0.5)
    assert result.outcome is Outcome.TIMEOUT
    assert result.state_preserved
    assert result.steps == ('interrupt',)
    assert result.stdout == 'partial\n'
    assert 'time limit of 0.5 s' in result.notices[0]
    after = box.execute('print(kept)')
    assert (after.stdout, after.notices) == ('1\n', ())


def test_an_interrupted_subprocess_ends_too(make):
    box = make()
    result = box.execute("import subprocess\nsubprocess.run(['sleep', '60'])", timeout=0.5)
    assert (result.outcome, result.state_preserved) == (Outcome.TIMEOUT, True)


def test_late_output_of_a_timed_out_cell_stays_with_it(make):
    box = make(interrupt_grace=5.0)
    code = (
        'import time\ntry:\n    time.sleep(30)\nexcept KeyboardInterrupt:\n'
        "    time.sleep(1)\n    print('late cleanup')"
    )
    first = box.execute(code, timeout=1.0)
    assert first.outcome is Outcome.TIMEOUT
    assert first.stdout == 'late cleanup\n'
    second = box.execute("print('fresh')")
    assert (second.outcome, second.stdout) == (Outcome.OK, 'fresh\n')


def test_code_that_swallows_interrupts_is_killed(make):
    box = make(interrupt_grace=0.5)
    box.execute('gone = 1')
    box.upload(b'data', name='kept.txt')
    began = time.monotonic()
    result = box.execute(SWALLOW, timeout=0.5)
    assert time.monotonic() - began < 15
    assert result.outcome is Outcome.TIMEOUT
    assert not result.state_preserved
    assert result.steps == ('interrupt', 'kill', 'restart')
    assert result.stdout == 'working\n'
    assert 'variables and imports are lost, files are kept' in result.notices[-1]
    after = box.execute('gone')
    assert after.error.name == 'NameError'
    assert 'new kernel' in after.notices[0]
    assert box.read('kept.txt') == b'data'
    assert box.execute('1').notices == ()


def test_a_c_call_that_cannot_be_interrupted_is_killed(make):
    box = make(interrupt_grace=0.5)
    result = box.execute("import re\nre.match('(a+)+b', 'a' * 64)", timeout=0.5)
    assert result.outcome is Outcome.TIMEOUT
    assert box.execute('1 + 1').result == '2'


@pytest.mark.parametrize('death', DEATHS)
def test_a_death_is_seen_at_once(make, death):
    code, exit_code, number = DEATHS[death]
    box = make()
    box.execute('x = 41')
    box.upload(b'data', name='kept.txt')
    began = time.monotonic()
    # Without the pause the last bytes may die inside the kernel's process.
    result = box.execute(
        f"import time\nprint('working', flush=True)\ntime.sleep(0.5)\n{code}", timeout=300.0
    )
    assert result.timings.running < 5
    assert time.monotonic() - began < 20
    assert result.outcome is Outcome.KERNEL_DIED
    assert (result.exit_code, result.signal) == (exit_code, number)
    assert result.stdout == 'working\n'
    assert not result.state_preserved
    assert result.steps == ('restart',)
    assert 'died' in result.text
    assert 'variables and imports are lost' in result.text
    after = box.execute('print(x + 1)')
    assert after.error.name == 'NameError'
    assert 'variables and imports from before it are lost' in after.text
    assert box.read('kept.txt') == b'data'


def test_a_death_between_cells_is_told_by_the_next(make):
    box = make()
    box.execute('x = 1\nimport threading, os, time')
    box.execute('threading.Timer(0.2, os._exit, [0]).start()')
    time.sleep(1.0)
    result = box.execute('x')
    assert result.error.name == 'NameError'
    assert not result.state_preserved
    assert 'new kernel' in result.notices[0]


def test_code_is_never_run_twice(make):
    box = make()
    code = "import os\nwith open('runs', 'a') as f: f.write('x')\nos._exit(1)"
    box.execute(code)
    box.execute('1')
    assert box.read('runs') == b'x'


def test_interrupt_ends_the_running_cell(make):
    box = make()
    box.execute('kept = 1')
    for event in (events := box.stream('import time\nprint("on", flush=True)\ntime.sleep(60)')):
        if event.output and event.output.text == 'on\n':
            box.interrupt()
        result = event.result
    assert list(events) == []
    assert result.outcome is Outcome.INTERRUPTED
    assert result.state_preserved
    assert box.execute('print(kept)').stdout == '1\n'
    box.interrupt()
    assert box.execute('print(kept)').stdout == '1\n'


def test_restart_loses_variables_and_keeps_files(make):
    box = make()
    box.execute("x = 1\nopen('f', 'w').write('data')")
    box.restart()
    result = box.execute('x')
    assert result.error.name == 'NameError'
    assert result.execution_count == 1
    assert box.read('f') == b'data'


async def test_a_cancelled_call_leaves_the_session_usable(amake):
    async with amake() as box:
        await box.execute('kept = 1')
        task = asyncio.create_task(box.execute('import time\ntime.sleep(60)'))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await box.execute('print(kept)')).stdout == '1\n'


async def test_a_cancelled_call_that_will_not_end_is_killed(amake):
    async with amake(interrupt_grace=0.3) as box:
        await box.execute('gone = 1')
        task = asyncio.create_task(box.execute(SWALLOW))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        result = await box.execute('gone')
        assert result.error.name == 'NameError'
        assert 'new kernel' in result.notices[0]
        assert not result.state_preserved


async def test_a_queued_call_that_is_cancelled_never_runs(amake):
    async with amake() as box:
        first = asyncio.create_task(box.execute('import time\ntime.sleep(0.5)'))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(box.execute("open('ran', 'w')"))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert (await first).ok
        assert await box.files() == []


async def test_closing_ends_a_running_cell(amake):
    box: AsyncSandbox = amake()
    await box.start()
    task = asyncio.create_task(box.execute('import time\ntime.sleep(60)'))
    await asyncio.sleep(0.3)
    await box.close()
    result = await asyncio.wait_for(task, 30)
    assert result.outcome is Outcome.SANDBOX_LOST
    with pytest.raises(SandboxClosed):
        await box.execute('1')


async def test_closing_during_the_start_leaves_nothing(amake):
    box: AsyncSandbox = amake()
    task = asyncio.create_task(box.start())
    await asyncio.sleep(0.05)
    await box.close()
    with pytest.raises(SandboxClosed):
        await task
    assert box.container_id is None
    assert box.closed


def test_endless_output_ends_by_the_clock(make):
    box = make(output_chars=10_000)
    result = box.execute("while True:\n    print('x' * 1000)", timeout=2.0)
    assert result.outcome is Outcome.TIMEOUT
    assert result.truncated.stdout_chars > 10_000
    assert box.execute("print('fine')").stdout == 'fine\n'


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


def test_a_lost_sandbox_is_replaced_with_a_notice(make, backend):
    box = make()
    box.execute('x = 1')
    box.upload(b'data', name='f')
    before = box.container_id or box.pid
    _destroy(box, backend)
    result = box.execute("print('hello')")
    assert result.stdout == 'hello\n'
    assert not result.state_preserved
    assert 'variables, imports and files from before it are lost' in result.text
    assert (box.container_id or box.pid) != before
    assert box.files() == []
    again = box.execute("print('hello')")
    assert (again.stdout, again.notices) == ('hello\n', ())


def test_a_sandbox_that_is_lost_during_a_cell(make, backend):
    box = make()
    for event in box.stream("import time\nprint('on', flush=True)\ntime.sleep(60)"):
        if event.output:
            _destroy(box, backend)
        result = event.result
    assert result.outcome is Outcome.SANDBOX_LOST
    assert result.stdout == 'on\n'
    assert result.timings.running < 30
    assert 'files are lost' in result.text
    after = box.execute("print('hello')")
    assert (after.stdout, after.state_preserved) == ('hello\n', True)
    assert 'new sandbox' in after.notices[0]


def test_text_that_looks_like_a_loss_is_only_text(make):
    box = make()
    box.start()
    before = box.container_id or box.pid
    result = box.execute("raise RuntimeError('No such container: abc')")
    assert (result.outcome, result.notices) == (Outcome.ERROR, ())
    assert (box.container_id or box.pid) == before


def _destroy(box, backend: str) -> None:
    if backend == 'docker':
        subprocess.run(['docker', 'rm', '-f', box.container_id], check=True, capture_output=True)
    else:
        os.kill(int(box.pid or box.container_id), signal.SIGKILL)


@pytest.mark.docker
class TestDocker:
    """What only an engine can do."""

    def test_memory_that_runs_out_is_told_apart_from_a_crash(self, make_docker):
        box = make_docker(memory=256 << 20)
        result = box.execute(
            "print('on', flush=True)\nb = bytearray(1 << 30)\nb[::4096] = b'x' * (1 << 18)"
        )
        assert result.outcome is Outcome.OOM
        assert result.stdout == 'on\n'
        assert '256 MiB' in result.text
        assert box.execute('1 + 1').result == '2'

    def test_memory_that_a_child_used_up_is_no_death(self, make_docker):
        box = make_docker(memory=256 << 20)
        code = (
            'import subprocess, sys\n'
            "subprocess.run([sys.executable, '-c', 'b = b\"x\" * (1 << 30)']).returncode"
        )
        result = box.execute(code)
        assert (result.outcome, result.result) == (Outcome.OK, '-9')

    def test_shared_memory(self, make_docker):
        box = make_docker()
        code = (
            'from multiprocessing import shared_memory as s\n'
            'm = s.SharedMemory(create=True, size=128 * 1024 * 1024)\n'
            "m.buf[:] = b'\\1' * len(m.buf)\nprint('filled')\nm.unlink()"
        )
        assert box.execute(code).stdout == 'filled\n'
        result = make_docker(shm=8 << 20).execute(code)
        assert result.outcome is Outcome.KERNEL_DIED
        assert 'shared memory' in result.text

    def test_a_fork_bomb_meets_the_limit_of_processes(self, make_docker):
        box = make_docker(pids=64)
        code = (
            'import os, time\nn = 0\ntry:\n    while True:\n        if os.fork() == 0:\n'
            '            time.sleep(60); os._exit(0)\n        n += 1\n'
            'except OSError as error:\n    print(n < 64, error.errno)'
        )
        assert box.execute(code).stdout == 'True 11\n'
        assert box.execute('1 + 1').result == '2'
        box.restart()
        assert box.execute('1 + 1').result == '2'

    @pytest.mark.parametrize('command', ['stop', 'pause'])
    def test_a_container_that_is_stopped_or_paused(self, make_docker, command):
        box = make_docker()
        box.execute('x = 1')
        subprocess.run(
            ['docker', command, *(['-t', '1'] if command == 'stop' else []), box.container_id],
            check=True,
            capture_output=True,
        )
        result = box.execute("print('hello')")
        assert result.stdout == 'hello\n'
        assert not result.state_preserved
        assert 'new sandbox' in result.notices[0]
        assert command == 'stop' or 'paused' in result.notices[0]

    def test_a_container_that_is_paused_during_a_cell(self, make_docker):
        box = make_docker()
        for event in box.stream("import time\nprint('on', flush=True)\ntime.sleep(60)", timeout=60):
            if event.output:
                subprocess.run(
                    ['docker', 'pause', box.container_id], check=True, capture_output=True
                )
            result = event.result
        assert result.outcome is Outcome.SANDBOX_LOST
        assert result.timings.running < 40
        assert 'paused' in result.text
        assert box.execute("print('hello')").stdout == 'hello\n'

    def test_a_full_disk_is_an_error_of_the_cell(self, make_docker):
        box = make_docker(disk=8 << 20)
        result = box.execute("open('big', 'wb').write(bytes(16 << 20))")
        assert result.error.name == 'OSError'
        assert box.execute('1 + 1').result == '2'
