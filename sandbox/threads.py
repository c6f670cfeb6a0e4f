"""Threads of our own for what blocks: no user of the event loop can take all of them."""

import asyncio
import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec('P')
T = TypeVar('T')

MAX_THREADS = 16
"""Calls at a time, for the whole process."""


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run what blocks in one of a few threads that do nothing else.

    The loop's own threads may all be waiting for something of the user's, and a sandbox has to be
    removed nevertheless.
    """
    call = functools.partial(function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_threads(os.getpid()), call)


@functools.cache
def _threads(process: int) -> ThreadPoolExecutor:
    del process  # a fork has none of its parent's threads
    return ThreadPoolExecutor(MAX_THREADS, 'sandbox-worker')
