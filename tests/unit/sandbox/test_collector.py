import base64
import gc
import weakref

import pytest

from sandbox.kernel.collector import Collector
from sandbox.kernel.spill import Spill
from sandbox.policy import SandboxPolicy
from sandbox.types import ErrorInfo, Output, Truncation

PNG = base64.b64decode(
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
)
DEFAULT = SandboxPolicy()
SMALL = SandboxPolicy(output_chars=1_000, max_outputs=3, output_bytes=65_536, image_bytes=1_024)


def stream(text: str, name: str = 'stdout') -> tuple[str, dict]:
    return 'stream', {'name': name, 'text': text}


def display(data: dict, **more) -> tuple[str, dict]:
    return 'display_data', {'data': data, 'metadata': {}, **more}


def collect(*messages: tuple[str, object], policy: SandboxPolicy = DEFAULT) -> Collector:
    collector = Collector(policy)
    for kind, content in messages:
        collector.feed(kind, content)
    return collector


def texts(collector: Collector) -> list[tuple[str, str]]:
    return [(output.kind, output.text) for output in collector.outputs()]


def test_outputs_keep_their_order_and_streams_are_joined():
    collector = collect(
        stream('one\n'),
        stream('two\n'),
        stream('careful\n', 'stderr'),
        display({'text/html': '<b>bold</b>'}),
        display({'image/png': base64.b64encode(PNG).decode() + '\n'}),
        stream('three'),
        ('execute_result', {'data': {'text/plain': "'last'"}, 'execution_count': 7}),
    )
    outputs = collector.outputs()
    assert texts(collector) == [
        ('stdout', 'one\ntwo\n'),
        ('stderr', 'careful\n'),
        ('display', ''),
        ('display', ''),
        ('stdout', 'three'),
        ('result', "'last'"),
    ]
    assert outputs[2].data == {'text/html': '<b>bold</b>'}
    assert outputs[3].data == {'image/png': PNG}
    assert collector.execution_count == 7
    assert collector.truncated() == Truncation()


def test_a_stream_keeps_head_and_tail_and_counts_the_middle():
    text = ''.join(f'{number:05}\n' for number in range(1_000))
    collector = collect(*(stream(line + '\n') for line in text.split()), policy=SMALL)
    (output,) = collector.outputs()
    missing = len(text) - 1_000
    at, count = output.cut
    assert count == missing == collector.truncated().stdout_chars
    assert output.text.startswith(text[:500])
    assert output.text.endswith(text[-500:])
    assert output.text == f'{text[:500]}\n[... {missing:,} characters left out ...]\n{text[-500:]}'
    assert at == 500


def test_head_and_tail_are_those_of_the_whole_stream():
    collector = collect(stream('a' * 800), stream('!', 'stderr'), stream('b' * 800), policy=SMALL)
    first, middle, last = collector.outputs()
    assert first.text.startswith('a' * 500)
    assert first.cut == (500, 300)
    assert middle == Output('stderr', '!')
    assert last.text == '\n[... 300 characters left out ...]\n' + 'b' * 500
    assert collector.truncated().stdout_chars == 600


def test_displays_over_the_number_are_counted_but_result_and_error_have_a_place():
    collector = collect(
        *(display({'text/plain': str(number)}) for number in range(10)),
        stream('late'),
        ('execute_result', {'data': {'text/plain': 'r'}}),
        ('error', {'ename': 'E', 'evalue': 'v', 'traceback': ['t']}),
        policy=SMALL,
    )
    kinds = [output.kind for output in collector.outputs()]
    assert kinds == ['display', 'display', 'display', 'stdout', 'result', 'error']
    assert collector.truncated().outputs == 7


def test_a_representation_over_the_limit_is_left_out_with_its_size():
    collector = collect(
        display({'text/html': 'x' * 100_000, 'text/plain': 'short'}),
        display({'image/png': base64.b64encode(bytes(3_000)).decode()}),
        policy=SMALL,
    )
    html, image = collector.outputs()
    assert (html.text, html.left_out) == ('short', {'text/html': 100_000})
    assert image.left_out == {'image/png': 3_000}
    assert collector.truncated().bytes == 103_000


def test_a_long_plain_text_is_cut_in_the_middle():
    collector = collect(display({'text/plain': 'a' * 600 + 'b' * 600}), policy=SMALL)
    (output,) = collector.outputs()
    assert output.cut == (500, 200)
    assert output.text.startswith('a' * 500)
    assert output.text.endswith('b' * 500)
    assert collector.truncated().text_chars == 200


def test_the_end_of_a_long_traceback_is_kept():
    lines = [f'frame {number}' for number in range(1_000)]
    collector = collect(
        ('error', {'ename': 'RecursionError', 'evalue': 'deep', 'traceback': [*lines, 'last']}),
        policy=SMALL,
    )
    assert collector.error.traceback.endswith('frame 999\nlast')
    assert len(collector.error.traceback) < 1_100
    assert collector.truncated().text_chars > 0


