"""When a cell may begin where many more are asked for than there are processors.

Hundreds of kernels that all compute at once share the processors as the system's scheduler likes:
some sessions then get several times as many cells done as others. So only a few cells at a time are
in the first moments of their life, and the others begin in the order in which they were asked for.
Short cells, which end in that time, are served in turns; a long one delays the others but once.
"""

import asyncio
import os
from collections import deque
from typing import Self

from sandbox.loops import per_loop

_PER_PROCESSOR = 4  # enough to keep it busy while the host talks with the kernels of some
_FIRST = 0.05  # seconds after which a cell is a long one, and counts no more


class Admission:
    """Lets cells begin, in order.

    Args:
        places: Most cells that may be in their first moments.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def admit(self) -> 'Admitted':
        """Wait until a cell may begin; the context returned is its run."""
        if self._free:
            self._free -= 1
        else:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():
                    self.pass_on()  # nobody needs it here any more
                raise
        return Admitted(self)

    def pass_on(self) -> None:
        """Give a place to who waits first, or keep it."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class Admitted:
    """The run of a cell; it holds a place for its first moments."""

    def __init__(self, admission: Admission) -> None:
        self._admission: Admission | None = admission
        self._timer = asyncio.get_running_loop().call_later(_FIRST, self._leave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._leave()

    def _leave(self) -> None:
        if self._admission is not None:
            admission, self._admission = self._admission, None
            admission.pass_on()


own_admission = per_loop(lambda: Admission(_PER_PROCESSOR * (os.cpu_count() or 1)))
"""Returns what lets all cells of the running loop begin."""
