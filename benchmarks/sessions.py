"""Many live sessions in one process, beside one poll loop over the same kernels."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import zmq

from benchmarks import machine
from benchmarks.floor import BareClient, take_kernel
from benchmarks.harness import MS, Goal, Measurement, Run, percentile
from sandbox import AsyncSandbox, AsyncSandboxManager

CODE = '1 + 1'
SIZES, QUICK_SIZES = (1, 10, 50, 100, 200), (1, 10)
_ROOM = 96 * 2**20  # bytes of free memory that a session is not started without
_WINDOW = 1 / 4  # seconds a session: enough cells of each for a few more or less not to count
_LOOK = 0.005
_STALL = 0.05


async def measure(run: Run) -> AsyncIterator[Measurement]:
    """Measure throughput, latencies, fairness and the cost of a session, for each size."""
    for size in QUICK_SIZES if run.quick else SIZES:
        if machine.available() < size * _ROOM:
            return
        async for measurement in _measure_size(size, run):
            yield measurement


async def _measure_size(size: int, run: Run) -> AsyncIterator[Measurement]:
    free, resident = machine.available(), machine.resident()
    async with AsyncSandboxManager(max_sessions=size) as manager:
        started = time.perf_counter()
        boxes = await asyncio.gather(*(manager.session(str(number)) for number in range(size)))
        created = time.perf_counter() - started
        yield _of(size, 'created at once', 's', (created,))

        used = time.process_time()
        await asyncio.sleep(2.0)
        idle = (time.process_time() - used) / 2.0 / size
        rates, latencies, fairness, costs = [], [], [], []
        gc.collect()
        gc.freeze()  # as a server should that is up
        stalls: list[float] = []
        seconds = max(run.n(5, 2), size * _WINDOW)
        for _ in range(2):
            used = time.process_time()
            with _watched(stalls):
                cells = await _busy(boxes, seconds)
            count = sum(map(len, cells))
            costs.append((time.process_time() - used) * MS / count)
            rates.append(count / seconds)
            latencies += [latency for session in cells for latency in session]
            fairness.append(max(map(len, cells)) / min(map(len, cells)))
        own = max(0, machine.resident() - resident) / size / 2**20
        yield _of(size, 'memory of this process', 'MiB', (own,))
        taken = max(0, free - machine.available()) / size / 2**20
        yield _of(size, 'memory of the machine', 'MiB', (taken,))
        kernels = [await take_kernel(box) for box in boxes]
        floors, floor_costs, floor_fairness = [], [], []
        for _ in rates:
            used = time.process_time()
            counts = _herd(kernels, seconds)
            count = sum(counts)
            floor_costs.append((time.process_time() - used) * MS / count)
            floors.append(count / seconds)
            floor_fairness.append(max(counts) / min(counts))
    gc.unfreeze()
    loop = 'one poll loop, the same kernels'
    yield _of(size, 'throughput', 'cells/s', tuple(rates), tuple(floors), loop)
    yield _of(size, 'p50', 'ms', (percentile(latencies, 50),))
    yield _of(size, 'p99', 'ms', (percentile(latencies, 99),))
    fair = 'most to fewest cells of a session'
    yield _of(size, fair, '', tuple(fairness), tuple(floor_fairness), loop, goal=1.5)
    yield _of(size, 'stalls of the event loop over 50 ms', '', (float(len(stalls)),), goal=0)
    cost = 'processor time of the host for a cell'
    yield _of(size, cost, 'ms', tuple(costs), tuple(floor_costs), loop)
    yield _of(size, 'processor time of the host for an idle session', 'ms/s', (idle * MS,))


def _of(
    size: int,
    what: str,
    unit: str,
    ours: tuple[float, ...],
    floor: tuple[float, ...] = (),
    floor_is: str = '',
    goal: float | None = None,
) -> Measurement:
    sessions = 'session' if size == 1 else 'sessions'
    goals = () if goal is None else (Goal('value', goal),)
    name = f'{size} {sessions}: {what}'
    return Measurement(name, unit, ours, floor, floor_is, goals, key=f'sessions: {what}', x=size)


async def _busy(boxes: Sequence[AsyncSandbox], seconds: float) -> list[list[float]]:
    """Let each session run cells, one after the other; return how long each cell took."""
    end = time.perf_counter() + seconds

    async def work(box: AsyncSandbox) -> list[float]:
        taken = []
        while (started := time.perf_counter()) < end:
            assert (await box.execute(CODE)).result == '2'
            taken.append((time.perf_counter() - started) * MS)
        return taken

    return await asyncio.gather(*map(work, boxes))


def _herd(kernels: Sequence[dict[str, Any]], seconds: float) -> list[int]:
    """Do the same with one poll loop, and return the number of cells of each."""
    context, poller = zmq.Context(), zmq.Poller()
    clients = [BareClient.connect(kernel, context) for kernel in kernels]
    owners = {socket: number for number, client in enumerate(clients) for socket in client.sockets}
    for socket in owners:
        poller.register(socket, zmq.POLLIN)
    requests = [client.submit(CODE) for client in clients]
    ends = [0] * len(clients)  # of the two that a cell has: the reply and the end of its output
    counts = [0] * len(clients)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for socket, _ in poller.poll(1_000):
            number = owners[socket]
            message = clients[number].receive(socket, requests[number])
            if message is None:
                continue
            kind, content = message
            ends[number] += kind == 'execute_reply' or content.get('execution_state') == 'idle'
            if ends[number] == 2:
                requests[number], ends[number] = clients[number].submit(CODE), 0
                counts[number] += 1
    for client, request, seen in zip(clients, requests, ends, strict=True):
        if not seen:
            client.finish(request)
        client.close()
    context.term()
    return counts


@contextmanager
def _watched(stalls: list[float]) -> Iterator[None]:
    """Note how late the event loop is, where it is very late and could have run."""

    async def watch() -> None:
        while True:
            started, queued = time.perf_counter(), machine.seconds_in_queue()
            await asyncio.sleep(_LOOK)
            late = time.perf_counter() - started - _LOOK
            late -= machine.seconds_in_queue() - queued  # the machine's doing, not the loop's
            if late > _STALL:
                stalls.append(late)

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
