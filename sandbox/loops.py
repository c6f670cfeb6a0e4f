"""What there is one of for each event loop."""

import asyncio
import weakref
from collections.abc import Callable
from typing import TypeVar

T = TypeVar('T')


def per_loop(make: Callable[[], T]) -> Callable[[], T]:
    """Make a function that gives the running event loop's own object.

    Args:
        make: Makes one; called once for each loop, with which the object goes.

    Returns:
        A function to call while a loop runs.
    """
    made: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, T] = weakref.WeakKeyDictionary()

    def own() -> T:
        loop = asyncio.get_running_loop()
        if (thing := made.get(loop)) is None:
            thing = made[loop] = make()
        return thing

    return own
