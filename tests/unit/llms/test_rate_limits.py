"""Limits that sessions share."""

import asyncio
import copy
import threading
import time
from collections.abc import Callable

import pytest

from lagent.llms import GPTAPI, AsyncGPTAPI, RateLimited, RateLimits, RetryPolicy, Usage
from lagent.llms.rate_limits import estimate_request

from .conftest import FakeServer, failure, message

Serve = Callable[..., FakeServer]
ASK = [{'role': 'user', 'content': 'q'}]


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def limits(*args: int | None, max_wait: float = 300.0) -> tuple[RateLimits, Clock]:
    clock = Clock()
    return RateLimits(*args, max_wait=max_wait, clock=clock, sleep=clock.sleep), clock


async def begin(shared: RateLimits, tokens: int = 0, usage: Usage | None = None) -> None:
    async with shared.slot(tokens) as ticket:
        ticket.settle(usage)


async def test_no_minute_has_more_requests_than_allowed() -> None:
    shared, clock = limits(3)
    begun = []
    for _ in range(8):
        await begin(shared)
        begun.append(clock.now - 1000)
        clock.now += 10
    assert begun == [0, 10, 20, 60, 70, 80, 120, 130]


async def test_no_minute_has_more_tokens_than_allowed() -> None:
    shared, clock = limits(None, 100)
    begun = []
    for tokens in (60, 40, 30, 50):
        await begin(shared, tokens)
        begun.append(clock.now - 1000)
        clock.now += 10
    assert begun == [0, 10, 60, 70]


async def test_what_a_request_really_cost_is_counted() -> None:
    shared, clock = limits(None, 100)
    for _ in range(4):
        await begin(shared, 70, Usage(5, 5))
    assert clock.slept == []
    await begin(shared, 60, Usage(80, 20))
    await begin(shared, 1)
    assert clock.slept == [60]


@pytest.mark.parametrize('max_wait', [300, 30])
async def test_who_waits_for_an_estimate_goes_on_when_it_turns_out_too_high(max_wait: int) -> None:
    shared = RateLimits(tokens_per_minute=10_000, max_wait=max_wait)

    async def ask(estimate: int) -> None:
        async with shared.slot(estimate) as ticket:
            await asyncio.sleep(0.02)
            ticket.settle(Usage(150, 50))

    async with asyncio.timeout(10):
        await asyncio.gather(ask(8_000), ask(8_000), ask(9_600))


async def test_a_limit_that_is_lowered_holds_from_then_on() -> None:
    shared = RateLimits(concurrency=2, max_wait=0.05)
    async with shared.slot(), shared.slot():
        shared.concurrency = 1
        with pytest.raises(RateLimited, match='2 running'):
            await begin(shared)
    await begin(shared)


async def test_a_request_larger_than_a_minute_goes_alone() -> None:
    shared, clock = limits(None, 100)
    await begin(shared, 1)
    await begin(shared, 500)
    assert clock.slept == [60]
    await begin(shared, 1)
    assert clock.slept == [60, 60]


async def test_only_so_many_run_at_the_same_time_and_in_order() -> None:
    shared = RateLimits(concurrency=2)
    running: set[int] = set()
    order = []
    most = 0

    async def work(number: int) -> None:
        nonlocal most
        async with shared.slot():
            order.append(number)
            running.add(number)
            most = max(most, len(running))
            await asyncio.sleep(0)
            running.discard(number)

    await asyncio.gather(*(work(number) for number in range(20)))
    assert most == 2
    assert order == list(range(20))


async def test_a_small_request_does_not_overtake_a_large_one() -> None:
    shared, _ = limits(None, 100)
    order = []

    async def work(name: str, tokens: int) -> None:
        async with shared.slot(tokens):
            order.append(name)

    await begin(shared, 90)
    await asyncio.gather(work('large', 80), work('small', 5))
    assert order == ['large', 'small']


