import copy
import json
import pickle

import pytest

from lagent.llms import Completion
from lagent.prompts.parsers import CodeParser, ToolStatusCode
from lagent.schema import AgentMessage

NO_TOOL, VALID, ERROR, INCOMPLETE = (
    ToolStatusCode.NO_TOOL,
    ToolStatusCode.VALID_TOOL,
    ToolStatusCode.PARSING_ERROR,
    ToolStatusCode.INCOMPLETE,
)


def parse(text, *, finish='stop', **options):
    return CodeParser(**options).parse_response(Completion(text, finish_reason=finish))


def cells(text, **options):
    return parse(text, **options)['cells']


TWO = 'First.\n```python\na = 1\n```\nThen:\n```python\nprint(a)\n```\nDone.\n'


def test_the_dict_of_a_valid_reply():
    assert parse('Look:\n```python\nprint(1)\n```\n') == {
        'tool_type': 'interpreter',
        'thought': 'Look:\n',
        'action': 'print(1)',
        'status': VALID,
        'cells': ['print(1)'],
        'reason': '',
        'hint': '',
        'dropped': '',
    }


def test_the_span_covers_the_block():
    text = 'Look:\n```python\nprint(1)\n```\nmore'
    start, end = parse(text).span
    assert text[start:end] == '```python\nprint(1)\n```\n'


# ---- several blocks ------------------------------------------------------
def test_several_blocks_are_cells_in_order():
    parsed = parse(TWO)
    assert parsed['cells'] == ['a = 1', 'print(a)']
    assert parsed['action'] == 'a = 1\n\nprint(a)'
    assert parsed['thought'] == 'First.\n'


def test_only_the_first_block():
    parsed = parse(TWO, blocks='first')
    assert (parsed['cells'], parsed.reason) == (['a = 1'], 'blocks_skipped')
    assert parsed.dropped == 'Then:\n```python\nprint(a)\n```\nDone.\n'
    assert parsed.hint == 'Only the first of the 2 code blocks was run.'


def test_only_the_last_block():
    parsed = parse(TWO, blocks='last')
    assert (parsed['cells'], parsed.reason, parsed.dropped) == (['print(a)'], 'blocks_skipped', '')


def test_exactly_one_block():
    parsed = parse(TWO, blocks='one')
    assert (parsed['status'], parsed['cells'], parsed.reason) == (ERROR, [], 'several_blocks')
    assert '2' in parsed.hint
    assert parse('```python\na\n```', blocks='one')['status'] is VALID


def test_an_unknown_policy_is_refused():
    with pytest.raises(ValueError, match='blocks'):
        CodeParser(blocks='some')


# ---- which fences are code -----------------------------------------------
@pytest.mark.parametrize(
    'tag',
    [
        'python',
        'PY',
        'Python3',
        'py3',
        'python3.12',
        '{python}',
        '{.python}',
        'ipython',
        'python:a.py',
    ],
)
def test_tags_of_python(tag):
    assert cells(f'```{tag}\nprint(1)\n```\n') == ['print(1)']


@pytest.mark.parametrize('tag', ['json', 'bash', 'text', 'pytb', 'markdown'])
def test_a_fence_of_another_language_is_text(tag):
    text = f'```{tag}\n1\n```\n'
    parsed = parse(text)
    assert (parsed['status'], parsed['thought'], parsed.reason) == (NO_TOOL, text, 'no_code')


def test_json_before_python():
    assert cells('```json\n{"a": 1}\n```\n```python\nprint(1)\n```\n') == ['print(1)']


def test_a_bare_fence_counts_if_it_is_python_and_no_other_does():
    assert cells('```\nprint(1)\n```\n') == ['print(1)']
    assert cells('```\nfirst this, then that\n```\n') == []
    assert cells('```\n%matplotlib inline\n```\n') == []
    assert cells('```\nprint(1)\n```\n```python\nprint(2)\n```\n') == ['print(2)']


def test_tildes_and_longer_fences():
    assert cells('~~~python\nprint(1)\n~~~\n') == ['print(1)']
    inner = 's = """\n```\n"""'
    assert cells(f'````python\n{inner}\n````\n') == [inner]
    assert cells('~~~~python\nx = 1\n~~~\ny = 2\n~~~~\n') == ['x = 1\n~~~\ny = 2']


def test_an_indented_fence_gives_clean_code():
    text = '1. Do:\n   ```python\n   for i in range(2):\n       print(i)\n   ```\n2. Done\n'
    assert cells(text) == ['for i in range(2):\n    print(i)']


def test_a_fence_behind_other_text_on_its_line():
    assert cells('Thought: add.```python\nprint(1)\n```\n') == ['print(1)']
    assert cells('Wrap your code in ```python\nand it will be run, dear user.\n') == []


def test_a_block_on_one_line():
    assert cells('```python print(1)```\n') == ['print(1)']
    assert cells('```python is a tag```\n') == []


def test_a_block_that_the_next_one_closes():
    assert cells('```python\na = 1\n```python\nprint(a)\n```\n') == ['a = 1', 'print(a)']


