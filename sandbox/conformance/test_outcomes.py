"""How cells end: each end is told truthfully, soon, and leaves the session usable."""

import time

import pytest

from sandbox import Outcome
from sandbox.conformance.expectation import (
    SWALLOW,
    Destroy,
    MakeBox,
    error_of,
    expectation,
)

DEATHS = {
    'SIGKILL': ('import os, signal\nos.kill(os.getpid(), signal.SIGKILL)', None, 9),
    '_exit': ('import os\nos._exit(3)', 3, None),
    'segfault': ('import ctypes\nctypes.string_at(0)', None, 11),
    'abort': ('import os\nos.abort()', None, 6),
}


@expectation(9)
def test_a_timeout_that_an_interrupt_ends_keeps_the_state(make: MakeBox) -> None:
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


@expectation(14)
def test_an_interrupted_subprocess_ends_too(make: MakeBox) -> None:
    box = make(interrupt_grace=10.0)
    result = box.execute("import subprocess\nsubprocess.run(['sleep', '60'])", timeout=0.5)
    assert (result.outcome, result.state_preserved) == (Outcome.TIMEOUT, True)


@expectation(9)
def test_late_output_of_a_timed_out_cell_stays_with_it(make: MakeBox) -> None:
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


@expectation(7)
def test_code_that_swallows_interrupts_is_killed(make: MakeBox) -> None:
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
    assert error_of(after).name == 'NameError'
    assert 'new kernel' in after.notices[0]
    assert box.read('kept.txt') == b'data'
    assert box.execute('1').notices == ()


@expectation(8)
def test_a_c_call_that_cannot_be_interrupted_is_killed(make: MakeBox) -> None:
    box = make(interrupt_grace=0.5)
    result = box.execute("import re\nre.match('(a+)+b', 'a' * 64)", timeout=0.5)
    assert result.outcome is Outcome.TIMEOUT
    assert box.execute('1 + 1').result == '2'


@expectation(6)
@pytest.mark.parametrize('death', DEATHS)
def test_a_death_is_seen_at_once(make: MakeBox, death: str) -> None:
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
    assert error_of(after).name == 'NameError'
    assert 'variables and imports from before it are lost' in after.text
    assert box.read('kept.txt') == b'data'


@expectation(6)
def test_a_death_between_cells_is_told_by_the_next(make: MakeBox) -> None:
    box = make()
    box.execute('x = 1\nimport threading, os, time')
    box.execute('threading.Timer(0.2, os._exit, [0]).start()')
    time.sleep(1.0)
    result = box.execute('x')
    assert error_of(result).name == 'NameError'
    assert not result.state_preserved
    assert 'new kernel' in result.notices[0]


@expectation(25)
def test_code_is_never_run_twice(make: MakeBox) -> None:
    box = make()
    code = "import os\nwith open('runs', 'a') as f: f.write('x')\nos._exit(1)"
    box.execute(code)
    box.execute('1')
    assert box.read('runs') == b'x'


@expectation(3)
def test_endless_output_ends_by_the_clock(make: MakeBox) -> None:
    box = make(output_chars=10_000)
    result = box.execute("while True:\n    print('x' * 1000)", timeout=2.0)
    assert result.outcome is Outcome.TIMEOUT
    assert result.truncated.stdout_chars > 10_000
    assert box.execute("print('fine')").stdout == 'fine\n'


@expectation(25)
def test_a_lost_sandbox_is_replaced_with_a_notice(make: MakeBox, destroy: Destroy) -> None:
    box = make()
    box.execute('x = 1')
    box.upload(b'data', name='f')
    before = box.container_id or box.pid
    destroy(box)
    result = box.execute("print('hello')")
    assert result.stdout == 'hello\n'
    assert not result.state_preserved
    assert 'variables, imports and files from before it are lost' in result.text
    assert (box.container_id or box.pid) != before
    assert box.files() == []
    again = box.execute("print('hello')")
    assert (again.stdout, again.notices) == ('hello\n', ())


@expectation(25)
def test_a_sandbox_that_is_lost_during_a_cell(make: MakeBox, destroy: Destroy) -> None:
    box = make()
    result = None
    for event in box.stream("import time\nprint('on', flush=True)\ntime.sleep(60)"):
        if event.output:
            destroy(box)
        result = event.result
    assert result is not None
    assert result.outcome is Outcome.SANDBOX_LOST
    assert result.stdout == 'on\n'
    assert result.timings.running < 30
    assert 'files are lost' in result.text
    after = box.execute("print('hello')")
    assert (after.stdout, after.state_preserved) == ('hello\n', True)
    assert 'new sandbox' in after.notices[0]


UNKNOWN = {
    'closes its channel': 'get_ipython().kernel.shell_stream.close()',
    'gives a senseless reply': (
        'session = get_ipython().kernel.session\nsend = session.send\n'
        'def senseless(stream, kind, content=None, *args, **kwargs):\n'
        "    content = {'status': 'maybe'} if kind == 'execute_reply' else content\n"
        '    return send(stream, kind, content, *args, **kwargs)\nsession.send = senseless'
    ),
}


@expectation(23)
@pytest.mark.parametrize('deed', UNKNOWN)
def test_what_is_not_known_is_not_made_up(make: MakeBox, deed: str) -> None:
    box = make()
    result = box.execute(f"print('before', flush=True)\n{UNKNOWN[deed]}", timeout=30.0)
    assert result.outcome is Outcome.UNKNOWN, result.text
    assert not result.ok
    assert result.stdout == 'before\n'
    assert result.notices
    box.restart()
    assert box.execute('6 * 7').result == '42'


@expectation(23)
def test_text_that_looks_like_a_loss_is_only_text(make: MakeBox) -> None:
    box = make()
    box.start()
    before = box.container_id or box.pid
    result = box.execute("raise RuntimeError('No such container: abc')")
    assert (result.outcome, result.notices) == (Outcome.ERROR, ())
    assert (box.container_id or box.pid) == before
