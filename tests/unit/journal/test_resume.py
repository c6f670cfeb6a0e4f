"""Agents that are resumed: what is known is given back, and nothing is done twice."""

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from lagent.actions import ActionExecutor, AsyncActionExecutor, tool_api
from lagent.agents import Agent, AgentList, AsyncAgent, StreamingAgent
from lagent.agents.streaming_agent import AsyncStreamingAgent
from lagent.effects import Event, subscribe
from lagent.errors import OutcomeUnknown
from lagent.flow import run
from lagent.journal import (
    Diverged,
    JournalError,
    NoSuchRun,
    Redactor,
    RunLocked,
    current_recording,
    record,
)
from lagent.journal.lease import new_owner
from lagent.llms import AsyncScriptedModel, ScriptedModel
from lagent.positions import effect_id
from lagent.schema import AgentMessage, FunctionCall


class Crash(BaseException):
    """What a killed process looks like to the code that it was executing."""


class Steps(Agent):
    """Three model calls with a tool call after each, in a plain `forward` of a user."""

    def __init__(self, llm: Any, tools: Any, steps: int = 3, **kwargs: Any) -> None:
        super().__init__(llm, **kwargs)
        self.executor = tools
        self.steps = steps

    def forward(self, *message: AgentMessage, session_id: Any = 0, **kwargs: Any) -> Any:
        text = str(message[0].content)
        for step in range(self.steps):
            reply = self.llm.chat([{'role': 'user', 'content': f'{text} {step}'}])
            asked = AgentMessage(sender='x', content=FunctionCall('note', {'line': str(reply)}))
            text = self.executor(asked).content.format_result()
        return f'answer: {text}'


class AsyncSteps(AsyncAgent):
    def __init__(self, llm: Any, tools: Any, steps: int = 3, **kwargs: Any) -> None:
        super().__init__(llm, **kwargs)
        self.executor = tools
        self.steps = steps

    async def forward(self, *message: AgentMessage, session_id: Any = 0, **kwargs: Any) -> Any:
        text = str(message[0].content)
        for step in range(self.steps):
            reply = await self.llm.chat([{'role': 'user', 'content': f'{text} {step}'}])
            asked = AgentMessage(sender='x', content=FunctionCall('note', {'line': str(reply)}))
            text = (await self.executor(asked)).content.format_result()
        return f'answer: {text}'


