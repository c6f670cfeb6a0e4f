"""Reading arguments and writing results."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagent.actions import BaseAction, BaseParser, JsonParser, ParseError, TupleParser, tool_api


class Power(BaseAction):
    """powers"""

    def run(self, base: int, exponent: int = 2):
        """raise a number"""
        return base**exponent


class Clock(BaseAction):
    """time"""

    def run(self):
        """now"""
        return 'now'


def parse(parser, inputs):
    return parser(Power()).parse_inputs(inputs)


@pytest.mark.parametrize(
    'inputs',
    [
        {'base': 3},
        '{"base": 3}',
        '```json\n{"base": 3}\n```',
        ' \n```\n{"base": 3}\n```\n',
        '```JSON  \r\n{"base": 3}\r\n```',
        '{"base": 3}\n```',
        '{"base": 3,}',
        "{'base': 3  // the base\n}",
        '~~~\n{base: 3}\n~~~',
    ],
)
def test_json_arguments(inputs):
    assert parse(JsonParser, inputs) == {'base': 3}


@pytest.mark.parametrize(
    ('inputs', 'words'),
    [
        ('{"base": ', 'invalid json format: {"base":  (a value is missing at character 9)'),
        ('', 'invalid json format:  (a value is missing at character 0)'),
        ('5', 'invalid json format: 5 is no {key: value} object'),
        (None, 'invalid json format: None is no {key: value} object'),
        ([3], 'invalid json format: [3] is no {key: value} object'),
        ({'base': 1, 'x': 2, 'a': 3}, "unknown arguments: {'a', 'x'}"),
        ({1: 2}, 'unknown arguments: {1}'),
        ({'exponent': 3}, "missing required arguments: {'base'}"),
    ],
)
def test_refused_json_arguments(inputs, words):
    with pytest.raises(ParseError) as caught:
        parse(JsonParser, inputs)
    assert caught.value.err_msg == words


@pytest.mark.parametrize('inputs', ['[' * 100_000, '9' * 10_000, '{"base": ' + '9' * 10_000 + '}'])
def test_hostile_json_is_refused_in_few_words(inputs):
    with pytest.raises(ParseError) as caught:
        parse(JsonParser, inputs)
    assert len(caught.value.err_msg) < 1200


@pytest.mark.parametrize('inputs', ['(3, 4)', '[3, 4]', ' (3, 4) ', (3, 4)])
def test_tuple_arguments(inputs):
    assert parse(TupleParser, inputs) == {'base': 3, 'exponent': 4}


def test_a_tuple_may_leave_out_what_is_not_required():
    assert parse(TupleParser, '(3,)') == {'base': 3}


@pytest.mark.parametrize(
    ('inputs', 'words'),
    [
        ('5', 'invalid tuple format: 5 (a tuple of one item is written (x,))'),
        ("('ab')", "invalid tuple format: ('ab') (a tuple of one item is written (x,))"),
        ('(1', 'invalid tuple format: (1'),
        ('__import__("os")', 'invalid tuple format: __import__("os")'),
        (None, 'invalid tuple format: None (a tuple of one item is written (x,))'),
        ('()', 'at least 1 argument required, 0 given'),
        ('(1, 2, 3)', 'at most 2 arguments accepted, 3 given'),
    ],
)
def test_refused_tuple_arguments(inputs, words):
    with pytest.raises(ParseError) as caught:
        parse(TupleParser, inputs)
    assert caught.value.err_msg == words


def test_the_base_parser_hands_over_the_whole_input():
    assert parse(BaseParser, '{"base": 3}') == {'base': '{"base": 3}'}
    assert BaseParser(Clock()).parse_inputs('') == {}
    with pytest.raises(ParseError):
        BaseParser(Clock()).parse_inputs('now')


@pytest.mark.parametrize(
    ('outputs', 'text'),
    [
        ('naïve 😀', 'naïve 😀'),
        ({'名': [1, {2}]}, '{"名": [1, "{2}"]}'),
        ([1, 'a'], "[1, 'a']"),
        (None, 'None'),
    ],
)
def test_results(outputs, text):
    assert JsonParser(Power()).parse_outputs(outputs) == [{'type': 'text', 'content': text}]


def test_descriptions_say_how_to_write_the_arguments():
    assert 'JSON' in Power().description['parameter_description']
    assert 'parameter_description' not in Power(parser=BaseParser).description

    class Kit(BaseAction):
        @tool_api
        def one(self):
            """one"""

    assert 'tuple' in Kit(parser=TupleParser).description['api_list'][0]['parameter_description']
    assert 'parameter_description' not in Kit.__tool_description__['api_list'][0]


def test_required_parameters_must_be_described():
    description = {'name': 'Power', 'description': '', 'parameters': [], 'required': ['base']}
    with pytest.raises(ValueError, match='base'):
        Power(description=description)


@given(st.text() | st.text('()[]{}",:\\0123456789ejnul \n`'))
def test_any_text_is_read_or_refused(text):
    for parser in (JsonParser, TupleParser):
        try:
            arguments = parse(parser, text)
        except ParseError:
            continue
        assert arguments.keys() <= {'base', 'exponent'}
