"""The local back end, and through it what the guest's kernel does differently from a stock one."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import BackendUnavailable, Sandbox, SandboxPolicy
from sandbox.backends import get_backend
from sandbox.backends.local import LocalBackend
from sandbox.kernel.supervisor import Supervisor


@pytest.fixture(scope='module')
def box() -> Iterator[Sandbox]:
    with Sandbox(backend='local', unsafe=True) as box:
        yield box


def test_it_runs_nothing_without_consent():
    with pytest.raises(BackendUnavailable, match='unsafe=True'):
        get_backend('local').check()
    with pytest.raises(BackendUnavailable), Sandbox(backend='local') as box:
        box.execute('1')


def test_a_back_end_is_found_by_name_or_given():
    own = LocalBackend(unsafe=True)
    assert get_backend(own) is own
    with pytest.raises(ValueError, match="no back end 'podman'"):
        get_backend('podman')
    with pytest.raises(ValueError, match='image'):
        get_backend('local', image='x')


async def test_an_instance_ends_with_all_it_started_and_its_files():
    instance = await LocalBackend(unsafe=True).start(SandboxPolicy(), labels={})
    supervisor = await Supervisor.connect(instance.endpoint.control)
    root = instance.endpoint.directory.parent
    assert root.stat().st_mode & 0o777 == 0o700
    await instance.unseal()
    await instance.seal()
    assert 'runs but does not answer' in await instance.describe_loss()
    os.kill(int(instance.id), signal.SIGKILL)
    await supervisor.gone()
    await supervisor.close()
    await instance.remove()
    await instance.remove()
    assert 'was killed by signal 9' in await instance.describe_loss()
    assert not root.exists()


def test_the_hosts_environment_stays_outside(monkeypatch):
    monkeypatch.setenv('SOME_SECRET', 'hunter2')
    policy = SandboxPolicy(env={'GREETING': 'hello'})
    with Sandbox(policy=policy, backend='local', unsafe=True) as box:
        result = box.execute('import os; os.environ.get("SOME_SECRET"), os.environ["GREETING"]')
        assert result.result == "(None, 'hello')"
        home = Path(box.execute('print(os.environ["HOME"])').stdout.strip())
        assert home.is_dir()
    assert not home.exists()


@pytest.mark.parametrize(
    ('code', 'message'),
    [
        ('exit()', ''),
        ('quit(4)', '4'),
        ('exit', ''),
        ('import sys; sys.exit(3)', '3'),
        ('get_ipython().ask_exit()', ''),
    ],
)
def test_leaving_is_an_error_of_the_cell(box, code, message):
    box.execute('kept = 1')
    result = box.execute(code)
    assert (result.outcome, result.stderr) == ('error', '')
    assert result.error is not None
    assert (result.error.name, result.error.message) == ('SystemExit', message)
    assert box.execute('kept').result == '1'


@pytest.mark.parametrize(
    'harm',
    [
        'import sys; sys.stdout = sys.stderr = None',
        'import sys, io; sys.stdout = io.StringIO()',
        'import os; os.close(1); os.close(2)',
        'import os; n = os.open("/dev/null", 1); os.dup2(n, 1); os.dup2(n, 2)',
    ],
)
def test_the_streams_are_whole_again_in_the_next_cell(box, harm):
    assert box.execute(harm).ok
    result = box.execute(
        'import os, sys\nprint("python")\nsys.stdout.flush()\n'
        'os.system("echo child; echo bad >&2")\nNone'
    )
    assert sorted(result.stdout.split()) == ['child', 'python']
    assert result.stderr == 'bad\n'


def test_what_children_print_belongs_to_the_cell_that_ran_them(box):
    for number in range(30):
        result = box.execute(f'import os; os.system("echo {number}; echo e{number} >&2"); None')
        assert (result.stdout, result.stderr) == (f'{number}\n', f'e{number}\n')


def test_children_may_be_given_the_streams_themselves(box):
    result = box.execute(
        'import subprocess, sys\n'
        'subprocess.run("echo a; echo b >&2", shell=True, stdout=sys.stdout, stderr=sys.stderr)\n'
        'None'
    )
    assert (result.stdout, result.stderr) == ('a\n', 'b\n')


def test_what_is_written_to_the_descriptor_is_not_cut_within_a_character(box):
    result = box.execute('import os; os.write(1, "é€".encode() * 10_000); None')
    assert result.stdout == 'é€' * 10_000


@pytest.mark.parametrize(
    'code',
    [
        'print("a" + "x" * 29_999_998 + "b", end="")',
        'import os\nfor _ in range(600): os.write(1, b"x" * 50_000)\nNone',
        'for _ in range(300): print("x" * 99_999)',
    ],
)
def test_however_much_is_printed_it_is_counted(box, code):
    result = box.execute(code, timeout=60)
    assert result.ok
    kept = 30_000_000 - result.truncated.stdout_chars
    assert kept == box.policy.output_chars
    assert result.truncated.messages == 0


def test_half_a_surrogate_pair_costs_nothing(box):
    assert box.execute('print("a\\ud800b")').stdout == 'a\\ud800b\n'
    result = box.execute('raise ValueError("a\\udc80b")')
    assert result.error is not None
    assert result.error.message == 'a\\udc80b'


def test_an_exception_that_cannot_be_printed_is_reported(box):
    result = box.execute('class E(Exception):\n    def __str__(self): raise OSError\nraise E')
    assert result.outcome == 'error'
    assert box.execute('1 + 1').result == '2'


def test_running_a_loop_in_the_loop_hints_at_await(box):
    result = box.execute('import asyncio\nasync def f(): return 5\nasyncio.run(f())')
    assert result.error is not None
    assert 'write `await main()` instead' in result.error.traceback
    assert box.execute('await f()').result == '5'
    box.restart()  # the coroutine that was never awaited would complain in another test's cell


def test_there_is_nobody_to_ask(box):
    result = box.execute('input()')
    assert result.error is not None
    assert result.error.name == 'StdinNotImplementedError'


def test_files_of_the_workspace_hide_no_module(box):
    box.upload(b'raise SystemError', name='json.py')
    box.upload(b'VALUE = 7', name='helper_of_mine.py')
    assert box.execute('import json, helper_of_mine; helper_of_mine.VALUE').result == '7'
    assert 'SystemError' not in box.execute('import subprocess, sys').text


def test_children_print_without_colours(box):
    assert box.execute('!echo $TERM $NO_COLOR').stdout.split() == ['dumb', '1']


def test_a_crash_leaves_its_trace(box):
    result = box.execute('import ctypes\nctypes.string_at(0)')
    assert result.outcome == 'kernel_died'
    assert result.signal == signal.SIGSEGV
    assert box.execute('1 + 1').result == '2'
