"""How a machine is had again whose owner has died, and what its last cell came to."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple

from sandbox.backends.detach import Cells
from sandbox.errors import SandboxError, SandboxLost, StartFailed
from sandbox.kernel.collector import Collector
from sandbox.kernel.framing import Refusal, natural
from sandbox.kernel.supervisor import Supervisor
from sandbox.kernel.verdict import Ending
from sandbox.policy import SandboxPolicy
from sandbox.types import ExecutionResult

_ANSWER = 10.0  # seconds for a supervisor to take a new owner, or a kernel to tell what it knows
_LEAST = 5.0  # seconds for an idle kernel to answer
_RETRY = 0.05
_MAX_MESSAGES = 100_000

Recalled = ExecutionResult | Literal['not_begun'] | None
"""What a cell of a dead owner came to: its result, that it was never begun, or nobody knows."""

READ_AGAIN = (
    'the program was interrupted before it had this result, which was read again from the sandbox; '
    'which files the cell made is not known'
)


class Reattached(NamedTuple):
    """What the last owner of a machine has left.

    Attributes:
        cells: The cells that it had sent.
        last: What the last one came to.
    """

    cells: Cells
    last: Recalled


async def own(path: str) -> Supervisor:
    """Become the owner of a supervisor whose last one has died.

    Raises:
        SandboxLost: It does not answer, or has an owner.
    """
    try:
        async with asyncio.timeout(_ANSWER):
            while True:
                try:
                    return await Supervisor.connect(path)
                except Refusal as refusal:
                    if refusal.code != 'owned':
                        raise
                await asyncio.sleep(_RETRY)  # it has not heard of the end yet
    except TimeoutError:
        raise SandboxLost('it takes no new owner') from None


async def await_idle(
    connect: Callable[[], Awaitable[None]], supervisor: Supervisor, cells: Cells, grace: float
) -> Ending:
    """Connect with a kernel when its cell has ended, within the time that the cell has left.

    Returns:
        How the cell was ended; with an `exit` if the kernel has ended, too.
    """
    ending = Ending()
    last = cells.last
    left = last.deadline - time.monotonic() if last is not None else 0.0
    limits = [max(left, _LEAST), grace + _LEAST]
    for number, limit in enumerate(limits):
        try:
            async with asyncio.timeout(limit):
                await connect()
                return ending
        except TimeoutError:
            if number == 0:
                ending.timed_out = last.limit if last is not None else limit
                ending.steps.append('interrupt')
                await supervisor.signal(signal.SIGINT)
        except StartFailed:
            ending.exit = await supervisor.exit_soon()
            if ending.exit is None:
                raise
            return ending
    ending.steps.append('kill')
    await supervisor.kill()
    ending.exit = supervisor.exit
    return ending


def began(cells: Cells, kept: dict[str, Any] | None, ending: Ending) -> bool | None:
    """Tell whether the kernel has begun the last cell, or None if that cannot be known.

    Args:
        cells: What the ledger says.
        kept: What the kernel has kept of the last cell that it ran; None if it does not tell.
        ending: How the kernel was found.
    """
    last = cells.last
    if last is None or last.tag is None or not cells.is_same_kernel:
        return None
    if ending.exit is not None:
        return True
    return None if kept is None else kept.get('request') == last.request


def collected(kept: dict[str, Any] | None, policy: SandboxPolicy, ending: Ending) -> Collector:
    """Return the outputs of a cell as the kernel has kept them; they are as hostile as any."""
    collector = Collector(policy)
    kept = kept or {}
    messages = kept.get('messages')
    for message in messages[:_MAX_MESSAGES] if isinstance(messages, list) else ():
        if isinstance(message, list) and len(message) == 2 and isinstance(message[0], str):
            collector.feed(message[0], message[1])
    count, size = natural(kept.get('left_out')), natural(kept.get('left_out_bytes'))
    if count:
        collector.dropped_messages(count, size)
    reply = kept.get('reply')
    ending.reply = reply if isinstance(reply, dict) else None
    ending.output_ended = True
    return collector


async def recalled(recall: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any] | None:
    """Return what a kernel has kept, if it tells."""
    with contextlib.suppress(TimeoutError, SandboxError):
        async with asyncio.timeout(_ANSWER):
            return await recall()
    return None
