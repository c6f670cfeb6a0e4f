"""A sandbox from nothing, beside `docker create`, `start` and a kernel that answers."""

import time
from collections.abc import AsyncIterator

from benchmarks.floor import RawContainer, check_same_hardening, container_of, raw_engine
from benchmarks.harness import MS, Goal, Measurement, Run, interleave
from sandbox import AsyncSandbox


async def measure(run: Run) -> AsyncIterator[Measurement]:
    """Measure start and removal."""
    removals: dict[str, list[float]] = {'ours': [], 'floor': []}
    with raw_engine() as engine:

        async def ours() -> float:
            started = time.perf_counter()
            box = AsyncSandbox()
            await box.start()
            ready = time.perf_counter()
            await box.close()
            removals['ours'].append((time.perf_counter() - ready) * MS)
            return (ready - started) * MS

        async def floor() -> float:
            started = time.perf_counter()
            raw = RawContainer(engine)
            client = raw.start()
            ready = time.perf_counter()
            client.close()
            raw.remove()
            removals['floor'].append((time.perf_counter() - ready) * MS)
            return (ready - started) * MS

        async with AsyncSandbox() as box:
            raw = RawContainer(engine)
            raw.start().close()
            check_same_hardening(engine, container_of(box), raw.id)
            raw.remove()

        mine, theirs = await interleave(run.n(25, 6), ours, floor, settle=0.05)
    yield Measurement(
        'cold start',
        'ms',
        mine,
        theirs,
        'create, start, stock ipykernel ready',
        (Goal('ratio', 1.15),),
        key='start',
    )
    yield Measurement(
        'removal',
        'ms',
        tuple(removals['ours'][1:]),
        tuple(removals['floor'][1:]),
        'forced removal of the container',
    )
