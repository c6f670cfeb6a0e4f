"""Runs that are answered by their journal alone: the same way, or the first difference."""

import asyncio
import pickle
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from lagent import cli
from lagent.actions import ActionExecutor, AsyncActionExecutor, Interpreter, tool_api
from lagent.agents import Agent, AsyncAgent, Coder, DataAnalyst, StreamingAgent
from lagent.agents.streaming_agent import AsyncStreamingAgent
from lagent.effects import is_offline, subscribe
from lagent.errors import JournalError, RunSuspended
from lagent.journal import (
    Approval,
    Diverged,
    EndedOtherwise,
    NoSuchRun,
    NotCaptured,
    Redactor,
    SqliteJournal,
    Unfinished,
    approve,
    record,
    reject,
)
from lagent.journal.rerun import nothing_done
from lagent.llms import GPTAPI, AsyncScriptedModel, ScriptedModel
from lagent.llms.recorded import AsyncRecordedModel, RecordedModel
from lagent.schema import AgentMessage, FunctionCall
from sandbox import ExecutionResult, FakeBackend, FileInfo, Outcome

CODE = '```python\nprint(6 * 7)\n```'


def model(messages: Any) -> str:
    return CODE if len(messages) <= 2 else f'I saw: {messages[-1]["content"]}'


def never(*_: Any) -> Any:
    raise AssertionError('something was done')


def coder(answer: Any = model, run: Any = lambda code: f'ran {code}', **options: Any) -> Coder:
    interpreter = Interpreter(backend=FakeBackend(run), unsafe=True)
    return Coder(ScriptedModel(answer), interpreter, **options)


def unable(**options: Any) -> Coder:
    return coder(never, never, **options)


class Steps(Agent):
    """Two model calls with a tool call after each; `finish` is code of its own behind them."""

    def __init__(self, llm: Any, tool: Any, steps: int = 2, finish: Any = str) -> None:
        super().__init__(llm)
        self.executor, self.steps, self.finish = ActionExecutor([tool]), steps, finish

    def forward(self, *message: AgentMessage, session_id: Any = 0, **kwargs: Any) -> Any:
        text = str(message[0].content)
        for step in range(self.steps):
            reply = self.llm.chat([{'role': 'user', 'content': f'{text} {step}'}])
            asked = AgentMessage(sender='x', content=FunctionCall('note', {'line': str(reply)}))
            text = self.executor(asked).content.format_result()
        return self.finish(text)


class AsyncSteps(AsyncAgent):
    def __init__(self, llm: Any, tool: Any) -> None:
        super().__init__(llm)
        self.executor = AsyncActionExecutor([tool])

    async def forward(self, *message: AgentMessage, session_id: Any = 0, **kwargs: Any) -> Any:
        reply = await self.llm.chat([{'role': 'user', 'content': str(message[0].content)}])
        asked = AgentMessage(sender='x', content=FunctionCall('note', {'line': str(reply)}))
        return (await self.executor(asked)).content.format_result()


@tool_api
def note(line: str) -> str:
    """Note a line."""
    if line == '<stop>':
        raise SystemExit
    return f'noted {line}'


def wrapped(messages: Any) -> str:
    return f'<{messages[-1]["content"]}>'


def steps(**options: Any) -> Steps:
    return Steps(ScriptedModel(wrapped), note, **options)


def contents(path: Path) -> bytes:
    return path.read_bytes()


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / 'runs.db'


def test_a_run_takes_the_same_way_and_nothing_is_done(where: Path) -> None:
    with coder() as agent:
        answer = agent.run('what is 6 * 7?', run_id='r', journal=where)
    before, events = contents(where), []
    with unable() as agent, subscribe(events.append):
        again = agent.rerun('r', journal=where)
        memory = agent.agent.memory.get_memory()
    assert again == answer
    assert 'ran print(6 * 7)' in again.content
    assert [event.effect.kind for event in events if event.type == 'end'] == [
        'model',
        'kernel',
        'model',
    ]
    assert all(event.replayed for event in events)
    assert contents(where) == before
    assert [message.content for message in memory][-1] == again.content


