"""Cassettes: what is recorded once comes back without a model, a tool or a sandbox."""

import asyncio
import itertools
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lagent.actions import ActionExecutor, AsyncInterpreter, Interpreter, tool_api
from lagent.agents import Agent, AsyncAgent, AsyncCoder, AsyncStreamingAgent, Coder, StreamingAgent
from lagent.effects import subscribe
from lagent.errors import ConfigError
from lagent.journal import (
    BadCassette,
    NotCaptured,
    NotRecorded,
    OutputsDiffer,
    Unused,
    cassette_player,
    ids,
    paths,
    replay,
    times,
    without,
)
from lagent.llms import (
    GPTAPI,
    AsyncScriptedModel,
    Completion,
    ModelUnavailable,
    ScriptedModel,
    Stall,
    Usage,
)
from lagent.schema import AgentMessage, FunctionCall
from sandbox import (
    ExecutionResult,
    FakeBackend,
    Outcome,
    Output,
    SandboxManager,
    SandboxPolicy,
)

QUESTION = 'What is six times seven?'
CODE = '```python\nprint(6 * 7)\n```'
USAGE = Usage(prompt_tokens=9, completion_tokens=4)


def printing(answer: Callable[[str], str] = lambda _: '42\n') -> dict[str, Any]:
    """Options of an interpreter whose cells print what a function of their code gives."""

    def run(code: str) -> ExecutionResult:
        return ExecutionResult(Outcome.OK, outputs=(Output('stdout', answer(code)),))

    return {'backend': FakeBackend(run), 'unsafe': True}


def coder(llm: Any, answer: Callable[[str], str] = lambda _: '42\n') -> Coder:
    return Coder(llm, interpreter=Interpreter(**printing(answer)))


def script() -> ScriptedModel:
    return ScriptedModel([Completion(CODE, usage=USAGE, latency=1.5), 'It is 42.'])


def never() -> ScriptedModel:
    return ScriptedModel([])


class NoSandbox:
    """Whoever looks for a sandbox here has done something that was not to be done."""

    policy = SandboxPolicy()

    def session(self, name: str) -> Any:
        raise AssertionError('a sandbox was looked for')


def blind(llm: Any) -> Coder:
    return Coder(llm, interpreter=Interpreter(manager=NoSandbox()))


def record(path: Path) -> None:
    agent = coder(script())
    with agent, replay(path, record='once') as cassette:
        assert cassette.is_recording
        assert agent(QUESTION).content == 'It is 42.'


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_coder_is_replayed_without_its_model_and_sandbox(cassette_file: Path) -> None:
    record(cassette_file)
    events = []
    agent = blind(never())
    with replay(cassette_file), subscribe(events.append):
        answer = agent(QUESTION)
    assert answer.content == 'It is 42.'
    assert [event.effect.kind for event in events if event.type == 'end'] == [
        'model',
        'kernel',
        'model',
    ]
    assert all(event.replayed for event in events)
    assert events[-1].run.usage.prompt_tokens == 9
    cell = next(event.data for event in events if event.effect.kind == 'kernel' and event.data)
    assert cell.stdout == '42\n'


def test_once_plays_what_is_there(cassette_file: Path) -> None:
    record(cassette_file)
    with replay(cassette_file, record='once') as cassette:
        assert not cassette.is_recording
        blind(never())(QUESTION)


def test_none_needs_a_cassette(cassette_file: Path) -> None:
    with (
        pytest.raises(BadCassette, match=r'no such cassette.*--lagent-record'),
        replay(cassette_file),
    ):
        pass


