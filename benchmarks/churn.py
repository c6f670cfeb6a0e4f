"""Sessions that are created, used once and destroyed, all the time."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from benchmarks.floor import RawContainer, raw_engine
from benchmarks.harness import Goal, Measurement, Run, interleave
from sandbox import AsyncSandboxManager

CODE = '1 + 1'
_AT_A_TIME = 4


async def measure(run: Run) -> AsyncIterator[Measurement]:
    """Measure the rate, beside the engine's own."""
    each = run.n(4, 2)
    names = itertools.count()
    async with AsyncSandboxManager(max_sessions=_AT_A_TIME) as manager:

        async def ours() -> float:
            async def work() -> None:
                for _ in range(each):
                    box = await manager.session(f'session-{next(names)}')
                    assert (await box.execute(CODE)).result == '2'
                    await manager.close_session(box.id)

            started = time.perf_counter()
            await asyncio.gather(*(work() for _ in range(_AT_A_TIME)))
            return _AT_A_TIME * each / (time.perf_counter() - started)

        async def floor() -> float:
            def work() -> None:
                with raw_engine() as engine:
                    for _ in range(each):
                        raw = RawContainer(engine)
                        client = raw.start()
                        client.execute(CODE)
                        client.close()
                        raw.remove()

            started = time.perf_counter()
            with ThreadPoolExecutor(_AT_A_TIME) as threads:
                tasks = [threads.submit(work) for _ in range(_AT_A_TIME)]
            for task in tasks:
                task.result()
            return _AT_A_TIME * each / (time.perf_counter() - started)

        mine, theirs = await interleave(run.n(5, 2), ours, floor, warm_up=0, settle=0.2)
    yield Measurement(
        f'create, use, destroy; {_AT_A_TIME} at a time',
        'sessions/s',
        mine,
        theirs,
        'the same with the engine alone',
        (Goal('ratio', 0.9, at_least=True),),
    )
