"""What the policy limits, and what a cell sees of it."""

import pytest

from sandbox import FileRefused, Outcome
from sandbox.conformance.expectation import (
    MakeBox,
    error_of,
    expectation,
)


@expectation(2, needs=('memory', 'oom'))
def test_memory_that_runs_out_is_told_apart_from_a_crash(make: MakeBox) -> None:
    box = make(memory=256 << 20)
    # Without the pause the last bytes may die inside the kernel's process.
    result = box.execute(
        "import time\nprint('on', flush=True)\ntime.sleep(0.5)\n"
        "b = bytearray(1 << 30)\nb[::4096] = b'x' * (1 << 18)"
    )
    assert result.outcome is Outcome.OOM
    assert result.stdout == 'on\n'
    assert '256 MiB' in result.text
    assert box.execute('1 + 1').result == '2'


@expectation(2, needs=('memory', 'oom'))
def test_memory_that_a_child_used_up_is_no_death(make: MakeBox) -> None:
    box = make(memory=256 << 20)
    code = (
        'import subprocess, sys\n'
        "subprocess.run([sys.executable, '-c', 'b = b\"x\" * (1 << 30)']).returncode"
    )
    result = box.execute(code)
    assert (result.outcome, result.result) == (Outcome.OK, '-9')


@expectation(2, needs='memory')
def test_memory_that_runs_out_is_told(make: MakeBox) -> None:
    """Whatever is lost with it, the result says why, and the session goes on."""
    box = make(memory=256 << 20)
    result = box.execute("b = bytearray(1 << 30)\nb[::4096] = b'x' * (1 << 18)")
    assert result.outcome in (Outcome.OOM, Outcome.SANDBOX_LOST)
    assert 'memory' in result.text
    assert box.execute('1 + 1').result == '2'


@expectation(16, needs='shm')
def test_shared_memory(make: MakeBox) -> None:
    box = make()
    code = (
        'from multiprocessing import shared_memory as s\n'
        'm = s.SharedMemory(create=True, size=128 * 1024 * 1024)\n'
        "m.buf[:] = b'\\1' * len(m.buf)\nprint('filled')\nm.unlink()"
    )
    assert box.execute(code).stdout == 'filled\n'
    result = make(shm=8 << 20).execute(code)
    assert result.outcome is Outcome.KERNEL_DIED
    assert 'shared memory' in result.text


@expectation(1, needs='pids')
def test_a_fork_bomb_meets_the_limit_of_processes(make: MakeBox) -> None:
    box = make(pids=64)
    code = (
        'import os\nn = 0\ntry:\n    while True:\n        if os.fork() == 0:\n'
        '            os.execlp("sleep", "sleep", "60")\n        n += 1\n'
        'except OSError as error:\n    print(n < 64, error.errno)'
    )
    assert box.execute(code).stdout == 'True 11\n'
    assert box.execute('1 + 1').result == '2'
    box.restart()
    assert box.execute('1 + 1').result == '2'


@expectation(16, needs='disk')
def test_a_full_disk_is_an_error_of_the_cell(make: MakeBox) -> None:
    box = make(disk=8 << 20)
    result = box.execute("open('big', 'wb').write(bytes(16 << 20))")
    assert error_of(result).name == 'OSError'
    assert box.execute('1 + 1').result == '2'


@expectation(16, needs=('files', 'disk'))
def test_an_upload_that_does_not_fit_changes_nothing(make: MakeBox) -> None:
    box = make(disk=8 << 20)
    with pytest.raises(FileRefused, match='no space'):
        box.upload(bytes(16 << 20), name='big')
    assert box.files() == []
    assert box.upload(b'x', name='small').size == 1
