"""What a kernel publishes: in order, whole, and at once, from whichever thread."""

import time

import pytest

INTERRUPTED = """
import os, signal, threading
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
print('begun')
n = 0
while True:
    n += 1
    display({'text/plain': str(n)}, raw=True)
"""


@pytest.fixture(scope='module')
def box(shared):
    return shared


def kinds(result) -> list[tuple[str, str]]:
    return [(output.kind, output.text) for output in result.outputs]


def test_streams_displays_and_results_keep_their_order(box):
    code = 'for n in range(50):\n    print(n)\n    display(n)\n"end"'
    expected = [pair for n in range(50) for pair in (('stdout', f'{n}\n'), ('display', str(n)))]
    for _ in range(5):
        assert kinds(box.execute(code)) == [*expected, ('result', "'end'")]


def test_what_a_child_writes_comes_before_what_is_printed_next(box):
    for _ in range(10):
        result = box.execute(
            "import os\nfor n in '123':\n    os.system('echo child')\n    print(n)"
        )
        assert result.stdout == 'child\n1\nchild\n2\nchild\n3\n'


def test_an_interrupt_breaks_off_a_flood_but_no_message(box):
    for _ in range(3):
        result = box.execute(INTERRUPTED, timeout=30)
        assert result.error.name == 'KeyboardInterrupt'
        assert result.truncated.messages == 0
        shown = [int(output.text) for output in result.outputs if output.kind == 'display']
        assert shown == list(range(1, len(shown) + 1))
        assert box.execute('print("still"); 1').stdout == 'still\n'


@pytest.mark.parametrize('body', ['pass', 'print(1)', 'display(1)', 'time.sleep(0.001)'])
def test_the_traceback_of_an_interrupt_ends_in_the_code(box, body):
    code = f"""
import os, signal, threading, time
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
def work():
    while True: {body}
work()"""
    result = box.execute(code, timeout=30)
    assert result.error.name == 'KeyboardInterrupt'
    *_, frame, last = result.error.traceback.strip().split('\n\n')
    assert 'in work()' in frame
    assert last.startswith('KeyboardInterrupt')
    assert '/opt/sandbox/' not in result.error.traceback


def test_threads_publish_whole_messages(box):
    code = """
import threading
def publish(name):
    for n in range(100):
        print(f'{name}{n}')
threads = [threading.Thread(target=publish, args=(name,)) for name in 'abcd']
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    result = box.execute(code)
    assert result.truncated.messages == 0
    for name in 'abcd':
        assert result.stdout.count(name) == 100


def test_a_line_is_seen_before_the_cell_ends(box):
    code = "import time\nprint('first')\nprint('second')\ntime.sleep(1.5)\nprint('third')"
    seen = {}
    for event in box.stream(code):
        if event.output:
            for line in event.output.text.split():
                seen[line] = time.monotonic()
    assert seen['third'] - seen['second'] > 0.5
    assert seen['third'] - seen['first'] > 0.5


def test_forked_children_print(box):
    code = """
import os
pid = os.fork()
if pid == 0:
    print('child', flush=True)
    os._exit(0)
os.waitpid(pid, 0)
import time; time.sleep(0.5)
print('parent')
"""
    assert sorted(box.execute(code).stdout.split()) == ['child', 'parent']


def test_a_formatter_for_plain_values_is_asked(box):
    register = 'formatter = get_ipython().display_formatter.formatters["text/html"]\n'
    assert set(box.execute('1').outputs[0].data) == {'text/plain'}
    box.execute(f'{register}formatter.for_type(int, lambda n: f"<b>{{n}}</b>")')
    try:
        assert box.execute('1').outputs[0].data['text/html'] == '<b>1</b>'
        assert box.execute('True').outputs[0].data['text/html'] == '<b>True</b>'
        assert set(box.execute('"x"').outputs[0].data) == {'text/plain'}
    finally:
        box.execute('formatter.pop(int)')
    assert set(box.execute('1').outputs[0].data) == {'text/plain'}


def test_what_json_cannot_hold_is_spelled_out(box):
    assert box.execute(r"print('\ud800'); '\udfff'").result == r"'\udfff'"