def test_tools_are_not_called(where: Path) -> None:
    answer = steps().run('q', run_id='r', journal=where)
    agent = Steps(RecordedModel('scripted'), note)
    called: list[str] = []
    agent.executor.actions['note'].run = called.append  # type: ignore[method-assign]
    assert agent.rerun('r', journal=where) == answer
    assert answer.content == 'noted <noted <q 0> 1>'
    assert not called


def test_what_a_tool_has_done_is_part_of_its_result(where: Path) -> None:
    inner = Agent(ScriptedModel(wrapped))

    @tool_api(idempotent=True)
    def note(line: str) -> str:
        """Ask another agent."""
        return str(inner(line).content)

    answer = Steps(ScriptedModel(wrapped), note).run('q', run_id='r', journal=where)
    again = Steps(RecordedModel('scripted'), note).rerun('r', journal=where)
    assert again == answer
    assert answer.content == '<<<<q 0>> 1>>'


def test_an_asynchronous_agent_is_awaited(where: Path) -> None:
    first = AsyncSteps(AsyncScriptedModel(wrapped), note)
    answer = asyncio.run(first.run('q', run_id='r', journal=where))
    second = AsyncSteps(AsyncRecordedModel('scripted'), note)
    assert asyncio.run(second.rerun('r', journal=where)) == answer


def test_streams_end_with_the_answer(where: Path) -> None:
    answer = [*StreamingAgent(ScriptedModel(['a b c'])).run('q', run_id='r', journal=where)][-1]
    again = [*StreamingAgent(RecordedModel('scripted')).rerun('r', journal=where)][-1]
    assert again.content == answer.content == 'a b c'

    async def last() -> Any:
        agent = AsyncStreamingAgent(AsyncRecordedModel('scripted'), name='StreamingAgent')
        return [message async for message in agent.rerun('r', journal=where)][-1]

    assert asyncio.run(last()).content == 'a b c'


def test_another_prompt_takes_another_way(where: Path) -> None:
    with coder(template='Be brief.') as agent:
        agent.run('what is 6 * 7?', run_id='r', journal=where)
    before = contents(where)
    with unable(template='Be thorough.') as agent, pytest.raises(Diverged) as caught:
        agent.rerun('r', journal=where)
    assert caught.value.position == '1'
    assert 'Be brief.' in caught.value.difference
    assert 'Be thorough.' in caught.value.difference
    assert contents(where) == before


@pytest.mark.parametrize(('count', 'now'), [(1, 'the run ends'), (3, "model 'scripted'")])
def test_fewer_and_more_effects_are_another_way(where: Path, count: int, now: str) -> None:
    steps().run('q', run_id='r', journal=where)
    with pytest.raises(Diverged, match=now):
        steps(steps=count).rerun('r', journal=where)


def test_another_answer_on_the_same_way_is_shown(where: Path) -> None:
    steps().run('q', run_id='r', journal=where)
    with pytest.raises(EndedOtherwise, match='ended otherwise') as caught:
        steps(finish=str.upper).rerun('r', journal=where)
    assert (caught.value.recorded, caught.value.asked) == (
        'noted <noted <q 0> 1>',
        'NOTED <NOTED <Q 0> 1>',
    )
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)


def test_a_failed_run_fails_again(where: Path) -> None:
    def fail(text: str) -> str:
        raise ValueError(f'bad {text}')

    with pytest.raises(ValueError, match='bad'):
        steps(finish=fail).run('q', run_id='r', journal=where)
    with pytest.raises(ValueError, match='bad'):
        steps(finish=fail).rerun('r', journal=where)
    with pytest.raises(EndedOtherwise, match='bad noted'):
        steps().rerun('r', journal=where)


def test_what_a_model_failed_with_is_raised_again(where: Path) -> None:
    with pytest.raises(ConnectionError, match='down'):
        Agent(ScriptedModel([ConnectionError('down')])).run('q', run_id='r', journal=where)
    with pytest.raises(ConnectionError, match='down'):
        Agent(RecordedModel('scripted')).rerun('r', journal=where)


