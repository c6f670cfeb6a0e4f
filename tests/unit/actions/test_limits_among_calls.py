"""A limit that one of several calls reaches: what the others have done is kept and told."""

import asyncio
import inspect
import itertools
import json
import threading
import time

import pytest

from lagent.actions import ActionExecutor, AsyncActionExecutor, AsyncActionMixin, BaseAction
from lagent.agents import Coder
from lagent.agents.aggregator import ToolCallAggregator
from lagent.agents.tool_loop import AsyncToolAgent, ToolAgent
from lagent.errors import LimitExceeded, RepeatedCall, RunCancelled
from lagent.flow import call
from lagent.hooks import Hook
from lagent.limits import RunLimits
from lagent.llms import AsyncScriptedModel, Completion, ScriptedModel
from lagent.llms.completion import ToolCall
from lagent.prompts.parsers import ToolCallParser, ToolStatusCode
from lagent.schema import ActionStatusCode, AgentMessage

WITHIN = 10  # seconds


class Works(BaseAction):
    """Begins before a limit is reached and ends after it."""

    def __init__(self, calls=1):
        super().__init__()
        self.awaited = itertools.count(calls - 1, -1)
        self.begun, self.reached, self.done = threading.Event(), threading.Event(), []

    def begin(self):
        if next(self.awaited) == 0:
            self.begun.set()

    def run(self, name: str):
        self.begin()
        assert self.reached.wait(WITHIN)
        time.sleep(0.05)
        self.done.append(name)
        return f'{name} is done'


class AsyncWorks(AsyncActionMixin, Works):
    """Begins before a limit is reached and ends after it."""

    async def run(self, name: str):
        self.begin()
        assert await asyncio.to_thread(self.reached.wait, WITHIN)
        await asyncio.sleep(0.05)
        self.done.append(name)
        return f'{name} is done'


class Reaches(BaseAction):
    """Raises as soon as the other tool works."""

    def __init__(self, works, error):
        super().__init__()
        self.works, self.error = works, error

    def run(self):
        assert self.works.begun.wait(WITHIN)
        self.works.reached.set()
        raise self.error


def asks(tool, id_=None, /, **parameters):
    return {'name': tool, 'parameters': parameters, 'id': id_}


async def ask(executor, calls):
    answer = executor(AgentMessage(content=calls))
    return await answer if inspect.isawaitable(answer) else answer


CASES = pytest.mark.parametrize(
    ('cls', 'tool'),
    [
        (ActionExecutor, Works),
        (AsyncActionExecutor, Works),
        (AsyncActionExecutor, AsyncWorks),
    ],
)


@CASES
@pytest.mark.parametrize(
    'error', [LimitExceeded('tokens', 1, 2), RunCancelled('cancelled'), RepeatedCall('x', 1, 1)]
)
async def test_a_call_that_has_begun_is_seen_through(cls, tool, error):
    works = tool(2)
    executor = cls([works, Reaches(works, error)])
    name = tool.__name__
    calls = [asks(name, 'c1', name='a'), asks('Reaches', 'c2'), asks(name, 'c3', name='b')]
    with pytest.raises(type(error)) as caught:
        await ask(executor, calls)
    assert caught.value is error
    results = error.results
    assert results.sender == cls.__name__
    assert results.extra_info == {'tool_call_ids': ['c1', 'c2', 'c3']}
    first, second, third = results.content
    assert (first.format_result(), third.format_result()) == ('a is done', 'b is done')
    assert (second.type, second.state) == ('Reaches', ActionStatusCode.API_ERROR)
    assert second.errmsg == f'No result. {error}'


@CASES
async def test_a_call_that_has_not_begun_does_not_begin(cls, tool):
    works = tool(15 if cls is ActionExecutor else 1)
    executor = cls([works, Reaches(works, LimitExceeded('tokens', 1, 2))])
    calls = [asks('Reaches'), *(asks(tool.__name__, name=str(number)) for number in range(40))]
    with pytest.raises(LimitExceeded) as caught:
        await ask(executor, calls)
    assert sorted(works.done, key=int) == [str(number) for number in range(15)]
    told = [result.errmsg or result.format_result() for result in caught.value.results.content]
    assert told[1:16] == [f'{number} is done' for number in range(15)]
    assert told[16:] == [f'No result. {caught.value}'] * 25


@CASES
async def test_hooks_see_what_was_done(cls, tool):
    class Marks(Hook):
        def after_action(self, executor, message, session_id):
            return message.model_copy(update={'type': 'seen'})

    works = tool()
    executor = cls([works, Reaches(works, LimitExceeded('tokens', 1, 2))], hooks=Marks())
    with pytest.raises(LimitExceeded) as caught:
        await ask(executor, [asks(tool.__name__, name='a'), asks('Reaches')])
    assert caught.value.results.type == 'seen'


