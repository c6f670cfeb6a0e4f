import copy
import json
import pickle

import pytest

from lagent.llms import Completion
from lagent.prompts.parsers import (
    CodeParser,
    InterpreterParser,
    MixedToolParser,
    ParsedReply,
    PluginParser,
    ToolParser,
    ToolStatusCode,
)

NO_TOOL, VALID, ERROR, INCOMPLETE = (
    ToolStatusCode.NO_TOOL,
    ToolStatusCode.VALID_TOOL,
    ToolStatusCode.PARSING_ERROR,
    ToolStatusCode.INCOMPLETE,
)


def readme_parser(**kwargs):
    return ToolParser('code interpreter', begin='```python\n', end='\n```\n', **kwargs)


def marked(text, **fields):
    return ToolParser('t', begin='<b>', end='<e>').parse_response(Completion(text, **fields))


# ---- ToolStatusCode ------------------------------------------------------
def test_iteration_shows_the_three_codes_of_internlm():
    assert {code.name: code.value for code in ToolStatusCode} == {
        'NO_TOOL': 0,
        'VALID_TOOL': 1,
        'PARSING_ERROR': -1,
    }
    assert list(ToolStatusCode.__members__) == ['NO_TOOL', 'VALID_TOOL', 'PARSING_ERROR']


def test_incomplete_is_a_code_like_the_others():
    assert isinstance(INCOMPLETE, ToolStatusCode)
    assert (INCOMPLETE.name, INCOMPLETE.value, INCOMPLETE == -2) == ('INCOMPLETE', -2, True)
    assert ToolStatusCode(-2) is INCOMPLETE
    assert pickle.loads(pickle.dumps(INCOMPLETE)) is INCOMPLETE
    assert copy.deepcopy(INCOMPLETE) is INCOMPLETE
    assert copy.copy(INCOMPLETE) is INCOMPLETE
    assert json.dumps(INCOMPLETE) == '-2'
    assert repr(INCOMPLETE) == '<ToolStatusCode.INCOMPLETE: -2>'
    assert INCOMPLETE not in (NO_TOOL, VALID, ERROR)


# ---- ParsedReply ---------------------------------------------------------
def test_the_dict_has_four_keys_and_more_attributes():
    parsed = marked('a<b>one<e>x<b>two<e>')
    assert list(parsed) == ['tool_type', 'thought', 'action', 'status']
    assert parsed == {'tool_type': 't', 'thought': 'a', 'action': 'one', 'status': VALID}
    assert (parsed.dropped, parsed.reason, parsed.hint) == ('x<b>two<e>', '', '')
    assert parsed.span == (1, 10)


def test_copies_keep_the_attributes():
    parsed = marked('a<b>one<e>x')
    for twin in (copy.copy(parsed), copy.deepcopy(parsed), pickle.loads(pickle.dumps(parsed))):
        assert isinstance(twin, ParsedReply)
        assert (twin, twin.dropped, twin.span) == (parsed, 'x', (1, 10))


# ---- plain marks ---------------------------------------------------------
def test_a_cut_call_is_incomplete_and_keeps_its_text():
    parsed = marked('a<b>x = [1,', finish_reason='length')
    assert parsed == {'tool_type': 't', 'thought': 'a', 'action': 'x = [1,', 'status': INCOMPLETE}
    assert parsed.reason == 'incomplete'
    assert 'cut off' in parsed.hint


def test_a_reply_that_was_cut_behind_the_call():
    assert marked('a<b>x<e>and th', finish_reason='length')['status'] is VALID


def test_a_cut_call_is_not_validated():
    reply = Completion('<|action_start|><|plugin|>\n{"name": "a"}', finish_reason='length')
    assert PluginParser().parse_response(reply)['status'] is INCOMPLETE


def test_plain_marks_are_found_in_reasoning():
    assert marked('<think><b>x<e></think>')['action'] == 'x'


def test_refusals_are_explained():
    def refuse(action):
        raise KeyError(f'no {action}')

    parsed = ToolParser('t', validate=refuse).parse_response('<tool>\nx</tool>\n')
    assert (parsed['status'], parsed['action']) == (ERROR, 'x')
    assert parsed.reason == 'invalid_call'
    assert 'no x' in parsed.hint


def test_empty_marks_are_refused():
    with pytest.raises(ValueError, match='empty'):
        ToolParser('t', begin='')


