"""One call at a time in a session, whoever calls: threads, tasks, streams that are left."""

import asyncio
import copy
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from lagent.agents import (
    Agent,
    AsyncAgent,
    AsyncStreamingAgent,
    Sequential,
    StreamingAgent,
)
from lagent.agents.sessions import _queues
from lagent.context import current_context
from lagent.errors import LimitExceeded, SessionBusy
from lagent.limits import RunLimits
from lagent.schema import AgentMessage

SESSIONS, CALLS = 200, 3


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    assert len(_queues) == 0


class Slow(Agent):
    """Answers when it is told to."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.begun, self.go = threading.Event(), threading.Event()

    def forward(self, *message, session_id=0):
        self.begun.set()
        assert self.go.wait(30)
        return f'to {message[0].content}'


class AsyncSlow(AsyncAgent):
    async def forward(self, *message, session_id=0):
        for _ in range(3):
            await asyncio.sleep(0)
        return f'to {message[0].content}'


class Stream(StreamingAgent):
    def forward(self, *message, session_id=0):
        for end in range(1, 4):
            yield message[0].content[:end]


class AsyncStream(AsyncStreamingAgent):
    async def forward(self, *message, session_id=0):
        for end in range(1, 4):
            await asyncio.sleep(0)
            yield message[0].content[:end]


def contents(agent, session=0):
    return [message.content for message in agent.memory.get_memory(session)]


def expected_of(session):
    return [text for n in range(CALLS) for text in (f'{session}.{n}', f'to {session}.{n}')]


def test_many_sessions_at_once_in_threads():
    class Echo(Agent):
        def forward(self, *message, session_id=0):
            time.sleep(0)
            assert current_context().session_id == session_id
            return f'to {message[0].content}'

    agent = Sequential(Echo(), Echo(name='again'))
    with ThreadPoolExecutor(32) as pool:
        # Every session is asked from several threads at once.
        jobs = [
            pool.submit(agent, f'{session}.{n}', session_id=session)
            for n in range(CALLS)
            for session in range(SESSIONS)
        ]
        answers = [job.result() for job in jobs]
    assert len(answers) == SESSIONS * CALLS
    for session in range(SESSIONS):
        said = contents(agent, session)
        assert said[1::2] == [f'to to {question}' for question in said[::2]]
        assert sorted(said[::2]) == [f'{session}.{n}' for n in range(CALLS)]
        assert len(contents(agent[0], session)) == len(contents(agent[1], session)) == 2 * CALLS


async def test_many_sessions_at_once_in_tasks():
    agent = AsyncSlow()
    await asyncio.gather(
        *(
            agent(f'{session}.{n}', session_id=session)
            for n in range(CALLS)
            for session in range(SESSIONS)
        )
    )
    for session in range(SESSIONS):
        assert contents(agent, session) == expected_of(session)  # in the order of the calls


def test_calls_of_one_session_are_answered_in_order():
    agent = Slow()
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(agent, 'a')
        assert agent.begun.wait(10)
        rest = []
        for text in 'bcd':
            rest.append(pool.submit(agent, text))
            while len(_queues._queues[id(agent), 0]) < len(rest) + 1:
                time.sleep(0.001)
        assert contents(agent) == ['a']
        agent.go.set()
        assert [job.result().content for job in [first, *rest]] == ['to a', 'to b', 'to c', 'to d']
    assert contents(agent) == ['a', 'to a', 'b', 'to b', 'c', 'to c', 'd', 'to d']


def test_another_session_does_not_wait():
    agent = Slow()
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(agent, 'a', session_id=session) for session in range(2)]
        while len(contents(agent, 0)) + len(contents(agent, 1)) < 2:
            time.sleep(0.001)
        agent.go.set()
        assert [job.result().content for job in jobs] == ['to a', 'to a']


def test_a_busy_session_can_be_an_error():
    agent = Slow(limits=RunLimits(on_busy='raise'))
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(agent, 'a')
        assert agent.begun.wait(10)
        with pytest.raises(SessionBusy, match='Session 0 is in use') as caught:
            agent('b')
        assert caught.value.retryable
        agent.go.set()
        assert job.result().content == 'to a'
    assert contents(agent) == ['a', 'to a']


def test_waiting_ends_with_the_time_of_the_run():
    agent = Slow(limits=RunLimits(seconds=0.2))
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(agent, 'a')
        assert agent.begun.wait(10)
        with pytest.raises(LimitExceeded, match='seconds'):
            agent('b')
        agent.go.set()
        assert job.result().content == 'to a'
    assert contents(agent) == ['a', 'to a']


async def test_a_cancelled_wait_gives_its_place_up():
    agent, go = AsyncSlow(), asyncio.Event()

    class Gate(AsyncAgent):
        async def forward(self, *message, session_id=0):
            await go.wait()
            return f'to {message[0].content}'

    agent = Gate()
    first, second, third = (asyncio.create_task(agent(text)) for text in 'abc')
    await asyncio.sleep(0)
    second.cancel()
    go.set()
    assert [(await first).content, (await third).content] == ['to a', 'to c']
    assert second.cancelled() or (await asyncio.gather(second, return_exceptions=True))
    assert contents(agent) == ['a', 'to a', 'c', 'to c']


def test_an_agent_may_call_itself_and_its_children():
    class Recursive(Agent):
        def __init__(self):
            super().__init__()
            self.child = Slow()
            self.child.go.set()

        def forward(self, message, session_id=0):
            if len(message.content) < 3:
                return self(f'{message.content}!')
            return self.child(message)

    agent = Recursive()
    assert agent('q').content == 'to q!!'


async def test_children_may_be_asked_at_the_same_time():
    class Both(AsyncAgent):
        def __init__(self):
            super().__init__()
            self.child = AsyncSlow()

        async def forward(self, *message, session_id=0):
            answers = await asyncio.gather(self.child('a'), self.child('b'))
            return [answer.content for answer in answers]

    assert (await Both()('q')).content == ['to a', 'to b']


def test_a_stream_that_is_left_frees_its_session():
    agent = Stream()
    for item in agent('abc'):
        assert item.content == 'a'
        break
    kept = agent('def')
    next(kept)  # kept, but nobody reads on
    assert [item.content for item in agent('ghi')] == ['g', 'gh', 'ghi', 'ghi']
    assert list(kept) == []
    left = '[no answer: the stream was left before its end]'
    assert contents(agent) == ['abc', left, 'def', left, 'ghi', 'ghi']


async def test_an_async_stream_that_is_left_frees_its_session():
    agent = AsyncStream()
    async for item in agent('abc'):
        assert item.content == 'a'
        break
    kept = agent('def')
    await anext(kept)
    assert [item.content async for item in agent('ghi')] == ['g', 'gh', 'ghi', 'ghi']
    assert [item async for item in kept] == []
    left = '[no answer: the stream was left before its end]'
    assert contents(agent) == ['abc', left, 'def', left, 'ghi', 'ghi']


async def test_a_stream_whose_task_has_ended_frees_its_session():
    agent, kept = AsyncStream(), []

    async def leave():
        kept.append(agent('abc'))
        await anext(kept[0])

    await asyncio.create_task(leave())
    assert [item.content async for item in agent('ghi')][-1] == 'ghi'


async def test_a_stream_that_is_read_by_another_task_is_waited_for():
    agent, begun, read_on = AsyncStream(), asyncio.Event(), asyncio.Event()

    async def read():
        items = []
        async for item in agent('abc'):
            items.append(item.content)
            begun.set()
            await read_on.wait()
        return items

    reader = asyncio.create_task(read())
    await asyncio.wait_for(begun.wait(), 10)
    other = asyncio.create_task(_collected(agent('def')))
    for _ in range(5):
        await asyncio.sleep(0)
    assert contents(agent) == ['abc']
    read_on.set()
    assert (await reader, (await other)[-1]) == (['a', 'ab', 'abc', 'abc'], 'def')
    assert contents(agent) == ['abc', 'abc', 'def', 'def']


async def _collected(items):
    return [item.content async for item in items]


def test_a_thread_of_a_pool_does_not_end_a_stream_that_others_may_read():
    agent = Stream()
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        kept = one.submit(agent, 'abc').result()
        assert one.submit(next, kept).result().content == 'a'
        with pytest.raises(SessionBusy, match='has not read to its end'):
            one.submit(list, agent('def')).result()
        assert [item.content for item in two.submit(list, kept).result()] == ['ab', 'abc', 'abc']
    assert contents(agent) == ['abc', 'abc']


def test_a_stream_whose_thread_has_ended_frees_its_session():
    agent, kept = Stream(), []
    thread = threading.Thread(target=lambda: (kept.append(agent('abc')), next(kept[0])))
    thread.start()
    thread.join()
    assert [item.content for item in agent('def')][-1] == 'def'


def test_a_failed_call_frees_its_session():
    class Broken(Agent):
        def forward(self, *message, session_id=0):
            raise RuntimeError('boom')

    agent = Broken()
    for _ in range(2):
        with pytest.raises(RuntimeError):
            agent('q')


def test_agents_can_be_copied_and_pickled():
    agent = Agent(memory={'type': 'lagent.memory.Memory'}, aggregator=None)
    agent.update_memory([AgentMessage(content='q')])
    for twin in (copy.deepcopy(agent), pickle.loads(pickle.dumps(agent))):
        assert contents(twin) == ['q']


def test_sessions_leave_nothing_behind_but_their_memory():
    class Echo(Agent):
        def forward(self, *message, session_id=0):
            return 'x'

    agent = Echo()
    for session in range(5_000):
        agent('q', session_id=session)
    assert len(agent.memory.memory_map) == 5_000
