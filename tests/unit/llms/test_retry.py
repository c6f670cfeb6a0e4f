"""What follows a failed attempt, without waiting for it."""

import asyncio
import email.utils
from typing import Any

import pytest

from lagent.context import run_context
from lagent.errors import LimitExceeded
from lagent.limits import RunLimits
from lagent.llms import (
    AuthenticationFailed,
    BadReply,
    ContextOverflow,
    EmptyReply,
    ModelCallFailed,
    ModelTimeout,
    ModelUnavailable,
    RateLimited,
    RetryPolicy,
    StreamCut,
    Usage,
)
from lagent.llms.retry import Attempts
from lagent.utils.retry_after import parse_retry_after

POLICY = RetryPolicy(attempts=4, total=100, base=1, cap=3, max_retry_after=60)


def wait(error: ModelCallFailed, attempt: int = 1, elapsed: float = 0, jitter: float = 1) -> Any:
    return POLICY.wait(error, attempt, elapsed, jitter)


def limited(seconds: float | None) -> RateLimited:
    return RateLimited('slow down', status=429, retry_after=seconds)


def test_waits_double_up_to_a_cap_and_jitter_at_most_halves_them() -> None:
    error = ModelUnavailable('down')
    assert [wait(error, n) for n in (1, 2, 3)] == [1, 2, 3]
    assert [wait(error, n, jitter=0) for n in (1, 2, 3)] == [0.5, 1, 1.5]


def test_attempts_and_time_are_bounded() -> None:
    assert wait(ModelUnavailable('down'), attempt=4) is None
    assert wait(ModelUnavailable('down'), elapsed=99.5) is None
    assert RetryPolicy(attempts=10**6, total=1e9).wait(ModelUnavailable('x'), 5000, 0, 1) == 30


def test_the_server_says_how_long() -> None:
    assert wait(limited(2), jitter=0) == 2
    assert 2 <= wait(limited(2), jitter=1) <= 3
    assert wait(limited(3600)) is None
    patient = RetryPolicy(total=4000, max_retry_after=3600)
    assert patient.wait(limited(3600), 1, 0, 0) == 3600
    assert wait(limited(None)) == 1


@pytest.mark.parametrize('error', [AuthenticationFailed('no'), ContextOverflow('long')])
def test_what_would_fail_again_is_not_repeated(error: ModelCallFailed) -> None:
    assert wait(error) is None


@pytest.mark.parametrize('error', [StreamCut('cut'), BadReply('noise'), ModelTimeout('slow')])
def test_what_may_pass_is_repeated(error: ModelCallFailed) -> None:
    assert wait(error) == 1


def test_an_empty_reply_is_repeated_once_and_a_filtered_one_never() -> None:
    assert wait(EmptyReply('', finish_reason='stop')) == 1
    assert wait(EmptyReply('', finish_reason='stop'), attempt=2) is None
    assert wait(EmptyReply('', finish_reason='content_filter')) is None
    assert wait(EmptyReply('', finish_reason='length')) is None


def test_a_policy_without_attempts_is_refused() -> None:
    with pytest.raises(ValueError, match='attempt'):
        RetryPolicy(attempts=0)


@pytest.mark.parametrize(
    ('value', 'seconds'),
    [
        ('2', 2),
        ('0.5', 0.5),
        (email.utils.formatdate(1_000_002, usegmt=True), 2),
        (email.utils.formatdate(999_999, usegmt=True), None),
        ('0', None),
        ('-3', None),
        ('soon', None),
        ('nan', None),
        ('inf', None),
        ('', None),
        (None, None),
    ],
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, now=1_000_000) == seconds


class FakeTime:
    def __init__(self) -> None:
        self.now, self.slept = 0.0, [0.0]

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


async def test_the_books_of_a_call() -> None:
    time = FakeTime()
    attempts = Attempts(POLICY, sleep=time.sleep, clock=time.clock, jitter=lambda: 1.0)
    await attempts.again(ModelUnavailable('down', usage=Usage(5, 1)))
    await attempts.again(RateLimited('slow', retry_after=7))
    assert (attempts.made, time.slept[1:]) == (2, [1, 8])
    assert attempts.total_usage(Usage(10, 20)) == Usage(15, 21, attempts=3)
    with pytest.raises(AuthenticationFailed) as caught:
        await attempts.again(AuthenticationFailed('no'))
    assert caught.value.attempts == 3
    assert caught.value.__notes__ == ['Given up after 3 attempts in 9.0 s.']


async def test_what_is_awaited_is_bounded_by_the_policy() -> None:
    attempts = Attempts(RetryPolicy(total=0.05))
    with pytest.raises(ModelTimeout, match=r'0\.05 s'):
        async with attempts.within_budget():
            await asyncio.sleep(30)


async def test_a_time_out_of_what_is_awaited_stays_what_it_is() -> None:
    for own in (ModelTimeout('the server is slow'), TimeoutError('another')):
        with pytest.raises(type(own)) as caught:
            async with Attempts(RetryPolicy(total=60)).within_budget():
                raise own
        assert caught.value is own


async def test_what_is_awaited_is_bounded_by_the_run() -> None:
    with run_context(limits=RunLimits(seconds=0.05)):
        attempts = Attempts(RetryPolicy(total=60))
        with pytest.raises(LimitExceeded):
            async with attempts.within_budget():
                await asyncio.sleep(30)
