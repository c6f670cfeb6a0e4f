"""What a machine waits for while a cell runs."""

import asyncio
from typing import Any

from sandbox.kernel.client import Cell, KernelClient
from sandbox.kernel.supervisor import Supervisor


class Watch:
    """Everything that may end a cell, waited for together."""

    def __init__(
        self, cell: Cell, supervisor: Supervisor, client: KernelClient, stop: asyncio.Event
    ) -> None:
        self._ended, self._closed, self._gone = cell.ended, client.closed, supervisor.ended
        self._stop = asyncio.create_task(stop.wait())

    @property
    def cell_ended(self) -> bool:
        """Whether the cell has ended by itself."""
        return self._ended.done()

    @property
    def broken(self) -> bool:
        """Whether the kernel has closed a connection."""
        return any(connection.done() for connection in self._closed)

    @property
    def stopped(self) -> bool:
        """Whether somebody wants the cell to end."""
        return self._stop.done()

    async def wait(self, seconds: float, *, stoppable: bool = False) -> bool:
        """Wait at most `seconds`; return whether there is news."""
        futures: set[asyncio.Future[Any]] = {self._ended, self._gone, *self._closed}
        if stoppable:
            futures.add(self._stop)
        done, _ = await asyncio.wait(
            futures, timeout=max(seconds, 0.0), return_when=asyncio.FIRST_COMPLETED
        )
        return bool(done)

    def close(self) -> None:
        """Wait for nothing any more."""
        self._stop.cancel()


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """End tasks and wait until they have ended; how they did does not matter."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