def test_errors_are_clean_text():
    collector = collect(
        (
            'error',
            {
                'ename': 'ValueError',
                'evalue': 'bad \ud8ff name',
                'traceback': ['\x1b[31mValueError\x1b[39m', 'x'],
            },
        ),
        stream('printed after it'),
    )
    assert collector.error == ErrorInfo('ValueError', 'bad \ufffd name', 'ValueError\nx')
    assert texts(collector)[-1] == ('error', 'ValueError\nx')


def test_the_reply_may_be_all_that_is_known_of_an_error():
    collector = collect(stream('a'))
    collector.reply({'status': 'error', 'ename': 'E', 'evalue': 'v', 'traceback': []})
    assert collector.error == ErrorInfo('E', 'v', '')
    assert texts(collector) == [('stdout', 'a'), ('error', 'E: v')]


def test_clear_output_now_and_later():
    assert texts(collect(stream('a'), ('clear_output', {'wait': False}))) == []
    waiting = collect(stream('a'), ('clear_output', {'wait': True}))
    assert texts(waiting) == [('stdout', 'a')]
    waiting.feed(*stream('b'))
    assert texts(waiting) == [('stdout', 'b')]


def test_an_update_replaces_a_display():
    named = {'transient': {'display_id': 'd'}}
    collector = collect(
        display({'text/plain': '1'}, **named),
        stream('x'),
        ('update_display_data', {'data': {'text/plain': '2'}, **named}),
    )
    assert texts(collector) == [('display', '2'), ('stdout', 'x')]


def test_what_is_shown_in_several_places_is_updated_in_the_last_and_kept_once():
    named = {'transient': {'display_id': 'a'}}
    shown = ('display_data', {'data': {'text/plain': '1'}, **named})
    other = ('display_data', {'data': {'text/plain': 'other'}})
    update = ('update_display_data', {'data': {'text/plain': '2'}, **named})
    collector = collect(shown, other, shown, update)
    assert texts(collector) == [('display', 'other'), ('display', '2')]
    assert collector.truncated().outputs == 1


def test_an_update_of_an_earlier_cell_is_shown():
    update = {'data': {'text/plain': '2'}, 'transient': {'display_id': 'old'}}
    assert texts(collect(('update_display_data', update))) == [('display', '2')]


@pytest.mark.parametrize(
    'message',
    [
        ('stream', None),
        ('stream', {'name': 'stdout', 'text': 5}),
        ('stream', {'name': 'log', 'text': 'x'}),
        ('display_data', {}),
        ('display_data', {'data': []}),
        ('display_data', {'data': {1: 2, 'a/b': object()}}),
        ('error', {'ename': 1, 'evalue': None, 'traceback': 'x'}),
        ('comm_open', {'x': 1}),
        ('clear_output', []),
        ('execute_input', {'execution_count': 'x'}),
        ('', {}),
    ],
)
def test_malformed_messages_never_raise(message):
    collect(message).outputs()


def test_deep_and_odd_json_is_made_safe():
    deep: object = 1
    for _ in range(200):
        deep = [deep]
    collector = collect(
        display(
            {
                'application/json': {'nan': float('nan'), '\ud800': '\udfff'},
                'application/x+json': deep,
                'text/plain': ['a', 'b'],
            }
        )
    )
    (output,) = collector.outputs()
    assert output.data['application/json'] == {'nan': None, '\ufffd': '\ufffd'}
    assert 'application/x+json' in output.left_out
    assert output.text == 'ab'


def test_what_is_no_base64_is_left_out():
    (output,) = collect(display({'image/png': 'a'})).outputs()
    assert output.data == {}
    assert output.left_out == {'image/png': 0}


def test_live_events_follow_the_outputs():
    events = []
    collector = Collector(SMALL, events.append)
    for text in ('10%\r', '\x1b[1mred', 'x' * 5_000, 'unseen'):
        collector.feed(*stream(text))
    collector.feed(*display({'text/plain': 'd'}))
    collector.feed('clear_output', {'wait': False})
    seen = [(event.output.kind, event.output.text) for event in events[:-1]]
    shown = [max(o.text, o.ansi, key=len) for o in (event.output for event in events[:-2])]
    assert seen[:2] == [('stdout', '10%\r'), ('stdout', 'red')]
    assert sum(map(len, shown)) == 2_000
    assert seen[-1] == ('display', 'd')
    assert events[-1].clear


def test_dropped_messages_are_counted():
    collector = collect()
    collector.dropped_messages(1, 0)
    collector.dropped_messages(1, 500)
    assert collector.truncated() == Truncation(messages=2, bytes=500)


