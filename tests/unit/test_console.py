"""What a terminal is shown, and what it must never be told."""

import io

import pytest
from rich.console import Console

from lagent.console import ConsoleView, ReplyWriter, drawn_table, output_text, printable
from lagent.conversation import show_answer
from lagent.effects import Effect, emit, perform, subscribe
from lagent.flow import run
from lagent.llms import Completion
from lagent.schema import AgentMessage
from sandbox import Column, ExecutionResult, FileInfo, Outcome, Output, Table


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


def terminal(width=40):
    return Console(file=io.StringIO(), width=width, color_system=None, force_terminal=True)


def test_on_a_terminal_prose_appears_word_by_word():
    console = terminal(width=12)
    writer = ReplyWriter(console)
    for chunk, seen in (
        ('The an', 'The '),
        ('swer is', 'The answer '),
        (' wr', 'The answer \nis '),
    ):
        writer.feed(chunk)
        assert shown(console) == seen
    writer.feed('itten.\n``')
    writer.feed('`python\nx = 1')
    assert shown(console).splitlines() == ['The answer ', 'is written.', '```python']


def test_on_a_terminal_a_table_of_a_reply_is_drawn():
    console = terminal()
    writer = ReplyWriter(console)
    writer.feed('Here:\n| city | n |\n|---|---|\n| A | 1')
    assert '|' not in shown(console)
    writer.feed('0 |\nThat is all.')
    writer.close()
    lines = [line.strip() for line in shown(console).splitlines() if line.strip()]
    assert lines[:2] == ['Here:', 'city  n']
    assert lines[-2:] == ['A     10', 'That is all.']


def test_a_sequence_in_pieces_is_not_obeyed_either():
    console = terminal()
    writer = ReplyWriter(console)
    for character in 'a \x1b]0;a title\x07 b \x1b[2J c\n| \x1b[31m | [x](http://h/\x1b]8;;y) |\n':
        writer.feed(character)
    writer.close()
    assert '\x1b' not in shown(console)
    assert 'title' not in shown(console)


def test_a_progress_bar_stays_on_its_line():
    console = terminal(width=20)
    with subscribe(ConsoleView(console)):
        run(perform(Effect('kernel', 'k', ''), _progress))
    assert shown(console).split('\n')[1:4] == [
        '10%\r\x1b[2K50%\r\x1b[2K' + 'x' * 19 + '\r\x1b[2Kdone',
        'b]0;t[2J',
        'end',
    ]


def _progress():
    for text in (
        '10%',
        '\r',
        '50%\r' + 'x' * 30,
        '\rdone\r\n',
        'b\x1b',
        ']0;t\x07\x1b[2',
        'J\nend',
    ):
        emit(Output('stdout', text))
    return ExecutionResult(outcome=Outcome.OK)


def test_colours_of_a_program_are_shown_and_end_with_its_cell():
    console = Console(file=io.StringIO(), width=40, color_system='standard', force_terminal=True)

    def execute():
        emit(Output('stdout', 'red', ansi='\x1b[31mred'))
        emit(Output('stdout', 'still\x9b2J', ansi='still\x9b2J\x1b[1mbold\x07\u202e'))
        return ExecutionResult(outcome=Outcome.OK)

    with subscribe(ConsoleView(console)):
        run(perform(Effect('kernel', 'k', ''), execute))
        before = len(shown(console))
        run(perform(Effect('kernel', 'k', ''), _plainly))
    assert '\x1b[31mred\x1b[0m\x1b[31mstill2J\x1b[0m\x1b[1;31mbold\x1b[0m\n' in shown(console)
    assert '\nplain\n' in shown(console)[before:]


def _plainly():
    emit(Output('stdout', 'plain\n'))
    return ExecutionResult(outcome=Outcome.OK)


def drawn(table, width=60):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(drawn_table(table, width))
    return [line.rstrip() for line in shown(console).splitlines() if line.strip()]


def test_a_frame_is_drawn_with_the_columns_that_fit():
    columns = tuple(Column(f'column {n}', 'float64', 0) for n in range(9))
    rows = tuple((1234567.5, 0.1, None, 'x', True, 2, 3, 4, 5) for _ in range(100))
    labels = tuple((n,) for n in range(100))
    table = Table('frame', columns, rows, labels, ('id',), 5_000, 70)
    lines = drawn(table)
    assert lines[0].split() == ['id', *(word for n in range(5) for word in ('column', str(n)))]
    assert max(map(len, lines)) <= 60
    assert lines[2].split() == ['0', '1234567.5', '0.1', 'x', 'True']
    assert len(lines) == 2 + 10 + 1
    assert lines[-1] == '5,000 rows x 70 columns, 10 x 5 shown'


def test_a_small_frame_is_whole_and_obeys_nothing():
    columns = (Column('[red]a\x1b[31m', 'object', 0), Column('\u202eb', 'object', 0))
    rows = (('[bold]x', 'line\nfeed\x9b'), ('y' * 90, '\udc00'))
    table = Table('frame', columns, rows, ((), ()), (), 2, 2)
    assert drawn(table, 100) == [
        ' [red]a                                     b',
        ' ' + '\u2500' * 52,
        ' [bold]x                                    line feed',
        f' {"y" * 37}...',
        '2 rows x 2 columns',
    ]


def test_a_frame_is_drawn_on_a_terminal_only():
    data = {
        'kind': 'series',
        'columns': [{'name': 'n', 'dtype': 'int64', 'nulls': 0}],
        'index': [],
        'rows': [[7]],
        'labels': [[]],
        'total_rows': 1,
        'total_columns': 1,
    }
    output = Output('result', 'plain text', {'application/vnd.lagent.table+json': data})
    for console, is_terminal in ((terminal(80), True), (recorded(), False)):

        def execute():
            emit(output)
            return ExecutionResult(Outcome.OK)

        with subscribe(ConsoleView(console)):
            run(perform(Effect('kernel', 'interpreter', 'n'), execute))
        assert ('plain text' in shown(console)) is not is_terminal
        assert ('1 row x 1 column' in shown(console)) is is_terminal


@pytest.mark.parametrize(
    ('content', 'words'),
    [
        ('<think>2 rows?</think>\nDone: **2** rows.', 'Done: 2 rows.'),
        ('<think>It never ends', '<think>It never ends'),
        ('It is <b>2</b>.\n\n<div>\nrows\n</div>', 'It is <b>2</b>.'),
        ('| a |\n|---|\n| <i>1</i> |', '<i>1</i>'),
    ],
)
def test_an_answer_loses_its_reasoning_and_nothing_else(content, words):
    console = recorded()
    show_answer(console, AgentMessage(sender='analyst', content=content))
    assert words in shown(console)
    assert '2 rows?' not in shown(console)


def test_an_answer_that_was_cut_off_does_not_look_whole():
    titles = {}
    for reason in ('stop', 'length', 'content_filter'):
        console = recorded()
        answer = AgentMessage(sender='a', content=Completion('It is', finish_reason=reason))
        show_answer(console, answer)
        titles[reason] = shown(console).splitlines()[0].strip('╭╮─ ')
    assert titles == {
        'stop': 'answer',
        'length': 'answer, cut off (length)',
        'content_filter': 'answer, cut off (content_filter)',
    }
