"""The host's end of a bridge: the sandbox's sockets, carried over one stream of the engine.

For a sandbox that cannot show its sockets to the host, it listens at the same places of the host
itself, and gives each connection a channel of the stream that ends at the real socket. Whoever uses
the sockets need not know. What is on its way is bounded for each channel, so a slow one delays no
other, and the stream is read at all times.
"""

import asyncio
import contextlib
import itertools
import json
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Self

from sandbox.backends.frames import (
    CLOSE,
    CREDIT,
    DATA,
    HELLO,
    MAX_PAYLOAD,
    OPEN,
    WINDOW,
    BridgeError,
    Decoder,
    Demultiplexer,
    Frame,
    encode,
)
from sandbox.backends.layout import SOCKET_NAMES


class _Channel:
    """A connection of the host, and what is on its way to and from it."""

    def __init__(self) -> None:
        self.credit = WINDOW  # bytes that the sandbox still takes
        self.credited = asyncio.Event()
        self.unread = 0  # bytes that the sandbox has sent and the host has not taken
        self.inbox: deque[bytes] = deque()
        self.ended = False
        self.news = asyncio.Event()  # about the inbox or the end


class Bridge:
    """A stream and the listening sockets at its end. Make it with `open`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._demultiplexer, self._decoder = Demultiplexer(), Decoder()
        self._channels: dict[int, _Channel] = {}
        self._numbers = itertools.count(1)
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, stream: socket.socket, folder: Path, hello: Mapping[str, Any]) -> Self:
        """Greet the sandbox and listen in its stead.

        Args:
            stream: The engine's connection to the standard streams of the sandbox; it is closed
                together with the bridge.
            folder: Where the sockets are made.
            hello: What the sandbox is told first.
        """
        bridge = cls(*await asyncio.open_unix_connection(sock=stream, limit=MAX_PAYLOAD))
        try:
            bridge._send(HELLO, 0, json.dumps(hello).encode('ascii'))
            for target in SOCKET_NAMES:
                server = await asyncio.start_unix_server(
                    bridge._connected(target), folder / target, limit=MAX_PAYLOAD
                )
                bridge._servers.append(server)
            bridge._keep(bridge._read())
        except BaseException:
            await bridge.close()
            raise
        return bridge

    @property
    def said(self) -> str:
        """The last line of what the sandbox's first program wrote to its standard error."""
        lines = self._demultiplexer.said.decode('utf-8', 'replace').split('\n')
        return next((line.strip() for line in reversed(lines) if line.strip()), '')

    async def close(self) -> None:
        """Close the stream and everything that came over it."""
        self._stop_listening()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._writer.transport.abort()
        await _closed(self._writer)

    def _stop_listening(self) -> None:
        for server in self._servers:
            server.close()

    def _keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name='sandbox-bridge')
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _send(self, kind: int, number: int, payload: bytes = b'') -> None:
        if not self._writer.is_closing():
            self._writer.write(encode(kind, number, payload))

    # From the sandbox

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(MAX_PAYLOAD):
                for piece in self._demultiplexer.feed(data):
                    for frame in self._decoder.feed(piece):
                        self._handle(frame)
        except (OSError, BridgeError):
            self._writer.transport.abort()
        finally:
            self._stop_listening()
            for channel in self._channels.values():
                _end(channel)
            self._channels.clear()

    def _handle(self, frame: Frame) -> None:
        channel = self._channels.get(frame.channel)
        if channel is None:
            return  # it was closed here while that was on its way
        if frame.kind == DATA:
            if not frame.payload:
                raise BridgeError('data without a byte, which no credit bounds')
            channel.unread += len(frame.payload)
            if channel.unread > WINDOW:
                raise BridgeError('more data than was asked for')
            channel.inbox.append(frame.payload)
            channel.news.set()
        elif frame.kind == CREDIT:
            channel.credit += int.from_bytes(frame.payload)
            if channel.credit > WINDOW:
                raise BridgeError('more credit than was used')
            channel.credited.set()
        else:
            del self._channels[frame.channel]
            _end(channel)

    # Connections of the host

    def _connected(
        self, target: str
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._keep(self._serve(target, reader, writer))

        return connected

    async def _serve(
        self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        number, channel = next(self._numbers), _Channel()
        self._channels[number] = channel
        self._send(OPEN, number, target.encode('ascii'))
        pumps = [
            self._keep(self._inward(number, channel, reader)),
            self._keep(self._outward(number, channel, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            if self._channels.pop(number, None) is not None:
                self._send(CLOSE, number)
            await _closed(writer)  # what was written before still arrives
        finally:
            for pump in pumps:
                pump.cancel()
            writer.transport.abort()

    async def _inward(self, number: int, channel: _Channel, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(min(MAX_PAYLOAD, channel.credit)):
                channel.credit -= len(data)
                self._send(DATA, number, data)
                await self._writer.drain()
                while not channel.credit:
                    channel.credited.clear()
                    await channel.credited.wait()

    async def _outward(self, number: int, channel: _Channel, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while True:
                while channel.inbox:
                    data = channel.inbox.popleft()
                    writer.write(data)
                    await writer.drain()
                    channel.unread -= len(data)
                    self._send(CREDIT, number, len(data).to_bytes(4))
                    await self._writer.drain()  # a sandbox that reads no credit gets none
                if channel.ended:
                    return
                channel.news.clear()
                await channel.news.wait()


def _end(channel: _Channel) -> None:
    channel.ended = True
    channel.news.set()


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
