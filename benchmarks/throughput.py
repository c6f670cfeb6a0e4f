"""Much output: the time it takes, and what it costs the host."""

import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from benchmarks.floor import BareClient, take_kernel
from benchmarks.harness import MS, Goal, Measurement, Run, blocking, interleave
from sandbox import AsyncSandbox

MEGABYTES = 10
WRITES = """
import sys
for _ in range(100):
    sys.stdout.write('x' * 99_999 + '\\n')
"""
PRINTS = """
for number in range(100_000):
    print(number)
"""
DISPLAYS = """
from IPython.display import display
for number in range(1_000):
    display({'number': number})
"""


async def measure(run: Run) -> AsyncIterator[Measurement]:
    """Measure wall time, and processor time of the host for the large writes."""
    goals = (Goal('ratio', 1.2),)
    async with AsyncSandbox() as box, AsyncSandbox() as floor_box:
        client = BareClient.connect(await take_kernel(floor_box))
        for name, code in (
            (f'{MEGABYTES} MB of stdout in 100 writes', WRITES),
            ('100,000 prints', PRINTS),
            ('1,000 displays', DISPLAYS),
        ):
            ours = _Meter(functools.partial(box.execute, code, timeout=120.0))
            floor = _Meter(blocking(functools.partial(client.execute, code)))
            mine, theirs = await interleave(run.n(15, 4), ours.sample, floor.sample, settle=0.1)
            yield Measurement(name, 'ms', mine, theirs, 'bare client, such a kernel', goals)
            if code is WRITES:
                yield Measurement(
                    'processor time of the host for 1 MB',
                    'ms',
                    tuple(cost / MEGABYTES for cost in ours.costs[1:]),
                    tuple(cost / MEGABYTES for cost in floor.costs[1:]),
                    'bare client, such a kernel',
                )
        client.close()


class _Meter:
    """Samples wall time, and keeps the processor time beside it."""

    def __init__(self, step: Callable[[], Awaitable[object]]) -> None:
        self._step = step
        self.costs: list[float] = []

    async def sample(self) -> float:
        used, started = time.process_time(), time.perf_counter()
        await self._step()
        elapsed = (time.perf_counter() - started) * MS
        self.costs.append((time.process_time() - used) * MS)
        return elapsed
