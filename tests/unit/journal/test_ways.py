"""Runs with tasks of their own: what is history, what is new, and what is another way."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from lagent.actions import AsyncActionExecutor, tool_api
from lagent.agents import AsyncAgent
from lagent.effects import Effect, perform, within
from lagent.flow import Flow
from lagent.flow import run as drive
from lagent.journal import Diverged, record
from lagent.llms import AsyncScriptedModel
from lagent.llms.scripted import Stall
from lagent.positions import branch, branched
from lagent.schema import AgentMessage, FunctionCall

Way = Callable[['Worker'], Awaitable[Any]]


class Stop(Exception):
    pass


class Worker(AsyncAgent):
    """Goes a way of the test's own, with a tool that notes what is done."""

    def __init__(self, way: Way, model: Any = lambda _: 'said') -> None:
        super().__init__(AsyncScriptedModel(model))
        self.way, self.done = way, []

        @tool_api
        async def note(line: str) -> str:
            """Note a line."""
            await asyncio.sleep(0.02)
            self.done.append(line)
            return line

        self.tools = AsyncActionExecutor([note])

    async def forward(self, *message: AgentMessage, **kwargs: Any) -> Any:
        return await self.way(self)

    async def note(self, line: str) -> str:
        answer = await self.tools(AgentMessage(content=FunctionCall('note', {'line': line})))
        return str(answer.content.format_result())

    async def say(self, words: str = 'q') -> str:
        return str(await self.llm.chat([{'role': 'user', 'content': words}]))


@pytest.fixture
def run(tmp_path: Path) -> Any:
    def attempt(way: Way, model: Any = lambda _: 'said', again: str = 'run') -> Worker:
        worker = Worker(way, model)
        method = getattr(worker, again)
        told = {'run_id': 'r', 'journal': tmp_path / 'runs.db'}
        asked = ['q'] if again == 'run' else []
        try:
            worker.answer = asyncio.run(method(*asked, **told)).content
        except Exception as error:
            error.noted = worker.done
            raise
        return worker

    return attempt


def mailing(text: str, *, dies: bool) -> Way:
    async def way(worker: Worker) -> Any:
        await asyncio.gather(worker.note('a'), worker.note('b'))
        await worker.note(f'to Ada: {text}')
        await worker.note('to Ben')
        if dies:
            raise Stop
        return 'ok'

    return way


def test_changed_code_is_not_run_behind_tasks_either(run):
    with pytest.raises(Stop):
        run(mailing('v1', dies=True))
    with pytest.raises(Diverged, match='Ada: v2') as caught:
        run(mailing('v2', dies=False))
    assert caught.value.noted == []
    assert run(mailing('v1', dies=False)).done == []


def test_what_a_task_had_not_begun_yet_is_done(run):
    """Three tasks; the process dies when two of them have begun, and the third comes first."""

    def way(order: str, dies: bool) -> Way:
        async def all_of_them(worker: Worker) -> Any:
            async def one(name: str) -> str:
                await asyncio.sleep(0.005 * order.index(name))
                if dies and name == 'c':
                    await asyncio.sleep(0.3)
                    raise Stop
                return await worker.note(name)

            return await asyncio.gather(*map(one, 'abc'))

        return all_of_them

    with pytest.raises(Stop):
        run(way('abc', dies=True))
    worker = run(way('cba', dies=False))
    assert worker.answer == ['a', 'b', 'c']
    assert 'c' in worker.done


def test_an_error_that_ended_the_run_is_tried_again_whatever_other_tasks_did(run):
    is_down = True

    def model(_: Any) -> str:
        if is_down:
            raise ConnectionError('503')
        return 'fine'

    async def way(worker: Worker) -> Any:
        async def notes() -> str:
            for line in 'abc':
                await worker.note(line)
            return 'noted'

        found = await asyncio.gather(worker.say(), notes(), return_exceptions=True)
        for cause in (each for each in found if type(each) is ConnectionError):
            raise RuntimeError('the run has failed') from cause
        return found

    for _ in range(2):
        with pytest.raises(RuntimeError):
            run(way, model)
    is_down = False
    worker = run(way, model)
    assert worker.answer == ['fine', 'noted']
    assert worker.done == []


@pytest.mark.parametrize('then', ['nothing', 'a note', 'a note of its task'])
def test_an_error_that_another_one_was_raised_for_is_tried_again(run, then):
    """It ended the run without being named, unless its own task went on after it."""
    is_down = True

    def model(_: Any) -> str:
        if is_down:
            raise ConnectionError('503')
        return 'fine'

    async def way(worker: Worker) -> Any:
        async def ask() -> str:
            try:
                return await worker.say()
            except ConnectionError:
                if then != 'nothing':
                    told = worker.note('down')
                    await (asyncio.create_task(told) if then == 'a note of its task' else told)
                raise RuntimeError('the model is down')  # noqa: B904 - what it says not

        async def notes() -> str:
            for line in 'abc':
                await worker.note(line)
            return 'noted'

        said, noted = await asyncio.gather(ask(), notes(), return_exceptions=True)
        if isinstance(said, Exception):
            raise said
        return [said, noted]

    for _ in range(2):
        with pytest.raises(RuntimeError):
            run(way, model)
    is_down = False
    if then != 'nothing':
        with pytest.raises(RuntimeError):
            run(way, model)
        return
    worker = run(way, model)
    assert worker.answer == ['fine', 'noted']
    assert worker.done == []