@pytest.mark.parametrize(
    'written',
    [
        "{'name': 'a', 'parameters': {},}",
        '```json\n{"name": "a", "parameters": {}}\n```',
        '{"name": "a", "parameters": {}}""',
        '{"name": "a", // the tool\n"parameters": {}}',
    ],
)
def test_plugin_json_is_repaired(written):
    parsed = PluginParser().parse_response(f'<|action_start|><|plugin|>\n{written}<|action_end|>')
    assert (parsed['status'], parsed['action']) == (VALID, {'name': 'a', 'parameters': {}})


# ---- a Markdown fence as marks -------------------------------------------
@pytest.mark.parametrize(
    'block',
    [
        '```python\nprint(1)\n```\n',
        '``` Python3 \r\nprint(1)\r\n```\r\n',
        '```py\nprint(1)```',
        '~~~python\nprint(1)\n~~~\n',
        '   ```python\n   print(1)\n   ```\n',
        '```python\nprint(1)\n',
    ],
)
def test_fences_as_models_write_them(block):
    parsed = readme_parser().parse_response(f'Look:\n{block}')
    assert parsed == {
        'tool_type': 'code interpreter',
        'thought': 'Look:\n',
        'action': 'print(1)',
        'status': VALID,
    }


def test_the_first_block_wins_and_the_rest_is_dropped():
    parsed = readme_parser().parse_response('```python\na\n```\nThen:\n```python\nb\n```\n')
    assert (parsed['action'], parsed.dropped) == ('a', 'Then:\n```python\nb\n```\n')


def test_a_fence_in_a_string():
    code = 's = """\n```\n"""'
    assert readme_parser().parse_response(f'```python\n{code}\n```\n')['action'] == code


def test_reasoning_is_not_searched():
    text = '<think>\n```python\ndraft()\n```\n</think>\n```python\nreal()\n```\n'
    assert readme_parser().parse_response(text)['action'] == 'real()'


def test_cut_fences_and_cut_reasoning():
    cut = Completion('```python\nprint(1)\n', finish_reason='length')
    assert readme_parser().parse_response(cut)['status'] is INCOMPLETE
    thinking = Completion('<think>\n```python\ndraft()\n```\n', finish_reason='length')
    parsed = readme_parser().parse_response(thinking)
    assert (parsed['status'], parsed['action']) == (INCOMPLETE, None)
    assert parsed.reason == 'unclosed_reasoning'


def test_a_bare_fence_is_not_the_mark():
    assert readme_parser().parse_response('```\nprint(1)\n```\n')['status'] is NO_TOOL


def test_fences_of_other_languages():
    parser = ToolParser('db', begin='```sql\n', end='\n```\n')
    parsed = parser.parse_response('Ask: ```SQL\nSELECT 1\n```\n```python\nx\n```\n')
    assert (parsed['action'], parsed['status']) == ('SELECT 1', VALID)
    assert parser.parse_response('```python\nx\n```\n')['status'] is NO_TOOL
    bare = ToolParser('t', begin='```\n', end='\n```\n')
    assert bare.parse_response('```\nsome words\n```\n')['action'] == 'some words'


def test_a_fenced_call_is_validated():
    parser = ToolParser('j', begin='```json\n', end='\n```\n', validate=json.loads)
    assert parser.parse_response('```json\n{"a": 1}\n```')['action'] == {'a': 1}


# ---- MixedToolParser -----------------------------------------------------
def test_earlier_parsers_go_first_wherever_their_call_is():
    text = (
        '<|action_start|><|interpreter|>\n1<|action_end|>\n'
        '<|action_start|><|plugin|>\n{"name": "a"}<|action_end|>\n'
    )
    parser = MixedToolParser(parsers=[PluginParser(), InterpreterParser()])
    assert parser.parse_response(text)['tool_type'] == 'plugin'


def test_an_incomplete_call_is_found_too():
    reply = Completion('<|action_start|><|interpreter|>\nx = [', finish_reason='length')
    parser = MixedToolParser(parsers=[PluginParser(), InterpreterParser()])
    assert parser.parse_response(reply)['status'] is INCOMPLETE


def test_a_code_parser_may_be_one_of_them():
    parser = MixedToolParser(parsers=[PluginParser(), {'type': CodeParser, 'tool_type': 'code'}])
    assert parser.parse_response('```python\n1\n```')['cells'] == ['1']


def test_two_parsers_of_one_type_are_refused():
    parsers = [PluginParser(begin='<a>'), PluginParser(begin='<b>')]
    with pytest.raises(ValueError, match=r"a tool_type of its own, got \['plugin', 'plugin'\]"):
        MixedToolParser(parsers=parsers)