def test_a_fence_in_a_comment_is_code():
    code = 'x = 1  # ends with ```\nprint(x)'
    assert cells(f'```python\n{code}\n```\n') == [code]


def test_code_that_does_not_parse_ends_at_the_first_fence():
    assert cells('```python\nprint(1\n```\nand\n```python\nprint(2)\n```\n') == [
        'print(1',
        'print(2)',
    ]


def test_eight_closing_lines_are_tried():
    inner = 's = """\n' + '```\n' * 7 + '"""'
    assert cells(f'```python\n{inner}\n```\n') == [inner]
    assert cells('```python\ns = """\n' + '```\n' * 9 + '"""\n```\n')[0] == 's = """'


@pytest.mark.parametrize(
    'code',
    [
        'await asyncio.sleep(1)',
        '%matplotlib inline\nx = """\n```\n"""',
        '!ls\nx = """\n```\n"""',
        'files = !ls\nx = """\n```\n"""',
        'df.head?\nx = """\n```\n"""',
        '%%bash\nls',
        "re.findall('\\d', x)\ny = '''\n```\n'''",
    ],
)
def test_what_a_kernel_accepts_is_code(code):
    assert cells(f'```python\n{code}\n```\n') == [code]


def test_an_empty_block():
    parsed = parse('```python\n\n```\n')
    assert (parsed['status'], parsed.reason) == (ERROR, 'empty_code')
    assert cells('```python\n```\n```python\nprint(1)\n```\n') == ['print(1)']


# ---- cut replies ---------------------------------------------------------
@pytest.mark.parametrize(
    'text',
    [
        'Look:\n```python\nx = [1,\n',
        'Look:\n```python\nprint(1)\n',
        'Look:\n```python\nprint(1)\n``',
        'Look:\n```\nprint(1)\n',
        'Look:\n```pyth',
        'Look:\n```python\ns = """\n```\nnot the end\n',
        '```python\na = 1\n```\n```python\nb =',
        '<tool_call>{"name": "python", "arguments": {"code": "pr',
    ],
)
@pytest.mark.parametrize('finish', ['length', 'max_tokens', 'content_filter'])
def test_a_cut_reply_is_never_run(text, finish):
    parsed = parse(text, finish=finish)
    assert parsed['status'] is INCOMPLETE
    assert (parsed['cells'], parsed['action'], parsed.reason) == ([], None, 'incomplete')
    assert 'cut off' in parsed.hint


def test_a_reply_that_was_cut_behind_its_code():
    assert cells('```python\nprint(1)\n```\nThis wi', finish='length') == ['print(1)']


def test_an_answer_that_was_cut():
    parsed = parse('The mean is', finish='length')
    assert (parsed['status'], parsed.reason) == (NO_TOOL, 'incomplete')


def test_native_calls_of_a_cut_reply_are_not_run():
    call = {'function': {'name': 'python', 'arguments': '{"code": "print(1)"}'}}
    reply = Completion('', finish_reason='length', tool_calls=[call])
    assert CodeParser().parse_response(reply)['status'] is INCOMPLETE


# ---- stop words ----------------------------------------------------------
def test_a_fence_as_stop_word_ends_the_reply():
    parsed = parse('```python\na = 1\n```\nUser: go on\n```python\nb\n```', stop_words=['```\n'])
    assert (parsed['cells'], parsed.reason) == (['a = 1'], 'after_stop_word')
    assert parsed.dropped == 'User: go on\n```python\nb\n```'


def test_a_stop_word_makes_a_block_complete():
    text = '```python\nprint(1)\n<stop>and then it went on until it was cut'
    assert cells(text, stop_words=['<stop>'], finish='length') == ['print(1)']


def test_the_stop_word_that_the_server_names():
    reply = Completion('```python\nprint(1)\n<sto', finish_reason='stop', stop_reason='<stop>')
    assert CodeParser().parse_response(reply)['cells'] == ['print(1)']


def test_words_are_not_cut_from_answers():
    assert parse('I vote NO', stop_words=['NOTE:'])['thought'] == 'I vote NO'
    assert parse('Five.\nObserv', stop_words=['Observation:'])['thought'] == 'Five.\n'


# ---- observations --------------------------------------------------------
CODE = '```python\nprint(1)\n```'


@pytest.mark.parametrize(
    'invented',
    [
        'Observation: 1\n',
        '**Observation:** 1\n',
        'observation: 1\n',
        '<|observation|>1',
        'Output:\n```\n1\n```\n',
        '```output\n1\n```\n',
    ],
)
def test_invented_observations(invented):
    parsed = parse(f'{CODE}\n\n{invented}So it is 1.\n```python\nrest()\n```\n')
    assert (parsed['cells'], parsed.reason) == (['print(1)'], 'invented_observation')
    assert parsed.dropped.startswith(invented)


def test_an_observation_glued_to_the_fence():
    assert parse(f'{CODE}Observation: 1\n{CODE}').dropped == f'Observation: 1\n{CODE}'