def test_the_environment_says_the_mode(
    cassette_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('LAGENT_RECORD', 'once')
    with replay(cassette_file) as cassette:
        assert cassette.is_recording
    monkeypatch.setenv('LAGENT_RECORD', 'sometimes')
    with pytest.raises(ValueError, match='none, once, all'), replay(cassette_file):
        pass


def test_another_question_ends_the_run_and_shows_the_difference(cassette_file: Path) -> None:
    record(cassette_file)
    asked = 'What is six times eight?'
    with pytest.raises(NotRecorded) as caught, replay(cassette_file):
        blind(never())(asked)
    words = str(caught.value)
    assert f'model {"scripted"!r}: {asked}' in words
    assert f'-  "content": "{QUESTION}"' in words
    assert f'+  "content": "{asked}"' in words
    assert 'line 2' in words


def test_a_caught_refusal_is_raised_at_the_end_and_nothing_goes_on(cassette_file: Path) -> None:
    record(cassette_file)
    agent = blind(never())
    with pytest.raises(NotRecorded), replay(cassette_file):
        for question in ('Something else', QUESTION):
            with pytest.raises(NotRecorded):
                agent(question)


def test_a_caught_refusal_is_named_beside_the_error_it_led_to(cassette_file: Path) -> None:
    record(cassette_file)
    with pytest.raises(KeyError) as caught, replay(cassette_file):
        with pytest.raises(NotRecorded):
            blind(never())('Something else')
        raise KeyError('answer')
    assert 'has no recording of this call' in caught.value.__notes__[0]


def test_one_call_too_many_says_so(cassette_file: Path) -> None:
    with replay(cassette_file, record='once'):
        Agent(ScriptedModel(['Yes.']), memory=None)('Really?')
    with pytest.raises(NotRecorded, match='not as often'), replay(cassette_file):
        for _ in range(2):
            Agent(never(), memory=None)('Really?')


def test_calls_that_were_not_made_are_an_error_or_a_warning(cassette_file: Path) -> None:
    with replay(cassette_file, record='once'):
        for text in ('one', 'two'):
            Agent(ScriptedModel(['ok']))(text)
    with pytest.raises(Unused, match=r"line 3: model 'scripted': two"), replay(cassette_file):
        Agent(never())('one')
    with pytest.warns(UserWarning, match='not made'), replay(cassette_file, unused='warn'):
        Agent(never())('one')


def test_the_same_question_twice_gives_both_answers_in_order(cassette_file: Path) -> None:
    with replay(cassette_file, record='once'):
        model = ScriptedModel(['heads', 'tails'])
        assert [str(model.chat('toss')) for _ in range(2)] == ['heads', 'tails']
    with replay(cassette_file):
        model = never()
        assert [str(model.chat('toss')) for _ in range(2)] == ['heads', 'tails']


def cell(code: str) -> AgentMessage:
    return AgentMessage(
        content=code, formatted={'tool_type': 'interpreter', 'action': code, 'status': 1}
    )


def test_a_cell_is_known_by_the_cells_before_it(cassette_file: Path) -> None:
    with (
        Interpreter(**printing()) as interpreter,
        replay(cassette_file, record='once'),
    ):
        for code in ('x = 1', 'x += 1', 'print(x)'):
            interpreter(cell(code))
    with (
        pytest.raises(NotRecorded, match=r'(?s)same code is in line 4.*Other cells'),
        replay(cassette_file),
    ):
        interpreter = Interpreter(manager=NoSandbox())
        interpreter(cell('x = 1'))
        interpreter(cell('print(x)'))


def test_sessions_do_not_depend_on_their_order(cassette_file: Path) -> None:
    numbers = map(str, itertools.count())
    with (
        Interpreter(**printing(lambda _: next(numbers))) as interpreter,
        replay(cassette_file, record='once'),
    ):
        for session in ('a', 'b'):
            interpreter(cell(f'x = "{session}"'), session_id=session)
            assert interpreter(cell('print(x)'), session_id=session).content in ('1', '3')
    with replay(cassette_file):
        interpreter = Interpreter(manager=NoSandbox())
        for session, printed in (('b', '3'), ('a', '1')):
            interpreter(cell(f'x = "{session}"'), session_id=f'other-{session}')
            answer = interpreter(cell('print(x)'), session_id=f'other-{session}')
            assert answer.content == printed


async def test_an_async_coder_is_replayed(cassette_file: Path) -> None:
    def make(llm: Any) -> AsyncCoder:
        return AsyncCoder(llm, interpreter=AsyncInterpreter(**printing()))

    with replay(cassette_file, record='once'):
        async with make(AsyncScriptedModel([CODE, 'It is 42.'])) as agent:
            await agent(QUESTION)
    with replay(cassette_file):
        agent = make(AsyncScriptedModel([]))
        agent.interpreter = AsyncInterpreter(manager=NoSandbox())
        assert (await agent(QUESTION)).content == 'It is 42.'


async def test_questions_at_the_same_time_get_their_own_answers(cassette_file: Path) -> None:
    async def answers(llm: Any) -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(AsyncAgent(llm)(str(number), session_id=number))
                for number in range(20)
            ]
        return [str(task.result().content) for task in tasks]

    async def slow(messages: list[dict[str, Any]]) -> str:
        number = int(messages[-1]['content'])
        await asyncio.sleep(0.001 * (number * 7 % 20))
        return f'<{number}>'

    with replay(cassette_file, record='once'):
        recorded = await answers(AsyncScriptedModel(slow))
    with replay(cassette_file):
        assert await answers(AsyncScriptedModel([])) == recorded


