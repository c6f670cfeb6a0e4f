"""Code that works against its kernel, its clock, its streams or its session."""

import asyncio
import time

import pytest

from sandbox import AsyncSandbox, Outcome, Sandbox
from sandbox.backends import Backend
from sandbox.conformance.expectation import MakeAsyncBox, MakeBox, error_of, expectation

GARBAGE = """
import os
socket = get_ipython().kernel.iopub_thread.socket
for _ in range(200):
    socket.send_multipart([b'x', b'<IDS|MSG>', b'0' * 64, b'{}', b'{}', b'{}', os.urandom(100)])
    socket.send_multipart([os.urandom(50)] * 10)
    socket.send_multipart([b'<IDS|MSG>'])
print('done')
"""


@expectation(23)
def test_messages_with_a_wrong_signature_are_counted_and_left_out(make: MakeBox) -> None:
    """What is not signed with the session's key is never part of a result."""
    result = make().execute(GARBAGE)
    assert result.outcome is Outcome.OK
    assert result.stdout == 'done\n'
    # The code shares a socket with its kernel's own thread, and may tear a message of that.
    assert 600 <= result.truncated.messages <= 605


@expectation(23)
def test_a_patched_library_does_not_change_the_outcome(make: MakeBox) -> None:
    """The outcome is not read from anything that code can print or patch."""
    box = make()
    code = (
        'import builtins, json\nbuiltins.print = lambda *a, **k: None\n'
        "json.loads = lambda *a, **k: {'status': 'ok'}\nraise KeyError('the truth')"
    )
    assert error_of(box.execute(code)).name == 'KeyError'


@expectation(18)
def test_unknown_representations_and_comms_do_no_harm(shared: Sandbox) -> None:
    """What the host does not know is passed on or ignored, and never an error."""
    code = (
        'from IPython.display import display, update_display\n'
        "display({'application/x-unknown': 'x', 'text/plain': 'known'}, raw=True)\n"
        "display({'image/png': 'not base64 !'}, raw=True)\n"
        "update_display('x', display_id='never shown')\n"
        "get_ipython().kernel.session.send(get_ipython().kernel.iopub_socket, 'comm_open', "
        "{'comm_id': 'c', 'target_name': 't', 'data': {}})\nprint('after')"
    )
    result = shared.execute(code)
    assert (result.outcome, result.stdout) == (Outcome.OK, 'after\n')
    assert result.outputs[0].data['application/x-unknown'] == 'x'
    assert shared.execute('1 + 1').result == '2'


@expectation(12)
def test_hostile_text_is_made_harmless(shared: Sandbox) -> None:
    """Terminal codes, NUL and marks that turn text around do not reach a reader."""
    result = shared.execute(
        "print('a\\x1b]0;title\\x07b\\x1b[2Jc\\x9b31md')\nprint('nul\\0 \\u202e turned')"
    )
    assert result.stdout.startswith('abcd\n')
    assert not set('\x00\x07\x1b\x9b\u202e') & set(result.text)


@expectation(15)
def test_a_forked_child_neither_repeats_nor_ends_the_cell(shared: Sandbox) -> None:
    """A child that prints and leaves the cell's frame costs the parent nothing."""
    code = (
        "import os\npid = os.fork()\nif pid == 0:\n    os.write(1, b'child\\n')\n    os._exit(0)\n"
        "os.waitpid(pid, 0)\nprint('parent')"
    )
    result = shared.execute(code)
    assert result.outcome is Outcome.OK
    assert result.stdout.count('parent') == 1
    assert shared.execute('1 + 1').result == '2'


@expectation(14)
def test_a_restart_ends_what_was_left_behind(make: MakeBox) -> None:
    """A process that left its session and its parents is found and killed."""
    box = make()
    code = (
        'import os, subprocess, sys\n'
        "daemon = 'import os, time\\nif os.fork() == 0:\\n    os.setsid()\\n    "
        'open("pid", "w").write(str(os.getpid()))\\n    time.sleep(600)\'\n'
        "subprocess.run([sys.executable, '-c', daemon])\n"
        "import time\nwhile not os.path.exists('pid') or not open('pid').read(): time.sleep(0.01)"
    )
    assert box.execute(code).ok
    pid = int(box.read('pid'))
    assert box.execute(f'import os; os.kill({pid}, 0)').ok
    box.restart()
    assert error_of(box.execute(f'import os; os.kill({pid}, 0)')).name == 'ProcessLookupError'


