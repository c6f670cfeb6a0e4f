"""Frames between the host and the supervisor: a 4-byte big-endian length, then a JSON object."""

import json
import struct
from typing import Any

MAX_FRAME = 1 << 20


class RequestError(Exception):
    """A request that cannot be carried out; `code` is what the peer is told."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code, self.message, self.details = code, message, details


def encode_frame(message: dict[str, Any]) -> bytes:
    """Return a message as it goes on the wire: its length, then JSON in plain ASCII."""
    body = json.dumps(message, separators=(',', ':')).encode('ascii')
    return struct.pack('>I', len(body)) + body


def natural(request: dict[str, Any], name: str) -> int:
    """Return a whole number from zero up out of a request."""
    value = request.get(name)
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise RequestError('bad_request', f'{name} must be a whole number from zero up')
    return value
