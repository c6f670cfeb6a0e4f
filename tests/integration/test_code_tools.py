"""InternLM's code tools on real kernels."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lagent.actions import (
    ActionExecutor,
    AsyncIPythonInteractive,
    AsyncIPythonInterpreter,
    IPythonInteractive,
    IPythonInteractiveManager,
    IPythonInterpreter,
    PythonInterpreter,
)
from lagent.schema import ActionStatusCode, AgentMessage

TIMED_OUT = 'The code interpreter encountered a timeout error.'
BACKENDS = [
    pytest.param({'backend': 'local', 'unsafe': True}, id='local'),
    pytest.param({'backend': 'docker'}, id='docker', marks=pytest.mark.docker),
]
# One pixel.
PNG = (
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E'
    'rkJggg=='
)
SHOW = f"""\
import base64
from IPython.display import Image, display
print('before')
display(Image(base64.b64decode('{PNG}')))
"""


@pytest.fixture(scope='module', params=BACKENDS)
def options(request):
    return request.param


@pytest.fixture(scope='module')
def shell(options):
    with IPythonInteractive(**options) as tool:
        yield tool


def go(tool, code, **kwargs):
    answer = tool({'command': code, **kwargs})
    ok = answer.state is ActionStatusCode.SUCCESS
    return ok, answer.format_result() if ok else answer.errmsg


@pytest.mark.parametrize(
    ('code', 'text'),
    [
        ('print(1)\nprint(2)', '1\n2'),
        ("print('first')\n40 + 2", 'first\n42'),
        ('"a`b`c"', 'a`b`c'),
        ('from fractions import Fraction\nFraction(1, 3)', '1/3'),
        ('None', ''),
        ('print("Mean Squared Error: 0.1")', 'Mean Squared Error: 0.1'),
        ('{code: "6 * 7"}', '42'),
    ],
)
def test_text_and_value(shell, code, text):
    assert go(shell, code) == (True, text)


def test_errors_keep_what_was_printed(shell):
    ok, text = go(shell, "print('step 1')\n1/0")
    assert not ok
    assert text.startswith('step 1\nZeroDivisionError')
    assert text.endswith('ZeroDivisionError: division by zero')
    ok, text = go(shell, 'import sys\nsys.exit(1)')
    assert (ok, text.splitlines()[0]) == (False, 'SystemExit: 1')


def test_variables_are_kept_until_reset(shell):
    assert go(shell, 'kept = 1') == (True, '')
    assert go(shell, 'kept') == (True, '1')
    shell.reset()
    assert 'NameError' in go(shell, 'kept')[1]
    assert go(shell, '"still a text"') == (True, 'still a text')


def test_a_timeout_ends_the_code_in_any_thread(shell):
    go(shell, 'state = 7')
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(go(shell, 'import time\ntime.sleep(60)', timeout=1))
    )
    thread.start()
    thread.join()
    assert answers == [(False, TIMED_OUT)]
    assert go(shell, 'state') == (True, '7')


def test_sessions_do_not_see_each_other(shell):
    executor = ActionExecutor([shell])

    def run(code, session):
        call = {'name': 'IPythonInteractive', 'parameters': {'command': code}}
        return executor(AgentMessage(content=call), session_id=session).content

    assert run('mine = 1', 'a').state is ActionStatusCode.SUCCESS
    assert 'NameError' in run('mine', 'b').errmsg
    assert run('mine', 'a').format_result() == '1'


def test_one_tool_serves_one_loop_after_the_other(options):
    tool = AsyncIPythonInteractive(**options)
    assert asyncio.run(tool({'command': 'x = 1'})).state is ActionStatusCode.SUCCESS
    assert asyncio.run(tool({'command': 'x'})).format_result() == '1'
    tool.reset()
    assert 'NameError' in asyncio.run(tool({'command': 'x'})).errmsg
    asyncio.run(tool.close())


async def test_sessions_run_at_once_and_a_call_can_be_cancelled(options, tmp_path):
    async with AsyncIPythonInterpreter(work_dir=tmp_path, **options) as tool:
        calls = [{'command': f'x = {n}\nx', 'session_id': str(n)} for n in range(3)]
        answers = await asyncio.gather(*map(tool, calls))
        assert [answer.format_result() for answer in answers] == ['0', '1', '2']
        slow = {'command': 'import time\ntime.sleep(60)', 'session_id': '0', 'timeout': 60}
        task = asyncio.create_task(tool(slow))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        began = time.monotonic()
        assert (await tool({'command': 'x', 'session_id': '0'})).format_result() == '0'
        assert time.monotonic() - began < 30


def test_images_input_and_shell_commands(options, tmp_path):
    with IPythonInterpreter(work_dir=tmp_path, **options) as tool:
        text, image = tool({'command': SHOW}).result
        assert text['content'] == 'before'
        assert Path(image['content']).read_bytes().startswith(b'\x89PNG')
        assert 'disabled' in tool({'command': 'input("name? ")'}).errmsg
        assert 'disabled' in tool({'command': '!echo hi'}).format_result()
        assert 'disabled' in tool({'command': 'names = !ls'}).format_result()
        whole = tool({'command': '1/0'}).errmsg
        assert whole.startswith('---')
        assert '\x1b' not in whole


def test_user_data(options, tmp_path):
    data = tmp_path / 'data'
    (data / 'sub').mkdir(parents=True)
    (data / 'sub' / 'a.csv').write_text('1,2')
    with IPythonInterpreter(user_data_dir=data, work_dir=tmp_path / 'images', **options) as tool:
        code = 'open("sub/a.csv").read() + open("new.txt", "w").name'
        assert tool({'command': code}).format_result() == "'1,2new.txt'"
        folder = tool({'command': 'import os\nprint(os.getcwd())'}).format_result()
        tool.reset()
        assert tool({'command': 'import os\nprint(os.getcwd())'}).format_result() == folder
    assert folder == os.fspath(data)
    assert (data / 'new.txt').exists() == (options['backend'] == 'local')


def test_programs(options):
    with PythonInterpreter(**options) as tool:
        assert go(tool, 'x = "A"\ndef solution():\n    return x') == (True, 'A')
        assert go(tool, 'def solution():\n    return x') == (
            False,
            'NameError("name \'x\' is not defined")',
        )
        assert go(tool, 'def solution():\n    raise SystemExit(2)') == (False, 'SystemExit(2)')
    with PythonInterpreter(answer_from_stdout=True, timeout=2, **options) as tool:
        assert go(tool, 'print(1)\nprint(2)') == (True, '2\n')
        assert 'FunctionTimedOut' in go(tool, 'while True:\n    pass')[1]
    with PythonInterpreter(answer_expr=None, **options) as tool:
        assert go(tool, 'a = [1, 2]\nlen(a)') == (True, '2')


def test_a_batch_on_one_worker(options):
    with IPythonInteractiveManager(max_workers=1, timeout=20, **options) as manager:
        first, second = manager(['x = 1\n"a"', 'x = 2\n"b"'])
        assert (first.format_result(), second.format_result()) == ("'a'", "'b'")
        assert [answer.format_result() for answer in manager(['x', 'print(x)'])] == ['1', '2']
        manager.reset()
        assert 'NameError' in manager('x').errmsg


EXITING = """
from lagent.actions import IPythonInteractive
tool = IPythonInteractive(backend='local', unsafe=True)
tool({'command': '1'})
print([box.pid for box, _ in tool._cells._preparations.open_boxes()][0])
"""


def test_the_end_of_the_process_is_the_end_of_its_kernels():
    done = subprocess.run(
        [sys.executable, '-c', EXITING], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ''
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)