def test_a_failure_of_now_is_another_way(where: Path) -> None:
    steps().run('q', run_id='r', journal=where)

    class Broken(Steps):
        def forward(self, *message: Any, **kwargs: Any) -> Any:
            raise KeyError('typo')

    with pytest.raises(Diverged, match='the run fails with builtins:KeyError') as caught:
        Broken(RecordedModel('scripted'), note).rerun('r', journal=where)
    assert caught.value.position == '1'


def test_an_interrupted_run_is_followed_to_where_it_ends(where: Path) -> None:
    agent = Steps(ScriptedModel(['go', '<stop>']), note)
    with pytest.raises(SystemExit):
        agent.run('q', run_id='r', journal=where)
    before, events = contents(where), []
    with subscribe(events.append), pytest.raises(Unfinished, match=r"effect 4 \(tool 'note'"):
        steps().rerun('r', journal=where)
    assert [event.effect.kind for event in events if event.type == 'end'] == [
        'model',
        'tool',
        'model',
    ]
    assert contents(where) == before


def test_a_suspended_run_waits_again(where: Path) -> None:
    with coder() as agent, pytest.raises(RunSuspended):
        agent.run('what is 6 * 7?', run_id='r', journal=where, approval=Approval(kernel=True))
    with unable() as agent, pytest.raises(RunSuspended, match='all code needs a yes'):
        agent.rerun('r', journal=where)
    with SqliteJournal(where) as journal:
        approve(journal, 'r')
        with unable() as agent, pytest.raises(Unfinished, match='ready'):
            agent.rerun('r', journal=journal)


def test_a_rejection_is_told_again(where: Path) -> None:
    with coder() as agent, pytest.raises(RunSuspended):
        agent.run('what is 6 * 7?', run_id='r', journal=where, approval=Approval(kernel=True))
    with SqliteJournal(where) as journal:
        reject(journal, 'r', 'no code today')
        with coder() as agent:
            answer = agent.run(run_id='r', journal=journal)
        with unable() as agent:
            assert agent.rerun('r', journal=journal) == answer
    assert 'no code today' in answer.content


def test_code_that_catches_all_does_not_hide_the_difference(where: Path) -> None:
    class Stubborn(Agent):
        def forward(self, *message: Any, **kwargs: Any) -> Any:
            try:
                return self.llm.chat([{'role': 'user', 'content': 'changed'}])
            except Exception:  # noqa: BLE001
                return 'nothing happened'

    Agent(ScriptedModel(['said'])).run('q', run_id='r', journal=where)
    with pytest.raises(Diverged):
        Stubborn(ScriptedModel(never), name='Agent').rerun('r', journal=where)


def test_secrets_are_compared_as_they_are_written(where: Path) -> None:
    redactor = Redactor(values=['tiger-77-stripes'])
    told = {'journal': where, 'redactor': redactor}
    Agent(ScriptedModel(wrapped)).run('my cat is tiger-77-stripes', run_id='r', **told)
    answer = Agent(RecordedModel('scripted')).rerun('r', **told)
    assert answer.content == '<my cat is [redacted]>'


def test_what_a_program_does_aside_is_answered_too(where: Path) -> None:
    class Uploading(Coder):
        def forward(self, *message: Any, **kwargs: Any) -> Any:
            (info,) = self.interpreter.upload({'a.txt': b'a'})
            assert [each.path for each in self.interpreter.files()] == [info.path] == ['a.txt']
            seen = self.interpreter.execute('open("a.txt").read()')
            return f'{seen.stdout} {super().forward(*message, **kwargs).content}'

    def make(answer: Any, run: Any) -> Coder:
        return Uploading(ScriptedModel(answer), Interpreter(backend=FakeBackend(run), unsafe=True))

    with make(model, lambda code: 'ran') as agent:
        answer = agent.run('q', run_id='r', journal=where)
    assert str(answer.content).startswith('ran I saw: ')
    with make(never, never) as agent:
        assert agent.rerun('r', journal=where) == answer


