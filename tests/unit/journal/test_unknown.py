"""What becomes of effects that were begun in a process that has died, and of those side by side."""

import asyncio
import threading
import time
from contextlib import nullcontext
from typing import Any

import pytest

from lagent.actions import ActionExecutor, Interpreter, execution_results, tool_api
from lagent.agents import Agent, Coder
from lagent.effects import (
    Effect,
    Ended,
    Event,
    Stage,
    emit,
    intercept,
    perform,
    subscribe,
    within,
)
from lagent.errors import LimitExceeded, OutcomeUnknown, RunSuspended
from lagent.flow import Flow, arun, call, run
from lagent.journal import (
    Diverged,
    NotRecordable,
    Recording,
    SqliteJournal,
    approve,
    current_recording,
    pending,
    record,
    reject,
)
from lagent.limits import RunLimits
from lagent.llms import AsyncScriptedModel, Completion, ScriptedModel, Usage
from lagent.positions import branch
from lagent.prompts import CodeParser
from lagent.schema import AgentMessage, FunctionCall
from sandbox import FakeBackend, Outcome, SandboxError, StartFailed


class Crash(BaseException):
    """What a killed process looks like to the code that it was executing."""


def dies() -> None:
    raise Crash


def begun(journal: SqliteJournal, effect: Effect) -> None:
    """Leave an effect that was begun and nothing more."""
    with pytest.raises(Crash), record(journal, 'r'):
        run(perform(effect, dies))


def asks(answer: Any, asked: list[str]) -> Any:
    def inquire(effect_id: str) -> Flow[Any]:
        return (yield from call(lambda: asked.append(effect_id) or answer))

    return inquire


def test_the_owner_of_an_effect_is_asked_what_became_of_it(journal: SqliteJournal) -> None:
    asked: list[str] = []
    effect = Effect('kernel', 'x', 'pay()', inquire=asks(Ended('paid'), asked))
    begun(journal, effect)
    events: list[Event] = []
    for _ in range(2):  # the second time the journal knows
        with subscribe(events.append), pytest.raises(ZeroDivisionError), record(journal, 'r'):
            assert run(perform(effect, dies)) == 'paid'
            raise ZeroDivisionError
    assert asked == ['r:1']
    assert [(event.type, event.replayed) for event in events] == [
        ('begin', True),
        ('end', True),
    ] * 2


def test_what_was_not_begun_is_done(journal: SqliteJournal) -> None:
    asked: list[str] = []
    effect = Effect('kernel', 'x', 'pay()', inquire=asks('not_begun', asked))
    begun(journal, effect)
    with record(journal, 'r'):
        assert run(perform(effect, lambda: 'paid')) == 'paid'
    assert asked == ['r:1']


def test_what_nobody_knows_is_told(journal: SqliteJournal) -> None:
    effect = Effect('kernel', 'x', 'pay()', inquire=asks(None, []))
    begun(journal, effect)
    with pytest.raises(OutcomeUnknown), record(journal, 'r'):
        run(perform(effect, lambda: 'paid twice'))


def test_a_person_decides_each_time(journal: SqliteJournal) -> None:
    effect = Effect('tool', 'pay', 3)
    begun(journal, effect)
    with pytest.raises(RunSuspended), record(journal, 'r', on_unknown='suspend'):
        run(perform(effect, lambda: 'paid'))
    assert pending(journal, 'r').body['why'] == 'unknown'
    approve(journal, 'r')
    with pytest.raises(Crash), record(journal, 'r', on_unknown='suspend'):
        run(perform(effect, dies))
    with pytest.raises(RunSuspended), record(journal, 'r', on_unknown='suspend'):
        run(perform(effect, lambda: 'paid'))  # the yes was for one time
    approve(journal, 'r')
    with record(journal, 'r', on_unknown='suspend'):
        assert run(perform(effect, lambda: 'paid')) == 'paid'


def test_a_person_says_no(journal: SqliteJournal) -> None:
    effect = Effect('tool', 'pay', 3)
    begun(journal, effect)
    with pytest.raises(RunSuspended), record(journal, 'r', on_unknown='suspend'):
        run(perform(effect, lambda: 'paid'))
    reject(journal, 'r', 'it was paid')
    with pytest.raises(Exception, match='it was paid'), record(journal, 'r'):
        run(perform(effect, lambda: 'paid'))


