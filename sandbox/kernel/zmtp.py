"""The wire protocol of the kernel's sockets (ZMTP 3.0, NULL mechanism), read with bounded memory.

The kernel is hostile and the usual library cannot bound what it buffers: its queues are counted in
messages, a message may have any number of parts, and a frame over the size limit closes the
connection, so that the messages behind it are lost. This decoder keeps at most one message of at
most `max_bytes`; of a larger one it counts the bytes and reads on. Nothing is queued: while a
message is handled the kernel waits, and fills its own memory instead of ours.
"""

import asyncio
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple, cast

from sandbox.kernel.pace import own_pace

GREETING = b'\xff' + bytes(8) + b'\x7f\x03\x00' + b'NULL'.ljust(20, b'\0') + bytes(32)
SUBSCRIBE_ALL = b'\x01'

_MORE, _LONG, _COMMAND = 1, 2, 4
_MAX_COMMAND = 4_096
_CHUNK = 64 * 1024

SocketType = Literal['DEALER', 'SUB']


class ProtocolError(Exception):
    """The peer does not speak the protocol; the connection is of no more use."""


class Message(NamedTuple):
    """A message, or what is known of one that was too large.

    Attributes:
        frames: Its parts; empty when it was too large.
        size: Bytes of all its parts.
        complete: Whether `frames` holds all of it.
    """

    frames: list[bytes]
    size: int
    complete: bool


def encode(frames: Iterable[bytes]) -> bytes:
    """Return a message as it goes on the wire."""
    parts = list(frames)
    out = bytearray()
    for index, part in enumerate(parts):
        more = _MORE if index < len(parts) - 1 else 0
        out += _header(more, len(part)) + part
    return bytes(out)


def ready(socket_type: SocketType) -> bytes:
    """Return the command that ends the handshake."""
    body = b'\x05READY'
    for name, value in ((b'Socket-Type', socket_type.encode()), (b'Identity', b'')):
        body += bytes([len(name)]) + name + struct.pack('>I', len(value)) + value
    return _header(_COMMAND, len(body)) + body


def _header(flags: int, size: int) -> bytes:
    if size > 0xFF:
        return struct.pack('>BQ', flags | _LONG, size)
    return struct.pack('>BB', flags, size)


class Decoder:
    """Bytes in, messages out.

    Args:
        max_bytes: Largest message that is kept.
        max_frames: Most parts of a message that is kept.
    """

    def __init__(self, max_bytes: int, max_frames: int = 64) -> None:
        self.greeted = False
        self.peer_ready = False
        self._max_bytes = max_bytes
        self._max_frames = max_frames
        self._buffer = bytearray()
        self._flags = 0
        self._missing = -1  # bytes of the current frame that are still to come; -1 before a frame
        self._frames: list[bytes] = []
        self._size = 0
        self._keep = True

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Message]:
        """Take bytes as they come and yield the messages they complete.

        Raises:
            ProtocolError: The peer broke the protocol.
        """
        self._buffer += data
        if not self.greeted and not self._read_greeting():
            return
        while self._read_header() and self._read_body():
            self._missing = -1
            if self._flags & _COMMAND or self._flags & _MORE:
                continue
            yield Message(self._frames if self._keep else [], self._size, self._keep)
            self._frames, self._size, self._keep = [], 0, True

    def _read_greeting(self) -> bool:
        buffer = self._buffer
        if (buffer and buffer[0] != GREETING[0]) or (len(buffer) > 9 and not buffer[9] & 1):
            raise ProtocolError('not a ZMTP peer')
        if len(buffer) < len(GREETING):
            return False
        if buffer[10] < 3 or bytes(buffer[12:32]) != GREETING[12:32]:
            raise ProtocolError('the peer wants another protocol version or mechanism')
        del buffer[: len(GREETING)]
        self.greeted = True
        return True

    def _read_header(self) -> bool:
        """Make sure that the header of the current frame has been read."""
        if self._missing >= 0:
            return True
        buffer = self._buffer
        if not buffer or len(buffer) < (length := 9 if buffer[0] & _LONG else 2):
            return False
        self._flags = buffer[0]
        size = int.from_bytes(buffer[1:length])
        del buffer[:length]
        self._missing = size
        if self._flags & _COMMAND:
            if size > _MAX_COMMAND:
                raise ProtocolError(f'a command of {size} bytes')
            return True
        if not self.peer_ready:
            raise ProtocolError('a message before the handshake')
        self._size += size
        if self._keep and (self._size > self._max_bytes or len(self._frames) >= self._max_frames):
            self._keep = False
            self._frames = []
        return True

    def _read_body(self) -> bool:
        """Take the current frame once all of it is here; one that is not kept, bit by bit."""
        buffer = self._buffer
        if not self._keep and not self._flags & _COMMAND:
            skipped = min(self._missing, len(buffer))
            del buffer[:skipped]
            self._missing -= skipped
            return self._missing == 0
        if len(buffer) < self._missing:
            return False
        with memoryview(buffer) as view:
            body = bytes(view[: self._missing])  # copied once: it may be large
        del buffer[: self._missing]
        if self._flags & _COMMAND:
            self._command(body)
        else:
            self._frames.append(body)
        return True

    def _command(self, body: bytes) -> None:
        if body.startswith(b'\x05READY'):
            self.peer_ready = True
        elif body.startswith(b'\x05ERROR'):
            raise ProtocolError('the peer refused the handshake')


class Channel(asyncio.BufferedProtocol):
    """One connection to a socket of the kernel.

    Args:
        socket_type: `DEALER`, or `SUB`, which subscribes to everything.
        on_message: Called with each message; while it runs, nothing more is read.
        max_bytes: Largest message that is kept.

    Attributes:
        ready: Done once messages may be sent, or the connection has ended before.
        closed: Done once nothing more will come.
    """

    def __init__(
        self,
        socket_type: SocketType,
        on_message: Callable[[Message], None],
        max_bytes: int,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self._ready = ready(socket_type)
        if socket_type == 'SUB':
            self._ready += encode([SUBSCRIBE_ALL])
        self._said_ready = False
        self._on_message = on_message
        self._decoder = Decoder(max_bytes)
        self._chunk = bytearray(_CHUNK)
        self._view = memoryview(self._chunk)
        self._transport: asyncio.Transport | None = None
        self._pace = own_pace()
        self._is_waiting = False

    def send(self, frames: Iterable[bytes]) -> None:
        """Send a message; a connection that is closed ignores it."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode(frames))

    def close(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the peer."""
        self._transport = cast('asyncio.Transport', transport)  # those of uvloop are none by name
        self._transport.write(GREETING)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the bytes that have arrived, in this turn of the loop or in one to come."""
        assert self._transport is not None
        if self._pace.exhausted:
            if not self._is_waiting:
                self._is_waiting = True
                self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self.buffer_updated, nbytes)
            return
        began = time.monotonic()
        self._handle(nbytes)
        self._pace.spend(time.monotonic() - began)
        if self._is_waiting and not self._transport.is_closing():
            self._is_waiting = False
            self._transport.resume_reading()

    def _handle(self, nbytes: int) -> None:
        try:
            for message in self._decoder.feed(self._view[:nbytes]):
                self._on_message(message)
            # libzmq gives up on a publisher's peer that says more before both have greeted.
            if self._decoder.greeted and not self._said_ready and self._transport:
                self._said_ready = True
                self._transport.write(self._ready)
            if self._decoder.peer_ready and not self.ready.done():
                self.ready.set_result(None)
        except ProtocolError:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note that nothing more will come."""
        for future in (self.ready, self.closed):
            if not future.done():
                future.set_result(None)
