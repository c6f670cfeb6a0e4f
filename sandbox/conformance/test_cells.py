"""Cells: what goes in, what comes out, in which order, and how much of it."""

import json
import time

import pytest

from sandbox import Outcome, Sandbox
from sandbox.conformance.expectation import (
    MakeBox,
    error_of,
    expectation,
)

MIXED = """
import sys, base64, time
from IPython.display import display, HTML, Image
print('one'); sys.stdout.flush(); time.sleep(0.3); print('two')
sys.stderr.write('careful\\n')
display(HTML('<b>bold</b>'))
display(Image(data=base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')))
'last'
"""


@expectation(28)
def test_state_persists_between_cells(shared: Sandbox) -> None:
    assert shared.execute('x = 6 * 7').outcome is Outcome.OK
    result = shared.execute('print("hi")\nx')
    assert (result.outcome, result.stdout, result.result) == (Outcome.OK, 'hi\n', '42')
    assert result.text == 'hi\n42'
    assert result.state_preserved
    assert not result.truncated
    assert result.timings.total >= result.timings.running > 0


@expectation(18)
def test_no_kind_of_output_hides_another(shared: Sandbox) -> None:
    result = shared.execute(MIXED)
    assert result.stdout == 'one\ntwo\n'
    assert result.stderr == 'careful\n'
    assert result.result == "'last'"
    assert len(result.images) == 1
    assert result.outputs[2].data['text/html'] == '<b>bold</b>'
    kinds = [output.kind for output in result.outputs]
    assert kinds == ['stdout', 'stderr', 'display', 'display', 'result']
    assert '[image: png 1x1, 70 bytes]' in result.text


@expectation()
def test_an_error_is_a_result_with_a_clean_traceback(shared: Sandbox) -> None:
    result = shared.execute('print("before")\n1 / 0')
    assert result.outcome is Outcome.ERROR
    assert result.stdout == 'before\n'
    assert error_of(result).name == 'ZeroDivisionError'
    assert error_of(result).message == 'division by zero'
    assert '\x1b' not in error_of(result).traceback
    assert result.text.endswith('ZeroDivisionError: division by zero')
    assert shared.execute('1 + 1').result == '2'


@expectation()
def test_a_syntax_error(shared: Sandbox) -> None:
    assert error_of(shared.execute('def f(:')).name == 'SyntaxError'


@expectation(5)
@pytest.mark.parametrize('code', ['import sys\nprint("before")\nsys.exit(0)', 'exit()', 'quit()'])
def test_exit_ends_the_cell_and_not_the_session(shared: Sandbox, code: str) -> None:
    shared.execute('k = 5')
    result = shared.execute(code)
    assert error_of(result).name == 'SystemExit'
    assert result.state_preserved
    assert shared.execute('print(k)').stdout == '5\n'


@expectation(12)
def test_lone_surrogates_do_not_hide_an_error(shared: Sandbox) -> None:
    failed = shared.execute("raise ValueError('bad \\ud8ff name')")
    assert failed.outcome is Outcome.ERROR
    printed = shared.execute("print('a\\udcff b')")
    assert printed.stdout.startswith('a')
    assert printed.stdout.endswith(' b\n')
    for result in (failed, printed):
        json.dumps(result.to_dict(), ensure_ascii=False).encode()
        result.text.encode()
    assert shared.execute('1 + 1').result == '2'


@expectation()
def test_an_error_of_any_length_is_an_error_and_costs_no_variables(shared: Sandbox) -> None:
    """Neither the message nor the reply need be of a size that the host reads."""
    shared.execute('k = 5')
    for character, count in (('x', 20_000), ('\\u6570', 1_000_000), ('x', 10_000_000)):
        result = shared.execute(f"raise ValueError('{character}' * {count})", timeout=30.0)
        assert (result.outcome, result.steps, result.state_preserved) == (Outcome.ERROR, (), True)
        assert error_of(result).name == 'ValueError'
    assert shared.execute('k').result == '5'


@expectation(11)
def test_streams_that_user_code_replaced_come_back(shared: Sandbox) -> None:
    shared.execute('import sys, io, os\nsys.stdout = io.StringIO()\nprint("lost")')
    assert shared.execute('print("visible?")').stdout == 'visible?\n'
    shared.execute('sys.stdout = None')
    assert shared.execute('print("visible?")').stdout == 'visible?\n'
    shared.execute('os.close(1)')
    assert shared.execute('print("visible?")').stdout == 'visible?\n'


@expectation(4)
def test_a_huge_line_is_cut_in_the_middle_and_counted(shared: Sandbox) -> None:
    result = shared.execute("print('x' * 3_000_000)")
    limit = shared.policy.output_chars
    assert result.truncated.stdout_chars == 3_000_001 - limit
    assert len(result.text) <= shared.policy.model_text_chars
    assert 'characters left out' in result.text


@expectation(33)
def test_a_deep_recursion_keeps_its_last_line(shared: Sandbox) -> None:
    result = shared.execute('def r(n):\n    return r(n + 1)\nr(0)')
    assert 'RecursionError: maximum recursion depth exceeded' in result.text
    assert len(result.text) <= shared.policy.model_text_chars


