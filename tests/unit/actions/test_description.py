"""What `tool_api` reads from hints and docstrings."""

import enum
from collections.abc import Sequence
from typing import Annotated, Any, List, Literal, NewType, Optional, Union  # noqa: UP035

import pytest
from pydantic import Field

from lagent.actions import tool_api
from lagent.actions.description import describe, summary


class Colour(enum.Enum):
    RED = 'red'


class Level(enum.IntEnum):
    LOW = 1


def described_type(hint: Any) -> str:
    def f(a):
        """f"""

    f.__annotations__['a'] = hint
    return describe(f)['parameters'][0]['type']


@pytest.mark.parametrize(
    ('hint', 'expected'),
    [
        (str, 'STRING'),
        (int, 'NUMBER'),
        (float, 'FLOAT'),
        (bool, 'BOOLEAN'),
        (list, 'Array'),
        (List[str], 'Array'),  # noqa: UP006
        (list[dict[str, int]], 'Array'),
        (tuple[int, ...], 'Array'),
        (Sequence[float], 'Array'),
        (dict, 'STRING'),
        (dict[str, list], 'STRING'),
        (bytes, 'STRING'),
        (object, 'STRING'),
        (Any, 'STRING'),
        (Optional[int], 'NUMBER'),  # noqa: UP045
        (int | None, 'NUMBER'),
        (Optional[List[str]], 'Array'),  # noqa: UP006, UP045
        (Union[int, float], 'FLOAT'),  # noqa: UP007
        (int | str, 'STRING'),
        (str | list[str], 'STRING'),
        (Literal['a', 'b'], 'STRING'),
        (Literal[1, 2], 'NUMBER'),
        (Annotated[list[int], 'numbers'], 'Array'),
        (Annotated[int | None, 'n'], 'NUMBER'),
        (Colour, 'STRING'),
        (Level, 'NUMBER'),
        (NewType('UserId', int), 'NUMBER'),
        ('List[str]', 'Array'),
        ('int', 'NUMBER'),
        ('Missing', 'STRING'),
    ],
)
def test_types_of_hints(hint, expected):
    assert described_type(hint) == expected


@pytest.mark.parametrize(
    ('words', 'expected'),
    [
        ('str', 'STRING'),
        ('string', 'STRING'),
        ('int', 'NUMBER'),
        ('integer', 'NUMBER'),
        ('float', 'FLOAT'),
        ('bool', 'BOOLEAN'),
        ('list', 'Array'),
        ('List[str]', 'Array'),
        ('list of ints', 'Array'),
        ('str | int', 'STRING'),
        ('int | float', 'FLOAT'),
        ('Optional[int]', 'NUMBER'),
        ('int, optional', 'NUMBER'),
        ('dict', 'STRING'),
        ('Point', 'STRING'),
        (':class:`int`', 'NUMBER'),
        (':class:`Optional[List[str]]`', 'Array'),
    ],
)
def test_types_of_docstrings(words, expected):
    def f(a):
        pass

    f.__doc__ = f"""f

    Args:
        a ({words}): an argument
    """
    assert describe(f)['parameters'] == [
        {'name': 'a', 'type': expected, 'description': 'an argument'}
    ]


def test_a_whole_description():
    def search(query: str, k=10, *, sort: bool = False, **options):
        """Search the web.

        More words
        about it.

        Args:
            query (int): what to look for,
                in any language
            k (int, optional): how many results. Defaults to 10.
            sort: by :func:`date`

        Returns:
            list: the results
        """

    assert describe(search) == {
        'name': 'search',
        'description': 'Search the web.\n\nMore words\nabout it.',
        'parameters': [
            {
                'name': 'query',
                'type': 'STRING',
                'description': 'what to look for,\nin any language',
            },
            {
                'name': 'k',
                'type': 'NUMBER',
                'description': 'how many results. Defaults to 10.',
            },
            {'name': 'sort', 'type': 'BOOLEAN', 'description': 'by date'},
        ],
        'required': ['query'],
    }


