"""One count of everything that changes, which the pages that are open wait for.

The page is state, not a log: a reader says up to which change it has seen everything, and is given
whatever has changed since, as it is now. So a connection that was lost loses nothing and doubles
nothing, a slow reader skips states instead of queueing them, and nothing is kept for readers.
"""

import asyncio
import threading


class Changes:
    """Counts changes; may be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    @property
    def count(self) -> int:
        """How many changes there were."""
        return self._count

    def add(self) -> int:
        """Count a change, and wake who waits.

        What changes must be under a lock of its own, from before this call until it knows its
        number: a reader reads the count first, and takes that lock then.

        Returns:
            Its number.
        """
        with self._lock:
            self._count += 1
            waiting, self._waiting = self._waiting, set()
            count = self._count
        for loop, event in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)
        return count

    async def wait(self, seen: int, seconds: float) -> bool:
        """Wait for a change.

        Args:
            seen: the number of changes that are known.
            seconds: how long to wait.

        Returns:
            Whether there was one.
        """
        entry = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            if self._count > seen:
                return True
            self._waiting.add(entry)
        try:
            async with asyncio.timeout(seconds):
                await entry[1].wait()
        except TimeoutError:
            return False
        finally:
            with self._lock:
                self._waiting.discard(entry)
        return True