def test_results_of_a_run_inside_of_a_tool_are_not_the_caller_s():
    works = Works()
    inner = ActionExecutor([works, Reaches(works, LimitExceeded('tokens', 1, 2))])

    class Delegates(BaseAction):
        """asks others"""

        def run(self):
            return inner(AgentMessage(content=[asks('Works', name='a'), asks('Reaches')]))

    with pytest.raises(LimitExceeded) as caught:
        ActionExecutor(Delegates())(AgentMessage(content=asks('Delegates')))
    assert works.done == ['a']
    assert caught.value.results is None


class Native(ToolAgent):
    """The loop of native tool calls."""

    inner_model, executor = ScriptedModel, ActionExecutor

    def __init__(self, replies, tools, **kwargs):
        super().__init__(finish_condition=self.is_answer, max_turn=4, **kwargs)
        self.agent = self._agent_type(
            self.inner_model(replies),
            output_format=ToolCallParser(),
            aggregator=ToolCallAggregator(),
        )
        self.tools = self.executor(tools)

    @staticmethod
    def is_answer(reply):
        return reply.formatted['status'] == ToolStatusCode.NO_TOOL

    def _inner(self):
        return self.agent

    def _problem(self, reply):
        return None

    def _act(self, reply, session_id):
        return call(self.tools, reply, session_id=session_id)


class AsyncNative(AsyncToolAgent, Native):
    inner_model, executor = AsyncScriptedModel, AsyncActionExecutor


class Notes(BaseAction):
    """notes"""

    def run(self, text: str):
        return f'noted {text}'


@pytest.mark.parametrize('cls', [Native, AsyncNative])
async def test_an_agent_remembers_what_was_done_before_the_limit(cls):
    calls = [ToolCall(f'c{n}', 'Notes', json.dumps({'text': str(n)})) for n in range(3)]
    limits = RunLimits(tool_calls=2)
    agent = cls([Completion('', tool_calls=calls), 'fine'], [Notes()], limits=limits)

    async def answer(question):
        given = agent(question)
        return await given if inspect.isawaitable(given) else given

    with pytest.raises(LimitExceeded, match='tool_calls=2'):
        await answer('one')
    assert (await answer('two')).content == 'fine'
    said = agent.agent.llm.calls[-1].messages
    assert [message['role'] for message in said] == [
        *('user', 'assistant', 'tool', 'tool', 'tool', 'assistant', 'user')
    ]
    told = {message['tool_call_id']: message['content'] for message in said[2:5]}
    refused = [id_ for id_, content in told.items() if content.startswith('No result.')]
    assert len(refused) == 1
    assert {id_: content for id_, content in told.items() if id_ not in refused} == {
        f'c{n}': f'noted {n}' for n in range(3) if f'c{n}' not in refused
    }
    assert said[5]['content'].startswith('[no answer: LimitExceeded')


def test_a_repetition_inside_of_a_tool_keeps_the_results_of_the_others():
    class Repeats(BaseAction):
        """repeats itself"""

        def run(self):
            raise RepeatedCall('repeated_calls', 2, 2)

    calls = [ToolCall('c1', 'Notes', '{"text": "x"}'), ToolCall('c2', 'Repeats', '{}')]
    agent = Native([Completion('', tool_calls=calls), 'fine'], [Notes(), Repeats()])
    assert agent('one').content == 'fine'
    contents = [m['content'] for m in agent.agent.llm.calls[-1].messages if m['role'] == 'tool']
    assert contents[0] == 'noted x'
    assert contents[1].startswith('No result. Not run: this is the same call')


def test_a_coder_remembers_the_cells_before_the_limit():
    class Interpreter:
        name = 'interpreter'

        def __call__(self, message, session_id=None):
            error = LimitExceeded('tool_calls', 1, 1)
            error.results = AgentMessage(sender='interpreter', content='[cell 1 of 2: ok]\n1')
            raise error

    coder = Coder(ScriptedModel(['```python\n1\n```', 'fine']), Interpreter())
    with pytest.raises(LimitExceeded) as caught:
        coder('one')
    assert coder('two').content == 'fine'
    assert coder.agent.llm.calls[-1].messages[3]['content'] == '[cell 1 of 2: ok]\n1'
    assert caught.value.results.extra_info is None  # the mark is the memory's


async def test_a_cancelled_batch_ends_its_calls():
    works = AsyncWorks()
    task = asyncio.create_task(
        ask(AsyncActionExecutor([works]), [asks('AsyncWorks', name=name) for name in 'ab'])
    )
    assert await asyncio.to_thread(works.begun.wait, WITHIN)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    works.reached.set()
    assert works.done == []
