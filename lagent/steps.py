"""What was done in a run, effect by effect: what exports are made of."""

from dataclasses import dataclass
from typing import Any

from lagent.utils.copies import copy_messages


@dataclass(kw_only=True, slots=True)
class Step:
    """An effect that has ended.

    Attributes:
        kind: the effect's kind.
        name: which model, tool or interpreter was asked.
        payload: what was asked.
        result: what it gave; None if it failed.
        error: what it failed with, in words.
        seconds: how long it took.
        run: the run's name.
        session: the run's session.
        position: where in the run it stands, see `lagent.positions`; ``''`` where nobody counted.
        call_id: what the provider calls the tool call, where that is known.
        ended: whether it has ended at all.
    """

    kind: str
    name: str
    payload: Any
    result: Any = None
    error: str | None = None
    seconds: float = 0.0
    run: str = ''
    session: Any = 0
    position: str = ''
    call_id: str | None = None
    ended: bool = False


def as_asked(payload: Any) -> Any:
    """What is asked, as it is now: whoever asks may go on with the same list of messages.

    Args:
        payload: an effect's payload.

    Returns:
        A copy; the payload itself if it holds what cannot be copied.
    """
    try:
        return copy_messages(payload)
    except Exception:  # noqa: BLE001 - any object may be an argument of a tool
        return payload
