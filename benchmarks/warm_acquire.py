"""A session from the warm pool, beside a connection to a kernel that is already there."""

import time
from collections.abc import AsyncIterator

from benchmarks.floor import BareClient, RawContainer, raw_engine
from benchmarks.harness import MS, Goal, Measurement, Run, interleave
from sandbox import AsyncSandboxManager

_WARM = 2


async def measure(run: Run) -> AsyncIterator[Measurement]:
    """Measure the acquire alone, and with a first cell."""
    first_cells: list[float] = []
    count = 0
    with raw_engine() as engine:
        raw = RawContainer(engine)
        raw.start().close()
        async with AsyncSandboxManager(warm=_WARM) as manager:

            async def ours() -> float:
                nonlocal count
                count += 1
                await manager.start()  # the pool is full again, and the machine at rest
                started = time.perf_counter()
                box = await manager.session(f'session-{count}')
                acquired = time.perf_counter()
                assert (await box.execute('1 + 1')).result == '2'
                first_cells.append((time.perf_counter() - started) * MS)
                await manager.close_session(box.id)
                return (acquired - started) * MS

            async def floor() -> float:
                await manager.start()
                started = time.perf_counter()
                client = BareClient.connect(raw.connection)
                connected = time.perf_counter()
                client.close()
                return (connected - started) * MS

            mine, theirs = await interleave(run.n(40, 10), ours, floor, settle=0.05)
        raw.remove()
    yield Measurement(
        'warm acquire',
        'ms',
        mine,
        theirs,
        'connect to a running kernel',
        (Goal('value', 3.0), Goal('ratio', 1.5)),
        key='start',
    )
    yield Measurement('warm acquire and first cell', 'ms', tuple(first_cells[1:]), key='start')
