"""A cell that was asked for, from its place in the queue to its result."""

import asyncio
import time

from sandbox.kernel.contract import Listener
from sandbox.types import ExecutionResult


class Call:
    """A cell that was asked for.

    Attributes:
        stop: Set to have it end; if it has not been sent by then, it is not sent at all.
        has_turn: Whether all cells before it are done.
        started: Whether it was sent to the kernel.
        abandoned: Whether nobody will see the result.
    """

    def __init__(
        self, code: str, timeout: float, listener: Listener | None, tag: str | None
    ) -> None:
        self.code = code
        self.timeout = timeout
        self.listener = listener
        self.tag = tag
        self.asked = time.monotonic()
        self.stop = asyncio.Event()
        self.has_turn = False
        self.started = False
        self.abandoned = False
        self.task: asyncio.Task[ExecutionResult] | None = None