def test_what_is_asked_outside_of_a_run_is_refused(where: Path) -> None:
    with coder() as agent:
        agent.run('q', run_id='r', journal=where)
    with nothing_done(), unable() as agent, pytest.raises(NotCaptured, match='outside of it'):
        agent.interpreter.upload({'a.txt': b'a'})


def test_an_analyst_whose_code_makes_files_goes_the_same_way(where: Path) -> None:
    def analyst(replies: Any, run: Any) -> DataAnalyst:
        interpreter = Interpreter(backend=FakeBackend(run), unsafe=True)
        return DataAnalyst(ScriptedModel(replies), interpreter)

    made = ExecutionResult(Outcome.OK, artifacts=(FileInfo('plot.png', 10, 0.0),))
    for run_id, answer in (('plain', 'I plotted it.'), ('named', 'See `plot.png`.')):
        missing = [answer] if run_id == 'named' else []  # it is not there, and so asked for again
        with analyst([CODE, answer, *missing], lambda code: made) as agent:
            agent.run('Plot it.', run_id=run_id, journal=where)
    with analyst(never, never) as agent:
        assert agent.rerun('plain', journal=where).content == 'I plotted it.'
        assert agent.rerun('named', journal=where).content == 'See `plot.png`.'


def test_calls_that_were_made_side_by_side_are_told_apart(where: Path) -> None:
    class Many(AsyncAgent):
        async def forward(self, *message: Any, **kwargs: Any) -> Any:
            asked = [{'role': 'user', 'content': name} for name in 'abc']
            replies = await asyncio.gather(*(self.llm.chat([each]) for each in asked))
            return ' '.join(map(str, replies))

    answer = asyncio.run(Many(AsyncScriptedModel(wrapped)).run('q', run_id='r', journal=where))
    again = asyncio.run(Many(AsyncRecordedModel('scripted')).rerun('r', journal=where))
    assert again == answer
    assert answer.content == '<a> <b> <c>'


def test_a_reader_may_leave_a_stream(where: Path) -> None:
    [*StreamingAgent(ScriptedModel(['a b'])).run('q', run_id='r', journal=where)]
    agent = StreamingAgent(RecordedModel('scripted'))
    reading = agent.rerun('r', journal=where)
    assert next(reading).content == 'a b'
    assert not is_offline('model')
    reading.close()
    assert [*agent.rerun('r', journal=where)][-1].content == 'a b'


def test_a_run_inside_is_answered_and_never_begun(where: Path) -> None:
    class Outer(Agent):
        inner_id = 'inner'

        def forward(self, *message: Any, **kwargs: Any) -> Any:
            return Agent(self.llm).run('q', run_id=self.inner_id, journal=where).content

    Outer(ScriptedModel(['said'])).run('q', run_id='r', journal=where)
    assert Outer(RecordedModel('scripted')).rerun('r', journal=where).content == 'said'
    other = Outer(RecordedModel('scripted'))
    other.inner_id = 'another'
    before = contents(where)
    with pytest.raises(Unfinished, match='another'):
        other.rerun('r', journal=where)
    assert contents(where) == before


def test_a_rerun_is_no_part_of_a_recording_around_it(where: Path) -> None:
    Agent(ScriptedModel(['said'])).run('q', run_id='r', journal=where)
    with record(where, 'outer') as run:
        run.answer = Agent(RecordedModel('scripted')).rerun('r', journal=where).content
    with SqliteJournal(where) as journal:
        assert journal.records('outer') == []


def test_what_is_no_run_of_an_agent_is_said(where: Path) -> None:
    with record(where, 'plain') as run:
        run.answer = 1
    with pytest.raises(JournalError, match='code of your own'):
        steps().rerun('plain', journal=where)
    with pytest.raises(NoSuchRun):
        steps().rerun('nothing', journal=where)
    missing = where.with_name('no.db')
    with pytest.raises(JournalError, match='There is no journal'):
        steps().rerun('r', journal=missing)
    assert not missing.exists()


# The command


def keyed() -> Agent:
    return Agent(GPTAPI('gpt-4o'), name='Agent')


def failing() -> Agent:
    return Agent(RecordedModel('scripted'))


