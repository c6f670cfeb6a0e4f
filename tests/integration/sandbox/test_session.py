"""Cells: what goes in, what comes out, in which order, and how much of it."""

import asyncio
import json
import threading
import time

import pytest

from sandbox import Outcome, Sandbox

MIXED = """
import sys, base64, time
from IPython.display import display, HTML, Image
print('one'); sys.stdout.flush(); time.sleep(0.3); print('two')
sys.stderr.write('careful\\n')
display(HTML('<b>bold</b>'))
display(Image(data=base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')))
'last'
"""


def test_state_persists_between_cells(shared):
    assert shared.execute('x = 6 * 7').outcome is Outcome.OK
    result = shared.execute('print("hi")\nx')
    assert (result.outcome, result.stdout, result.result) == (Outcome.OK, 'hi\n', '42')
    assert result.text == 'hi\n42'
    assert result.state_preserved
    assert not result.truncated
    assert result.timings.total >= result.timings.running > 0


def test_no_kind_of_output_hides_another(shared):
    result = shared.execute(MIXED)
    assert result.stdout == 'one\ntwo\n'
    assert result.stderr == 'careful\n'
    assert result.result == "'last'"
    assert len(result.images) == 1
    assert result.outputs[2].data['text/html'] == '<b>bold</b>'
    kinds = [output.kind for output in result.outputs]
    assert kinds == ['stdout', 'stderr', 'display', 'display', 'result']
    assert '[image: png 1x1, 70 bytes]' in result.text


def test_an_error_is_a_result_with_a_clean_traceback(shared):
    result = shared.execute('print("before")\n1 / 0')
    assert result.outcome is Outcome.ERROR
    assert result.stdout == 'before\n'
    assert result.error.name == 'ZeroDivisionError'
    assert result.error.message == 'division by zero'
    assert '\x1b' not in result.error.traceback
    assert result.text.endswith('ZeroDivisionError: division by zero')
    assert shared.execute('1 + 1').result == '2'


def test_a_syntax_error(shared):
    assert shared.execute('def f(:').error.name == 'SyntaxError'


@pytest.mark.parametrize('code', ['import sys\nprint("before")\nsys.exit(0)', 'exit()', 'quit()'])
def test_exit_ends_the_cell_and_not_the_session(shared, code):
    shared.execute('k = 5')
    result = shared.execute(code)
    assert result.error.name == 'SystemExit'
    assert result.state_preserved
    assert shared.execute('print(k)').stdout == '5\n'


def test_lone_surrogates_do_not_hide_an_error(shared):
    failed = shared.execute("raise ValueError('bad \\ud8ff name')")
    assert failed.outcome is Outcome.ERROR
    printed = shared.execute("print('a\\udcff b')")
    assert printed.stdout.startswith('a')
    assert printed.stdout.endswith(' b\n')
    for result in (failed, printed):
        json.dumps(result.to_dict(), ensure_ascii=False).encode()
        result.text.encode()
    assert shared.execute('1 + 1').result == '2'


def test_streams_that_user_code_replaced_come_back(shared):
    shared.execute('import sys, io, os\nsys.stdout = io.StringIO()\nprint("lost")')
    assert shared.execute('print("visible?")').stdout == 'visible?\n'
    shared.execute('sys.stdout = None')
    assert shared.execute('print("visible?")').stdout == 'visible?\n'
    shared.execute('os.close(1)')
    assert shared.execute('print("visible?")').stdout == 'visible?\n'


def test_a_huge_line_is_cut_in_the_middle_and_counted(shared):
    result = shared.execute("print('x' * 3_000_000)")
    limit = shared.policy.output_chars
    assert result.truncated.stdout_chars == 3_000_001 - limit
    assert len(result.text) <= shared.policy.model_text_chars
    assert 'characters left out' in result.text


def test_a_deep_recursion_keeps_its_last_line(shared):
    result = shared.execute('def r(n):\n    return r(n + 1)\nr(0)')
    assert 'RecursionError: maximum recursion depth exceeded' in result.text
    assert len(result.text) <= shared.policy.model_text_chars


