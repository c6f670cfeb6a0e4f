"""InternLM's agents: plugins and interpreter, defaults, prompts and steps; plain and awaited."""

import asyncio
import inspect
import json

import pytest

from lagent.actions import BaseAction, Interpreter, IPythonInteractive, tool_api
from lagent.agents import (
    AgentForInternLM,
    AsyncAgentForInternLM,
    AsyncMathCoder,
    MathCoder,
    get_plugin_prompt,
    stream,
)
from lagent.errors import LimitExceeded, ParseFailed
from lagent.hooks import Hook, InternLMActionProcessor
from lagent.limits import RunLimits
from lagent.llms import AsyncScriptedModel, Completion, ScriptedModel
from lagent.prompts import InterpreterParser, ToolStatusCode
from sandbox import ExecutionResult, FakeBackend, Outcome, Output

CALL = {'name': 'Bold', 'parameters': {'text': 'x'}}
PLUGIN = f'see<|action_start|><|plugin|>\n{json.dumps(CALL)}<|action_end|>\n'
CODE = 'run<|action_start|><|interpreter|>\n6 * 7<|action_end|>\n'
BROKEN = 'see<|action_start|><|plugin|>\n{"name": "Bo<|action_end|>\n'


class Bold(BaseAction):
    """make text bold"""

    def run(self, text: str):
        """
        Args:
            text (str): the text
        """
        return f'**{text}**'


class Runner(BaseAction):
    """runs code"""

    def __init__(self):
        super().__init__()
        self.commands = []

    def run(self, command: str):
        """
        Args:
            command: the code
        """
        self.commands.append(command)
        if command == 'stop':
            raise LimitExceeded('tokens', 1, 1)
        return '42'


class Math(BaseAction):
    """arithmetic"""

    @tool_api
    def add(self, a: int, b: int = 2):
        """相加"""
        return a + b


@pytest.fixture(params=[False, True], ids=['plain', 'awaited'])
def awaited(request):
    return request.param


@pytest.fixture
def make(awaited):
    def build(*replies, **kwargs):
        model = (AsyncScriptedModel if awaited else ScriptedModel)(list(replies))
        return (AsyncAgentForInternLM if awaited else AgentForInternLM)(model, **kwargs), model

    return build


def ask(agent, *message, **kwargs):
    answer = agent(*message, **kwargs)
    if not inspect.iscoroutine(answer):
        return answer

    async def main():
        return await answer

    return asyncio.run(main())


def test_the_defaults_are_enough(make):
    plugins = [{'type': Bold}]
    agent, model = make(PLUGIN, CODE, 'the end', plugins=plugins, interpreter=Runner())
    assert ask(agent, 'q', session_id=5).content == 'the end'
    assert plugins == [{'type': Bold}]
    meta, plugin, code, user = model.calls[0].messages
    assert (meta['role'], meta['content'], user['role']) == ('system', stream.META_CN, 'user')
    assert (plugin['name'], code['name']) == ('plugin', 'interpreter')
    assert '"name": "Bold"' in plugin['content']
    assert code['content'] == stream.INTERPRETER_CN
    assert model.calls[2].messages[4:] == [
        {'role': 'assistant', 'content': PLUGIN},
        {'role': 'environment', 'content': '**x**', 'name': 'plugin'},
        {'role': 'assistant', 'content': CODE},
        {'role': 'environment', 'content': '42', 'name': 'interpreter'},
    ]
    assert list(agent.state_dict(5)) == ['memory', 'agent.memory']


def test_steps_have_the_form_of_few_shots(make):
    agent, _ = make(PLUGIN, CODE, 'the end', plugins=Bold(), interpreter=[Runner()])
    ask(agent, 'q')
    assert agent.get_steps() == [
        {'role': 'thought', 'content': 'see'},
        {
            'role': 'tool',
            'content': CALL,
            'name': 'plugin',
        },
        {'role': 'environment', 'content': '**x**', 'name': 'plugin'},
        {'role': 'thought', 'content': 'run'},
        {'role': 'tool', 'content': '6 * 7', 'name': 'interpreter'},
        {'role': 'environment', 'content': '42', 'name': 'interpreter'},
        {'role': 'thought', 'content': 'the end'},
    ]
    assert agent.get_steps(session_id=1) == []