def test_an_update_gives_back_the_room_of_what_it_replaces():
    half = 'x' * (SMALL.output_bytes // 2)
    shown = {'data': {'text/html': half}, 'transient': {'display_id': 'a'}}
    other = {'data': {'text/html': half}, 'transient': {'display_id': 'b'}}
    collector = collect(
        ('display_data', shown),
        *[('update_display_data', shown)] * 10,
        ('display_data', other),
        policy=SMALL,
    )
    assert [output.data for output in collector.outputs()] == [{'text/html': half}] * 2
    assert collector.truncated() == Truncation()
    collector.feed(*display({'text/html': 'y'}))
    assert collector.truncated().bytes == 1


def test_colours_of_a_stream_are_for_whoever_looks_on():
    events = []
    collector = Collector(SandboxPolicy(), events.append)
    collector.feed('stream', {'name': 'stdout', 'text': '\x1b[31mred\x1b[0m\x1b[2J'})
    collector.feed('stream', {'name': 'stdout', 'text': 'plain'})
    assert [(e.output.text, e.output.ansi) for e in events] == [
        ('red', '\x1b[31mred\x1b[0m'),
        ('plain', ''),
    ]
    assert collector.outputs() == (Output('stdout', 'redplain'),)


def live(*pieces):
    """What is told of stdout as it arrives, with colours."""
    events = []
    collector = Collector(SandboxPolicy(output_chars=1_000), events.append)
    for name, text in pieces:
        collector.feed('stream', {'name': name, 'text': text})
    return ''.join(o.ansi or o.text for o in (e.output for e in events) if o.kind == 'stdout')


def test_a_terminal_code_in_two_pieces_is_one_live_too():
    pieces = [
        ('stdout', 'a\x1b[3'),
        ('stderr', 'other\x1b[1'),
        ('stdout', '1mred\x1b'),
        ('stdout', '[0m!'),
    ]
    assert live(*pieces) == 'a\x1b[31mred\x1b[0m!'
    assert live(('stdout', 'a\x1b]0;ti'), ('stdout', 'tle\x07b')) == 'ab'
    assert live(('stdout', 'the end\x1b[3')) == 'the end'


def test_a_terminal_code_that_does_not_end_hides_no_live_text_for_ever():
    shown = live(('stdout', '\x1b]0;'), *[('stdout', 'x' * 100)] * 50)
    assert 'x' * 500 in shown
    assert len(shown) <= 2_000


def test_what_a_cell_needed_is_gone_with_it_and_not_left_to_the_garbage_collector():
    collector = collect(stream('x'), display({'text/plain': 'a'}), stream('y', 'stderr'))
    collector.outputs()
    gone = weakref.ref(collector)
    gc.disable()
    try:
        del collector
        assert gone() is None
    finally:
        gc.enable()


def test_displays_that_are_not_kept_cost_no_memory_and_no_room():
    half = 'x' * (SMALL.output_bytes // 2)
    collector = collect(
        *(
            display({'text/html': half}, transient={'display_id': f'{number}'})
            for number in range(1_000)
        ),
        policy=SandboxPolicy(output_bytes=SMALL.output_bytes * 2, max_outputs=3),
    )
    assert len(collector._charged) == 3
    collector.feed('execute_result', {'data': {'text/html': half}})
    assert collector.outputs()[-1].data == {'text/html': half}
    assert collector.truncated() == Truncation(outputs=997)


@pytest.mark.parametrize('kind', ['display_data', 'execute_result', 'update_display_data', 'error'])
def test_what_clears_the_outputs_before_it_keeps_its_own_counts(kind):
    content = {
        'data': {'text/plain': 'x' * 5_000, 'image/png': base64.b64encode(bytes(3_000)).decode()},
        'traceback': ['x' * 5_000],
    }
    with Spill(1 << 20) as spill:
        collector = Collector(SMALL, spill=spill)
        collector.feed(*display({'text/plain': 'y' * 9_000}))
        collector.feed('clear_output', {'wait': True})
        collector.feed(kind, content)
        (output,) = collector.outputs()
        assert output.cut[1] == collector.truncated().text_chars == 4_000
        assert collector.truncated().bytes == sum(output.left_out.values())
        assert [file.read() for _, _, file in spill.wanted()] == [b'x' * 5_000 + b'\n']


def test_an_update_in_its_place_clears_nothing():
    named = {'transient': {'display_id': 'd'}}
    collector = collect(
        display({'text/plain': '1'}, **named),
        ('clear_output', {'wait': True}),
        ('update_display_data', {'data': {'text/plain': '2'}, **named}),
    )
    assert texts(collector) == [('display', '2')]
    collector.feed(*stream('x'))
    assert texts(collector) == [('stdout', 'x')]
