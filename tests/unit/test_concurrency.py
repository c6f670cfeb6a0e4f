"""Several things at one time."""

import asyncio

import pytest

from lagent.concurrency import gather


async def test_results_come_in_order_and_only_so_many_run_at_once():
    running = most = 0

    async def double(n):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001 * (10 - n))
        running -= 1
        return 2 * n

    assert await gather(double, range(10), limit=3) == [2 * n for n in range(10)]
    assert most == 3
    assert await gather(double, range(10)) == [2 * n for n in range(10)]
    assert most == 10
    assert await gather(double, []) == []


async def test_the_first_failure_is_raised_as_it_is_and_ends_the_others():
    ended = []

    async def work(n):
        try:
            await asyncio.sleep(0 if n == 1 else 60)
            raise KeyError(n)
        except asyncio.CancelledError:
            ended.append(n)
            raise

    with pytest.raises(KeyError) as caught:
        await gather(work, range(5), limit=3)
    assert caught.value.args == (1,)
    assert {0, 2} <= set(ended) <= {0, 2, 3}  # the place of the first may be taken meanwhile