@expectation(30)
def test_the_clock_does_not_depend_on_signals_of_the_code(make: MakeBox) -> None:
    """Code that cancels alarms and ignores interrupts is ended by the host's clock."""
    box = make(interrupt_grace=0.5)
    code = (
        'import signal\nsignal.alarm(0)\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n'
        'while True: pass'
    )
    result = box.execute(code, timeout=0.5)
    assert (result.outcome, result.state_preserved) == (Outcome.TIMEOUT, False)
    assert result.timings.running < 20


@expectation(31)
def test_the_clock_is_the_hosts(make: MakeBox) -> None:
    """A patched or frozen clock changes neither timeouts nor timings."""
    box = make()
    code = (
        'import time\nsleep = time.sleep\n'
        'time.time = time.monotonic = time.perf_counter = lambda: 0.0\n'
    )
    assert box.execute(code).ok
    result = box.execute('sleep(60)', timeout=0.5)
    assert result.outcome is Outcome.TIMEOUT
    assert 0.4 < result.timings.running < 20
    assert box.execute('1 + 1').result == '2'


@expectation(33)
def test_recursion_without_a_limit_is_a_death_or_an_error(make: MakeBox) -> None:
    """A stack that overflows for real ends the kernel at most, and that is told."""
    box = make()
    code = 'import sys\nsys.setrecursionlimit(10**9)\ndef f(): return [f()]\nf()'
    result = box.execute(code, timeout=30)
    ends = (Outcome.KERNEL_DIED, Outcome.ERROR, Outcome.OOM, Outcome.TIMEOUT)
    assert result.outcome in ends or 'ran out of memory' in result.text
    assert result.state_preserved == (result.outcome is Outcome.ERROR) or result.steps
    assert box.execute('1 + 1').result == '2'


@expectation(32)
def test_sandboxes_do_not_share_random_numbers(amake: MakeAsyncBox) -> None:
    """Two sessions draw different numbers and have different keys."""

    async def scenario() -> None:
        async with amake() as one, amake() as two:
            code = 'import os, random, uuid\n(os.urandom(8), random.random(), uuid.uuid4())'
            first, second = await asyncio.gather(one.execute(code), two.execute(code))
            assert first.ok
            assert first.result != second.result

    asyncio.run(scenario())


@expectation(35)
def test_several_may_start_at_once(amake: MakeAsyncBox) -> None:
    """Starts do not get in each other's way."""

    async def one(number: int) -> str | None:
        async with amake() as box:
            return (await box.execute(str(number))).result

    async def scenario() -> list[str | None]:
        return await asyncio.gather(*map(one, range(4)))

    assert asyncio.run(scenario()) == ['0', '1', '2', '3']


@expectation(38)
def test_a_session_that_expired_says_so(backend: Backend) -> None:
    """The first result after it tells that variables and files are gone."""
    from sandbox import SandboxManager

    with SandboxManager(backend=backend, idle_ttl=0.4) as manager:
        box = manager.session('a')
        box.execute('x = 1')
        deadline = time.monotonic() + 60
        while not box.closed:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        manager.idle_ttl = 600.0
        result = manager.session('a').execute('x')
    assert error_of(result).name == 'NameError'
    assert 'idle' in result.text


@expectation(27)
def test_a_closed_session_leaves_nothing_to_the_next(backend: Backend) -> None:
    """A name that is used again gets a new sandbox."""
    for _ in range(2):
        with Sandbox(backend=backend, id='the same') as box:
            assert error_of(box.execute('x')).name == 'NameError'
            box.execute("x = 1\nopen('f', 'w').write('x')")


