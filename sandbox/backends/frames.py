"""What goes over a bridge, as bytes: frames, inside what the engine makes of a program's output.

A frame is a kind (1 byte), a channel (4), a length (4), all big-endian, and at most 64 KiB. See
`docker/bridge.py` for the other end, which is not trusted: it runs beside hostile code.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

HELLO, OPEN, DATA, CREDIT, CLOSE = range(5)
MAX_PAYLOAD = 1 << 16
WINDOW = 1 << 19
"""Bytes that may be on their way in one direction of a channel."""

_HEADER = struct.Struct('>BII')
_ENGINE_HEADER = struct.Struct('>BxxxI')
_STDOUT, _STDERR = 1, 2
_MAX_SAID = 1_024


class BridgeError(Exception):
    """The other end does not keep to the protocol."""


class Frame(NamedTuple):
    """What one side tells the other."""

    kind: int
    channel: int
    payload: bytes


def encode(kind: int, channel: int, payload: bytes = b'') -> bytes:
    """Return a frame as it goes on the stream."""
    return _HEADER.pack(kind, channel, len(payload)) + payload


class Decoder:
    """Bytes of the standard output in, frames out; it never holds more than one."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take bytes as they come and yield the frames they complete.

        Raises:
            BridgeError: A frame is too long, or of a kind that only the host sends.
        """
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            kind, channel, length = _HEADER.unpack_from(self._buffer)
            if kind not in (DATA, CREDIT, CLOSE) or length > MAX_PAYLOAD:
                raise BridgeError(f'a frame of kind {kind} and {length} bytes')
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield Frame(kind, channel, payload)


class Demultiplexer:
    """The engine's multiplexed stream of output and errors in, the output out.

    Each piece is behind 8 bytes: the stream's number, three zeros, the length (big-endian); see
    "Attach to a container" in the engine's API.

    Attributes:
        said: The end of the standard error.
    """

    def __init__(self) -> None:
        self.said = b''
        self._buffer = bytearray()
        self._stream = self._left = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take bytes as they come and yield those of the standard output."""
        self._buffer += data
        while self._buffer:
            if not self._left:
                if len(self._buffer) < _ENGINE_HEADER.size:
                    return
                self._stream, self._left = _ENGINE_HEADER.unpack_from(self._buffer)
                del self._buffer[: _ENGINE_HEADER.size]
                continue
            piece = bytes(self._buffer[: self._left])
            del self._buffer[: len(piece)]
            self._left -= len(piece)
            if self._stream == _STDOUT:
                yield piece
            elif self._stream == _STDERR:
                self.said = (self.said + piece)[-_MAX_SAID:]
