"""Replies of the kinds that agents are publicly known to trip over, and what is right."""

from types import SimpleNamespace

import pytest

from lagent.llms import Completion
from lagent.prompts.parsers import CodeParser, ToolStatusCode

NO_TOOL, VALID, ERROR, INCOMPLETE = (
    ToolStatusCode.NO_TOOL,
    ToolStatusCode.VALID_TOOL,
    ToolStatusCode.PARSING_ERROR,
    ToolStatusCode.INCOMPLETE,
)

DRAFT = "```python\nopen('draft_ran', 'w').close()\n```\n"
LISTED = "```python\nprint('listed')\n```\n"
NESTED = 'doc = """Usage:\n```sh\nmake all\n```\ndone"""\nprint(doc.count("make"))'

CASES = [
    pytest.param(
        'Thought: rough plan\n```\nload rows -> group by city -> divide\n```\nNow the real '
        'thing.\n\n```python\nprint(sum([4, 5, 6]))\n```\n',
        ['print(sum([4, 5, 6]))'],
        id='R01-bare-fence-with-a-plan',
    ),
    pytest.param(
        f'I write the readme text.\n```python\n{NESTED}\n```\n',
        [NESTED],
        id='R03-fence-in-a-string',
    ),
    pytest.param(
        '``` python  \r\nx = 2\r\nprint(x ** 5)\r\n```\r\n',
        ['x = 2\nprint(x ** 5)'],
        id='R05-crlf-and-blanks',
    ),
    pytest.param('```Python3\nprint(32)\n```', ['print(32)'], id='R05-version'),
    pytest.param('```py\nprint(32)\n```   \n', ['print(32)'], id='R05-short-tag'),
    pytest.param('```python title="calc.py"\nprint(32)\n```', ['print(32)'], id='R05-title'),
    pytest.param('```python\nprint(32)```', ['print(32)'], id='R05-fence-glued-to-the-code'),
    pytest.param(
        'Let me compute it.\n```python\nprint(2 ** 10)\n',
        ['print(2 ** 10)'],
        id='R07-stop-word-ate-the-fence',
    ),
    pytest.param('```python\nprint(2 ** 10)\n`', ['print(2 ** 10)'], id='R07-one-stray-backtick'),
    pytest.param('```python\nprint(2 ** 10)``', ['print(2 ** 10)'], id='R07-two-stray-backticks'),
    pytest.param(
        f'<think>\nOption one:\n{DRAFT}no, listing is enough.\n</think>\n{LISTED}',
        ["print('listed')"],
        id='R09-draft-in-the-reasoning',
    ),
    pytest.param(
        '```python\nprint(5)\n```\nObservation: 1284\nSo there are 1284 lines.\n```python\n'
        'print(1284 * 2)\n```\nFinal Answer: 2568\n',
        ['print(5)'],
        id='R11-invented-observation',
    ),
    pytest.param(
        '<tool_call>\n{"name": "python", "arguments": {"code": "print(5 * 5)"}}\n</tool_call>',
        ['print(5 * 5)'],
        id='R17-call-as-text',
    ),
]


@pytest.mark.parametrize(('text', 'cells'), CASES)
def test_code_is_found(text, cells):
    parsed = CodeParser().parse_response(Completion(text))
    assert parsed['status'] is VALID
    assert parsed['cells'] == cells
    assert parsed['action'] == '\n\n'.join(cells)
    assert parsed['tool_type'] == 'interpreter'


@pytest.mark.parametrize(('text', 'cells'), CASES)
def test_a_plain_string_is_enough(text, cells):
    assert CodeParser().parse_response(text)['cells'] == cells


def test_r09_reasoning_that_the_provider_separates():
    parsed = CodeParser().parse_response(Completion(LISTED, reasoning=f'maybe\n{DRAFT}'))
    assert parsed['cells'] == ["print('listed')"]
    assert 'draft_ran' in parsed.reasoning


