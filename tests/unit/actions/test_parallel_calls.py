"""Several calls in one message: at the same time, answered in order."""

import asyncio
import inspect
import threading

import pytest

from lagent.actions import ActionExecutor, AsyncActionExecutor, AsyncActionMixin, BaseAction
from lagent.context import current_context, run_context
from lagent.effects import subscribe
from lagent.errors import LimitExceeded
from lagent.limits import RunLimits
from lagent.schema import ActionReturn, AgentMessage, FunctionCall


class Meet(BaseAction):
    """Ends when all have come."""

    def __init__(self, parties):
        super().__init__()
        self.barrier = threading.Barrier(parties)

    def run(self, name: str, session_id=0):
        self.barrier.wait(10)
        return f'{name} in {session_id}'


class AsyncMeet(AsyncActionMixin, BaseAction):
    """Ends when all have come."""

    def __init__(self, parties):
        super().__init__()
        self.barrier = asyncio.Barrier(parties)

    async def run(self, name: str, session_id=0):
        await asyncio.wait_for(self.barrier.wait(), 10)
        return f'{name} in {session_id}'


class Broken(BaseAction):
    """breaks"""

    def run(self):
        raise RuntimeError('broken')


async def ask(executor, calls, **kwargs):
    answer = executor(AgentMessage(content=calls), **kwargs)
    return await answer if inspect.isawaitable(answer) else answer


CASES = [(ActionExecutor, Meet), (AsyncActionExecutor, Meet), (AsyncActionExecutor, AsyncMeet)]


@pytest.mark.parametrize(('cls', 'tool'), CASES)
async def test_calls_run_at_once_and_are_answered_in_order(cls, tool):
    executor = cls([tool(3), Broken()])
    calls = [
        {'name': tool.__name__, 'parameters': {'name': 'a'}, 'id': 'c1'},
        {'name': 'Broken', 'parameters': {}, 'id': 'c2'},
        FunctionCall(tool.__name__, '{"name": "b"}'),
        {'name': 'Nope', 'parameters': {}},
        {'name': tool.__name__, 'parameters': {'name': 'c'}},
        {'name': tool.__name__, 'parameters': {'wrong': 1}},
    ]
    answer = await ask(executor, calls, session_id='s')
    assert answer.sender == cls.__name__
    assert all(isinstance(result, ActionReturn) for result in answer.content)
    said = [result.errmsg or result.format_result() for result in answer.content]
    assert said[:3] == ['a in s', 'broken', 'b in s']
    assert said[3].startswith('The action is invalid')
    assert f'The tools are: {tool.__name__}, Broken.' in said[3]
    assert said[4] == 'c in s'
    assert said[5].startswith("unknown arguments: {'wrong'}")
    assert '"required": ["name"]' in said[5]
    assert answer.extra_info == {'tool_call_ids': ['c1', 'c2', None, None, None, None]}


@pytest.mark.parametrize('cls', [ActionExecutor, AsyncActionExecutor])
async def test_every_call_is_charged_and_told_to_subscribers(cls):
    executor, ended = cls([Broken()]), []
    calls = [{'name': 'Broken', 'parameters': {}}] * 4
    with run_context(limits=RunLimits(repeated_calls=None)) as context:
        with subscribe(lambda event: event.type == 'end' and ended.append(event.run)):
            await ask(executor, calls)
        assert context.usage.tool_calls == 4
        assert ended == [context] * 4
    with run_context(limits=RunLimits(tool_calls=2)), pytest.raises(LimitExceeded):
        await ask(executor, calls)
    assert current_context() is None


@pytest.mark.parametrize('cls', [ActionExecutor, AsyncActionExecutor])
async def test_no_calls_have_no_results(cls):
    assert (await ask(cls([Broken()]), [])).content == []


@pytest.mark.parametrize('cls', [ActionExecutor, AsyncActionExecutor])
async def test_what_is_no_call_is_refused(cls):
    with pytest.raises(AssertionError, match='must be a tool call'):
        await ask(cls([Broken()]), [{'name': 'Broken', 'parameters': {}}, 'text'])


def test_a_forward_of_ones_own_sees_every_call():
    class Mine(ActionExecutor):
        def forward(self, name, parameters):
            return f'{name}({parameters})'

    calls = [FunctionCall('a', 1), FunctionCall('b', 2)]
    assert Mine(Broken())(AgentMessage(content=calls)).content == ['a(1)', 'b(2)']