@expectation(4)
def test_a_huge_value(shared: Sandbox) -> None:
    result = shared.execute('list(range(1_000_000))')
    assert result.outcome is Outcome.OK
    assert len(result.text) <= shared.policy.model_text_chars


@expectation(17)
def test_a_message_over_the_limit_is_left_out_and_nothing_behind_it(make: MakeBox) -> None:
    box = make(max_message_bytes=1_000_000)
    code = (
        "from IPython.display import display, HTML\ndisplay(HTML('x' * 5_000_000))\nprint('after')"
    )
    result = box.execute(code)
    assert result.outcome is Outcome.OK
    assert result.stdout == 'after\n'
    assert result.truncated.messages == 1
    assert result.truncated.bytes > 5_000_000


@expectation(17)
def test_thousands_of_displays_are_counted(shared: Sandbox) -> None:
    code = "from IPython.display import display\nfor i in range(2000): display(i)\nprint('after')"
    result = shared.execute(code)
    kept = [output for output in result.outputs if output.kind == 'display']
    assert len(kept) == shared.policy.max_outputs
    assert result.truncated.outputs == 2_000 - len(kept)
    assert result.stdout == 'after\n'


@expectation(12)
def test_progress_bars_and_colours(shared: Sandbox) -> None:
    code = (
        "import sys\nfor i in range(3):\n    sys.stdout.write(f'\\r{i}%')\nprint()\n"
        "print('\\x1b[31mred\\x1b[0m')"
    )
    assert shared.execute(code).stdout == '2%\nred\n'


@expectation(15)
def test_output_of_child_processes(shared: Sandbox) -> None:
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
    assert (result.stdout, result.stderr, result.result) == ('out\n', 'err\n', '3'), result


@expectation(13)
def test_input_is_refused_at_once(shared: Sandbox) -> None:
    result = shared.execute('input("name? ")', timeout=10.0)
    assert result.outcome is Outcome.ERROR
    assert error_of(result).name == 'StdinNotImplementedError'


@expectation()
def test_top_level_await(shared: Sandbox) -> None:
    code = (
        'import asyncio\nasync def main():\n    await asyncio.sleep(0.01)\n    return 9\n'
        'print(await main())'
    )
    assert shared.execute(code).stdout == '9\n'
    result = shared.execute('asyncio.run(main())')
    assert result.stdout == '9\n' or 'await main()' in result.text
    # One that was never awaited would warn of it in some later cell.
    shared.execute(
        'import gc\nfor thing in gc.get_objects():\n'
        "    if type(thing).__name__ == 'coroutine' and thing.__name__ == 'main':\n"
        '        thing.close()'
    )


@expectation()
def test_the_help_of_ipython_is_output(shared: Sandbox) -> None:
    assert 'Return the number of items in a container.' in shared.execute('len?').text


@expectation(18)
def test_clear_and_update(shared: Sandbox) -> None:
    code = "from IPython.display import clear_output\nprint('old')\nclear_output()\nprint('new')"
    assert shared.execute(code).stdout == 'new\n'
    code = (
        "from IPython.display import display\nh = display('one', display_id='d')\nh.update('two')"
    )
    assert [output.text for output in shared.execute(code).outputs] == ["'two'"]


@expectation()
def test_a_figure_comes_once(shared: Sandbox) -> None:
    if shared.execute('import matplotlib').outcome is Outcome.ERROR:
        pytest.skip('there is no matplotlib in this back end')
    code = 'import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([3, 1, 2])\nfig'
    first = shared.execute(code)
    assert len(set(first.images)) == 1
    assert shared.execute("print('no figure here')").images == []


@expectation(23)
def test_a_forged_answer_does_not_end_the_cell(shared: Sandbox) -> None:
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
    assert error_of(result).message == 'the truth'
    shared.restart()


@expectation(10)
def test_a_thread_that_prints_late_stays_out_of_the_next_result(shared: Sandbox) -> None:
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


@expectation()
def test_stream_yields_output_as_it_comes(shared: Sandbox) -> None:
    code = "import time\nfor i in range(3):\n    print(i, flush=True)\n    time.sleep(0.2)\n'end'"
    seen = [(time.monotonic(), event) for event in shared.stream(code)]
    events = [event for _, event in seen]
    assert ''.join(e.output.text for e in events if e.output and e.output.kind == 'stdout') == (
        '0\n1\n2\n'
    )
    assert events[-1].kind == 'result'
    assert events[-1].result is not None
    assert events[-1].result.stdout == '0\n1\n2\n'
    assert seen[-1][0] - seen[0][0] > 0.3


@expectation(3, 28)
@pytest.mark.slow
def test_a_flood_of_lines_loses_none_without_saying_so(shared: Sandbox) -> None:
    result = shared.execute('for i in range(30000):\n    print(i, flush=True)', timeout=150)
    expected = ''.join(f'{number}\n' for number in range(30_000))
    assert result.outcome is Outcome.OK
    assert result.stdout.startswith('0\n1\n')
    assert result.stdout.endswith('29999\n')
    assert result.truncated.stdout_chars == len(expected) - shared.policy.output_chars
    assert shared.execute("print('after')").stdout == 'after\n'