@pytest.mark.parametrize('depth', [1, 2])
def test_an_error_is_history_if_all_that_came_after_it_is_in_branches(run, depth):
    def way(*, dies: bool) -> Way:
        async def send(worker: Worker, name: str) -> None:
            with branch(name), branch('inner') if depth == 2 else nullcontext():
                await worker.note(f'to {name}')

        async def all_of_them(worker: Worker) -> Any:
            try:
                name = await worker.say()
            except ConnectionError:
                name = 'ann'
            await asyncio.gather(send(worker, name), send(worker, 'bob'))
            if dies:
                raise Stop
            return name

        return all_of_them

    def model(_: Any) -> str:
        raise ConnectionError('503')

    with pytest.raises(Stop):
        run(way(dies=True), model)
    worker = run(way(dies=False), lambda _: 'cyd')
    assert (worker.answer, worker.done) == ('ann', [])


@pytest.mark.parametrize('depth', [1, 2])
def test_an_error_in_a_branch_is_not_history_for_what_another_one_did(run, depth):
    def way(*, dies: bool) -> Way:
        async def ask(worker: Worker) -> str:
            with branch('asks'):
                try:
                    return await worker.say()
                except ConnectionError:
                    await asyncio.sleep(0.2)
                    if dies:
                        raise Stop from None
                    return 'nothing'

        async def send(worker: Worker) -> None:
            await asyncio.sleep(0.05)
            with branch('sends'), branch('inner') if depth == 2 else nullcontext():
                await worker.note('to bob')

        async def both(worker: Worker) -> Any:
            said, _ = await asyncio.gather(ask(worker), send(worker))
            return said

        return both

    def model(_: Any) -> str:
        raise ConnectionError('503')

    with pytest.raises(Stop):
        run(way(dies=True), model)
    worker = run(way(dies=False), lambda _: 'cyd')
    assert (worker.answer, worker.done) == ('cyd', [])


def in_time(*, dies: bool) -> Way:
    async def way(worker: Worker) -> Any:
        try:
            async with asyncio.timeout(0.2):
                text = await worker.say()
        except TimeoutError:
            text = 'fallback'
        await worker.note(text)
        if dies:
            raise Stop
        return text

    return way


def test_a_call_that_was_cut_off_is_cut_off_again(run):
    with pytest.raises(Stop):
        run(in_time(dies=True), [Stall(5.0, 'slow')])
    worker = run(in_time(dies=False), ['quick now'])
    assert (worker.answer, worker.done) == ('fallback', [])
    again = run(in_time(dies=False), [], 'rerun')
    assert (again.answer, again.done) == ('fallback', [])


def test_a_run_that_was_cut_off_asks_again(run):
    async def cancelled(worker: Worker) -> Any:
        async with asyncio.timeout(0.1):
            return await worker.say()

    with pytest.raises(TimeoutError):
        run(cancelled, [Stall(5.0, 'slow')])
    assert run(cancelled, ['quick now']).answer == 'quick now'


@pytest.mark.parametrize('notes', [2, 3])
def test_calls_of_one_message_belong_to_the_task_that_makes_them(run, notes):
    """First one task is slow, then, as replies are known, the other one: batches swap places."""

    def way(*, dies: bool) -> Way:
        async def both(worker: Worker) -> Any:
            async def one(name: str, count: int) -> str:
                plan = await worker.say(name)
                calls = [FunctionCall('note', {'line': plan})] * (count - 1)
                calls.append(FunctionCall('note', {'line': f'{name} alone'}))
                return str(len((await worker.tools(AgentMessage(content=calls))).content))

            done = await asyncio.gather(one('ann', notes), one('bob', 2))
            if dies:
                raise Stop
            return done

        return both

    async def model(messages: Any) -> str:
        await asyncio.sleep(0.3 if messages[-1]['content'] == 'ann' else 0.0)
        return 'plan'

    with pytest.raises(Stop):
        run(way(dies=True), model)
    worker = run(way(dies=False), lambda _: 'never asked')
    assert (worker.answer, worker.done) == ([str(notes), '2'], [])


def test_what_was_done_before_another_end_is_not_denied(run):
    def way(*lines: str, dies: bool = False) -> Way:
        async def notes(worker: Worker) -> Any:
            await asyncio.gather(*map(worker.note, lines))
            if dies:
                raise Stop

        return notes

    with pytest.raises(Stop):
        run(way('a', 'b', dies=True))
    with pytest.raises(Diverged, match='the run ends\nWhat this attempt has done') as caught:
        run(way('a', 'c'))  # it may have been a task that had not begun yet
    assert (caught.value.position, caught.value.done) == ('2', True)


def test_a_batch_behind_a_tool_that_is_given_back_is_where_it_was(tmp_path):
    """What the tool consists of is not done again, so it must not name what comes later."""

    def way(answers: list[Any]) -> Flow[Any]:
        inner = perform(Effect('tool', 'inner', None), lambda: 'inner')
        answers.append((yield from within(Effect('tool', 'outer', None), inner)))
        (only,) = branched([perform(Effect('tool', 'one', None), lambda: 'one')])
        answers.append((yield from only))

    found: list[Any] = []
    for ends in (False, True):
        with suppress(Stop), record(tmp_path / 'runs.db', 'r'):
            drive(way(found))
            if not ends:
                raise Stop
    assert found == ['inner', 'one'] * 2
