import contextlib
import json
import time

import pytest

from lagent.prompts.parsers.json_lenient import find_object, loads, loads_object


@pytest.mark.parametrize(
    'text', ['{"a": [1, 2.5, -3e2, true, null]}', '"x"', '3', '[]', '{"a": {"b": "\\u00e9\\n"}}']
)
def test_strict_json_is_read_as_it_is(text):
    assert loads(text) == json.loads(text)


@pytest.mark.parametrize(
    ('text', 'value'),
    [
        ('{"a": 1,}', {'a': 1}),
        ('[1, 2,]', [1, 2]),
        ("{'a': 'it\\'s'}", {'a': "it's"}),
        ('{"a": True, "b": False, "c": None}', {'a': True, 'b': False, 'c': None}),
        ('{a: 1, b_2: 2}', {'a': 1, 'b_2': 2}),
        ('{// why\n"a": 1, # and\n/* how */ "b": 2}', {'a': 1, 'b': 2}),
        ('{"url": "http://x/#y"}', {'url': 'http://x/#y'}),
        ('{"a": "x // y",}', {'a': 'x // y'}),
        ('{"code": "a = 1\nb = 2"}', {'code': 'a = 1\nb = 2'}),
        ('{"code": """a = "1"\nb"""}', {'code': 'a = "1"\nb'}),
        ("{'code': '''it's'''}", {'code': "it's"}),
        ('{"re": "\\d+\\w"}', {'re': '\\d+\\w'}),
        ('{"a": "\\u00e9\\n\\t\\"",}', {'a': 'é\n\t"'}),
        ('```json\n{"a": 1}\n```', {'a': 1}),
        ('\n~~~\n[1,]\n~~~\n', [1]),
        ('{}""', {}),
        ('{"a": ""}', {'a': ''}),
        ('[\'\', "",]', ['', '']),
    ],
)
def test_slips_of_syntax_are_repaired(text, value):
    assert loads(text) == value


@pytest.mark.parametrize(
    'text',
    [
        '{"a": 1',
        '{"a": "x',
        '[1, 2',
        '{"a":',
        '{"a"',
        '{',
        "{'a': '",
        '```json\n{"a": 1\n```',
        '"""x',
    ],
)
def test_a_closer_is_never_invented(text):
    with pytest.raises(ValueError, match='at character'):
        loads(text)


@pytest.mark.parametrize(
    'text',
    [
        '',
        ' ',
        'no json',
        '{"a" 1}',
        '{"a": 1 "b": 2}',
        '{1: 2}',
        '[1] [2]',
        '{"a": NaN}',
        '{,}',
        '01x',
    ],
)
def test_what_is_no_json_is_refused(text):
    with pytest.raises(ValueError):
        loads(text)


def test_only_objects():
    assert loads_object("{'a': 1}") == {'a': 1}
    with pytest.raises(ValueError, match='object'):
        loads_object('[1]')


@pytest.mark.parametrize('tail', ['', ','])
def test_surrogates(tail):
    assert loads(f'{{"a": "\\ud83c\\udf78"{tail}}}') == {'a': '🍸'}
    assert loads(f'{{"a": ["\\ud83c!"]{tail}}}') == {'a': ['\ufffd!']}


def test_deep_nesting_is_an_error_and_not_a_crash():
    for text in ('[' * 100_000, '{"a":' * 100_000, '[' * 500 + ']' * 500 + ','):
        with pytest.raises(ValueError):
            loads(text)


@pytest.mark.parametrize(
    ('text', 'value'),
    [
        ('Here you are: {"a": 1}. Good?', {'a': 1}),
        ('With {braces} first: {"a": 1}', {'a': 1}),
        ('[{"a": 1}, {"b": 2}]', {'a': 1}),
        ("It's {'a': 1,}", {'a': 1}),
    ],
)
def test_an_object_in_a_text(text, value):
    assert find_object(text) == value


@pytest.mark.parametrize('text', ['none', 'cut {"a": {"b": 1}', 'just a {', ''])
def test_no_object_in_a_text(text):
    with pytest.raises(ValueError):
        find_object(text)


@pytest.mark.parametrize(
    'piece', ['{', '{a ', '{"a', '{"a":', '"\\', '/*', '{#\n', '\\"', ' \n', '```\n', '{}']
)
def test_hostile_texts_take_linear_time(piece):
    text = piece * (400_000 // len(piece))
    start = time.perf_counter()
    for read in (loads, find_object):
        with contextlib.suppress(ValueError):
            read('{' + text)
    assert time.perf_counter() - start < 10