def test_an_error_of_what_must_not_be_repeated_is_unknown(journal: SqliteJournal) -> None:
    effect = Effect('tool', 'pay', 3)

    def breaks() -> None:
        raise ConnectionError('cut')

    with pytest.raises(ConnectionError), record(journal, 'r'):
        run(perform(effect, breaks))
    with pytest.raises(OutcomeUnknown), record(journal, 'r'):
        run(perform(effect, lambda: 'paid twice'))


def test_a_result_that_can_not_be_written_is_unknown(journal: SqliteJournal) -> None:
    effect = Effect('tool', 'pay', 3)
    with pytest.raises(NotRecordable), record(journal, 'r'):
        run(perform(effect, object))
    with pytest.raises(OutcomeUnknown), record(journal, 'r'):
        run(perform(effect, lambda: 'paid twice'))


def test_what_is_asked_and_can_not_be_written_is_not_done(journal: SqliteJournal) -> None:
    done: list[int] = []
    with pytest.raises(NotRecordable), record(journal, 'r'):
        run(perform(Effect('tool', 'pay', object()), lambda: done.append(1)))
    assert done == []


class Broken(FakeBackend):
    async def start(self, *args: Any, **kwargs: Any) -> Any:
        raise StartFailed('no engine', hint='start one')


def message(*cells: str) -> AgentMessage:
    text = '\n'.join(f'```python\n{cell}\n```' for cell in cells)
    return AgentMessage(sender='x', content=text, formatted=CodeParser().parse_response(text))


def test_a_cell_that_no_sandbox_could_be_had_for_is_run_later(journal: SqliteJournal) -> None:
    with (
        Interpreter(backend=Broken(), unsafe=True) as interpreter,
        pytest.raises(SandboxError),
        record(journal, 'r'),
    ):
        interpreter(message('x = 1'))
    with Interpreter(backend=FakeBackend(), unsafe=True) as interpreter, record(journal, 'r'):
        assert interpreter(message('x = 1')).formatted.ok


@pytest.mark.parametrize('moment', ['begin', 'delta'])
def test_what_a_subscriber_has_stopped_before_it_was_begun_is_done(
    journal: SqliteJournal, moment: str
) -> None:
    paid: list[int] = []

    def pay() -> str:
        paid.append(1)
        emit('on its way')
        return 'paid'

    def broken(event: Event) -> None:
        if event.type == moment:
            raise BrokenPipeError

    effect = Effect('tool', 'pay', None)
    with subscribe(broken), pytest.raises(BrokenPipeError), record(journal, 'r'):
        run(perform(effect, pay))
    ending = nullcontext() if moment == 'begin' else pytest.raises(OutcomeUnknown)
    with ending, record(journal, 'r'):
        assert run(perform(effect, pay)) == 'paid'
    assert paid == [1]


def test_recorded_cells_need_no_sandbox(journal: SqliteJournal) -> None:
    with (
        Interpreter(backend=FakeBackend(['one\n', 'two\n']), unsafe=True) as interpreter,
        pytest.raises(ZeroDivisionError),
        record(journal, 'r'),
    ):
        first = interpreter(message('a', 'b'))
        raise ZeroDivisionError
    with Interpreter(backend=Broken(), unsafe=True) as interpreter, record(journal, 'r'):
        again = interpreter(message('a', 'b'))
    assert again == first
    assert [result.stdout for result in execution_results(again)] == ['one\n', 'two\n']


def test_an_interrupted_cell_has_an_unknown_outcome(journal: SqliteJournal) -> None:
    def crash(effect: Effect, context: Any, flow: Flow[Any]) -> Flow[Any]:
        if effect.kind == 'kernel':
            raise Crash
        return (yield from flow)

    def model(messages: Any) -> str:
        return '```python\npay()\n```' if len(messages) <= 2 else messages[-1]['content']

    def coder() -> Coder:
        return Coder(ScriptedModel(model), Interpreter(backend=FakeBackend(), unsafe=True))

    with coder() as agent, intercept(crash, Stage.LIVE), pytest.raises(Crash):
        agent.run('go', run_id='r', journal=journal)
    with coder() as agent:
        answer = agent.run('go', run_id='r', journal=journal)
        seen = agent.agent.memory.get_memory()[-2]
    assert 'It is not known whether this kernel call (interpreter) happened' in answer.content
    assert execution_results(seen)[0].outcome is Outcome.UNKNOWN


