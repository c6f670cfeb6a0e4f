"""What goes between the host and the guest's supervisor: frames of JSON.

A frame is a 4-byte big-endian length and a JSON object of at most 1 MiB; a `size` in it announces
raw bytes behind it. The supervisor runs beside hostile code and is not trusted either: every frame
is bounded and checked, and every answer has a deadline.
"""

import asyncio
import contextlib
import json
import struct
from typing import Any

from sandbox.errors import SandboxError, SandboxLost

MAX_FRAME = 1 << 20


class Refusal(SandboxError):
    """The supervisor refused a request; `code` says why in one word."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def encode(message: dict[str, Any]) -> bytes:
    """Return a message as a frame."""
    body = json.dumps(message).encode('ascii')
    return struct.pack('>I', len(body)) + body


async def receive(reader: asyncio.StreamReader, patience: float | None) -> dict[str, Any]:
    """Return the next message; None waits without an end.

    Raises:
        SandboxLost: There is none, or what came is no frame.
        TimeoutError: None came in so many seconds.
    """
    try:
        async with asyncio.timeout(patience):
            (length,) = struct.unpack('>I', await reader.readexactly(4))
            if length > MAX_FRAME:
                raise SandboxLost(f'the sandbox sent a frame of {length:,} bytes.')
            message = json.loads(await reader.readexactly(length))
    except asyncio.IncompleteReadError:
        raise SandboxLost('the sandbox closed the connection.') from None
    except (ValueError, RecursionError):
        raise SandboxLost('the sandbox sent something that is not JSON.') from None
    return message if isinstance(message, dict) else {}


def checked(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer that is no refusal.

    Raises:
        Refusal: It is one.
    """
    if answer.get('ok') is not True:
        raise Refusal(str(answer.get('error'))[:100], str(answer.get('message'))[:1_000])
    return answer


async def close(writer: asyncio.StreamWriter) -> None:
    """Close a connection at once."""
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def integer(value: object) -> int | None:
    """Return a whole number of a size that any counter has, else None."""
    return value if type(value) is int and abs(value) < 1 << 62 else None


def natural(value: object) -> int:
    """Return a whole number from zero up; zero for anything else."""
    return max(integer(value) or 0, 0)
