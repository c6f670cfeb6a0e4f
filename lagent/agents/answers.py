"""The answer of an agent of any kind: blocking or awaited, whole or a stream of its beginnings."""

import asyncio
import inspect
from collections import deque
from typing import Any


def last_answer(given: Any) -> Any:
    """Wait for the answer of an agent.

    Args:
        given: what its call has given.

    Returns:
        The answer; of a stream the last item, without those before it being kept.
    """
    if inspect.isawaitable(given) or hasattr(given, '__aiter__'):
        return asyncio.run(alast_answer(given))
    return deque(given, maxlen=1).pop() if inspect.isgenerator(given) else given


async def alast_answer(given: Any) -> Any:
    """Wait for the answer of an agent, awaited; see `last_answer`."""
    if inspect.isawaitable(given):
        given = await given
    if not hasattr(given, '__aiter__'):
        return last_answer(given)
    last: deque[Any] = deque(maxlen=1)
    async for answer in given:
        last.append(answer)
    return last.pop()
