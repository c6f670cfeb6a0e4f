"""The streams of the pages that are open: how they end."""

import asyncio
import threading

from lagent.ui.live import Live
from lagent.ui.render import Page
from lagent.ui.sessions import Sessions


async def test_streams_end_while_somebody_counts_a_change():
    """A signal may come to the thread that has the lock of the changes."""
    sessions = Sessions(None)
    live = Live(sessions, Page(sessions, '/base', 'scripted'))
    stream = live.events(sessions.changes.count, [])
    assert await anext(stream) == 'retry: 1000\n\n'
    waiting = asyncio.ensure_future(anext(stream, 'the end'))
    await asyncio.sleep(0.05)
    with sessions.changes._lock:
        ending = threading.Thread(target=live.end, daemon=True)
        ending.start()
        ending.join(5)  # the loop stands still: what it is given to do needs the lock
        has_ended = not ending.is_alive()
    assert has_ended
    async with asyncio.timeout(10):
        assert await waiting == 'the end'