@expectation(3, 4)
def test_the_whole_of_a_long_text_is_a_file(make: MakeBox) -> None:
    """What a result has no room for can be read in the session, and is no file of the cell's."""
    box = make(output_chars=1_000)
    result = box.execute("for n in range(1_000): print(f'{n:04}')\nprint('é' * 5)")
    assert result.outcome is Outcome.OK
    assert [info.path for info in result.full_output] == ['.outputs/cell-1-stdout.txt']
    assert result.truncated.stdout_chars == 5_006 - 1_000
    assert result.artifacts == ()
    assert '[full output: .outputs/cell-1-stdout.txt' in result.text
    whole = ''.join(f'{n:04}\n' for n in range(1_000)) + 'ééééé\n'
    assert box.read('.outputs/cell-1-stdout.txt').decode() == whole
    assert box.execute("print('short')").full_output == ()
    values = box.execute("'x' * 5_000").full_output
    assert [(info.path, info.size) for info in values] == [('.outputs/cell-3-values.txt', 5_003)]


@expectation(3, 16)
def test_the_files_of_long_texts_are_limited_together(make: MakeBox) -> None:
    """The oldest go first, and what is longer than the limit ends early and says so."""
    box = make(output_chars=1_000, spill_bytes=10_000)
    for _ in range(3):
        box.execute("print('x' * 4_000)")
    assert [info.path for info in box.files()] == [
        '.outputs/cell-2-stdout.txt',
        '.outputs/cell-3-stdout.txt',
    ]
    result = box.execute("print('x' * 40_000)")
    assert [(info.path, info.size) for info in box.files()] == [
        ('.outputs/cell-4-stdout.txt', 10_000)
    ]
    assert 'only the first' in result.text
    assert result.truncated.stdout_chars == 39_001
    assert make(output_chars=1_000, spill_bytes=0).execute("print('x' * 4_000)").full_output == ()


@expectation(22)
def test_a_link_in_the_place_of_the_long_texts_is_not_followed(make: MakeBox) -> None:
    """The host writes its files into the workspace or not at all."""
    box = make(output_chars=1_000)
    code = "import os, tempfile\nd = tempfile.mkdtemp()\nos.symlink(d, '.outputs')"
    assert box.execute(code).ok
    result = box.execute("print('x' * 4_000)")
    assert result.full_output == ()
    assert 'could not be kept' in result.text
    assert box.execute('empty = os.listdir(d)\nos.rmdir(d)\nempty').result == '[]'


@expectation()
def test_changes_are_told_by_content(make: MakeBox) -> None:
    """A file that was only touched is not one that changed; one with its old time may be."""
    box = make()
    box.upload(b'same', name='touched')
    box.upload(b'old!', name='sly')
    code = (
        'import os\nbefore = os.stat("sly")\nos.utime("touched", (1, 1))\n'
        'open("sly", "r+").write("new!")\n'
        'os.utime("sly", ns=(before.st_atime_ns, before.st_mtime_ns))'
    )
    assert [info.path for info in box.execute(code).artifacts] == ['sly']
    assert box.execute('1').artifacts == ()
    mapped = (
        'import mmap\nwith open("sly", "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:\n'
        '    memory[:4] = b"more"'
    )
    assert [info.path for info in box.execute(mapped).artifacts] == ['sly']
    assert box.execute('1').artifacts == ()
    box.upload(b'given', name='given')
    assert box.execute('1').artifacts == ()
    assert [i.path for i in box.execute('open("given", "w").close()').artifacts] == ['given']


@expectation(26)
@pytest.mark.parametrize('count', [20])
def test_many_queued_cells_all_run_once(amake: MakeAsyncBox, count: int) -> None:
    """Nothing that was asked for is lost or run twice."""

    async def scenario() -> None:
        async with amake() as box:
            box_: AsyncSandbox = box
            await box_.execute('runs = []')
            await asyncio.gather(*(box_.execute(f'runs.append({n})') for n in range(count)))
            assert (await box_.execute('runs')).result == str(list(range(count)))

    asyncio.run(scenario())