@tool_api
def shout(text: str) -> str:
    """make text loud"""
    return f'{text.upper()}!'


@pytest.mark.parametrize('plugins', [shout, [shout]], ids=['alone', 'listed'])
def test_a_function_is_a_plugin(make, plugins):
    call = json.dumps({'name': 'shout', 'parameters': {'text': 'x'}})
    reply = f'see<|action_start|><|plugin|>\n{call}<|action_end|>\n'
    agent, model = make(reply, 'the end', plugins=plugins)
    assert ask(agent, 'q').content == 'the end'
    assert '"name": "shout"' in model.calls[0].messages[1]['content']
    assert model.calls[1].messages[-1]['content'] == 'X!'
    assert json.loads(get_plugin_prompt(plugins))[0]['description'] == 'make text loud'


def test_what_is_no_plugin_is_refused(make):
    with pytest.raises(TypeError, match='tool_api'):
        make(plugins=[len])


def test_the_model_is_told_of_what_there_is_only(make):
    agent, model = make('hi', interpreter=Runner())
    ask(agent, 'q')
    assert [m.get('name') for m in model.calls[0].messages] == [None, 'interpreter', None]


def test_a_tool_that_is_missing(make, awaited):
    with pytest.warns(UserWarning, match='neither plugins nor an interpreter'):
        agent, _ = make(CODE, 'sorry')
    with pytest.raises(RuntimeError, match='No available interpreter executor'):
        ask(agent, 'q')
    assert ask(agent, 'again').content == 'sorry'
    contents = [message.content for message in agent.agent.memory.get_memory()]
    assert contents[2] == '[no result: RuntimeError: No available interpreter executor]'


def test_when_turns_run_out_the_tools_message_is_marked(make, awaited):
    agent, model = make(CODE, CODE, interpreter=Runner(), max_turn=2)
    answer = ask(agent, 'q')
    assert (answer.content, answer.type) == ('42', 'limit')
    assert answer.sender == ('AsyncActionExecutor' if awaited else 'ActionExecutor')
    assert answer.extra_info == {'limit': 'max_turn', 'allowed': 2, 'used': 2}
    assert len(model.calls) == 2
    assert agent.state_dict()['memory'][-1]['type'] == 'limit'


def test_broken_calls_are_answered_and_counted(make):
    agent, _ = make(BROKEN, 'the end', plugins=[Bold()], interpreter=(tool := Runner()))
    assert ask(agent, 'q').content == 'the end'
    assert tool.commands == []
    agent, _ = make(*[BROKEN] * 3, plugins=[Bold()], limits=RunLimits(parse_failures=2))
    with pytest.raises(ParseFailed):
        ask(agent, 'q')


def test_a_reply_that_was_cut_off_is_not_run(make):
    cut = Completion('run<|action_start|><|interpreter|>\nrm(', finish_reason='length')
    agent, _ = make(cut, 'the end', interpreter=(tool := Runner()))
    assert ask(agent, 'q').content == 'the end'
    assert tool.commands == []


def test_a_limit_ends_the_loop_and_leaves_memory_in_order(make):
    agent, _ = make(CODE.replace('6 * 7', 'stop'), interpreter=Runner())
    with pytest.raises(LimitExceeded):
        ask(agent, 'q')
    assert 'no result' in agent.agent.memory.get_memory()[-1].content