def test_only_what_is_done_passes_live_interceptors(journal: SqliteJournal) -> None:
    seen: list[str] = []

    def note(effect: Effect, context: Any, flow: Flow[Any]) -> Flow[Any]:
        seen.append(effect.name)
        return (yield from flow)

    def work(*names: str) -> None:
        for name in names:
            run(perform(Effect('tool', name, None), lambda: 1))

    with intercept(note, Stage.LIVE):
        with pytest.raises(ZeroDivisionError), record(journal, 'r'):
            work('a', 'b')
            raise ZeroDivisionError
        with record(journal, 'r'):
            work('a', 'b', 'c')
    assert seen == ['a', 'b', 'c']


def test_extensions_keep_notes_and_see_what_was_done(journal: SqliteJournal) -> None:
    def here() -> Recording:
        recording = current_recording()
        assert recording is not None
        return recording

    with pytest.raises(ZeroDivisionError), record(journal, 'r'):
        assert here().noted('container') is None
        here().note('container', {'id': 1})
        here().note('container', {'id': 2})
        run(perform(Effect('kernel', 'x', 'a = 1'), lambda: 1))
        raise ZeroDivisionError
    with record(journal, 'r'):
        assert here().noted('container') == {'id': 2}
        assert [here().decode(intent.body) for intent in here().effects()] == ['a = 1']
        run(perform(Effect('kernel', 'x', 'a = 1'), lambda: 1))
    assert current_recording() is None


async def gathered(delays: dict[str, float], asked: list[str], *, named: bool) -> list[str]:
    async def model(messages: Any) -> str:
        text = messages[0]['content']
        await asyncio.sleep(delays[text[0]])
        asked.append(text)
        return f'{text}+'

    async def chain(name: str, key: int) -> str:
        llm = AsyncScriptedModel(model)
        if named:
            with branch(key):
                return await steps(llm, name)
        return await steps(llm, name)

    async def steps(llm: Any, text: str) -> str:
        for _ in range(3):
            text = str(await llm.chat([{'role': 'user', 'content': text}]))
        return text

    return await asyncio.gather(chain('a', 0), chain('b', 1), chain('a' if named else 'c', 2))


@pytest.mark.parametrize('named', [True, False])
async def test_tasks_side_by_side_are_resumed_in_any_order(
    journal: SqliteJournal, *, named: bool
) -> None:
    asked: list[str] = []
    with pytest.raises(ZeroDivisionError), record(journal, 'r'):
        first = await gathered({'a': 0.03, 'b': 0.0, 'c': 0.01}, asked, named=named)
        raise ZeroDivisionError
    count = len(asked)
    with record(journal, 'r'):
        again = await gathered({'a': 0.0, 'b': 0.02, 'c': 0.0}, asked, named=named)
    assert again == first
    assert len(asked) == count == 9


async def test_tasks_side_by_side_go_on_where_each_of_them_was(journal: SqliteJournal) -> None:
    asked: list[str] = []

    def stop_at_seven(effect: Effect, context: Any, flow: Flow[Any]) -> Flow[Any]:
        if len(asked) >= 6:
            raise Crash
        return (yield from flow)

    with intercept(stop_at_seven, Stage.LIVE), pytest.raises(BaseException), record(journal, 'r'):  # noqa: B017
        await gathered({'a': 0.03, 'b': 0.0, 'c': 0.01}, asked, named=False)
    with record(journal, 'r') as again:
        again.answer = await gathered({'a': 0.0, 'b': 0.02, 'c': 0.0}, asked, named=False)
    assert again.answer == ['a+++', 'b+++', 'c+++']
    assert len(asked) - len(set(asked)) <= 3  # only what was being asked when it stopped


def test_one_after_the_other_order_is_a_fact(journal: SqliteJournal) -> None:
    def work(*names: str) -> None:
        for name in names:
            run(perform(Effect('tool', name, None), lambda: 1))

    with pytest.raises(ZeroDivisionError), record(journal, 'r'):
        work('a', 'b')
        raise ZeroDivisionError
    with pytest.raises(Diverged), record(journal, 'r'):
        work('b', 'a')