def test_a_streaming_agent_is_replayed(cassette_file: Path) -> None:
    with replay(cassette_file, record='once'):
        pieces = list(StreamingAgent(ScriptedModel(['A long enough answer.']))('Go'))
    with replay(cassette_file):
        replayed = list(StreamingAgent(never())('Go'))
    assert len(pieces) > len(replayed)
    assert replayed[-1].content == pieces[-1].content == 'A long enough answer.'


async def test_an_async_streaming_agent_is_replayed(cassette_file: Path) -> None:
    with replay(cassette_file, record='once'):
        [_ async for _ in AsyncStreamingAgent(AsyncScriptedModel(['Answer.']))('Go')]
    with replay(cassette_file):
        items = [item async for item in AsyncStreamingAgent(AsyncScriptedModel([]))('Go')]
    assert items[-1].content == 'Answer.'


async def patient(llm: Any) -> str:
    """Ask twice: what takes too long, and what does not."""
    agent = AsyncAgent(llm)
    with suppress(TimeoutError):
        async with asyncio.timeout(0.2):
            return str((await agent('slow', session_id=1)).content)
    return str((await agent('quick', session_id=2)).content)


async def test_a_call_that_a_timeout_cut_off_is_cut_off_again(
    cassette_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with replay(cassette_file, record='once'):
        assert await patient(AsyncScriptedModel([Stall(300.0), 'Done.'])) == 'Done.'
    assert [line['cut'] for line in lines(cassette_file) if 'cut' in line] == ['CancelledError']
    with replay(cassette_file):
        assert await patient(AsyncScriptedModel([])) == 'Done.'
    monkeypatch.setattr(cassette_player, '_LONGEST_TIMEOUT', 0.01)
    with pytest.raises(BadCassette, match='line 2: this call was cut off'), replay(cassette_file):
        await patient(AsyncScriptedModel([]))


def test_a_stream_that_was_left_early_has_no_result(cassette_file: Path) -> None:
    with replay(cassette_file, record='once'):
        stream = StreamingAgent(ScriptedModel(['A long enough answer.']))('Go')
        next(stream)
        stream.close()
    assert any(
        'cut off by ConsumerLeft' in words for words in lines(cassette_file)[0]['not_captured']
    )
    with pytest.raises(BadCassette, match='line 2: this call was cut off'), replay(cassette_file):
        list(StreamingAgent(never())('Go'))


class Teller(Agent):
    """Asks a tool which asks a model itself."""

    def __init__(self, llm: Any, called: list[str]) -> None:
        super().__init__(llm)

        @tool_api
        def look_up(name: str) -> str:
            """Look something up."""
            called.append(name)
            return str(llm.chat(f'What is {name}?'))

        self.tools = ActionExecutor([look_up])

    def forward(self, *message: AgentMessage, **kwargs: Any) -> Any:
        call = FunctionCall('look_up', {'name': str(message[0].content)})
        return self.tools(AgentMessage(content=call)).content.format_result()


def test_a_tool_is_not_called_and_what_it_asked_is_not_missed(cassette_file: Path) -> None:
    called: list[str] = []
    with replay(cassette_file, record='once'):
        answer = Teller(ScriptedModel(['a fruit']), called)('a fig').content
    assert lines(cassette_file)[2]['within'] == 1
    with replay(cassette_file):
        assert Teller(never(), called)('a fig').content == answer
    assert called == ['a fig']


def test_tools_are_called_where_only_the_rest_is_recorded(cassette_file: Path) -> None:
    called: list[str] = []
    kinds = {'model', 'kernel'}
    with replay(cassette_file, record='once', kinds=kinds):
        Teller(ScriptedModel(['a fruit']), called)('a fig')
    assert 'tool calls: they are done again' in lines(cassette_file)[0]['not_captured']
    with replay(cassette_file, kinds=kinds):
        assert 'a fruit' in Teller(never(), called)('a fig').content
    assert called == ['a fig', 'a fig']
    with pytest.raises(BadCassette, match='kinds='), replay(cassette_file):
        pass


def test_what_a_model_raised_is_raised_again(cassette_file: Path) -> None:
    with replay(cassette_file, record='once'), pytest.raises(ModelUnavailable):
        Agent(ScriptedModel([ModelUnavailable('down for today')]))('Go')
    with replay(cassette_file), pytest.raises(ModelUnavailable, match='down for today'):
        Agent(never())('Go')


def test_nothing_is_written_when_the_block_fails(cassette_file: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught, replay(cassette_file, record='all'):
        Agent(ScriptedModel(['ok']))('Go')
        1 / 0  # noqa: B018
    assert not cassette_file.exists()
    assert 'was not written' in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ('normaliser', 'recorded', 'asked'),
    [
        (times, 'It is 2026-01-31T10:00:00.5+01:00.', 'It is 2027-02-01 09:12:33Z.'),
        (times, 'at 10:00:00', 'at 23:59:59.999'),
        (
            ids,
            'run 6f1d5c0e-9b7a-4a53-8a1e-0a2b3c4d5e6f',
            'run 0b0e7c3a-1111-4222-9333-444455556666',
        ),
        (ids, '<Box at 0x7f3a5c0012d0>', '<Box at 0x7e1b2c3d4f50>'),
        (paths, 'read /tmp/pytest-1/sales.csv', 'read /home/ada/data/sales.csv'),
    ],
)
def test_normalisers_make_equal_what_means_the_same(
    cassette_file: Path, normaliser: Any, recorded: str, asked: str
) -> None:
    with replay(cassette_file, record='once'):
        Agent(ScriptedModel(['ok']))(recorded)
    with replay(cassette_file, normalise=[normaliser]):
        assert Agent(never())(asked).content == 'ok'
    with pytest.raises(NotRecorded), replay(cassette_file):
        Agent(never())(asked)


@pytest.mark.parametrize(
    ('normaliser', 'text'),
    [(times, 'version 1.2.3 of 2026'), (ids, 'deadbeef 1234567890'), (paths, 'http://a.example/b')],
)
def test_normalisers_leave_alone_what_means_something(normaliser: Any, text: str) -> None:
    assert normaliser({'v': [text, 3]}) == {'v': [text, 3]}


def test_a_field_can_be_left_out() -> None:
    assert without('now')({'q': [{'now': 1.5, 'text': 'x'}]}) == {'q': [{'text': 'x'}]}


def test_strict_compares_what_cells_give(cassette_file: Path) -> None:
    record(cassette_file)
    with coder(never()) as agent, replay(cassette_file, strict=True):
        assert agent(QUESTION).content == 'It is 42.'
    with (
        coder(never(), lambda _: '43\n') as agent,
        pytest.raises(OutputsDiffer, match=r'(?s)says: 1 cell\..*line 3: .*-.*42.*\+.*43'),
        replay(cassette_file, strict=True),
    ):
        # The model is told what is recorded, and so the run goes on to its end.
        assert agent(QUESTION).content == 'It is 42.'


def test_a_model_needs_no_key_inside(cassette_file: Path) -> None:
    with replay(cassette_file, record='once'):
        Agent(ScriptedModel(['ok'], path='gpt-4o'))('Go')
    with pytest.raises(ConfigError):
        GPTAPI('gpt-4o')
    with replay(cassette_file):
        assert Agent(GPTAPI('gpt-4o'))('Go').content == 'ok'
    with pytest.raises(ConfigError):
        GPTAPI('gpt-4o')


def test_a_model_that_is_not_there_is_stood_in_for(cassette_file: Path) -> None:
    with replay(cassette_file, record='once') as cassette:
        Agent(cassette.model(lambda: ScriptedModel(['ok'], path='big')))('Go')

    def not_there() -> Any:
        raise AssertionError('it was made')

    with replay(cassette_file) as cassette:
        model = cassette.model(not_there)
        assert model.path == 'big'
        assert Agent(model)('Go').content == 'ok'
        with pytest.raises(NotRecorded, match='model number 2'):
            cassette.model(not_there)
    with pytest.raises(RuntimeError, match='inside of its block'):
        cassette.model(not_there)


async def test_the_stand_in_of_an_awaited_model_is_awaited(cassette_file: Path) -> None:
    with replay(cassette_file, record='once') as cassette:
        await AsyncAgent(cassette.model(lambda: AsyncScriptedModel(['ok'])))('Go')
    with replay(cassette_file) as cassette:
        model = cassette.model(lambda: None)
        assert (await AsyncAgent(model)('Go')).content == 'ok'


async def test_functions_are_decorated(cassette_file: Path) -> None:
    @replay(cassette_file, record='once')
    def ask(llm: Any) -> Any:
        return Agent(llm)('Go').content

    @replay(cassette_file)
    async def ask_async(llm: Any) -> Any:
        return (await AsyncAgent(llm, name='Agent')('Go')).content

    assert ask(ScriptedModel(['ok'])) == 'ok'
    assert ask(never()) == 'ok'
    assert await ask_async(AsyncScriptedModel([])) == 'ok'
    with pytest.raises(TypeError):

        @replay(cassette_file)
        def items() -> Any:
            yield 1


def test_what_a_program_does_in_a_session_itself_is_played(
    cassette_file: Path, tmp_path: Path
) -> None:
    table = tmp_path / 'table.csv'
    table.write_text('a,b\n')
    read = cell("print(open('table.csv').read())")

    def use(interpreter: Interpreter) -> list[Any]:
        return [
            [(info.path, info.size) for info in interpreter.upload(table, session_id='s')],
            interpreter(read, session_id='s').content,
            interpreter.execute('print(len("abc"))', session_id='s').stdout,
            [(info.path, info.size) for info in interpreter.files(session_id='s')],
        ]

    with (
        Interpreter(**printing()) as interpreter,
        replay(cassette_file, record='once'),
    ):
        recorded = use(interpreter)
    events: list[Any] = []
    interpreter = Interpreter(manager=NoSandbox())
    with replay(cassette_file), subscribe(events.append):
        assert use(interpreter) == recorded
        with pytest.raises(NotCaptured, match='strict=True'):
            interpreter.download('table.csv', to=tmp_path)
    assert [event.effect.name for event in events if event.type == 'end'] == ['interpreter']
    with (
        Interpreter(**printing()) as interpreter,
        replay(cassette_file, strict=True),
    ):
        assert use(interpreter) == recorded
        assert interpreter.download('table.csv', to=tmp_path / 'out', session_id='s').is_file()
    table.write_text('a,b,c\n')
    with (
        pytest.raises(NotRecorded, match=r'(?s)interpreter.upload.*-.*4.*\+.*6'),
        replay(cassette_file),
    ):
        use(Interpreter(manager=NoSandbox()))


def test_a_journal_records_what_a_cassette_gives(cassette_file: Path, tmp_path: Path) -> None:
    record(cassette_file)
    journal = tmp_path / 'runs.db'
    with replay(cassette_file):
        blind(never()).run(QUESTION, journal=journal, run_id='r')
    answer = blind(never()).run(QUESTION, journal=journal, run_id='r')
    assert answer.content == 'It is 42.'


def test_an_interpreter_over_a_real_manager_starts_nothing(cassette_file: Path) -> None:
    record(cassette_file)
    backend = FakeBackend()
    with SandboxManager(backend=backend) as manager:
        with replay(cassette_file):
            Coder(never(), interpreter=Interpreter(manager=manager))(QUESTION)
        assert manager.sessions() == []


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match='none, once, all'):
        replay('x', record='always')  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='model, tool, kernel'):
        replay('x', kinds={'models'})
