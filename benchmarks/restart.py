"""A new kernel in the same sandbox, and what its preloaded libraries are worth."""

import time
from collections.abc import AsyncIterator

from benchmarks.floor import RawContainer, raw_engine
from benchmarks.harness import MS, Goal, Measurement, Run, interleave, timed
from sandbox import AsyncSandbox, SandboxPolicy

PRELOAD = ('numpy', 'pandas', 'matplotlib.pyplot')
IMPORT = 'import pandas'
PLOT = """
import matplotlib.pyplot as plt
plt.plot([1, 4, 9])
plt.show()
"""


async def measure(run: Run) -> AsyncIterator[Measurement]:
    """Measure a restart, the import of pandas and a first plot."""
    async with AsyncSandbox(SandboxPolicy(preload=PRELOAD)) as box:
        with raw_engine() as engine:

            async def floor() -> float:
                started = time.perf_counter()
                raw = RawContainer(engine)
                client = raw.start()
                elapsed = (time.perf_counter() - started) * MS
                client.close()
                raw.remove()
                return elapsed

            mine, theirs = await interleave(run.n(20, 5), timed(box.restart), floor, settle=0.05)
    yield Measurement(
        'restart of the kernel, files kept',
        'ms',
        mine,
        theirs,
        'a new container with stock ipykernel',
        (Goal('value', 150.0),),
        key='start',
    )
    for name, code, goals in (
        ('import pandas', IMPORT, (Goal('value', 10.0),)),
        ('first plot', PLOT, (Goal('ratio', 0.25),)),
    ):
        mine, theirs = await _first_cells(code, run)
        yield Measurement(
            f'{name}, preloaded', 'ms', mine, theirs, 'the same, not preloaded', goals
        )


async def _first_cells(code: str, run: Run) -> list[tuple[float, ...]]:
    warm, cold = SandboxPolicy(preload=PRELOAD), SandboxPolicy()
    async with AsyncSandbox(warm) as preloaded, AsyncSandbox(cold) as plain:

        async def first(box: AsyncSandbox) -> float:
            await box.restart()
            started = time.perf_counter()
            result = await box.execute(code)
            assert result.ok, result.text
            return (time.perf_counter() - started) * MS

        return await interleave(
            run.n(10, 3), lambda: first(preloaded), lambda: first(plain), settle=0.05
        )