def test_hooks_are_the_inner_agents_and_the_name_is_the_outers(make):
    seen = []

    class Recorder(Hook):
        def before_agent(self, agent, message, session_id):
            seen.append(agent.name)

    agent, _ = make('hi', plugins=Bold(), hooks=[Recorder()], name='Solver', description='d')
    assert ask(agent, 'q').sender == agent.agent.name
    assert seen == [agent.agent.name]
    assert agent.agent.name in ('Agent', 'AsyncAgent')
    assert (agent.name, agent.description) == ('Solver', 'd')


def test_an_own_executor_and_an_own_finish(make):
    class Search(BaseAction):
        """searches"""

        def run(self, command: str):
            return f'found {command}'

    agent, _ = make(
        '<s>cats</s>',
        'nothing to do',
        '<s>dogs</s>[END]',
        plugins=Bold(),
        output_format=InterpreterParser('search', begin='<s>', end='</s>'),
        finish_condition=lambda message: '[END]' in message.content,
    )
    agent.search_executor = type(agent.plugin_executor)(Search(), hooks=[InternLMActionProcessor()])
    assert ask(agent, 'q').content == '<s>dogs</s>[END]'
    assert [step['content'] for step in agent.get_steps() if step['role'] == 'environment'] == [
        'found cats',
        'The reply calls no tool, and it is no answer yet.',
    ]


def test_the_interpreter_layer_may_run_the_code():
    backend = FakeBackend({'6 * 7': ExecutionResult(Outcome.OK, (Output('result', '42'),))})
    with Interpreter(backend=backend) as interpreter:
        agent = AgentForInternLM(ScriptedModel([CODE, 'it is 42']), interpreter=interpreter)
        assert agent('q').content == 'it is 42'
        assert agent.agent.memory.get_memory()[2].content == '42'


def test_math_coder_tells_how_to_answer():
    shell = IPythonInteractive(backend=FakeBackend(lambda code: '42' if code == '6 * 7' else ''))
    model = ScriptedModel([CODE, r'\boxed{42}'])
    coder = MathCoder(model, shell)
    assert coder('6 * 7?').content == r'\boxed{42}'
    (instruction,) = [m['content'] for m in model.calls[0].messages if m['role'] == 'system']
    assert r'\boxed{}' in instruction
    assert model.calls[1].messages[-1]['content'] == '42'
    assert coder.max_turn == 6


def test_math_coders_have_an_interpreter_of_their_own():
    (tool,) = MathCoder(ScriptedModel([])).interpreter_executor.actions.values()
    assert (tool.name, tool.timeout, tool.max_out_len) == ('IPythonInteractive', 20, 8192)


async def test_the_awaited_math_coder_closes_its_session(tmp_path):
    backend = FakeBackend(lambda code: '42' if code == '6 * 7' else '')
    interpreter = {
        'type': 'lagent.actions.AsyncIPythonInterpreter',
        'work_dir': tmp_path,
        'backend': backend,
    }
    coder = AsyncMathCoder(AsyncScriptedModel([CODE, 'it is 42']), interpreter)
    (tool,) = coder.interpreter_executor.actions.values()
    assert (await coder('q', session_id=9)).content == 'it is 42'
    assert coder.agent.memory.get_memory(9)[2].content == '42'
    assert tool._cells._manager.sessions() == []
    await tool.close()


def test_plugin_prompts_name_every_api():
    tools = [Bold(), {'type': Math}]
    described = json.loads(get_plugin_prompt(tools, stream.API_PREFIX))
    assert [api['name'] for api in described] == ['Bold', 'Math.add']
    assert described[0]['description'] == 'make text bold'
    assert described[1]['description'] == stream.API_PREFIX.format(
        tool_name='Math', description='相加'
    )
    assert '相加' in get_plugin_prompt(Math())
    assert tools[0].description['name'] == 'Bold'
    assert get_plugin_prompt(tools[0]) == get_plugin_prompt([tools[0]])


def test_status_of_an_answer():
    assert ToolStatusCode.NO_TOOL == 0
    assert stream.PLUGIN_CN.format(prompt='X').count('X') == 1
