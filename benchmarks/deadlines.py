"""How soon control is back when a cell is to end before its time."""

import asyncio
import time
from collections.abc import AsyncIterator

from benchmarks.floor import BareClient, take_kernel
from benchmarks.harness import MS, Goal, Measurement, Run, blocking, interleave
from sandbox import AsyncSandbox, SandboxPolicy

LIMIT = 1.0
LOOP = 'while True: pass'
STUBBORN = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True: pass
"""
SLEEP = 'import time; time.sleep(60)'
_UNDER_WAY = 0.1


async def measure(run: Run) -> AsyncIterator[Measurement]:
    """Measure timeouts, with and without a kill, and a cancellation."""
    policy = SandboxPolicy(interrupt_grace=0.5)
    async with AsyncSandbox(policy) as box:

        async def late(code: str, last_step: str) -> float:
            started = time.perf_counter()
            result = await box.execute(code, timeout=LIMIT)
            assert result.steps[-1] == last_step, result.text
            return (time.perf_counter() - started - LIMIT) * MS

        async def again() -> float:
            await late(STUBBORN, 'restart')
            started = time.perf_counter()
            result = await box.execute('1 + 1')
            assert result.result == '2', result.text
            return (time.perf_counter() - started) * MS

        n = run.n(10, 3)
        (loops,) = await interleave(n, lambda: late(LOOP, 'interrupt'))
        yield Measurement('timeout of a loop: control back after it', 'ms', loops)
        (killed,) = await interleave(n, lambda: late(STUBBORN, 'restart'))
        yield Measurement(
            'the same with a kill after a grace of 0.5 s, and a new kernel',
            'ms',
            killed,
        )
        (next_cells,) = await interleave(n, again)
        yield Measurement('next cell after such a kill', 'ms', next_cells)

    async with AsyncSandbox() as box, AsyncSandbox() as floor_box:
        client = BareClient.connect(await take_kernel(floor_box))

        async def cancelled() -> float:
            cell = asyncio.create_task(box.execute(SLEEP))
            await asyncio.sleep(_UNDER_WAY)
            started = time.perf_counter()
            cell.cancel()
            await asyncio.wait({cell})
            return (time.perf_counter() - started) * MS

        async def interrupted() -> float:
            request = client.submit(SLEEP)
            await asyncio.sleep(_UNDER_WAY)
            started = time.perf_counter()
            client.interrupt()
            await blocking(lambda: client.finish(request))()
            return (time.perf_counter() - started) * MS

        mine, theirs = await interleave(run.n(20, 5), cancelled, interrupted, settle=0.01)
        client.close()
    yield Measurement(
        'cancellation of a cell: kernel free again',
        'ms',
        mine,
        theirs,
        'interrupt_request of a bare client',
        (Goal('value', 1_000.0),),
    )