@pytest.fixture
def command(where: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    module = types.ModuleType('their_agents')
    for name, make in {
        'make': unable,
        'changed': lambda: unable(template='Another one.'),
        'keyed': keyed,
        'failing': failing,
        'no_agent': object,
    }.items():
        setattr(module, name, make)
    monkeypatch.setitem(sys.modules, 'their_agents', module)
    monkeypatch.delenv('OPENAI_API_KEY', raising=False)

    def invoke(*arguments: str) -> Result:
        env = {'COLUMNS': '200', 'LAGENT_JOURNAL': str(where)}
        return CliRunner().invoke(cli.app, ['runs', 'replay', *arguments], env=env)

    return invoke


def test_the_command_says_that_the_way_is_the_same(where: Path, command: Any) -> None:
    with coder() as agent:
        agent.run('what is 6 * 7?', run_id='r', journal=where, factory='their_agents:make')
    before = contents(where)
    result = command('r')
    assert result.exit_code == 0, result.output
    assert result.output.count('known from the journal') == 3
    assert 'ran print(6 * 7)' in result.output
    assert 'The same way as recorded, and the same answer.' in result.output
    assert contents(where) == before


def test_the_command_shows_the_first_difference(where: Path, command: Any) -> None:
    with coder() as agent:
        agent.run('what is 6 * 7?', run_id='r', journal=where)
    result = command('r', '--agent', 'their_agents:changed')
    assert result.exit_code == 1
    assert 'first at effect 1' in result.output
    assert 'Another one.' in result.output
    assert 'Traceback' not in result.output


def test_the_command_says_what_a_run_waits_for_and_failed_with(where: Path, command: Any) -> None:
    with coder() as agent, pytest.raises(RunSuspended):
        agent.run('what is 6 * 7?', run_id='r', journal=where, approval=Approval(kernel=True))
    assert command('r', '--agent', 'their_agents:make').exit_code == 5
    with pytest.raises(ConnectionError):
        Agent(ScriptedModel([ConnectionError('down')])).run('q', run_id='f', journal=where)
    result = command('f', '--agent', 'their_agents:failing')
    assert result.exit_code == 0, result.output
    assert 'the same failure' in result.output
    assert isinstance(command('f', '--agent', 'their_agents:no_agent').exception, AttributeError)


def test_the_command_tells_an_unfinished_run_and_no_run(where: Path, command: Any) -> None:
    with pytest.raises(SystemExit):
        Agent(ScriptedModel([SystemExit()])).run('q', run_id='r', journal=where)
    result = command('r', '--agent', 'their_agents:failing')
    assert result.exit_code == 2
    assert 'where the journal ends' in result.output
    assert command('nothing').exit_code == 2


def test_a_model_needs_no_key(where: Path, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Named(ScriptedModel):
        model_type = 'gpt-4o'

    Agent(Named(['said'])).run('q', run_id='r', journal=where)
    result = command('r', '--agent', 'their_agents:keyed')
    assert result.exit_code == 0, result.output
    assert 'said' in result.output
    assert not is_offline('model')


def test_a_recorded_question_with_files_needs_nothing(
    where: Path, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lagent.llms import from_env

    data = tmp_path / 'a.csv'
    data.write_text('n\n1\n')
    made = from_env.model_from_env
    monkeypatch.setattr(from_env, 'model_from_env', lambda *_: ScriptedModel(model))
    interpreter = Interpreter(backend=FakeBackend(lambda code: 'ran it'), unsafe=True)
    monkeypatch.setattr('lagent.actions.Interpreter', lambda **options: interpreter)
    ask = ['run', 'what is 6 * 7?', str(data), '--journal', str(where), '--run-id', 'q']
    asked = CliRunner().invoke(cli.app, ask)
    assert asked.exit_code == 0, asked.output
    monkeypatch.setattr(from_env, 'model_from_env', made)
    monkeypatch.setattr(
        'lagent.actions.Interpreter',
        lambda **options: Interpreter(backend=FakeBackend(never), unsafe=True),
    )
    data.unlink()
    result = command('q')
    assert result.exit_code == 0, result.output
    assert 'The same way as recorded' in result.output