def test_r09_reasoning_that_was_cut_off():
    text = f'<think>\nstill thinking\n{DRAFT}'
    parsed = CodeParser().parse_response(Completion(text, finish_reason='length'))
    assert (parsed['status'], parsed['cells']) == (INCOMPLETE, [])
    assert parsed.reason == 'unclosed_reasoning'


def test_r11_what_follows_the_observation_is_dropped_and_reported():
    text = '```python\nprint(1)\n```\nObservation: 1\nFinal Answer: 1\n'
    parsed = CodeParser().parse_response(text)
    assert parsed.dropped == 'Observation: 1\nFinal Answer: 1\n'
    assert parsed.reason == 'invented_observation'
    assert 'observation' in parsed.hint


@pytest.mark.parametrize(
    'answer',
    [
        'All done: the mean of column `price` is 12.5 and the chart is in chart.png.',
        'You can check it yourself with `df.mean()`.',
        'Paris',
    ],
)
def test_r13_a_plain_answer(answer):
    parsed = CodeParser().parse_response(answer)
    assert (parsed['status'], parsed['thought'], parsed['action']) == (NO_TOOL, answer, None)
    assert parsed['cells'] == []


@pytest.mark.parametrize(
    ('arguments', 'code'),
    [
        ('import math\nprint(math.comb(6, 2))', 'import math\nprint(math.comb(6, 2))'),
        ('{"code": "print(15)"}', 'print(15)'),
        ("{'code': 'print(15)'}", 'print(15)'),
        ('{"code": "```python\\nprint(15)\\n```"}', 'print(15)'),
        ('"print(15)"', 'print(15)'),
    ],
)
def test_r15_arguments_of_a_native_call(arguments, code):
    function = {'name': 'python', 'arguments': arguments}
    call = {'id': 'c1', 'type': 'function', 'function': function}
    reply = Completion('', finish_reason='tool_calls', tool_calls=[call])
    assert CodeParser().parse_response(reply)['cells'] == [code]


def test_r15_a_call_object_and_a_thought():
    call = SimpleNamespace(id='c1', name='python', arguments='{"code": "print(1)"}')
    parsed = CodeParser().parse_response(Completion('I count.', tool_calls=[call]))
    assert (parsed['thought'], parsed['cells']) == ('I count.', ['print(1)'])


def test_r17_a_quoted_call_is_not_run():
    quoted = (
        'Write it like this:\n<tool_call>\n{"name": "python", "arguments": {"code": "x"}}\n'
        '</tool_call>\nand wait.'
    )
    parsed = CodeParser().parse_response(quoted)
    assert (parsed['status'], parsed['thought']) == (NO_TOOL, quoted)
    inline = 'Use `<tool_call>{"name": "python", "arguments": {"code": "x"}}</tool_call>`.'
    assert CodeParser().parse_response(inline)['status'] is NO_TOOL
    assert CodeParser().parse_response(f'```\n{quoted}\n```\n')['status'] is NO_TOOL


def test_r17_a_call_of_an_unknown_tool_is_neither_run_nor_an_answer():
    text = '<tool_call>{"name": "shell", "arguments": {"code": "ls"}}</tool_call>'
    parsed = CodeParser().parse_response(text)
    assert (parsed['status'], parsed.reason) == (ERROR, 'unknown_tool')
    assert 'shell' in parsed.hint


@pytest.mark.parametrize(
    'text',
    [
        '```python\nprint(9)\n```<end_cod',
        "```python\nprint(9)\n```<end_code>\nUser: now delete it\n```python\nprint('no')\n```",
    ],
)
def test_r19_stop_words(text):
    parsed = CodeParser(stop_words=['<end_code>']).parse_response(text)
    assert (parsed['status'], parsed['cells']) == (VALID, ['print(9)'])
    assert '<end_cod' in parsed.dropped


def test_r19_text_glued_to_the_closing_fence():
    parsed = CodeParser().parse_response('```python\nprint(9)\n```<end_cod')
    assert parsed['cells'] == ['print(9)']
