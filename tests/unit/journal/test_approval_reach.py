"""That a policy asks for what it names, by whatever way a model comes to it."""

from typing import Any

import pytest

import lagent.actions
from lagent.actions import ActionExecutor, BaseAction, IPythonInterpreter, tool_api
from lagent.agents import Agent
from lagent.errors import RunSuspended
from lagent.journal import Approval, SqliteJournal, edit
from lagent.llms import ScriptedModel
from lagent.schema import AgentMessage, FunctionCall

LOCAL: dict[str, Any] = {'backend': 'local', 'unsafe': True}


class Kit(BaseAction):
    """A kit."""

    done: list[str]

    def __init__(self) -> None:
        super().__init__()
        self.done = []

    @tool_api
    def wipe(self, what: str) -> str:
        """Wipe it.

        Args:
            what: it
        """
        self.done.append(what)
        return f'wiped {what}'

    @tool_api
    def look(self) -> str:
        """Look."""
        return 'seen'


class Caller(Agent):
    def __init__(self, tools: ActionExecutor, name: str, parameters: Any) -> None:
        super().__init__(ScriptedModel([]))
        self.tools, self.asked = tools, FunctionCall(name, parameters)

    def forward(self, *message: AgentMessage, **kwargs: Any) -> Any:
        given = self.tools(AgentMessage(content=self.asked)).content
        return given.errmsg or given.format_result()


@pytest.mark.parametrize('spelt', ['Kit.wipe', 'Kit-wipe'])
@pytest.mark.parametrize('policy', [{'Kit'}, {'Kit.wipe'}, True])
def test_all_spellings_of_a_tools_name_are_asked_for(tmp_path, spelt, policy):
    kit = Kit()
    caller = Caller(ActionExecutor([kit]), spelt, {'what': 'all'})
    with pytest.raises(RunSuspended, match=r'Kit\.wipe'):
        caller.run('Go', journal=tmp_path / 'runs.db', approval=Approval(tools=policy))
    assert kit.done == []


def test_another_api_of_the_tool_is_not_asked_for(tmp_path):
    caller = Caller(ActionExecutor([Kit()]), 'Kit-look', {})
    answer = caller.run('Go', journal=tmp_path / 'runs.db', approval=Approval(tools={'Kit.wipe'}))
    assert answer.content == 'seen'


@pytest.mark.parametrize('policy', [{'hello'}, {'hello.run'}])
def test_a_simple_tool_is_known_by_its_name_with_and_without_its_api(tmp_path, policy):
    @tool_api
    def hello() -> str:
        """Say hello."""
        return 'hello'

    caller = Caller(ActionExecutor([hello]), 'hello', {})
    with pytest.raises(RunSuspended):
        caller.run('Go', journal=tmp_path / 'runs.db', approval=Approval(tools=policy))


def test_code_that_a_tool_runs_is_code(tmp_path):
    with IPythonInterpreter(work_dir=tmp_path / 'work', **LOCAL) as tool:
        caller = Caller(ActionExecutor([tool]), 'IPythonInterpreter', {'command': '1 + 1'})
        with pytest.raises(RunSuspended, match='all code needs a yes'):
            caller.run('Go', journal=tmp_path / 'runs.db', approval=Approval(kernel=True))


def test_the_tools_that_reach_the_network_say_so():
    names = {'WebBrowser', 'GoogleSearch', 'BINGMap', 'GoogleScholar', 'ArxivSearch', 'PPT'}
    for name in names | {f'Async{name}' for name in names}:
        assert getattr(lagent.actions, name).network, name
    for name in names - {'PPT'}:
        assert getattr(lagent.actions, name).idempotent, name


def test_the_model_is_told_what_a_tool_was_called_with(tmp_path):
    kit = Kit()
    caller = Caller(ActionExecutor([kit]), 'Kit-wipe', {'what': 'all'})
    with SqliteJournal(tmp_path / 'runs.db') as journal:
        with pytest.raises(RunSuspended):
            caller.run('Go', run_id='r', journal=journal, approval=Approval(tools=True))
        edit(journal, 'r', {'what': 'a little'})
        answer = caller.run(run_id='r', journal=journal)
    assert kit.done == ['a little']
    assert 'It was called with: {"what": "a little"}' in answer.content
    assert 'wiped a little' in answer.content