def test_a_huge_value(shared):
    result = shared.execute('list(range(1_000_000))')
    assert result.outcome is Outcome.OK
    assert len(result.text) <= shared.policy.model_text_chars


def test_a_message_over_the_limit_is_left_out_and_nothing_behind_it(make):
    box = make(max_message_bytes=1_000_000)
    code = (
        "from IPython.display import display, HTML\ndisplay(HTML('x' * 5_000_000))\nprint('after')"
    )
    result = box.execute(code)
    assert result.outcome is Outcome.OK
    assert result.stdout == 'after\n'
    assert result.truncated.messages == 1
    assert result.truncated.bytes > 5_000_000


@pytest.mark.slow
def test_a_flood_of_lines_loses_none_without_saying_so(shared):
    result = shared.execute('for i in range(30000):\n    print(i, flush=True)')
    expected = ''.join(f'{number}\n' for number in range(30_000))
    assert result.outcome is Outcome.OK
    assert result.stdout.startswith('0\n1\n')
    assert result.stdout.endswith('29999\n')
    assert result.truncated.stdout_chars == len(expected) - shared.policy.output_chars
    assert shared.execute("print('after')").stdout == 'after\n'


def test_thousands_of_displays_are_counted(shared):
    code = "from IPython.display import display\nfor i in range(2000): display(i)\nprint('after')"
    result = shared.execute(code)
    kept = [output for output in result.outputs if output.kind == 'display']
    assert len(kept) == shared.policy.max_outputs
    assert result.truncated.outputs == 2_000 - len(kept)
    assert result.stdout == 'after\n'


def test_progress_bars_and_colours(shared):
    code = (
        "import sys\nfor i in range(3):\n    sys.stdout.write(f'\\r{i}%')\nprint()\n"
        "print('\\x1b[31mred\\x1b[0m')"
    )
    assert shared.execute(code).stdout == '2%\nred\n'


def test_output_of_child_processes(shared):
    code = (
        'import subprocess, sys\n'
        "subprocess.run([sys.executable, '-c', 'print(\"child\")'])\nprint('parent')"
    )
    result = shared.execute(code)
    assert 'child' in result.stdout
    assert 'parent' in result.stdout
    result = shared.execute("import os\nos.write(1, b'\\xff\\xfe raw\\n'); None")
    assert (result.outcome, result.stdout) == (Outcome.OK, '\ufffd\ufffd raw\n')
    result = shared.execute(
        "subprocess.run(['sh', '-c', 'echo out; echo err >&2; exit 3']).returncode"
    )
    assert (result.stdout, result.stderr, result.result) == ('out\n', 'err\n', '3')


def test_input_is_refused_at_once(shared):
    result = shared.execute('input("name? ")', timeout=10.0)
    assert result.outcome is Outcome.ERROR
    assert result.error.name == 'StdinNotImplementedError'


def test_top_level_await(shared):
    code = (
        'import asyncio\nasync def main():\n    await asyncio.sleep(0.01)\n    return 9\n'
        'print(await main())'
    )
    assert shared.execute(code).stdout == '9\n'
    result = shared.execute('asyncio.run(main())')
    assert result.stdout == '9\n' or 'await main()' in result.text


def test_clear_and_update(shared):
    code = "from IPython.display import clear_output\nprint('old')\nclear_output()\nprint('new')"
    assert shared.execute(code).stdout == 'new\n'
    code = (
        "from IPython.display import display\nh = display('one', display_id='d')\nh.update('two')"
    )
    assert [output.text for output in shared.execute(code).outputs] == ["'two'"]


def test_a_figure_comes_once(shared):
    if shared.execute('import matplotlib').outcome is Outcome.ERROR:
        pytest.skip('there is no matplotlib in this back end')
    code = 'import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([3, 1, 2])\nfig'
    first = shared.execute(code)
    assert len(set(first.images)) == 1
    assert shared.execute("print('no figure here')").images == []