async def test_flows_in_an_event_loop_do_not_block_it(journal: SqliteJournal) -> None:
    """The journal is written in a thread: the loop goes on while the disk works."""
    main = threading.get_ident()
    threads: set[int] = set()
    append = journal.append

    def slow(*args: Any, **kwargs: Any) -> None:
        threads.add(threading.get_ident())
        time.sleep(0.05)
        append(*args, **kwargs)

    journal.append = slow  # type: ignore[method-assign]
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    ticking = asyncio.create_task(tick())
    with record(journal, 'r'):
        assert await arun(within(Effect('tool', 'x', None), call(lambda: 1))) == 1
    ticking.cancel()
    assert main not in threads
    assert ticks >= 2


async def test_a_cancellation_does_not_lose_what_has_happened(journal: SqliteJournal) -> None:
    """It comes while the outcome of an effect is being written."""
    append, writing = journal.append, asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(
        run_id: str, owner: str, expires: float, records: Any, blobs: Any, **kwargs: Any
    ) -> None:
        if records[0].type == 'result':
            loop.call_soon_threadsafe(writing.set)
            time.sleep(0.1)
        append(run_id, owner, expires, records, blobs, **kwargs)

    async def work() -> None:
        with record(journal, 'r'):
            await arun(perform(Effect('tool', 'pay', 3), lambda: 'paid'))

    journal.append = slow  # type: ignore[method-assign]
    task = asyncio.create_task(work())
    await writing.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with record(journal, 'r'):
        assert await arun(perform(Effect('tool', 'pay', 3), dies)) == 'paid'


def test_a_run_inside_of_a_run_records_its_own_effects(journal: SqliteJournal) -> None:
    done: list[str] = []

    def step(name: str) -> None:
        run(perform(Effect('tool', name, None), done.append, name))

    def work() -> None:
        step('before')
        with record(journal, 'inner') as inner:
            if not inner.is_done:
                step('inside')
        step('after')

    with pytest.raises(ZeroDivisionError), record(journal, 'outer'):
        work()
        raise ZeroDivisionError
    with record(journal, 'outer'):
        work()
    assert done == ['before', 'inside', 'after']
    names = {
        run_id: [r.name for r in journal.records(run_id) if r.type == 'intent']
        for run_id in ('outer', 'inner')
    }
    assert names == {'outer': ['before', 'after'], 'inner': ['inside']}


def test_limits_count_what_is_given_back(journal: SqliteJournal) -> None:
    def agent() -> Agent:
        class Talker(Agent):
            def forward(self, *message: Any, **kwargs: Any) -> Any:
                for number in range(4):
                    self.llm.chat([{'role': 'user', 'content': str(number)}])

        reply = Completion('x', usage=Usage(5, 5))
        return Talker(ScriptedModel(lambda _: reply), limits=RunLimits(tokens=20))

    for _ in range(2):
        with pytest.raises(LimitExceeded, match='used: 20'):
            agent().run('q', run_id='r', journal=journal)
    assert [record_.position for record_ in journal.records('r')] == ['1', '1', '2', '2']


def test_secrets_do_not_reach_the_file_and_the_run_resumes(
    journal: SqliteJournal, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = 'sk-live-0123456789abcdefghij'
    monkeypatch.setenv('SERVICE_TOKEN', 'correct-horse-battery')

    @tool_api
    def login(key: str, word: str) -> str:
        """Log in."""
        return f'logged in with {key}, {word}'

    def work() -> str:
        call_ = FunctionCall('login', {'key': secret, 'word': 'correct-horse-battery'})
        said = ActionExecutor([login])(AgentMessage(sender='x', content=call_)).content
        asked = [{'role': 'user', 'content': said.format_result()}]
        return str(ScriptedModel(lambda messages: messages[-1]['content']).chat(asked))

    with pytest.raises(ZeroDivisionError), record(journal, 'r'):
        assert secret in work()
        raise ZeroDivisionError
    with record(journal, 'r') as again:
        again.answer = work()
    assert again.answer == 'logged in with [redacted], [redacted]'
    journal.close()
    for path in tmp_path.iterdir():
        assert secret.encode() not in path.read_bytes()
        assert b'correct-horse-battery' not in path.read_bytes()