class World:
    """What effects change, and where the process dies: before or in the middle of an effect."""

    def __init__(self, die_at: int | None = None) -> None:
        self.lines: list[str] = []
        self.asked: list[str] = []
        self.left = die_at

    def step(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Crash

    def model(self, messages: Any) -> str:
        self.step()
        self.asked.append(messages[-1]['content'])
        return f'<{messages[-1]["content"]}>'

    def tools(self, kind: Any = ActionExecutor) -> Any:
        world = self

        @tool_api
        def note(line: str) -> str:
            """Note a line."""
            world.step()
            world.lines.append(line)
            world.step()
            return f'noted {line}'

        return kind([note])


def make(world: World) -> Steps:
    return Steps(ScriptedModel(world.model), world.tools())


EXPECTED = 'answer: noted <noted <noted <q 0> 1> 2>'


def test_a_recorded_run_gives_what_a_call_gives(journal: Any) -> None:
    answer = make(World()).run('q', run_id='r', journal=journal)
    assert answer == make(World())('q')
    assert answer.content == EXPECTED
    assert journal.run('r').status == 'done'
    assert [record.type for record in journal.records('r')] == ['intent', 'result'] * 6
    assert [record.position for record in journal.records('r')][::2] == list('123456')


def test_a_run_that_has_ended_gives_its_answer_without_an_effect(journal: Any) -> None:
    make(World()).run('q', run_id='r', journal=journal)
    agent = make(World(die_at=0))
    answer = agent.run(run_id='r', journal=journal)
    assert answer.content == EXPECTED
    assert [message.content for message in agent.memory.get_memory()] == ['q', EXPECTED]


@pytest.mark.parametrize('die_at', range(9))
def test_a_run_goes_on_where_it_was(journal: Any, die_at: int) -> None:
    dying, later = World(die_at), World()
    with pytest.raises(Crash):
        make(dying).run('q', run_id='r', journal=journal)
    answer = make(later).run('q', run_id='r', journal=journal)
    model_calls = dying.asked + later.asked
    assert len(model_calls) == len(set(model_calls))
    lines = dying.lines + later.lines
    in_tool = die_at % 3 != 0
    if in_tool:
        # Nobody knows whether the line was noted; it is said, and it is not done again.
        assert 'It is not known whether' in answer.content or 'It is not known' in str(
            journal.records('r')
        )
    else:
        assert answer.content == EXPECTED
    assert len(lines) == len(set(lines))
    assert journal.run('r').status == 'done'


def test_events_say_what_is_replayed(journal: Any) -> None:
    with pytest.raises(Crash):
        make(World(3)).run('q', run_id='r', journal=journal)
    events: list[Event] = []
    with subscribe(events.append):
        make(World()).run('q', run_id='r', journal=journal)
    begun = [(event.effect.kind, event.replayed) for event in events if event.type == 'begin']
    assert begun == [('model', True), ('tool', True)] + [('model', False), ('tool', False)] * 2


async def test_asynchronous_agents_resume(journal: Any) -> None:
    dying, later = World(3), World()
    agent = AsyncSteps(AsyncScriptedModel(dying.model), dying.tools(AsyncActionExecutor))
    with pytest.raises(Crash):
        await agent.run('q', run_id='r', journal=journal)
    agent = AsyncSteps(AsyncScriptedModel(later.model), later.tools(AsyncActionExecutor))
    answer = await agent.run('q', run_id='r', journal=journal)
    assert answer.content == EXPECTED
    assert dying.lines + later.lines == ['<q 0>', '<noted <q 0> 1>', '<noted <noted <q 0> 1> 2>']


def test_streaming_agents_replay_a_reply_in_one_piece(journal: Any) -> None:
    class Twice(StreamingAgent):
        def forward(self, *message: Any, session_id: Any = 0, **kwargs: Any) -> Any:
            yield from super().forward(*message, session_id=session_id)
            if current_recording() is not None and not self.may_go_on:
                raise Crash

    agent = Twice(ScriptedModel(['a long reply, in pieces']))
    agent.may_go_on = False
    with pytest.raises(Crash):
        list(agent.run('q', run_id='r', journal=journal))
    again = Twice(ScriptedModel([]))
    again.may_go_on = True
    texts = [message.content for message in again.run('q', run_id='r', journal=journal)]
    assert set(texts) == {'a long reply, in pieces'}
    assert [message.content for message in again.memory.get_memory()] == ['q', texts[0]]


async def test_asynchronous_streaming_agents_are_recorded(journal: Any) -> None:
    agent = AsyncStreamingAgent(AsyncScriptedModel(['a long reply, in pieces']))
    texts = [m.content async for m in agent.run('q', run_id='r', journal=journal)]
    again = [m.content async for m in agent.run('q', run_id='r', journal=journal)]
    assert again == texts[-1:] == ['a long reply, in pieces']


def conversing(journal: Any, questions: int, **kwargs: Any) -> list[str]:
    """A program that asks so many questions in one session; what the last one's model reads."""
    read: list[list[str]] = []

    def answer(messages: Any) -> str:
        read.append([message['content'] for message in messages])
        return f'answer to {messages[-1]["content"]}'

    agent = Agent(ScriptedModel(answer))
    for number in range(questions):
        agent.run(f'q{number} my-known-secret', run_id=f'r{number}', journal=journal, **kwargs)
    return read[-1] if read else []


@pytest.mark.parametrize('redactor', [None, Redactor(values=['my-known-secret'])])
def test_a_program_of_several_runs_knows_all_of_them_when_it_is_executed_again(
    journal: Any, tmp_path: Path, redactor: Any
) -> None:
    conversing(journal, 3, redactor=redactor)  # here its process dies
    resumed = conversing(journal, 4, redactor=redactor)
    assert len(resumed) == 7
    uninterrupted = conversing(tmp_path / 'other.db', 4, redactor=redactor)
    if redactor is not None:
        uninterrupted = [redactor.text(text) for text in uninterrupted[:-1]] + uninterrupted[-1:]
    assert resumed == uninterrupted


def test_a_run_that_has_ended_takes_nothing_from_what_is_known_since(journal: Any) -> None:
    agent = Agent(ScriptedModel(lambda messages: f'answer to {messages[-1]["content"]}'))
    for number in (0, 1):
        agent.run(f'q{number}', run_id=f'r{number}', journal=journal)
    agent('not recorded')
    for number in (0, 1):
        agent.run(f'q{number}', run_id=f'r{number}', journal=journal)
    contents = [message.content for message in agent.memory.get_memory()]
    assert contents == [
        *('q0', 'answer to q0', 'q1', 'answer to q1'),
        *('not recorded', 'answer to not recorded'),
    ]


def test_memory_from_before_the_run_is_part_of_it(journal: Any) -> None:
    first = Agent(ScriptedModel(['one', Crash()]))
    first('before', session_id='s')
    with pytest.raises(Crash):
        first.run('q', run_id='r', journal=journal, session_id='s')
    second = Agent(ScriptedModel(lambda messages: str(len(messages))))
    answer = second.run(run_id='r', journal=journal)
    assert answer.content == '3'
    contents = [message.content for message in second.memory.get_memory('s')]
    assert contents == ['before', 'one', 'q', '3']


def test_another_way_is_refused_with_the_first_difference(journal: Any) -> None:
    with pytest.raises(Crash):
        make(World(3)).run('q', run_id='r', journal=journal)
    agent = make(World())
    agent.llm = ScriptedModel(lambda messages: 'another')

    class Other(Steps):
        def forward(self, *message: Any, **kwargs: Any) -> Any:
            self.llm.chat([{'role': 'user', 'content': 'something else'}])

    with pytest.raises(Diverged) as caught:
        Other(agent.llm, agent.executor).run('q', run_id='r', journal=journal)
    assert caught.value.position == '1'
    assert '-  "content": "q 0"' in str(caught.value)
    assert '+  "content": "something else"' in str(caught.value)


def test_a_shorter_way_is_refused_too(journal: Any) -> None:
    with pytest.raises(Crash):
        make(World(7)).run('q', run_id='r', journal=journal)
    world = World()
    with pytest.raises(Diverged, match='the run ends'):
        Steps(ScriptedModel(world.model), world.tools(), steps=1).run(
            'q', run_id='r', journal=journal
        )
    assert world.lines == []


def test_another_question_is_refused(journal: Any) -> None:
    with pytest.raises(Crash):
        make(World(3)).run('q', run_id='r', journal=journal)
    with pytest.raises(Diverged, match='question'):
        make(World()).run('another', run_id='r', journal=journal)


def test_a_question_that_is_given_again_has_its_secrets(journal: Any) -> None:
    question = 'log in with sk-0123456789abcdefghij'
    with pytest.raises(Crash):
        Agent(ScriptedModel([Crash()])).run(question, run_id='r', journal=journal)
    llm = ScriptedModel(['a'])
    Agent(llm).run(question, run_id='r', journal=journal)
    assert llm.calls[0].messages[-1]['content'] == question


def test_images_are_written_once(journal: Any) -> None:
    image = 'data:image/png;base64,' + 'A' * 100_000
    written: list[int] = []
    append = journal.append

    def counting(
        run_id: str, owner: str, expires: float, records: Any, blobs: Any, **kwargs: Any
    ) -> None:
        written.extend(len(data) for data in blobs.values())
        append(run_id, owner, expires, records, blobs, **kwargs)

    journal.append = counting
    llm = ScriptedModel(lambda messages: 'seen')
    with record(journal, 'r'):
        for number in range(3):
            llm.chat([{'role': 'user', 'content': image}, {'role': 'user', 'content': str(number)}])
    assert written == [len(image)]


def test_what_only_holds_agents_has_no_runs(journal: Any) -> None:
    with pytest.raises(TypeError, match='only holds agents'):
        AgentList([Agent()]).run('q', journal=journal)


def test_an_error_that_the_run_survived_is_history(journal: Any) -> None:
    def forward(agent: Agent, *message: Any, session_id: Any = 0, **kwargs: Any) -> str:
        try:
            agent.llm.chat([{'role': 'user', 'content': 'first'}])
        except ValueError as error:
            return str(agent.llm.chat([{'role': 'user', 'content': f'after {error}'}]))
        return 'no error'

    kind = type('Careful', (Agent,), {'forward': forward})
    with pytest.raises(Crash):
        kind(ScriptedModel([ValueError('bad'), Crash()])).run('q', run_id='r', journal=journal)
    answer = kind(ScriptedModel(['done'])).run('q', run_id='r', journal=journal)
    assert answer.content == 'done'


def test_an_error_that_ended_the_run_is_tried_again(journal: Any) -> None:
    with pytest.raises(ValueError, match='down'):
        Agent(ScriptedModel([ValueError('down')])).run('q', run_id='r', journal=journal)
    assert journal.run('r').status == 'failed'
    assert Agent(ScriptedModel(['up'])).run('q', run_id='r', journal=journal).content == 'up'


def test_a_tool_that_is_idempotent_is_called_again(journal: Any) -> None:
    calls: list[str] = []

    def executor(*, dies: bool) -> ActionExecutor:
        @tool_api(idempotent=True)
        def look(name: str) -> str:
            """Look something up."""
            calls.append(name)
            if dies:
                raise Crash
            return 'found'

        return ActionExecutor([look])

    def work(tools: ActionExecutor) -> str:
        asked = AgentMessage(sender='x', content=FunctionCall('look', {'name': 'a'}))
        return str(tools(asked).content.format_result())

    with pytest.raises(Crash), record(journal, 'r'):
        work(executor(dies=True))
    with record(journal, 'r') as again:
        again.answer = work(executor(dies=False))
    assert again.answer == 'found'
    assert calls == ['a', 'a']


def test_tools_of_one_message_are_known_by_their_branch(journal: Any) -> None:
    done: list[str] = []

    def executor(crash_at: str) -> ActionExecutor:
        @tool_api
        def act(name: str) -> str:
            """Act."""
            done.append(f'{name} as {effect_id()}')
            if name == crash_at:
                raise Crash
            return name.upper()

        return ActionExecutor([act])

    calls = [FunctionCall('act', {'name': name}) for name in 'abc']
    message = AgentMessage(sender='x', content=calls)
    with pytest.raises(Crash), record(journal, 'r'):
        executor('c')(message)
    with record(journal, 'r') as again:
        again.answer = [one.format_result() or one.errmsg for one in executor('')(message).content]
    assert again.answer[:2] == ['A', 'B']
    assert 'not known' in again.answer[2]
    assert sorted(done) == [f'{name} as r:0+[{i}].1' for i, name in enumerate('abc')]


async def test_tasks_without_branches_are_known_by_what_they_ask(journal: Any) -> None:
    delays = {'a': 0.02, 'b': 0.0}

    async def model(messages: Any) -> str:
        name = messages[0]['content'][0]
        if delays[name] is None:
            raise Crash
        await asyncio.sleep(delays[name] or 0)
        return f'{messages[0]["content"]}+'

    async def two(name: str) -> str:
        llm = AsyncScriptedModel(model)
        first = await llm.chat([{'role': 'user', 'content': name}])
        return str(await llm.chat([{'role': 'user', 'content': str(first)}]))

    with record(journal, 'r') as once:
        once.answer = await asyncio.gather(two('a'), two('b'))
        order = [r.digest for r in journal.records('r') if r.type == 'intent']
        raise_after = once
    assert raise_after.answer == ['a++', 'b++']
    assert len(set(order)) == 4


def test_what_is_being_executed_is_locked(journal: Any) -> None:
    with (
        record(journal, 'r'),
        pytest.raises(RunLocked, match='process') as caught,
        record(journal, 'r'),
    ):
        pass
    assert caught.value.retryable
    with pytest.raises(NoSuchRun):
        journal.acquire('other', new_owner(), 0.0)


def test_unknown_can_be_told_to_plain_code(journal: Any) -> None:
    from lagent.effects import Effect, perform

    effect = Effect('tool', 'pay', {'amount': 3})

    def pay(*, dies: bool) -> str:
        if dies:
            raise Crash
        return 'paid'

    with pytest.raises(Crash), record(journal, 'r'):
        run(perform(effect, pay, dies=True))
    for _ in range(2):  # what was told once is told again
        with pytest.raises(OutcomeUnknown, match='not known'), record(journal, 'r'):
            run(perform(effect, pay, dies=False))


def test_a_script_of_several_runs_in_one_session_goes_on_with_all_it_knew(tmp_path: Any) -> None:
    asked: list[Any] = []

    def model(messages: Any) -> str:
        asked.append([message['content'] for message in messages])
        return f'answer to {messages[-1]["content"]}'

    def script(count: int) -> None:
        agent = Agent(ScriptedModel(model))
        for number in range(count):
            agent.run(f'q{number}', run_id=f'r{number}', journal=tmp_path / 'runs.db')

    script(2)
    script(3)
    assert asked[-1] == ['q0', 'answer to q0', 'q1', 'answer to q1', 'q2']
    assert len(asked) == 3


class Obliging:
    """A model behind a proxy that has whatever it is asked for."""

    def chat(self, *args: Any, **kwargs: Any) -> str:
        return 'said'

    def __getattr__(self, name: str) -> Any:
        if name.startswith('__'):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


def test_a_part_that_has_every_attribute_is_no_keeper_of_sessions(journal: Any) -> None:
    agent = Agent(Obliging())
    agent.view = Mock()
    assert agent.run('q', run_id='r', journal=journal).content == 'said'


def test_no_journal_is_said(journal: Any) -> None:
    with pytest.raises(JournalError, match='There is no journal: give a Journal, a path'):
        Agent(ScriptedModel(['a'])).run('q', journal=None)