def test_code_that_rests_on_an_invention_is_not_run():
    parsed = parse(f'Observation: 5\n{CODE}\n')
    assert (parsed['status'], parsed['cells']) == (ERROR, [])
    assert parsed.reason == 'invented_observation'


def test_an_observation_is_a_heading_in_an_answer_without_code():
    text = 'Summary\nObservation: prices rose.\nOutput: none.\n'
    assert parse(text)['thought'] == text


def test_the_word_in_code_is_code():
    assert cells('```python\nprint("""\nObservation: 1\n""")\n```\n') == [
        'print("""\nObservation: 1\n""")'
    ]


def test_own_marks():
    assert parse(f'{CODE}\nEnv> 1\n', observation_marks=['Env>']).dropped == 'Env> 1\n'


def test_an_observation_behind_a_written_call():
    call = '<tool_call>{"name": "python", "arguments": {"code": "print(1)"}}</tool_call>'
    parsed = parse(f'{call}\nObservation: 1\n')
    assert (parsed['cells'], parsed.dropped) == (['print(1)'], 'Observation: 1\n')


# ---- reasoning -----------------------------------------------------------
def test_the_answer_is_what_follows_the_reasoning():
    parsed = parse('<think>\nhm\n</think>\n\nIt is 5.')
    assert (parsed['thought'], parsed.reasoning) == ('It is 5.', '<think>\nhm\n</think>')


def test_a_reply_of_reasoning_alone_is_no_answer():
    assert (parse('<think>hm</think>\n')['status'], parse('').reason) == (ERROR, 'empty')
    parsed = parse(f'<think>\n{CODE}\n')
    assert (parsed['status'], parsed.reason) == (ERROR, 'unclosed_reasoning')


# ---- tool calls ----------------------------------------------------------
def calling(*calls, text=''):
    made = [{'function': {'name': name, 'arguments': arguments}} for name, arguments in calls]
    return CodeParser().parse_response(Completion(text, tool_calls=made))


def test_several_native_calls_are_cells():
    parsed = calling(('python', '{"code": "a"}'), ('run_code', '{"command": "b"}'))
    assert parsed['cells'] == ['a', 'b']


def test_an_unknown_tool_beside_a_known_one():
    parsed = calling(('python', '{"code": "a"}'), ('nope', '{}'))
    assert (parsed['status'], parsed['cells'], parsed.reason) == (VALID, ['a'], 'unknown_tool')


@pytest.mark.parametrize(
    ('arguments', 'reason'),
    [('{"code": "print(', 'bad_json'), ('', 'bad_json'), ('{}', 'no_code'), ('[1]', 'no_code')],
)
def test_arguments_without_code(arguments, reason):
    parsed = calling(('python', arguments))
    assert (parsed['status'], parsed.reason) == (ERROR, reason)


def test_written_calls():
    one = '<tool_call>{"name": "python", "arguments": {"code": "%s"}}</tool_call>'
    parsed = parse(f'Both.\n{one % "a"}\n{one % "b"}\n')
    assert (parsed['thought'], parsed['cells']) == ('Both.\n', ['a', 'b'])
    assert parse('<tool_call>print(1)</tool_call>').reason == 'bad_json'
    assert cells('<tool_call>{"name": "python", "arguments": {"code": "a"}}') == ['a']


def test_a_reply_that_is_only_the_json_of_a_call():
    assert cells('{"name": "python", "parameters": {"code": "a"}}') == ['a']
    assert parse('{"name": "Ann", "age": 3}')['status'] is NO_TOOL


# ---- writing -------------------------------------------------------------
@pytest.mark.parametrize('code', ['print(1)', 's = """\n```\n"""', "x = '`````'", 'x = 1\n\n'])
def test_writing_undoes_parsing(code):
    parser = CodeParser()
    parsed = parser.parse_response(
        parser.format_response({'thought': 'So:\n', 'tool_type': 'interpreter', 'action': code})
    )
    assert (parsed['thought'], parsed['cells']) == ('So:\n', [code])


def test_writing_an_answer_and_another_tool():
    assert CodeParser().format_response(parse('Five.')) == 'Five.'
    with pytest.raises(AssertionError):
        CodeParser().format_response({'thought': '', 'tool_type': 'plugin', 'action': 'x'})


def test_the_template_knows_the_fence():
    parser = CodeParser(template='Write {begin} and {end} for {who}.', who='me')
    assert parser.format_instruction() == 'Write ```python and ``` for me.'


# ---- the result as a value -----------------------------------------------
def test_copies_keep_everything():
    parsed = parse(f'<think>a</think>{CODE}\nObservation: 1')
    for twin in (copy.deepcopy(parsed), pickle.loads(pickle.dumps(parsed))):
        assert type(twin) is type(parsed)
        assert twin == parsed
        assert vars(twin) == vars(parsed)
    message = AgentMessage(content='', formatted=parsed).model_copy(deep=True)
    assert message.formatted.dropped == 'Observation: 1'
    assert json.loads(json.dumps(parsed))['cells'] == ['print(1)']
    assert json.loads(AgentMessage(content='', formatted=parsed).model_dump_json())[
        'formatted'
    ] == json.loads(json.dumps(parsed))
