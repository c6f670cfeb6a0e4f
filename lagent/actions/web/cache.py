"""A dict that forgets: what is old, and what was not asked for when it is full."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar('Key', bound=Hashable)
Value = TypeVar('Value')


class BoundedCache(Generic[Key, Value]):
    """Keeps a number of values, for a time. Usable from several threads.

    Args:
        size: how many values it keeps; the one that was used longest ago makes room.
        seconds: how long after it was set a value counts; None for as long as there is room.
        clock: seconds on a clock that never goes back.
    """

    def __init__(
        self,
        size: int,
        seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._size, self._seconds, self._clock = size, seconds, clock
        self._values: OrderedDict[Key, tuple[float, Value]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        """A value, if it is still known.

        Args:
            key: its key.
        """
        with self._lock:
            if key not in self._values:
                return None
            since, value = self._values[key]
            if self._seconds is not None and self._clock() - since >= self._seconds:
                del self._values[key]
                return None
            self._values.move_to_end(key)
            return value

    def __setitem__(self, key: Key, value: Value) -> None:
        with self._lock:
            self._values[key] = (self._clock(), value)
            self._values.move_to_end(key)
            while len(self._values) > self._size:
                self._values.popitem(last=False)

    def __len__(self) -> int:
        return len(self._values)

    def pop(self, key: Key) -> None:
        """Forget a value, known or not.

        Args:
            key: its key.
        """
        with self._lock:
            self._values.pop(key, None)
