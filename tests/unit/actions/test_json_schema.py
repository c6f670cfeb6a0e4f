"""JSON schema of tools, and arguments that get the types that a tool declares."""

import json
from enum import Enum
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field

from lagent.actions import ActionExecutor, AsyncActionExecutor, BaseAction, tool_api
from lagent.actions.json_schema import function_name
from lagent.schema import ActionStatusCode, AgentMessage


class Color(Enum):
    RED = 'r'
    BLUE = 'b'


class Point(BaseModel):
    """A point."""

    x: int
    title: str = Field('', description='its name')


class Opaque:
    pass


class Draw(BaseAction):
    """Draws."""

    def run(
        self,
        color: Color,
        at: Point,
        points: Annotated[Optional[list[Point]], 'more of them'] = None,  # noqa: UP045
        mode: Literal['fill', 'line'] = 'fill',
        width: float = 1,
        named: dict[str, int] | None = None,
        other: Opaque | None = None,
        model_fields=3,
        session_id=0,
    ):
        """Draw something.

        Args:
            color: which color
            mode: how
            model_fields (int): a name that pydantic has taken
        """
        return repr((color, at, points, mode))


def schema_of(tool):
    [described] = ActionExecutor(tool).openai_tools()
    assert described['type'] == 'function'
    return described['function']


def test_the_schema_of_everything():
    described = schema_of(Draw())
    assert (described['name'], described['description']) == ('Draw', 'Draw something.')
    assert described['parameters'] == {
        'type': 'object',
        'properties': {
            'color': {'$ref': '#/$defs/Color', 'description': 'which color'},
            'at': {'$ref': '#/$defs/Point'},
            'points': {
                'anyOf': [
                    {'type': 'array', 'items': {'$ref': '#/$defs/Point'}},
                    {'type': 'null'},
                ],
                'description': 'more of them',
            },
            'mode': {
                'type': 'string',
                'enum': ['fill', 'line'],
                'description': 'how',
                'default': 'fill',
            },
            'width': {'type': 'number', 'default': 1},
            'named': {
                'anyOf': [
                    {'type': 'object', 'additionalProperties': {'type': 'integer'}},
                    {'type': 'null'},
                ]
            },
            'other': {'type': 'string'},
            'model_fields': {
                'type': 'integer',
                'description': 'a name that pydantic has taken',
                'default': 3,
            },
        },
        'required': ['color', 'at'],
        'additionalProperties': False,
        '$defs': {
            'Color': {'type': 'string', 'enum': ['r', 'b']},
            'Point': {
                'type': 'object',
                'description': 'A point.',
                'properties': {
                    'x': {'type': 'integer'},
                    'title': {'type': 'string', 'default': '', 'description': 'its name'},
                },
                'required': ['x'],
            },
        },
    }
    json.dumps(described)


def test_a_description_of_ones_own_counts():
    described = {
        'name': 'paint it',
        'description': 'Paint.',
        'parameters': [{'name': 'color', 'type': 'STRING', 'description': 'any'}, {'name': 'new'}],
        'required': ['new'],
    }
    schema = schema_of(Draw(description=described))
    assert schema['name'] == 'paint-it'
    assert list(schema['parameters']['properties']) == ['color', 'new']
    assert schema['parameters']['properties']['new'] == {}
    assert schema['parameters']['required'] == ['new']


def test_anthropics_form():
    [described] = ActionExecutor(Draw()).anthropic_tools()
    assert set(described) == {'name', 'description', 'input_schema'}


def test_internlms_description_is_unchanged():
    assert [p['type'] for p in Draw().description['parameters'][:5]] == [
        'STRING',
        'STRING',
        'Array',
        'STRING',
        'FLOAT',
    ]


def call(parameters, tool=None):
    tool = tool or Draw()
    content = {'name': tool.name, 'parameters': parameters}
    return ActionExecutor(tool)(AgentMessage(content=content)).content


def test_models_and_enums_arrive_as_such():
    result = call({'color': 'r', 'at': {'x': '1'}, 'points': [{'x': 2, 'title': 'p'}]})
    assert result.errmsg is None
    assert result.format_result() == repr((Color.RED, Point(x=1), [Point(x=2, title='p')], 'fill'))
    assert result.args == {'color': 'r', 'at': {'x': '1'}, 'points': [{'x': 2, 'title': 'p'}]}


@pytest.mark.parametrize(
    ('parameters', 'words'),
    [
        ({'color': 'green', 'at': {'x': 1}}, ["color: Input should be 'r' or 'b'"]),
        ({'color': 'r', 'at': {'x': 'a'}}, ['at.x: Input should be a valid integer']),
        ({'color': 'g', 'at': {}}, ["color: Input should be 'r' or 'b'"]),
    ],
)
def test_values_that_do_not_fit_are_reported(parameters, words):
    result = call(parameters)
    assert result.state is ActionStatusCode.ARGS_ERROR
    assert all(word in result.errmsg for word in ['invalid arguments', *words])


def test_values_of_other_types_are_handed_on_as_they_are():
    class Plain(BaseAction):
        """plain"""

        def run(self, number: int, anything: Any = None):
            return f'{number!r} {anything!r}'

    assert call({'number': '1'}, Plain()).format_result() == "'1' None"


@pytest.mark.parametrize(
    ('name', 'expected'),
    [('Kit.add', 'Kit-add'), ('画图', '--'), ('a' * 99, 'a' * 64), ('ok_1-2', 'ok_1-2')],
)
def test_names_that_providers_accept(name, expected):
    assert function_name(name) == expected


@pytest.mark.parametrize('cls', [ActionExecutor, AsyncActionExecutor])
async def test_tools_are_called_by_their_exported_names(cls):
    class Kit(BaseAction):
        """kit"""

        @tool_api
        def add(self, a: int):
            """add"""
            return a + 1

    answer = cls([Kit()])(AgentMessage(content={'name': 'Kit-add', 'parameters': {'a': 1}}))
    answer = await answer if cls is AsyncActionExecutor else answer
    assert answer.content.format_result() == '2'
