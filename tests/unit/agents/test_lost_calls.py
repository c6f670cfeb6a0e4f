"""Calls that can't go on: their event loop is gone, and their session is free again."""

import asyncio
import contextvars
import gc
import weakref

import pytest

from lagent.agents import AsyncAgent, AsyncStreamingAgent, StreamingAgent
from lagent.agents.sessions import Seat, _queues, wait_async
from lagent.limits import RunLimits

WITHIN = 20  # seconds


class Stream(AsyncStreamingAgent):
    async def forward(self, *message, session_id=0):
        for end in range(1, 4):
            await asyncio.sleep(0)
            yield message[0].content[:end]


class Hangs(AsyncAgent):
    async def forward(self, *message, session_id=0):
        if message[0].content == 'hang':
            await asyncio.Event().wait()
        return 'x'


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    gc.collect()
    assert len(_queues) == 0


@pytest.fixture
def loop():
    """A loop that is closed without the care that `asyncio.run` takes."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


async def begin(stream):
    return await anext(stream)


def last(agent, question='ghi'):
    async def read():
        return [item.content async for item in agent(question)][-1]

    return asyncio.run(asyncio.wait_for(read(), WITHIN))


def test_a_stream_that_is_kept_beyond_its_loop(loop):
    agent = Stream()
    kept = agent('abc')
    assert loop.run_until_complete(begin(kept)).content == 'a'
    loop.close()
    assert last(agent) == 'ghi'
    said = [message.content for message in agent.memory.get_memory()]
    assert said == ['abc', '[no answer: the stream was left before its end]', 'ghi', 'ghi']


def test_a_stream_that_is_dropped_after_its_loop(loop):
    agent = Stream()
    kept = agent('abc')
    loop.run_until_complete(begin(kept))
    loop.close()
    del kept
    gc.collect()
    assert len(_queues) == 0
    assert last(agent) == 'ghi'


def test_a_stream_that_is_dropped_while_its_loop_stands_still(loop):
    agent = Stream()
    kept = agent('abc')
    loop.run_until_complete(begin(kept))
    del kept
    gc.collect()
    assert last(agent) == 'ghi'
    loop.run_until_complete(asyncio.sleep(0.01))  # what is closed late disturbs nobody


def test_a_call_whose_loop_was_closed(loop):
    agent = Hangs()
    task = loop.create_task(agent('hang'))
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    answer = asyncio.run(asyncio.wait_for(agent('q'), WITHIN))
    assert answer.content == 'x'
    task._log_destroy_pending = False


def test_a_stream_that_nobody_can_read_is_no_reason_to_be_busy(loop):
    agent = Stream(limits=RunLimits(on_busy='raise'))
    kept = agent('abc')
    loop.run_until_complete(begin(kept))
    loop.close()
    assert last(agent) == 'ghi'


def test_a_call_that_is_ended_in_another_context_frees_its_session():
    class Sync(StreamingAgent):
        def forward(self, *message, session_id=0):
            yield 'a'

    flow = Sync()._turn(('q',), None, {})
    contextvars.copy_context().run(next, flow)
    assert len(_queues) == 1
    flow.close()


async def test_a_long_wait_leaves_no_callbacks_behind():
    seat = Seat(None, asyncio.get_running_loop())
    for _ in range(5):
        await wait_async(seat, 0.001)
    assert len(seat.turn()._done_callbacks) == 1
    seat.take_turn()
    await asyncio.wait_for(wait_async(seat, WITHIN), WITHIN)


async def test_a_dropped_stream_of_a_running_loop_is_closed_by_the_loop():
    seat = Seat(weakref.ref(Stream()), asyncio.get_running_loop())
    assert seat.stream() is None
    assert not seat.is_lost()
