"""Carries connections from a port on loopback to the network proxy's socket. Nothing else.

What may be reached is decided on the other side: code that goes to the socket itself gains nothing.
"""

import asyncio
import contextlib
import socket

MAX_CONNECTIONS = 64
_CHUNK = 64 * 1024


def listen(port: int) -> socket.socket:
    """Return a socket that listens on loopback."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(('127.0.0.1', port))
    listener.listen(MAX_CONNECTIONS)
    return listener


def run(listener: socket.socket, target: str) -> None:
    """Forward every connection to a unix socket, for ever."""
    asyncio.run(_serve(listener, target))


async def _serve(listener: socket.socket, target: str) -> None:
    free = asyncio.Semaphore(MAX_CONNECTIONS)

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with free:
            # Either side may go away at any time, and the proxy may not be there at all.
            with contextlib.suppress(OSError), contextlib.closing(writer):
                proxy_reader, proxy_writer = await asyncio.open_unix_connection(target)
                with contextlib.closing(proxy_writer):
                    inwards = asyncio.ensure_future(_pump(proxy_reader, writer))
                    outwards = asyncio.ensure_future(_pump(reader, proxy_writer))
                    await asyncio.wait({inwards})
                    outwards.cancel()
                    await asyncio.gather(inwards, outwards, return_exceptions=True)

    server = await asyncio.start_server(forward, sock=listener, limit=_CHUNK)
    await server.serve_forever()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
