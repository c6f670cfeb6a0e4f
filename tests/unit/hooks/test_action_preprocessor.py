"""From parsed replies to tool calls, and from results to text."""

import pytest

from lagent.actions import ActionExecutor, BaseAction, NoAction
from lagent.hooks import ActionPreprocessor, InternLMActionProcessor
from lagent.prompts.parsers import ToolStatusCode
from lagent.schema import AgentMessage, FunctionCall


class Bold(BaseAction):
    """bold"""

    def run(self, text: str):
        return f'**{text}**'


class Runner(BaseAction):
    """runs code"""

    def __init__(self):
        super().__init__()
        self.commands = []

    def run(self, command: str):
        self.commands.append(command)
        return 'ran'


class WithSession(BaseAction):
    """runs code"""

    def run(self, command: str, session_id=None):
        """run

        Args:
            command: the code
            session_id: whose
        """
        return f'{command} for {session_id}'


def preprocess(formatted, hook=ActionPreprocessor, tools=None, **kwargs):
    executor = ActionExecutor(
        [Bold()] if tools is None else tools, hooks=[hook() if isinstance(hook, type) else hook]
    )
    message = AgentMessage(sender='Agent', content='raw', formatted=formatted)
    answer = executor(message, **kwargs)
    assert (message.content, message.formatted) == ('raw', formatted)
    return answer.content


def parsed(action, status=ToolStatusCode.VALID_TOOL, **more):
    return {'tool_type': 'interpreter', 'thought': 't', 'action': action, 'status': status} | more


@pytest.mark.parametrize(
    'formatted',
    [
        FunctionCall('Bold', {'text': 'x'}),
        {'name': 'Bold', 'parameters': {'text': 'x'}},
        {'thought': 't', 'action': {'name': 'Bold', 'parameters': {'text': 'x'}}},
        {'action': FunctionCall('Bold', '{"text": "x"}')},
    ],
)
def test_forms_of_a_call(formatted):
    assert preprocess(formatted) == '**x**'


@pytest.mark.parametrize('formatted', [None, 'text', {}, {'action': None}, {'name': 'Bold'}])
def test_no_call(formatted):
    with pytest.raises(AssertionError, match='no parsed tool call'):
        preprocess(formatted)


def test_errors_become_words():
    words = preprocess(FunctionCall('Bold', {'words': 1}))
    assert words.startswith("unknown arguments: {'words'} Send a JSON object of this schema: {")
    assert '"required": ["text"]' in words


def test_a_model_that_names_an_unknown_tool_is_told_the_known_ones():
    assert preprocess(FunctionCall('Nope', {}), tools=[Bold(), Runner()]) == (
        'The action is invalid, please check the action name. The tools are: Bold, Runner.'
    )


def test_code_goes_to_the_first_tool():
    runner = Runner()
    assert preprocess(parsed('6*7'), InternLMActionProcessor, [runner, Bold()]) == 'ran'
    assert preprocess(parsed('x', status=1), InternLMActionProcessor, [runner]) == 'ran'
    assert runner.commands == ['6*7', 'x']
    hook = InternLMActionProcessor(code_parameter='text')
    assert preprocess(parsed('x'), hook) == '**x**'


def test_plugin_calls_are_calls():
    action = {'name': 'Bold', 'parameters': {'text': 'x'}}
    assert preprocess(parsed(action), InternLMActionProcessor, [Runner(), Bold()]) == '**x**'


def test_a_tool_that_lists_a_session_is_given_it():
    tools = [WithSession()]
    assert preprocess(parsed('c'), InternLMActionProcessor, tools, session_id=5) == 'c for 5'


@pytest.mark.parametrize('status', [ToolStatusCode.PARSING_ERROR, ToolStatusCode.INCOMPLETE, -1])
def test_what_cannot_be_read_is_not_run(status):
    runner = Runner()
    words = preprocess(parsed('print("do', status), InternLMActionProcessor, [runner])
    assert words == 'Please follow the format'
    assert runner.commands == []


def test_the_hint_of_the_parser_is_the_answer():
    class Parsed(dict):
        hint = 'close the fence'

    formatted = Parsed(parsed('x', ToolStatusCode.PARSING_ERROR))
    assert preprocess(formatted, InternLMActionProcessor) == 'close the fence'


def test_a_named_no_action_answers():
    executor = ActionExecutor(
        [Runner()], no_action=NoAction(err_msg='say it again'), hooks=InternLMActionProcessor()
    )
    message = AgentMessage(content='', formatted=parsed('x', ToolStatusCode.PARSING_ERROR))
    assert executor(message).content == 'say it again'


@pytest.mark.parametrize('formatted', [None, {'action': 'x'}, parsed(None, ToolStatusCode.NO_TOOL)])
def test_internlm_processor_wants_a_parsed_action(formatted):
    with pytest.raises(AssertionError):
        preprocess(formatted, InternLMActionProcessor)


def test_code_without_a_tool_is_refused():
    with pytest.raises(AssertionError, match='no tool'):
        preprocess(parsed('x'), InternLMActionProcessor, [])
