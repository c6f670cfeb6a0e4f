"""Tools: their descriptions, and what a call gives."""

import asyncio

import pytest

from lagent.actions import AsyncActionMixin, BaseAction, JsonParser, tool_api
from lagent.context import run_context
from lagent.errors import LimitExceeded
from lagent.schema import ActionReturn, ActionStatusCode


class Bold(BaseAction):
    """Class words."""

    def run(self, text: str):
        """
        Args:
            text: input text
        """
        return f'**{text}**'


class Kit(BaseAction):
    """A kit."""

    @tool_api
    def add(self, a: int, b: int = 2):
        """Add."""
        return a + b

    @tool_api
    def fail(self):
        """Fail."""
        raise ValueError('bad luck')

    def helper(self):
        return 'not for models'


class WhoAsks(BaseAction):
    def run(self, text: str, session_id=0):
        return f'{text} for {session_id}'


def parameters(tool):
    return [one['name'] for one in tool.description['parameters']]


def apis(tool):
    return [api['name'] for api in tool.description['api_list']]


def test_a_simple_tool():
    tool = Bold()
    assert (tool.name, tool.is_toolkit) == ('Bold', False)
    assert tool.description['description'] == 'Class words.'
    assert parameters(tool) == ['text']
    ret = tool({'text': 'x'})
    assert (ret.args, ret.type, ret.state) == ({'text': 'x'}, 'Bold', ActionStatusCode.SUCCESS)
    assert ret.result == [{'type': 'text', 'content': '**x**'}]


def test_the_words_of_run_beat_those_of_the_class():
    class Tool(BaseAction):
        """Class words."""

        def run(self):
            """Method words."""

    assert Tool().description['description'] == 'Method words.'


def test_a_toolkit():
    kit = Kit()
    assert kit.is_toolkit
    assert kit.description['description'] == 'A kit.'
    assert apis(kit) == ['add', 'fail']
    assert kit({'a': 1}, 'add').format_result() == '3'


def test_run_and_other_apis_exclude_each_other():
    with pytest.raises(KeyError):

        class Both(BaseAction):
            @tool_api
            def run(self): ...

            @tool_api
            def other(self): ...


def test_an_undecorated_run_beside_apis_is_no_api():
    class Tool(BaseAction):
        def run(self):
            return self.other()

        @tool_api
        def other(self):
            return 'other'

    assert apis(Tool()) == ['other']
    assert Tool()({}).errmsg == 'invalid API: run'


def test_subclasses_inherit_run_and_speak_for_themselves():
    class Strong(Bold):
        """Strong words."""

    class Silent(Bold):
        pass

    assert parameters(Strong()) == ['text']
    assert Strong().description['description'] == 'Strong words.'
    assert Silent().description['description'] == 'Class words.'
    assert Silent().name == 'Silent'
    assert Silent()({'text': 'x'}).format_result() == '**x**'


def test_toolkits_inherit_override_and_drop_apis():
    class More(Kit):
        fail = None

        def add(self, a: int, b: int, c: int):
            """Add three."""
            return a + b + c

        @tool_api
        def sub(self, a: int, b: int):
            return a - b

    more = More()
    assert apis(more) == ['add', 'sub']
    assert more({'a': 1, 'b': 2, 'c': 3}, 'add').format_result() == '6'
    assert apis(Kit()) == ['add', 'fail']


def test_a_subclass_decides_its_kind():
    class NowSimple(Kit):
        def run(self):
            return 'simple'

    class NowKit(Bold):
        @tool_api
        def other(self):
            return 'other'

    assert not NowSimple().is_toolkit
    assert NowSimple()({}).format_result() == 'simple'
    assert apis(NowKit()) == ['other']


def test_descriptions_can_be_replaced_and_are_never_shared():
    description = {'name': 'b', 'description': 'd', 'parameters': [], 'required': []}
    tool = Bold(description=description)
    assert (tool.name, tool({}).state) == ('b', ActionStatusCode.API_ERROR)
    assert 'parameter_description' not in description
    Bold().description['parameters'].clear()
    assert parameters(Bold()) == ['text']


