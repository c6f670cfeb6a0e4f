"""What a terminal is shown, and what it must never be told."""

import io

from rich.console import Console

from lagent.console import ConsoleView, ReplyWriter, output_text, printable
from lagent.effects import Effect, emit, perform, subscribe
from lagent.flow import run
from sandbox import ExecutionResult, FileInfo, Outcome, Output


def recorded():
    return Console(file=io.StringIO(), width=80, color_system=None)


def shown(console):
    return console.file.getvalue()


def test_nothing_that_a_terminal_would_obey_is_printed():
    hostile = 'a\x1b[31mb\x1b]0;title\x07c\x1b[2J\x00\x08d\x9b5n\r\ne\tf'
    assert printable(hostile) == 'abcd5n\ne\tf'


def test_a_text_is_shown_as_it_is_written():
    assert printable('a\u202eb\u2066c\u2069\u202ad') == 'abcd'
    assert printable('a\ud800b\udcff') == 'ab'
    assert printable('😀 שלום é') == '😀 שלום é'
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding='utf-8'), width=80)
    ReplyWriter(console).feed('lone \ud83d half\n')
    console.print(output_text(Output('stdout', '\udc00\n')))
    console.file.flush()


def test_a_reply_is_printed_line_by_line():
    console = recorded()
    writer = ReplyWriter(console)
    for chunk in ('Let me', ' see.\n``', '`python\nprint(1)\n', '```\nDo', 'ne'):
        writer.feed(chunk)
    assert shown(console).split('\n')[:2] == ['Let me see.', '```python']
    assert 'Done' not in shown(console)
    writer.close()
    assert [line.rstrip() for line in shown(console).splitlines()] == [
        'Let me see.',
        '```python',
        'print(1)',
        '```',
        'Done',
    ]


def test_the_steps_of_a_run_are_shown():
    console = recorded()
    result = ExecutionResult(
        Outcome.OK,
        notices=('kernel restarted',),
        artifacts=(FileInfo('plot.png', 1234, 0.0),),
    )

    def answer():
        emit('thin')
        emit('king')
        return 'thinking'

    def execute():
        emit(Output('stdout', '42\n'))
        emit(Output('display', '<Figure>', data={'image/png': b'1234567'}))
        return result

    with subscribe(ConsoleView(console)):
        run(perform(Effect('model', 'm', []), answer))
        run(perform(Effect('kernel', 'interpreter', 'print(42)'), execute))
    text = shown(console)
    assert text.count('thinking') == 1
    for part in ('42\n', '[image/png, 7 bytes]', 'kernel restarted', 'plot.png', '1,234', 'ok, '):
        assert part in text
