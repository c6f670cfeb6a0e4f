"""The queue between a cell that puts out and a consumer that may be slow."""

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from sandbox.types import ExecutionEvent

_MAX_EVENTS = 10_000
_STREAMS = ('stdout', 'stderr')


class EventQueue:
    """Events in order, of a bounded number and size.

    What nobody has taken yet is put together: pieces of one stream become one event, an update
    takes the place of what it updates, and what was cleared is gone. If there is still more than
    the limits allow, the oldest events are left out.

    Args:
        max_bytes: Most bytes that wait here; one event alone may be larger.
        max_events: Most events that wait here.
    """

    def __init__(self, max_bytes: int, max_events: int = _MAX_EVENTS) -> None:
        self._max_bytes = max_bytes
        self._max_events = max_events
        self._events: OrderedDict[int, tuple[ExecutionEvent, int]] = OrderedDict()
        self._displays: dict[str, int] = {}  # which event shows a display
        self._count = 0
        self._bytes = 0
        self._news = asyncio.Event()
        self._ended = False

    def put(self, event: ExecutionEvent) -> None:
        """Add an event at the end, or to one that still waits."""
        if event.clear:
            self._events.clear()
            self._displays.clear()
            self._bytes = 0
        if not self._join(event):
            self._count += 1
            self._store(self._count, event)
        while self._events and (
            len(self._events) > self._max_events
            or (self._bytes > self._max_bytes and len(self._events) > 1)
        ):
            self._take()
        self._news.set()

    def end(self) -> None:
        """Let the iteration stop when all events have been taken."""
        self._ended = True
        self._news.set()

    async def __aiter__(self) -> AsyncIterator[ExecutionEvent]:
        while True:
            while self._events:
                yield self._take()
            if self._ended:
                return
            self._news.clear()
            await self._news.wait()

    def _join(self, event: ExecutionEvent) -> bool:
        """Put an event into one that waits, if one is there for it."""
        if (new := event.output) is None or not self._events:
            return False
        if new.display_id is not None and (key := self._displays.get(new.display_id)) is not None:
            self._store(key, event)
            return True
        key = next(reversed(self._events))
        last = self._events[key][0].output
        if last is None or last.kind != new.kind or new.kind not in _STREAMS:
            return False
        ansi = ''
        if last.ansi or new.ansi:
            ansi = (last.ansi or last.text) + (new.ansi or new.text)
        joined = replace(last, text=last.text + new.text, ansi=ansi)
        self._store(key, replace(event, output=joined))
        return True

    def _store(self, key: int, event: ExecutionEvent) -> None:
        if (old := self._events.get(key)) is not None:
            self._bytes -= old[1]
        size = _size(event)
        self._events[key] = (event, size)
        self._bytes += size
        if event.output is not None and event.output.display_id is not None:
            self._displays[event.output.display_id] = key

    def _take(self) -> ExecutionEvent:
        key, (event, size) = self._events.popitem(last=False)
        self._bytes -= size
        name = event.output.display_id if event.output is not None else None
        if name is not None and self._displays.get(name) == key:
            del self._displays[name]
        return event


def _size(event: ExecutionEvent) -> int:
    if (output := event.output) is None:
        return 0
    return (
        len(output.text)
        + len(output.ansi)
        + sum(map(_value_size, output.data.values()))
        + (_value_size(output.metadata) if output.metadata else 0)
    )


def _value_size(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes) else len(json.dumps(value))