def test_annotated_text_beats_the_docstring():
    def f(
        a: Annotated[int, 'the a', 'more'],
        b: Annotated[str, 7],
        c: Annotated[str, Field(description='the c')],
    ):
        """f

        Args:
            a: other
            b: the b
        """

    assert [one['description'] for one in describe(f)['parameters']] == ['the a', 'the b', 'the c']


def test_return_data_is_only_there_when_asked_for():
    def f():
        """f

        Returns:
            dict: the parts
                * x (int): value of a,
                  in full
                - y: value of b
        """

    assert 'return_data' not in describe(f)
    assert describe(f, explode_return=True)['return_data'] == [
        {'name': 'x', 'type': 'NUMBER', 'description': 'value of a,\nin full'},
        {'name': 'y', 'description': 'value of b'},
    ]


def test_named_return_values():
    def f():
        """f

        Returns:
            position (list[int]): where
            name: what
            (int): how many
        """

    assert describe(f, returns_named_value=True)['return_data'] == [
        {'name': 'position', 'type': 'Array', 'description': 'where'},
        {'name': 'name', 'description': 'what'},
        {'type': 'NUMBER', 'description': 'how many'},
    ]


def test_arguments_can_be_chosen():
    def f(a, b, c=1):
        """f"""

    assert [p['name'] for p in describe(f, include_arguments=['a', 'c'])['parameters']] == [
        'a',
        'c',
    ]
    excluded = describe(f, exclude_arguments=['b'])
    assert [p['name'] for p in excluded['parameters']] == ['a', 'c']
    assert excluded['required'] == ['a']


def test_the_session_is_described_only_where_it_is_documented():
    def quiet(text, session_id=0):
        """f

        Args:
            text: the text
        """

    def documented(text, session_id=None):
        """f

        Args:
            session_id (Optional[Union[str, int]]): the session
        """

    assert [p['name'] for p in describe(quiet)['parameters']] == ['text']
    assert describe(documented)['parameters'][1] == {
        'name': 'session_id',
        'type': 'STRING',
        'description': 'the session',
    }
    included = describe(quiet, include_arguments=['text', 'session_id'])
    assert [p['name'] for p in included['parameters']] == ['text', 'session_id']


@pytest.mark.parametrize(
    ('docstring', 'words'),
    [
        (None, ''),
        ('', ''),
        ('  one line  ', 'one line'),
        ('\n    Args:\n        a: x\n', ''),
        ('Words.\n\n    Args:\n        a (int) no colon\n', 'Words.'),
        ('Words.\n\n    Args:\n\n    Returns:\n        text without a colon\n', 'Words.'),
        ('Words.\n\n    Note:\n        careful\n', 'Words.'),
    ],
)
def test_descriptions_of_odd_docstrings(docstring, words):
    assert summary(docstring) == words


def test_a_malformed_docstring_leaves_the_hints():
    def f(a: int):
        """f

        Args:
            a (int) no colon
        """

    assert describe(f)['parameters'] == [{'name': 'a', 'type': 'NUMBER', 'description': ''}]


def test_hints_that_cannot_be_resolved_are_read_as_text():
    def f(a: 'list[Unknown]', b: 'int'):  # noqa: F821
        """f"""

    assert [p['type'] for p in describe(f)['parameters']] == ['Array', 'NUMBER']


def test_the_decorator_leaves_the_function_alone():
    def f(a, b=1):
        """f"""
        return a + b

    assert tool_api(f) is f
    assert f(1) == 2
    assert f.api_description['name'] == 'f'


def test_the_decorator_takes_options():
    @tool_api(exclude_arguments=['b'], trim_doctest_flags=True)
    async def f(a, b=1):
        """f"""
        return a + b

    assert [p['name'] for p in f.api_description['parameters']] == ['a']
