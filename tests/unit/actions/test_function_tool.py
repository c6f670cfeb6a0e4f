"""Functions as tools: named, described, called and refused like classes."""

import inspect
from typing import Annotated, Literal

import pytest

import lagent
from lagent.actions import ActionExecutor, AsyncActionExecutor, BaseAction, TupleParser, tool_api
from lagent.actions.function_tool import FunctionTool
from lagent.schema import ActionStatusCode, AgentMessage


@tool_api
def add(a: Annotated[int, 'first addend'], b: Annotated[int, 'second addend'] = 1):
    """Add two numbers."""
    return a + b


@tool_api
async def greet(name: str, tone: Literal['warm', 'cool'] = 'warm', session_id=0):
    """Greet somebody.

    Args:
        name: whom
    """
    if not name:
        raise ValueError('nobody is there')
    return f'{tone}: {name} in {session_id}'


class Shop:
    """Not a tool itself."""

    @tool_api
    def price(self, item: str):
        """What an item costs."""
        return {'item': item, 'price': 3}


EXECUTORS = pytest.mark.parametrize('cls', [ActionExecutor, AsyncActionExecutor])


async def ask(executor, name, parameters, **kwargs):
    call = {'name': name, 'parameters': parameters}
    answer = executor(AgentMessage(content=call), **kwargs)
    return (await answer if inspect.isawaitable(answer) else answer).content


@EXECUTORS
async def test_functions_are_tools(cls):
    executor = cls([add, greet, Shop().price])
    assert executor.keys() == ['add', 'greet', 'price']
    assert (await ask(executor, 'add', {'a': 2, 'b': 3})).format_result() == '5'
    assert (await ask(executor, 'add', '{"a": 2}')).format_result() == '3'
    greeted = await ask(executor, 'greet', {'name': 'Ada'}, session_id='s')
    assert greeted.format_result() == 'warm: Ada in s'
    priced = await ask(executor, 'price', {'item': 'pear'})
    assert priced.format_result() == '{"item": "pear", "price": 3}'
    assert (priced.type, priced.state) == ('price', ActionStatusCode.SUCCESS)


@EXECUTORS
async def test_what_goes_wrong_is_told(cls):
    executor = cls(greet)
    wrong = await ask(executor, 'greet', {'nam': 'Ada'})
    assert wrong.state is ActionStatusCode.ARGS_ERROR
    assert 'unknown arguments' in wrong.errmsg
    failed = await ask(executor, 'greet', {'name': ''})
    assert (failed.state, failed.errmsg) == (ActionStatusCode.API_ERROR, 'nobody is there')


def test_models_are_told_of_a_function():
    executor = ActionExecutor(add)
    (description,) = executor.description()
    assert (description['name'], description['description']) == ('add', 'Add two numbers.')
    assert description['required'] == ['a']
    (tool,) = executor.openai_tools()
    assert tool['function']['parameters']['properties'] == {
        'a': {'type': 'integer', 'description': 'first addend'},
        'b': {'type': 'integer', 'description': 'second addend', 'default': 1},
    }
    assert 'parameter_description' not in add.api_description


def test_a_function_can_be_added_and_have_another_parser():
    executor = ActionExecutor([])
    executor['ignored'] = add
    assert executor.keys() == ['add']
    assert FunctionTool(add, TupleParser)('(2, 3)').format_result() == '5'


def test_a_function_that_data_names_must_be_allowed():
    data = {'type': 'lagent.actions.ActionExecutor', 'actions': [{'type': f'{__name__}.add'}]}
    with pytest.raises(lagent.LagentError, match='not allowed'):
        lagent.from_config(data)
    assert lagent.from_config(data, allow=[f'{__name__}.add']).keys() == ['add']


@pytest.mark.parametrize('given', [len, lambda x: x, 'add', BaseAction, {'type': len}])
def test_what_is_no_tool_is_refused(given):
    with pytest.raises(TypeError, match='is no tool'):
        ActionExecutor([given])
