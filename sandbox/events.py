"""The queue between a cell that puts out and a consumer that may be slow."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace

from sandbox.types import ExecutionEvent

_STREAMS = ('stdout', 'stderr')


class EventQueue:
    """Events in order. Pieces of one stream that nobody has taken yet become one event.

    The producer bounds the text that goes in, so what waits here is bounded, too.
    """

    def __init__(self) -> None:
        self._events: deque[ExecutionEvent] = deque()
        self._news = asyncio.Event()
        self._ended = False

    def put(self, event: ExecutionEvent) -> None:
        """Add an event at the end."""
        if self._events:
            last, new = self._events[-1].output, event.output
            if last and new and last.kind == new.kind and new.kind in _STREAMS:
                joined = replace(last, text=last.text + new.text)
                self._events[-1] = replace(event, output=joined)
                return
        self._events.append(event)
        self._news.set()

    def end(self) -> None:
        """Let the iteration stop when all events have been taken."""
        self._ended = True
        self._news.set()

    async def __aiter__(self) -> AsyncIterator[ExecutionEvent]:
        while True:
            while self._events:
                yield self._events.popleft()
            if self._ended:
                return
            self._news.clear()
            await self._news.wait()
