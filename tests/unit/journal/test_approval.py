"""Effects that need a yes: the run waits in its journal, and goes on in another process."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lagent.actions import (
    ActionExecutor,
    ArxivSearch,
    BaseAction,
    BINGMap,
    GoogleScholar,
    GoogleSearch,
    Interpreter,
    IPythonInteractive,
    IPythonInterpreter,
    PythonInterpreter,
    WebBrowser,
    tool_api,
)
from lagent.agents import Agent, Coder
from lagent.context import RunContext
from lagent.effects import Effect, Event, subscribe
from lagent.errors import RunSuspended
from lagent.journal import (
    Approval,
    Diverged,
    NothingToDecide,
    PolicyMissing,
    Record,
    Run,
    SqliteJournal,
    SqlJournal,
    approve,
    edit,
    pending,
    record,
    reject,
)
from lagent.limits import Price, RunLimits, RunUsage
from lagent.llms import ScriptedModel
from lagent.prompts import CodeParser
from lagent.schema import AgentMessage, FunctionCall
from sandbox import FakeBackend, SandboxPolicy

CODE = '```python\nprint(6 * 7)\n```'
KERNEL = Approval(kernel=True)
ASKED = {'why': 'approval', 'words': 'w', 'payload': None, 'editable': False}


def ran() -> Any:
    """A back end that says what it was asked to run."""
    return FakeBackend(lambda code: f'ran {code}')


def coder(backend: Any, asked: list[str]) -> Coder:
    def model(messages: Any) -> str:
        asked.append(messages[-1]['content'])
        return CODE if len(messages) <= 2 else f'I saw: {messages[-1]["content"]}'

    return Coder(ScriptedModel(model), Interpreter(backend=backend, unsafe=True))


@pytest.fixture
def suspended(journal: SqliteJournal) -> SqliteJournal:
    asked: list[str] = []
    with coder(ran(), asked) as agent, pytest.raises(RunSuspended) as caught:
        agent.run('what is 6 * 7?', run_id='r', journal=journal, approval=KERNEL)
    assert (caught.value.run_id, caught.value.position) == ('r', '2')
    assert asked == ['what is 6 * 7?']
    return journal


def resumed(journal: SqliteJournal, approval: Any = KERNEL) -> tuple[str, list[str]]:
    asked: list[str] = []
    with coder(ran(), asked) as agent:
        answer = agent.run(run_id='r', journal=journal, approval=approval)
        history = [str(message.content) for message in agent.agent.memory.get_memory()]
    return str(answer.content), [*history[:-1], *asked]


def test_a_run_waits_for_a_yes(suspended: SqliteJournal) -> None:
    assert [run.id for run in suspended.runs('suspended')] == ['r']
    request = pending(suspended, 'r')
    assert (request.kind, request.body['payload'], request.body['words']) == (
        'kernel',
        'print(6 * 7)',
        'all code needs a yes',
    )


def test_without_a_decision_it_waits_on(suspended: SqliteJournal) -> None:
    with pytest.raises(RunSuspended):
        resumed(suspended)
    assert suspended.run('r').status == 'suspended'
    with pytest.raises(RunSuspended):  # the policy is part of the run
        resumed(suspended, approval=None)
    assert resumed(suspended, approval=Approval())[0] == 'I saw: ran print(6 * 7)'


def test_a_policy_that_can_not_be_kept_is_given_again(journal: SqliteJournal) -> None:
    agent = Agent(ScriptedModel(['a']))

    def policy(effect: Effect, context: RunContext) -> str:
        return 'always'

    with pytest.raises(RunSuspended):
        agent.run('q', run_id='r', journal=journal, approval=policy)
    approve(journal, 'r')
    with pytest.raises(PolicyMissing):
        agent.run(run_id='r', journal=journal)
    assert agent.run(run_id='r', journal=journal, approval=policy).content == 'a'


def test_it_goes_on_after_a_yes(suspended: SqliteJournal) -> None:
    approve(suspended, 'r')
    assert suspended.run('r').status == 'ready'
    answer, seen = resumed(suspended)
    assert answer == 'I saw: ran print(6 * 7)'
    assert seen[0] == 'what is 6 * 7?'
    with pytest.raises(NothingToDecide):
        approve(suspended, 'r')


@pytest.mark.parametrize('policy', [KERNEL, None])
def test_a_no_is_told_to_the_model(suspended: SqliteJournal, policy: Any) -> None:
    reject(suspended, 'r', 'use a calculator')
    answer, _ = resumed(suspended, policy)
    assert answer == 'I saw: Not done: it was rejected. use a calculator'
    assert resumed(suspended)[0] == answer


def test_other_code_is_run_and_the_model_knows(suspended: SqliteJournal) -> None:
    edit(suspended, 'r', 'print(42)')
    answer, _ = resumed(suspended)
    assert 'ran print(42)' in answer
    assert 'changed the code' in answer


def test_a_decision_can_be_made_after_a_failed_attempt_to_go_on(suspended: SqliteJournal) -> None:
    with Coder(ScriptedModel([]), Interpreter(backend=ran(), unsafe=True)) as other:
        other.agent.template = 'Other words.'
        with pytest.raises(Diverged):
            other.run(run_id='r', journal=suspended)
    assert suspended.run('r').status == 'failed'
    approve(suspended, 'r')
    assert resumed(suspended)[0] == 'I saw: ran print(6 * 7)'


def test_a_run_is_ready_when_the_last_decision_is_there(any_journal: SqlJournal) -> None:
    wanted = [Record(type='request', position=place, time=0.0, body=ASKED) for place in '1234']
    done = [Record(type='intent', position='3', time=0.0)]  # by a policy that asks for nothing
    any_journal.begin(Run(id='r', owner='o'), {})
    any_journal.append('r', 'o', 0.0, [*wanted, *done], {})
    any_journal.release('r', 'o', 'suspended', None, {})
    seen = []
    for _ in '124':
        seen.append(approve(any_journal, 'r').position)
        seen.append(any_journal.run('r').status)
    assert seen == ['1', 'suspended', '2', 'suspended', '4', 'ready']
    with pytest.raises(NothingToDecide):
        approve(any_journal, 'r', '3')


def test_a_tool_can_be_edited_and_rejected(tmp_path: Path) -> None:
    sent: list[str] = []

    @tool_api(network=True)
    def send(text: str) -> str:
        """Send a text."""
        sent.append(text)
        return f'sent {text}'

    def work() -> Any:
        message = AgentMessage(sender='x', content=FunctionCall('send', {'text': 'rude'}))
        return ActionExecutor([send])(message).content

    with SqliteJournal(tmp_path / 'runs.db') as journal:
        for run_id in 'ab':
            with (
                pytest.raises(RunSuspended),
                record(journal, run_id, approval=Approval(network=True)),
            ):
                work()
        edit(journal, 'a', {'text': 'kind'})
        reject(journal, 'b', 'too rude')
        with record(journal, 'a'):
            result = work()
        assert result.args == {'text': 'kind'}
        assert result.format_result() == (
            'Somebody has changed the parameters before the call. It was called with: '
            '{"text": "kind"}\nsent kind'
        )
        with record(journal, 'b'):
            assert work().errmsg == 'Not done: it was rejected. too rude'
    assert sent == ['kind']


def test_a_model_call_can_not_be_edited(journal: SqliteJournal) -> None:
    agent = Agent(ScriptedModel(['a']))
    policy = Approval(when=lambda effect: effect.kind == 'model')
    with pytest.raises(RunSuspended):
        agent.run('q', run_id='r', journal=journal, approval=policy)
    with pytest.raises(NothingToDecide, match='approved or rejected'):
        edit(journal, 'r', 'something else')
    approve(journal, 'r')
    assert agent.run(run_id='r', journal=journal, approval=policy).content == 'a'


def test_nothing_more_is_done_after_a_request(journal: SqliteJournal) -> None:
    """Also in code that catches whatever it can."""
    done: list[str] = []

    @tool_api
    def act(name: str) -> str:
        """Act."""
        done.append(name)
        return name

    def work() -> None:
        executor = ActionExecutor([act])
        for name in 'ab':
            with suppress(Exception):
                executor(AgentMessage(sender='x', content=FunctionCall('act', {'name': name})))

    policy = Approval(when=lambda effect: effect.payload == {'name': 'a'})
    with pytest.raises(RunSuspended), record(journal, 'r', approval=policy):
        work()
    assert done == []
    assert journal.run('r').status == 'suspended'


def test_a_tool_that_waits_inside_is_begun_again(journal: SqliteJournal) -> None:
    """A tool that is an agent: the effects it had done are known, and it goes on behind them."""
    asked: list[str] = []

    def model(messages: Any) -> str:
        asked.append(messages[-1]['content'])
        return CODE if len(asked) == 1 else 'inner answer'

    def work() -> str:
        with Coder(ScriptedModel(model), Interpreter(backend=ran(), unsafe=True)) as inner:

            @tool_api
            def ask(question: str) -> str:
                """Ask another agent."""
                return str(inner(question).content)

            message = AgentMessage(sender='x', content=FunctionCall('ask', {'question': 'q'}))
            return str(ActionExecutor([ask])(message).content.format_result())

    with pytest.raises(RunSuspended) as caught, record(journal, 'r', approval=KERNEL):
        work()
    assert caught.value.position == '1.2'
    approve(journal, 'r')
    with record(journal, 'r', approval=KERNEL) as again:
        again.answer = work()
    assert again.answer == 'inner answer'
    assert asked == ['q', 'ran print(6 * 7)']


def effect(kind: str, name: str = 'x', payload: Any = None, **fields: Any) -> Effect:
    return Effect(kind, name, payload, **fields)  # type: ignore[arg-type]


def test_what_the_policy_asks_for() -> None:
    used = RunContext(usage=RunUsage(limits=RunLimits(prices={'m': Price(input=1, output=1)})))
    used.usage.prompt_tokens = 11
    used.usage.cost = 10.5
    cases = [
        (Approval(), effect('kernel'), False),
        (Approval(kernel=True), effect('kernel'), True),
        (Approval(kernel=True), effect('tool'), False),
        (Approval(tools=True), effect('tool'), True),
        (Approval(tools=['Mail']), effect('tool', 'Mail.send'), True),
        (Approval(tools=['Mail.send']), effect('tool', 'Mail.read'), False),
        (Approval(tools=['Mail-send']), effect('tool', 'Mail.send'), True),
        (Approval(tools=['Mail-run']), effect('tool', 'Mail'), True),
        (Approval(tools=['Mail-read']), effect('tool', 'Mail.send'), False),
        (Approval(tools=['my-mail']), effect('tool', 'my-mail.send'), True),
        (Approval(tools=['my']), effect('tool', 'my-mail.send'), False),
        (Approval(tools='Mail'), effect('tool', 'Mail.send'), True),
        (Approval(network=True), effect('tool', network=True), True),
        (Approval(network=True), effect('kernel'), False),
        (Approval(tokens_above=10), effect('model'), True),
        (Approval(tokens_above=11), effect('model'), False),
        (Approval(cost_above=10), effect('model', 'm'), True),
        (Approval(cost_above=11), effect('model', 'm'), False),
        (Approval(cost_above=11), effect('model', 'without a price'), True),
        (Approval(cost_above=0), effect('tool', 'm'), False),
        (Approval(when=lambda each: each.name == 'x'), effect('tool'), True),
    ]
    for policy, asked, expected in cases:
        assert (policy(asked, used) is not None) is expected, (policy, asked)


@pytest.mark.parametrize('network', ['none', 'full'])
def test_the_network_of_an_interpreter_is_declared(network: Any) -> None:
    begun: list[Event] = []
    message = AgentMessage(sender='a', content=CODE, formatted=CodeParser().parse_response(CODE))
    policy = SandboxPolicy(network=network)
    with Interpreter(policy, FakeBackend(), unsafe=True) as interpreter, subscribe(begun.append):
        interpreter(message)
    assert begun[0].effect.network is (network == 'full')


def test_a_list_of_calls_is_told_of_a_rejection(journal: SqliteJournal) -> None:
    @tool_api
    def act(name: str) -> str:
        """Act."""
        return name

    policy = Approval(tools=['act'])
    message = AgentMessage(sender='x', content=[FunctionCall('act', {'name': 'a'})])
    with pytest.raises(RunSuspended), record(journal, 'r', approval=policy):
        ActionExecutor([act])(message)
    reject(journal, 'r')
    with record(journal, 'r', approval=policy):
        results = ActionExecutor([act])(message).content
    assert results[0].errmsg == 'Not done: it was rejected.'


def test_a_yes_is_for_what_was_looked_at(suspended: SqliteJournal) -> None:
    seen = pending(suspended, 'r')
    for decide in (approve, reject, lambda *of, **at: edit(*of, 'x', **at)):
        with pytest.raises(NothingToDecide, match='about effect 1'):
            decide(suspended, 'r', position='1')
    approve(suspended, 'r', seen.position)
    with pytest.raises(NothingToDecide):
        approve(suspended, 'r', seen.position)
    assert resumed(suspended)[0].startswith('I saw: ran')


def test_who_decides_about_the_unknown_is_part_of_the_run(tmp_path: Path) -> None:
    @tool_api
    def pay() -> str:
        """Pay."""
        raise KeyboardInterrupt

    class Payer(Agent):
        def forward(self, *message: Any, **kwargs: Any) -> Any:
            paid = ActionExecutor([pay])(AgentMessage(content=FunctionCall('pay', {})))
            return paid.content.errmsg

    where = tmp_path / 'runs.db'
    with pytest.raises(KeyboardInterrupt):
        Payer(ScriptedModel([])).run('q', run_id='r', journal=where, on_unknown='suspend')
    with pytest.raises(RunSuspended, match='it was begun and may have happened'):
        Payer(ScriptedModel([])).run(run_id='r', journal=where)
    told = Payer(ScriptedModel([])).run(run_id='r', journal=where, on_unknown='tell')
    assert 'It is not known whether' in str(told.content)


@pytest.mark.parametrize('written', ['Kit.wipe', 'Kit-wipe'])
@pytest.mark.parametrize('named', ['Kit', 'Kit.wipe', 'Kit-wipe'])
def test_a_tool_needs_a_yes_however_its_name_is_written(
    journal: SqliteJournal, written: str, named: str
) -> None:
    class Kit(BaseAction):
        @tool_api
        def wipe(self) -> str:
            """Wipe."""
            raise AssertionError('it is not done')

    message = AgentMessage(sender='x', content=FunctionCall(written, {}))
    with pytest.raises(RunSuspended), record(journal, 'r', approval=Approval(tools=[named])):
        ActionExecutor([Kit()])(message)


def test_tools_of_ours_say_that_they_reach_the_network() -> None:
    for tool in (ArxivSearch, BINGMap, GoogleScholar, GoogleSearch, WebBrowser):
        assert tool.network, tool


def test_what_a_subscriber_stopped_was_not_begun(journal: SqliteJournal) -> None:
    done: list[str] = []

    @tool_api
    def pay() -> str:
        """Pay."""
        done.append('paid')
        return 'paid'

    def broken(event: Event) -> None:
        raise BrokenPipeError

    message = AgentMessage(sender='x', content=FunctionCall('pay', {}))
    with pytest.raises(BrokenPipeError), subscribe(broken), record(journal, 'r'):
        ActionExecutor([pay])(message)
    with record(journal, 'r'):
        ActionExecutor([pay])(message)
    assert done == ['paid']


@pytest.mark.parametrize('tool', [IPythonInterpreter, PythonInterpreter, IPythonInteractive])
def test_code_that_a_tool_runs_needs_a_yes(journal: SqliteJournal, tool: Any) -> None:
    message = AgentMessage(sender='x', content=FunctionCall(tool.__name__, {'command': '1'}))
    executor = ActionExecutor([tool()])
    with pytest.raises(RunSuspended, match='all code'), record(journal, 'r', approval=KERNEL):
        executor(message)