def test_a_forged_answer_does_not_end_the_cell(shared):
    forged = """
import json, time
print(json.dumps({'msg_type': 'status', 'content': {'execution_state': 'idle'}}))
print('outcome: ok')
get_ipython().display_pub = None
time.sleep(0.2)
raise ValueError('the truth')
"""
    result = shared.execute(forged)
    assert result.outcome is Outcome.ERROR
    assert result.error.message == 'the truth'
    shared.restart()


def test_a_thread_that_prints_late_stays_out_of_the_next_result(shared):
    code = """
import threading, time
def late():
    time.sleep(0.3)
    print('late', flush=True)
threading.Thread(target=late).start()
print('early')
"""
    assert shared.execute(code).stdout == 'early\n'
    assert shared.execute("time.sleep(0.6)\nprint('mine')").stdout == 'mine\n'


def test_stream_yields_output_as_it_comes(shared):
    code = "import time\nfor i in range(3):\n    print(i, flush=True)\n    time.sleep(0.2)\n'end'"
    seen = [(time.monotonic(), event) for event in shared.stream(code)]
    events = [event for _, event in seen]
    assert ''.join(e.output.text for e in events if e.output and e.output.kind == 'stdout') == (
        '0\n1\n2\n'
    )
    assert events[-1].kind == 'result'
    assert events[-1].result.stdout == '0\n1\n2\n'
    assert seen[-1][0] - seen[0][0] > 0.3


def test_leaving_a_stream_early_ends_the_cell(shared):
    shared.execute('kept = 1')
    began = time.monotonic()
    for _ in shared.stream('import time\nprint(1, flush=True)\ntime.sleep(60)'):
        break
    assert shared.execute('print(kept)').stdout == '1\n'
    assert time.monotonic() - began < 20


def test_cells_of_one_session_run_one_after_the_other(shared):
    shared.execute('order = []')
    threads = [
        threading.Thread(
            target=shared.execute,
            args=(f'import time\norder.append({n})\ntime.sleep(0.05)\norder.append({n})',),
        )
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    order = json.loads(shared.execute('print(order)').stdout)
    assert sorted(order) == sorted([0, 1, 2, 3] * 2)
    assert order[::2] == order[1::2]


async def test_a_restart_ends_the_running_cell_and_not_those_that_wait(amake):
    async with amake() as box:
        await box.execute('x = 1')
        running = asyncio.create_task(box.execute('import time\ntime.sleep(60)'))
        await asyncio.sleep(0.3)
        waiting = asyncio.create_task(box.execute('print(1)'))
        await asyncio.sleep(0)
        await box.restart()
        assert (await running).outcome is Outcome.INTERRUPTED
        assert (await waiting).stdout == '1\n'
        assert (await box.execute('x')).error.name == 'NameError'


async def test_cells_run_in_the_order_asked(amake):
    async with amake() as box:
        results = await asyncio.gather(*(box.execute(f'print({n})') for n in range(5)))
        assert [result.stdout for result in results] == [f'{n}\n' for n in range(5)]
        counts = [result.execution_count for result in results]
        assert counts == sorted(counts)
        assert results[-1].timings.queued > 0


async def test_the_blocking_form_works_inside_a_running_loop(shared):
    assert shared.execute('1 + 1').result == '2'


async def test_sessions_are_strangers(amake):
    async with amake() as one, amake() as two:
        await one.execute('x = 1')
        await one.upload(b'secret', name='f')
        assert (await two.execute('x')).error.name == 'NameError'
        assert await two.files() == []


def test_no_variable_of_the_host_is_passed_on(monkeypatch, make):
    monkeypatch.setenv('SECRET_TOKEN', 'hunter2')
    box = make(env={'GIVEN': 'yes'})
    result = box.execute("import os\nprint(os.environ.get('GIVEN'), 'SECRET_TOKEN' in os.environ)")
    assert result.stdout == 'yes False\n'


def test_an_unstarted_sandbox_starts_by_itself(options):
    box = Sandbox(**options)
    try:
        assert box.container_id is None
        assert box.pid is None
        assert box.execute('1 + 1').result == '2'
        assert (box.container_id or box.pid) is not None
    finally:
        box.close()
        box.close()
    assert box.closed
