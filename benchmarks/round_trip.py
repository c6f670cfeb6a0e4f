"""`1 + 1`: our API beside a bare client of such a kernel, and beside stock ipykernel."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from benchmarks.floor import BareClient, RawContainer, raw_engine, take_kernel
from benchmarks.harness import Goal, Measurement, Run, Side, blocking, interleave, timed
from sandbox import AsyncSandbox, Sandbox, get_portal

CODE = '1 + 1'
_SETTLE, _REST = 0.001, 0.05  # seconds


def bare(client: BareClient, code: str) -> Side:
    """Make the side that runs a cell with a bare client."""
    return timed(blocking(lambda: client.execute(code)))


async def measure(run: Run) -> AsyncIterator[Measurement]:
    """Measure the asynchronous and the blocking API."""
    n = run.n(1_000, 200)
    with raw_engine() as engine:
        raw = RawContainer(engine)
        stock = raw.start()
        async with AsyncSandbox() as box, AsyncSandbox() as floor_box:
            client = BareClient.connect(await take_kernel(floor_box))
            # Ours between the others: a cell after a longer rest asks first whether its sandbox is
            # still there, which is measured by itself.
            same, own, other = await interleave(
                n,
                bare(client, CODE),
                timed(lambda: box.execute(CODE)),
                bare(stock, CODE),
                warm_up=20,
                settle=_SETTLE,
            )
            rested_floor, rested = await interleave(
                n // 5,
                bare(client, CODE),
                timed(lambda: box.execute(CODE)),
                settle=_REST,
            )
            client.close()
        stock.close()
        raw.remove()
    # By themselves, so that the rests of both are alike.
    with Sandbox() as blocking_box:
        async with AsyncSandbox() as box:
            sync, awaited = await interleave(
                n,
                timed(blocking(lambda: blocking_box.execute(CODE))),
                timed(lambda: box.execute(CODE)),
                warm_up=20,
                settle=_SETTLE,
            )
    key = 'round trip'
    yield Measurement(
        'round trip, async',
        'ms',
        own,
        same,
        'bare client, such a kernel',
        (Goal('ratio', 1.10),),
        key=key,
    )
    yield Measurement(
        'round trip, async, against stock ipykernel',
        'ms',
        own,
        other,
        'bare client, stock ipykernel in the same image',
        (Goal('ratio', 0.5),),
        key=key,
    )
    yield Measurement(
        'round trip, async, after a rest of 50 ms',
        'ms',
        rested,
        rested_floor,
        'bare client, such a kernel',
    )
    yield Measurement(
        'round trip, blocking',
        'ms',
        sync,
        awaited,
        'our async API',
        (Goal('excess', 0.2),),
        key=key,
    )
    with _loop_thread() as loop:
        portal, plain = await interleave(
            n,
            timed(blocking(lambda: get_portal().call(_nothing))),
            timed(blocking(lambda: asyncio.run_coroutine_threadsafe(_nothing(), loop).result())),
            warm_up=20,
            settle=_SETTLE,
        )
    yield Measurement(
        'blocking call of nothing', 'ms', portal, plain, 'asyncio.run_coroutine_threadsafe'
    )


async def _nothing() -> None:
    """Do what a blocking call does apart from its work: go to the loop's thread and back."""


@contextmanager
def _loop_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
