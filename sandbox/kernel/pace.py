"""How long the connections to kernels may keep an event loop from everything else on it."""

import asyncio

from sandbox.loops import per_loop

_SHARE = 0.01  # seconds of a turn of the loop
_NOTE = 0.002  # seconds from which on it matters that a turn has ended


class Pace:
    """What the connections of one event loop have spent in its present turn.

    With hundreds of sessions, the replies of all of them may be there at once; handled in one turn
    they would hold up whatever else the loop has to do for a tenth of a second.
    """

    def __init__(self) -> None:
        self._spent = 0.0
        self._awaits_turn = False

    @property
    def exhausted(self) -> bool:
        """Whether what has arrived should wait for the next turn."""
        return self._spent > _SHARE

    def spend(self, seconds: float) -> None:
        """Count time that was spent; on the thread of the loop."""
        self._spent += seconds
        if self._spent > _NOTE and not self._awaits_turn:
            self._awaits_turn = True
            asyncio.get_running_loop().call_soon(self._on_turn)

    def _on_turn(self) -> None:
        self._spent, self._awaits_turn = 0.0, False


own_pace = per_loop(Pace)
"""Returns what all connections of the running loop share."""
