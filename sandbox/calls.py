"""A cell that was asked for, from its place in the queue to its result."""

import asyncio
import time

from sandbox.kernel.contract import Listener
from sandbox.types import ExecutionResult


class Call:
    """A cell that was asked for.

    Attributes:
        stop: Done to have it end, see `end`.
        has_turn: Whether all cells before it are done.
        started: Whether it was sent to the kernel.
        abandoned: Whether nobody will see the result.
        result: What came of it.
    """

    def __init__(
        self, code: str, timeout: float, listener: Listener | None, tag: str | None
    ) -> None:
        self.code = code
        self.timeout = timeout
        self.listener = listener
        self.tag = tag
        self.asked = time.monotonic()
        loop = asyncio.get_running_loop()
        self.stop: asyncio.Future[None] = loop.create_future()
        self.result: asyncio.Future[ExecutionResult] = loop.create_future()
        self.has_turn = False
        self.started = False
        self.abandoned = False
        self.task: asyncio.Task[None] | None = None

    def end(self) -> None:
        """Have it end; if it has not been sent yet, it will not be sent at all."""
        if not self.stop.done():
            self.stop.set_result(None)

    def resolve(self, result: ExecutionResult) -> None:
        """Give the result to whoever still waits for it."""
        if not self.result.done():
            self.result.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Have whoever still waits raise an error; it is none that nobody does."""
        if not self.result.done():
            self.result.set_exception(error)
            self.result.exception()  # seen, for the event loop
