"""Each kind of benchmark runs; how fast is for `make bench` to say."""

import pytest

from benchmarks import agent, cold_start
from benchmarks.harness import Run


class Once(Run):
    """One sample of everything."""

    def n(self, full: int, quick: int) -> int:
        return 1


async def test_the_agent():
    figures = {m.name: m async for m in agent.measure(Once())}
    step = figures['step of an agent, 10 messages of history']
    assert len(step.ours) == len(step.floor) == 1
    assert step.value > 0


@pytest.mark.docker
async def test_the_floor_is_confined_as_the_sandbox_is():
    figures = {m.name: m async for m in cold_start.measure(Once())}
    assert set(figures) == {'cold start', 'removal'}
    assert all(m.value > 0 for m in figures.values())
