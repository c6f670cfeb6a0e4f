"""From results of cells to the words of InternLM's tools, and from a model's words to code."""

import pytest

from lagent.actions.cell_text import TIMED_OUT, code_in, error, failure, success, transcript
from lagent.actions.interpreter import CellResult
from sandbox import ErrorInfo, Outcome, Output, Truncation

DIVIDED = (
    '---------\nZeroDivisionError   Traceback (most recent call last)\n'
    '----> 1 1/0\n\nZeroDivisionError: division by zero'
)
MISPRINT = '  Cell In[1], line 1\n    1 +\n       ^\nSyntaxError: invalid syntax'


def ok(*outputs, **more):
    return CellResult(Outcome.OK, outputs, **more)


def failed(name, trace, *outputs, **more):
    return CellResult(
        Outcome.ERROR, outputs, ErrorInfo(name, trace.rpartition(': ')[2], trace), **more
    )


def test_outputs_are_in_order_and_on_lines_of_their_own():
    result = ok(
        Output('stdout', 'a'),
        Output('stdout', 'b\n'),
        Output('stderr', 'careful'),
        Output('display', '<Axes>'),
        Output('display', '<Figure>'),
        Output('result', '42'),
    )
    assert transcript(result) == 'ab\ncareful\n<Axes>\n<Figure>\n42'
    assert transcript(result, value=False) == 'ab\ncareful\n<Axes>\n<Figure>'


def test_the_text_of_an_image_can_be_left_to_the_image():
    figure = Output('display', '<Figure>', {'text/plain': '<Figure>', 'image/png': b'\x89PNG'})
    assert transcript(ok(figure)) == '<Figure>'
    assert transcript(ok(figure, Output('stdout', '5\n')), figures=False) == '5'


def test_what_was_left_out_is_counted():
    output = Output('display', '', {'text/html': '<b>'}, left_out={'image/png': 9_000_000})
    result = ok(output, truncated=Truncation(outputs=1_300))
    assert transcript(result) == (
        '[text/html]\n[image/png left out: 9,000,000 bytes]\n[1,300 more outputs left out]'
    )


def test_nothing_is_an_empty_text():
    assert success(ok()) == ''


def test_a_very_long_text_keeps_head_and_tail():
    many = [Output('display', letter * 60_000) for letter in 'abc']
    text = success(ok(*many))
    head, cut, tail = text.split('\n')
    assert (head, cut) == ('a' * 50_000, '[80,002 characters left out]')
    assert tail == 'c' * 50_000
    assert failure(CellResult(Outcome.OOM, tuple(many), notices=('why',))).startswith(head)


def test_notices_come_first():
    assert success(ok(Output('stdout', 'x\n'), notices=('it is new',))) == '[notice] it is new\nx'


def test_errors_begin_with_the_exception():
    result = failed('ZeroDivisionError', DIVIDED, Output('stdout', 'step 1\n'))
    assert error(result) == DIVIDED.partition('\n')[2]
    assert error(result, whole=True) == DIVIDED
    assert failure(result) == 'step 1\n' + DIVIDED.partition('\n')[2]


def test_the_place_of_a_syntax_error_is_kept():
    assert error(failed('SyntaxError', MISPRINT)) == (
        'SyntaxError: invalid syntax\n  Cell In[1], line 1\n    1 +\n       ^'
    )


def test_timeouts_have_a_fixed_text_unless_something_was_lost():
    interrupted = Output('error', 'KeyboardInterrupt')
    kept = CellResult(Outcome.TIMEOUT, (interrupted,), notices=('variables are kept',))
    assert failure(kept) == TIMED_OUT == 'The code interpreter encountered a timeout error.'
    lost = CellResult(Outcome.TIMEOUT, state_preserved=False, notices=('all is lost',))
    assert failure(lost) == f'{TIMED_OUT}\n[notice] all is lost'


@pytest.mark.parametrize('outcome', ['oom', 'kernel_died', 'sandbox_lost', 'interrupted'])
def test_other_ends_are_told(outcome):
    told = CellResult(Outcome(outcome), (Output('stdout', 'x\n'),), notices=('why',))
    assert failure(told) == 'x\n[notice] why'
    assert outcome in failure(CellResult(Outcome(outcome)))


@pytest.mark.parametrize(
    ('text', 'code'),
    [
        ('1 + 1', '1 + 1'),
        ('Here:\n```python\nx = 1\nx\n```\nDone.', 'x = 1\nx'),
        ('Here:\n```\nx\n```', 'x'),
        ('Look: `2 ** 8`, please', '2 ** 8'),
        ('{code: "print(1)"}', 'print(1)'),
        ('{"code": "print(1)"}', 'print(1)'),
        ('s = "a`b`c"\ns', 's = "a`b`c"\ns'),
        ('s = """\n```python\nx\n```\n"""', 's = """\n```python\nx\n```\n"""'),
        ('%timeit x\n!ls `pwd`', '%timeit x\n!ls `pwd`'),
        ('{"a": 1}', '{"a": 1}'),
        ('x =', 'x ='),
        ('', ''),
    ],
)
def test_code_is_found_and_python_is_left_alone(text, code):
    assert code_in(text) == code
