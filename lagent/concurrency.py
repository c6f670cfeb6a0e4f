"""Several things at one time, of which all end or none goes on."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

S = TypeVar('S')
T = TypeVar('T')


async def gather(
    function: Callable[[S], Awaitable[T]], items: Iterable[S], limit: int | None = None
) -> list[T]:
    """Await a function of each item, concurrently. The first failure cancels the others.

    Args:
        function: gives an awaitable.
        items: its arguments.
        limit: how many may run at one time; None for any number.

    Returns:
        The results, in the order of the items.

    Raises:
        BaseException: what the first of them raised, as it is and not in a group.
    """
    items = list(items)
    slots = asyncio.Semaphore(len(items) if limit is None else limit)

    async def one(item: S) -> T:
        async with slots:
            return await function(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(item)) for item in items]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