async def test_who_gives_up_holds_nobody_up() -> None:
    shared = RateLimits(concurrency=1)
    async with shared.slot():
        first = asyncio.create_task(begin(shared))
        second = asyncio.create_task(begin(shared))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
    await asyncio.wait_for(second, 10)


async def test_the_wait_is_bounded_and_a_hopeless_one_is_not_begun() -> None:
    shared, clock = limits(1, max_wait=30)
    await begin(shared)
    with pytest.raises(RateLimited, match=r'RateLimits\(requests_per_minute=1, max_wait=30\)'):
        await begin(shared)
    assert clock.slept == []
    busy = RateLimits(concurrency=1, max_wait=0.01)
    async with busy.slot():
        with pytest.raises(RateLimited, match='1 running, 0 others waiting'):
            await begin(busy)
    await begin(busy)


async def test_what_no_running_request_can_shorten_is_refused_at_once() -> None:
    shared, clock = limits(1, max_wait=30)
    async with shared.slot():
        with pytest.raises(RateLimited):
            await begin(shared)
    assert clock.slept == []


def test_sessions_of_several_threads_share_them() -> None:
    shared = RateLimits(concurrency=1)
    inside: list[int] = []
    most = []

    async def work() -> None:
        for _ in range(20):
            async with shared.slot():
                inside.append(1)
                most.append(len(inside))
                await asyncio.sleep(0)
                inside.pop()

    threads = [threading.Thread(target=asyncio.run, args=(work(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert most == [1] * 80


def test_a_copy_is_the_same_limits() -> None:
    shared = RateLimits(1, 2, 3)
    assert copy.deepcopy({'rate_limits': shared})['rate_limits'] is shared


@pytest.mark.parametrize('name', ['requests_per_minute', 'tokens_per_minute', 'concurrency'])
def test_a_limit_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        RateLimits(**{name: 0})


def test_an_estimate_counts_texts_and_not_encoded_images() -> None:
    image = {'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,' + 'A' * 10**6}}
    text = {'type': 'text', 'text': 'x' * 296}
    assert estimate_request('x' * 300, 50) == 125
    assert estimate_request('你好' * 1000, 50) == 2050
    # `user` and `text` are a token each, and a reply of any length is taken for one of 512.
    assert estimate_request([{'role': 'user', 'content': [text, image]}], None) == 1000 + 76 + 512


async def test_models_that_share_limits(serve: Serve) -> None:
    shared = RateLimits(concurrency=1)
    server = serve(message('x'))
    awaited = AsyncGPTAPI('m', key='k', api_base=server.url, rate_limits=shared)
    blocking = GPTAPI('m', key='k', api_base=server.url, rate_limits=shared)
    async with shared.slot():
        tasks = [
            asyncio.create_task(awaited.chat(ASK)),
            asyncio.create_task(asyncio.to_thread(blocking.chat, ASK)),
        ]
        await asyncio.sleep(0.1)
        assert server.requests == []
    assert await asyncio.gather(*tasks) == ['x', 'x']


def test_every_attempt_takes_a_place_and_none_while_it_waits(serve: Serve) -> None:
    shared, clock = limits(2)
    server = serve(failure(500), message('x'))
    policy = RetryPolicy(attempts=2, base=0.001)
    llm = GPTAPI('m', key='k', api_base=server.url, retry=policy, rate_limits=shared)
    assert llm.chat(ASK) == 'x'
    assert llm.chat(ASK) == 'x'
    assert clock.slept == [60]


async def test_a_key_that_is_held_back_lets_others_pass() -> None:
    shared = RateLimits(concurrency=1)
    shared.hold(0.3, 'a')
    shared.hold(0.1, 'a')  # never shorter than what was said before
    assert shared.held('a') > 0.1
    order = []

    async def work(key: str, name: str) -> None:
        async with shared.slot(key=key):
            order.append(name)

    await asyncio.gather(work('a', 'a1'), work('b', 'b'), work('a', 'a2'))
    assert order == ['b', 'a1', 'a2']
    assert shared.held('a') == 0


@pytest.mark.parametrize('held', ['a', 'b'])
async def test_who_waits_for_a_place_when_a_hold_begins_still_gets_it(held: str) -> None:
    shared = RateLimits(concurrency=1)
    begun: list[str] = []

    async def ask(key: str) -> None:
        async with shared.slot(key=key):
            begun.append(key)

    async with shared.slot(key='other'):
        waiting = [asyncio.create_task(ask(key)) for key in ('a', 'b')]
        await asyncio.sleep(0.01)
        shared.hold(0.2, held)
    async with asyncio.timeout(5):
        await asyncio.gather(*waiting)
    assert begun == (['b', 'a'] if held == 'a' else ['a', 'b'])


async def test_who_waits_for_a_minute_lets_others_pass_once_it_is_held_back() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(round(seconds))
        await asyncio.Event().wait()

    shared = RateLimits(1, sleep=sleep)
    async with shared.slot(key='a'):
        pass

    async def ask(key: str) -> None:
        async with shared.slot(key=key):
            raise AssertionError('its minute is not over')

    waiting = [asyncio.create_task(ask(key)) for key in ('a', 'b')]
    await asyncio.sleep(0.01)
    assert slept == [60, 300], 'the second waits for the first'
    shared.hold(200, 'a')
    await asyncio.sleep(0.01)
    assert slept == [60, 300, 200, 60], 'the second waits for its own minute now'
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def test_one_retry_after_holds_back_the_other_sessions(serve: Serve) -> None:
    shared, clock = limits()
    server = serve(failure(429, retry_after='30'), message('x'))
    models = {'key': 'k', 'api_base': server.url, 'rate_limits': shared}
    with pytest.raises(RateLimited):
        GPTAPI('m', retry=1, **models).chat(ASK)
    assert shared.held('k') == 30
    assert GPTAPI('other', **{**models, 'key': 'free'}).chat(ASK) == 'x'
    assert clock.slept == []
    assert GPTAPI('m', **models).chat(ASK) == 'x'
    assert clock.slept == [30]


async def test_sessions_that_wait_already_are_held_back_too(serve: Serve) -> None:
    server = serve(failure(429, retry_after='1'), message('x'))
    shared = RateLimits(concurrency=1)
    llm = AsyncGPTAPI('m', key='k', api_base=server.url, rate_limits=shared)
    started = time.monotonic()
    assert await asyncio.gather(*(llm.chat(ASK, n) for n in range(4))) == ['x'] * 4
    assert time.monotonic() - started >= 1
    assert len(server.requests) == 5, 'nobody asked while the server wanted to be left alone'


def test_a_second_key_goes_on_while_the_first_is_held_back(serve: Serve) -> None:
    server = serve(failure(429, retry_after='1'), message('x'))
    llm = GPTAPI('m', key=['a', 'b'], api_base=server.url, retry=1)
    with pytest.raises(RateLimited):
        llm.chat(ASK)
    assert [llm.chat(ASK), llm.chat(ASK)] == ['x', 'x']
    assert [h['authorization'] for h in server.headers] == ['Bearer a', 'Bearer b', 'Bearer b']


def test_a_wait_that_is_refused_holds_nobody_back(serve: Serve) -> None:
    llm = GPTAPI('m', key='k', api_base=serve(failure(429, retry_after='3600')).url)
    with pytest.raises(RateLimited, match='3600'):
        llm.chat(ASK)
    assert llm.rate_limits.held('k') == 0


def test_the_policys_time_bounds_the_wait(serve: Serve) -> None:
    shared = RateLimits(1)
    policy = RetryPolicy(total=1)
    server = serve(message('x'))
    llm = GPTAPI('m', key='k', api_base=server.url, retry=policy, rate_limits=shared)
    llm.chat(ASK)
    with pytest.raises(TimeoutError):
        llm.chat(ASK)
