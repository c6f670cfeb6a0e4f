"""Who holds sandboxes, tools and models closes them: agents, executors and interpreters alike."""

import asyncio
import threading

import pytest

from lagent.actions import (
    ActionExecutor,
    AsyncActionExecutor,
    AsyncInterpreter,
    AsyncPythonInterpreter,
    BaseAction,
    Interpreter,
    tool_api,
)
from lagent.agent_factory import made
from lagent.agents import (
    Agent,
    AgentForInternLM,
    AgentList,
    AsyncAgent,
    AsyncCoder,
    AsyncDataAnalyst,
    AsyncReAct,
    AsyncSequential,
    Coder,
    ReAct,
    Sequential,
    StreamingAgent,
)
from lagent.agents.streaming_agent import AsyncStreamingAgent
from lagent.llms import AsyncScriptedModel, ScriptedModel

FAKE = {'backend': 'fake', 'unsafe': True}


class Held(BaseAction):
    """A tool that holds something."""

    def __init__(self):
        super().__init__()
        self.closed = []

    def run(self, text: str):
        """Do it."""

    def close(self):
        self.closed.append(threading.get_ident())


class Awaited(Held):
    async def close(self):
        await asyncio.sleep(0)
        super().close()


class Broken(Held):
    def close(self):
        raise OSError('still busy')


class Door(BaseAction):
    """A tool whose API is called like the end of things."""

    closed = 0

    @tool_api
    def close(self):
        """Close the door."""
        self.closed += 1


class Model:
    closed = 0

    def chat(self, messages, **kwargs):
        return 'yes'

    def close(self):
        self.closed += 1


@pytest.mark.parametrize('tool_class', [Held, Awaited])
def test_an_agent_closes_its_tools(tool_class):
    plugin, action = tool_class(), tool_class()
    with AgentForInternLM(ScriptedModel([]), plugins=[plugin], interpreter=Held()) as agent:
        assert plugin.closed == []
    with ReAct(ScriptedModel([]), [action]):
        pass
    ran = next(iter(agent.interpreter_executor.actions.values()))
    assert [len(each.closed) for each in (plugin, ran, action)] == [1, 1, 1]


@pytest.mark.parametrize('tool_class', [Held, Awaited])
async def test_an_async_agent_closes_its_tools_without_holding_up_the_loop(tool_class):
    tool = tool_class()
    async with AsyncReAct(AsyncScriptedModel([]), [tool]):
        pass
    on_loop = tool_class is Awaited
    assert [thread == threading.get_ident() for thread in tool.closed] == [on_loop]


def test_a_chain_closes_its_links_and_lists_their_items():
    tools = [Held(), Held(), Held()]
    first, second, third = (ReAct(ScriptedModel([]), [tool]) for tool in tools)
    chain = Sequential(first, second)
    chain.team = AgentList([third, first])
    chain.close()
    assert [len(tool.closed) > 0 for tool in tools] == [True] * 3


def test_agents_that_know_each_other_are_closed_once():
    tool = Held()
    one, other = ReAct(ScriptedModel([]), [tool]), Agent(ScriptedModel([]))
    one.friend, other.friend = other, one
    one.close()
    assert len(tool.closed) == 1


def test_what_fails_keeps_nothing_else_open():
    fine = Held()
    with pytest.raises(OSError, match='still busy'):
        ReAct(ScriptedModel([]), [Broken(), fine]).close()
    assert len(fine.closed) == 1


def test_a_tools_own_api_is_not_its_end():
    door = Door()
    ActionExecutor([door]).close()
    assert door.closed == 0


def test_a_model_is_closed_by_who_made_it():
    given = Model()
    Agent(given).close()
    with Agent({'type': Model}) as agent, Coder({'type': Model}, Interpreter(**FAKE)) as coder:
        pass
    assert (given.closed, agent.llm.closed, coder.agent.llm.closed) == (0, 1, 1)
    agent.llm = given
    agent.close()
    assert given.closed == 0


@pytest.mark.parametrize('cls', [Coder, AsyncCoder])
def test_the_command_line_closes_agents_of_both_kinds(cls):
    interpreter = {Coder: Interpreter, AsyncCoder: AsyncInterpreter}[cls](**FAKE)
    with made(lambda: cls(ScriptedModel([]), interpreter)):
        assert not interpreter._closed
    assert interpreter._closed


async def test_an_async_coder_closes_its_interpreter():
    interpreter = AsyncInterpreter(**FAKE)
    await AsyncCoder(AsyncScriptedModel([]), interpreter).close()
    with pytest.raises(Exception, match='The interpreter is closed'):
        await interpreter.execute('1')


@pytest.mark.parametrize(
    'make',
    [
        lambda: AsyncInterpreter(**FAKE),
        lambda: AsyncPythonInterpreter(**FAKE),
        lambda: AsyncActionExecutor([Held()]),
        lambda: AsyncAgent(AsyncScriptedModel([])),
        lambda: AsyncStreamingAgent(AsyncScriptedModel([])),
        lambda: AsyncSequential(AsyncAgent(AsyncScriptedModel([]))),
        lambda: AsyncReAct(AsyncScriptedModel([]), [Held()]),
        lambda: AsyncCoder(AsyncScriptedModel([]), AsyncInterpreter(**FAKE)),
        lambda: AsyncDataAnalyst(AsyncScriptedModel([]), AsyncInterpreter(**FAKE)),
    ],
)
def test_what_is_closed_by_a_coroutine_refuses_a_plain_with(make):
    made = make()
    with pytest.raises(TypeError, match='use "async with"'), made:
        pass

    async def entered():
        async with made as inside:
            return inside

    assert asyncio.run(entered()) is made


def test_plain_agents_of_all_kinds_are_context_managers():
    for agent in (Agent(), StreamingAgent(), Sequential(Agent()), AgentList([Agent()])):
        with agent as entered:
            assert entered is agent
