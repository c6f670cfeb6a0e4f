"""What a machine waits for while a cell runs."""

import asyncio
from typing import Any

from sandbox.kernel.client import Cell, KernelClient
from sandbox.kernel.supervisor import Supervisor


class Watch:
    """Everything that may end a cell, waited for together.

    The end of the cell itself, which is the usual one, takes the shortest way: it wakes who waits
    without another turn of the event loop.
    """

    def __init__(
        self, cell: Cell, supervisor: Supervisor, client: KernelClient, stop: asyncio.Future[None]
    ) -> None:
        self._cell, self._stop = cell, stop
        self._closed, self._gone = client.closed, supervisor.ended
        self._others = (*self._closed, self._gone, stop)
        self._news: asyncio.Future[None] | None = None
        cell.on_ended = self._wake
        for other in self._others:
            other.add_done_callback(self._wake)

    @property
    def cell_ended(self) -> bool:
        """Whether the cell has ended by itself."""
        return self._cell.ended

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
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not (news := self._has_news(stoppable)) and loop.time() < deadline:
            self._news = loop.create_future()
            timer = loop.call_at(deadline, self._wake)
            try:
                await self._news
            finally:
                timer.cancel()
        return news

    def close(self) -> None:
        """Wait for nothing any more."""
        self._cell.on_ended = None  # it refers to the cell: don't keep a cycle
        for other in self._others:
            other.remove_done_callback(self._wake)

    def _has_news(self, stoppable: bool) -> bool:
        ended = self._cell.ended or self._gone.done() or self.broken
        return ended or (stoppable and self.stopped)

    def _wake(self, _: object = None) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """End tasks and wait until they have ended; how they did does not matter."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