@pytest.mark.parametrize('name', ['nope', 'helper', 'description', 'name', '__init__', None, []])
def test_only_apis_can_be_called(name):
    ret = Kit()({'x': 1}, name)
    assert (ret.state, ret.errmsg) == (ActionStatusCode.API_ERROR, f'invalid API: {name}')
    assert ret.args == {'inputs': {'x': 1}, 'name': name}


def test_bad_arguments_and_failures_are_results():
    ret = Bold()({'words': 'x'})
    assert ret.state is ActionStatusCode.ARGS_ERROR
    assert ret.errmsg == "unknown arguments: {'words'}"
    assert ret.args == {'inputs': {'words': 'x'}, 'name': 'run'}
    ret = Kit()({}, 'fail')
    assert (ret.state, ret.errmsg, ret.result) == (ActionStatusCode.API_ERROR, 'bad luck', None)
    assert ret.args == {}


def failing(error):
    class Tool(BaseAction):
        def run(self):
            raise error

    return Tool()


def test_an_error_without_words_is_named():
    assert failing(AssertionError())({}).errmsg == 'AssertionError'


@pytest.mark.parametrize('error', [KeyboardInterrupt(), LimitExceeded('tool_calls', 1, 1)])
def test_what_ends_a_run_is_no_result(error):
    with pytest.raises(type(error)):
        failing(error)({})


def test_a_broken_parser_is_a_result():
    class Broken(JsonParser):
        def parse_inputs(self, inputs, name='run'):
            raise IndexError('parser')

    ret = Bold(parser=Broken)({'text': 'x'})
    assert (ret.state, ret.errmsg) == (ActionStatusCode.ARGS_ERROR, 'parser')


def test_returns_are_taken_as_they_are_and_completed():
    class Tool(BaseAction):
        def run(self, how: str):
            if how == 'full':
                return ActionReturn({'mine': 1}, type='other', errmsg='e')
            return ActionReturn(errmsg='e')

    full, bare = Tool()({'how': 'full'}), Tool()({'how': 'bare'})
    assert (full.args, full.type) == ({'mine': 1}, 'other')
    assert (bare.args, bare.type) == ({'how': 'bare'}, 'Tool')


def test_the_session_of_the_run_reaches_the_tool_and_not_the_model():
    tool = WhoAsks()
    assert parameters(tool) == ['text']
    assert tool({'text': 'x'}).format_result() == 'x for 0'
    with run_context('s'):
        ret = tool({'text': 'x'})
        assert ret.format_result() == 'x for s'
        assert ret.args == {'text': 'x'}
        refused = tool({'text': 'x', 'session_id': 'other'})
    assert refused.state is ActionStatusCode.ARGS_ERROR


def test_a_session_without_default_is_session_0_outside_of_runs():
    class Tool(BaseAction):
        def run(self, session_id):
            return session_id

    assert Tool()({}).format_result() == '0'


async def test_asynchronous_tools():
    class AsyncBold(AsyncActionMixin, BaseAction):
        async def run(self, text: str, session_id=0):
            await asyncio.sleep(0)
            return f'{text} for {session_id}'

    class Plain(AsyncActionMixin, Bold):
        pass

    with run_context(7):
        assert (await AsyncBold()({'text': 'x'})).format_result() == 'x for 7'
    assert (await AsyncBold()({})).state is ActionStatusCode.ARGS_ERROR
    assert (await Plain()({'text': 'x'})).format_result() == '**x**'
    assert parameters(Plain()) == ['text']


def test_a_plain_tool_may_have_asynchronous_apis():
    class Tool(BaseAction):
        async def run(self, session_id):
            await asyncio.sleep(0)
            return session_id

    with run_context('s'):
        assert Tool()({}).format_result() == 's'


def test_repr_shows_the_description():
    assert repr(Bold()) == str(Bold()) == str(Bold().description)
