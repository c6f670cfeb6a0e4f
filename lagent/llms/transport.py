"""Connections to the servers of an official SDK, and replies of bounded size."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any
from weakref import finalize

from lagent.llms.errors import BadReply, ModelUnavailable

_MAX_REPLY = 16 * 1024 * 1024  # bytes
_LINGER = 1.0  # seconds from the end of a model to the end of its connections


class Connections:
    """An SDK's client for each event loop: connections belong to the loop that opened them.

    Args:
        connect: makes a client, which is an async context manager. It must not refer to the object
            that owns the connections, which could then never be collected.
    """

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._clients: dict[asyncio.AbstractEventLoop, tuple[Any, finalize[..., Any]]] = {}

    async def client(self) -> Any:
        """The client of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            for closed in [known for known in self._clients if known.is_closed()]:
                self._clients.pop(closed)[1].detach()
            session = _session(self._connect)
            client = await anext(session)
            # The loop closes the session when it shuts down; else it is closed with this object.
            # Until then the finalizer holds it: connections that are collected can't be closed.
            finalizer = finalize(self, _close_later, session, loop)
            finalizer.atexit = False
            self._clients[loop] = client, finalizer
        return self._clients[loop][0]

    async def close(self) -> None:
        """Close the connections: of the running loop now, of others soon."""
        here = asyncio.get_running_loop()
        while self._clients:
            loop, (_, finalizer) = self._clients.popitem()
            if loop is here and (kept := finalizer.detach()):
                await kept[2][0].aclose()
            else:
                finalizer()


async def _session(connect: Callable[[], Any]) -> AsyncGenerator[Any]:
    """An open client, for as long as the generator is not closed."""
    async with connect() as client:
        yield client


def _close_later(session: AsyncGenerator[Any], loop: asyncio.AbstractEventLoop) -> None:
    # Not at once: a loop that is about to shut down would cancel it halfway, while a session that
    # is still open is then closed in order. Until that time the loop's timer keeps it alive.
    with contextlib.suppress(RuntimeError):  # the loop is closed, and the session with it
        loop.call_soon_threadsafe(loop.call_later, _LINGER, _close_now, session, loop)


def _close_now(session: AsyncGenerator[Any], loop: asyncio.AbstractEventLoop) -> None:
    task = loop.create_task(session.aclose())
    _closing.add(task)
    task.add_done_callback(_closing.discard)


_closing: set[asyncio.Task[None]] = set()  # a loop holds its tasks only weakly


async def bounded(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Pass a reply's body on, up to the size that a reply may have.

    Args:
        pieces: the body as it arrives.

    Yields:
        The same pieces.

    Raises:
        BadReply: it is larger.
        ModelUnavailable: the connection broke.
    """
    size = 0
    try:
        async for piece in pieces:
            size += len(piece)
            if size > _MAX_REPLY:
                break
            yield piece
    except Exception as error:
        # The SDK lets its transport's errors through here, and which library that is depends on
        # the SDK's version. Whatever it is, the rest of the reply won't come.
        kind = type(error).__name__
        hint = ' Raise `read_timeout` of the model.' if 'Timeout' in kind else ''
        raise ModelUnavailable(
            f'The connection broke while the reply was read ({kind}: {error}).{hint}'
        ) from error
    if size > _MAX_REPLY:
        raise BadReply(f'The reply is larger than {_MAX_REPLY} bytes; the rest was not read.')
