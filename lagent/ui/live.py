"""Sends what changes to the pages that are open, as server-sent events.

The id of an event is the change up to which the page has seen everything. A browser that has lost
the connection sends the last one, and is given what has changed since.
"""

import asyncio
from collections.abc import AsyncIterator

from lagent.ui.render import Page
from lagent.ui.session import Session
from lagent.ui.sessions import Sessions

MOST_READERS = 24
_PAUSE = 0.08  # seconds between two events, in which changes come together
_PAUSE_FACTOR = 4  # of the time that rendering took, so that it never takes more than a fifth
_HEARTBEAT = 15.0


class Live:
    """The streams of all pages that are open.

    Args:
        sessions: what changes.
        page: renders it.
    """

    def __init__(self, sessions: Sessions, page: Page) -> None:
        self._sessions, self._page = sessions, page
        self._readers = 0
        self._ended = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_full(self) -> bool:
        """Whether no more pages can be open."""
        return self._readers >= MOST_READERS

    def end(self) -> None:
        """End all streams; may be called by the handler of a signal."""
        self._ended = True
        if self._loop is not None:
            # Not here: the signal may have come to a thread that has the lock of the changes.
            self._loop.call_soon_threadsafe(self._sessions.changes.add)

    async def events(self, seen: int, shown: list[Session]) -> AsyncIterator[str]:
        """The stream of one page.

        Args:
            seen: the change up to which the page has seen everything.
            shown: the sessions that it shows.

        Yields:
            Events, in their wire format.
        """
        self._readers += 1
        self._loop = loop = asyncio.get_running_loop()
        try:
            yield 'retry: 1000\n\n'
            while not self._ended:
                if not await self._sessions.changes.wait(seen, _HEARTBEAT):
                    yield ': still here\n\n'
                    continue
                now, started = self._sessions.changes.count, loop.time()
                parts = await asyncio.to_thread(self._page.since, seen, shown)
                seen = now
                if parts:
                    yield event('\n'.join(parts), now)
                await asyncio.sleep(max(_PAUSE, _PAUSE_FACTOR * (loop.time() - started)))
        finally:
            self._readers -= 1


def event(data: str, number: int) -> str:
    """An event in its wire format.

    Args:
        data: what it carries.
        number: its id.

    Returns:
        The text to send.
    """
    lines = ''.join(f'data: {line}\n' for line in data.splitlines())
    return f'id: {number}\n{lines}\n'
