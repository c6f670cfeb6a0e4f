"""`1 + 1`: our API beside a bare client of such a kernel, and beside stock ipykernel."""

from collections.abc import AsyncIterator

from benchmarks.floor import BareClient, RawContainer, raw_engine, take_kernel
from benchmarks.harness import Goal, Measurement, Run, Side, blocking, interleave, timed
from sandbox import AsyncSandbox, Sandbox

CODE = '1 + 1'
_SETTLE = 0.001


def bare(client: BareClient, code: str) -> Side:
    """Make the side that runs a cell with a bare client."""
    return timed(blocking(lambda: client.execute(code)))


async def measure(run: Run) -> AsyncIterator[Measurement]:
    """Measure the asynchronous and the blocking API."""
    n = run.n(1_000, 200)
    with raw_engine() as engine, Sandbox() as blocking_box:
        raw = RawContainer(engine)
        stock = raw.start()
        async with AsyncSandbox() as box, AsyncSandbox() as floor_box:
            client = BareClient.connect(await take_kernel(floor_box))
            same, other, sync, own = await interleave(
                n,
                bare(client, CODE),
                bare(stock, CODE),
                timed(blocking(lambda: blocking_box.execute(CODE))),
                timed(lambda: box.execute(CODE)),
                warm_up=20,
                settle=_SETTLE,
            )
            client.close()
        stock.close()
        raw.remove()
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
        'round trip, blocking', 'ms', sync, own, 'our async API', (Goal('excess', 0.2),), key=key
    )
