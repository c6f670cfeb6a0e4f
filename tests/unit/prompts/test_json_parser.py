from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from lagent.prompts.parsers import JSONParser


class Colour(Enum):
    RED = 'red'
    BLUE = 'blue'


class Part(BaseModel):
    size: int = 1


class Everything(BaseModel):
    colour: Colour = Field(Colour.RED, description='which\none')
    mode: Literal['a', 'b']
    part: Part | None = None
    parts: list[Part] = Field(default_factory=list)
    more: dict[str, Any] = {}
    note: Annotated[str | None, 'a note'] = None


class Title(BaseModel):
    title: str
    year: int = 1999


class Tree(BaseModel):
    name: str
    children: list['Tree'] = []


def test_the_instruction():
    assert (
        JSONParser('{all}', all=Everything).format_instruction()
        == """\
{
    // which
    // one
    "colour": "red | blue",  // default: red
    "mode": "a | b",  // required
    "part": {
        "size": "int",  // default: 1
    },  // default: None
    "parts": [
        {
            "size": "int",  // default: 1
        }
    ],  // optional
    "more": "dict[str, any]",  // default: {}
    "note": "str | None",  // default: None
}"""
    )


def test_a_model_that_holds_itself():
    assert (
        '"children": "list[Tree]",  // default: []'
        in JSONParser('{t}', t=Tree).format_instruction()
    )


def test_fields_that_are_no_models():
    parser = JSONParser('{style}: {title}', style='short', title=Title)
    assert parser.format_instruction().startswith('short: {\n    "title"')
    assert parser.parse_response('{"title": "T"}') == {'title': 'T', 'year': 1999}


def test_nested_fields():
    parsed = JSONParser('{all}', all=Everything).parse_response(
        '{"mode": "b", "colour": "blue", "parts": [{"size": "2"}, {}], "part": {"size": 3}}'
    )
    assert parsed == {
        'colour': Colour.BLUE,
        'mode': 'b',
        'part': {'size': 3},
        'parts': [{'size': 2}, {'size': 1}],
        'more': {},
        'note': None,
    }


@pytest.mark.parametrize(
    'text',
    [
        '```json\n{"title": "T"}\n```',
        'Here:\n```\n{"title": "T"}\n```\nFine?',
        'Sure: {"title": "T"}',
        "{'title': 'T',}",
        '<think>{"title": "no"}</think>{"title": "T"}',
        '{\n  // "title": "no"\n"title": "T"}',
    ],
)
def test_ways_to_write_an_object(text):
    assert JSONParser('{t}', t=Title).parse_response(text) == {'title': 'T', 'year': 1999}


def test_a_slash_in_a_string_is_no_comment():
    assert JSONParser('{t}', t=Title).parse_response('{"title": "a\\n// b"}')['title'] == 'a\n// b'


@pytest.mark.parametrize('text', ['{"title": "T", "year":', '{"title": "str"}', '{"year": 3}', ''])
def test_what_does_not_fit(text):
    with pytest.raises(ValueError):
        JSONParser('{t}', t=Title).parse_response(text)


def test_placeholders_mean_the_default():
    assert JSONParser('{t}', t=Title).parse_response('{"title": "int", "year": "int"}') == {
        'title': 'int',
        'year': 1999,
    }


def test_the_error_says_which_field():
    with pytest.raises(ValueError, match='t: title: Field required'):
        JSONParser('{t}', t=Title).parse_response('{"name": "x"}')


def test_writing_undoes_parsing():
    parser = JSONParser('{t}', t=Title)
    parsed = {'title': 'Ü', 'year': 1}
    assert parser.format_response(parsed) == '{"title": "Ü", "year": 1}'
    assert parser.parse_response(parser.format_response(Title(**parsed))) == parsed
