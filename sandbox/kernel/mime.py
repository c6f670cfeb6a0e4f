"""Representations in a MIME bundle: decoded, bounded and made safe for JSON; and image sizes."""

import binascii
import json
import math
import struct
from collections.abc import Iterator
from typing import Any

from sandbox.kernel.text import clean

MAX_REPRESENTATIONS = 32
MAX_DEPTH = 64
MAX_METADATA = 8 * 1024
_MAX_TYPE = 200
_BINARY = frozenset(
    ('image/png', 'image/jpeg', 'image/gif', 'image/webp', 'image/bmp', 'application/pdf')
)
_JPEG_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def bundle(data: object) -> Iterator[tuple[str, Any]]:
    """Yield type and value of each representation, of a bounded number."""
    if not isinstance(data, dict):
        return
    for name, value in list(data.items())[:MAX_REPRESENTATIONS]:
        if isinstance(name, str) and len(name) <= _MAX_TYPE:
            yield clean(name), value


def as_text(value: object) -> str:
    """Return the text of a textual representation; a list of lines is joined."""
    if isinstance(value, list):
        value = ''.join(part for part in value if isinstance(part, str))
    return value if isinstance(value, str) else ''


def decode(name: str, value: object, image_bytes: int) -> tuple[Any, int]:
    """Return a representation in its final form, or None where it is refused, and its size.

    Args:
        name: MIME type.
        value: What the kernel sent.
        image_bytes: Largest image that is decoded.
    """
    if name in _BINARY:
        encoded = as_text(value)
        size = len(encoded) * 3 // 4
        if size > image_bytes:
            return None, size
        try:
            raw = binascii.a2b_base64(encoded)
        except ValueError:
            return None, size
        return raw, len(raw)
    if isinstance(value, str) or (isinstance(value, list) and not _is_json(name)):
        text = clean(as_text(value))
        return text, len(text.encode())
    return _json(value)


def metadata(value: object) -> dict[str, Any]:
    """Return an output's metadata, or nothing where it is malformed or too large."""
    if not isinstance(value, dict) or not value:
        return {}
    safe, size = _json(value)
    return safe if size <= MAX_METADATA and isinstance(safe, dict) else {}


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height in pixels of a PNG or JPEG, or None."""
    if data[:8] == b'\x89PNG\r\n\x1a\n' and len(data) >= 24:
        width, height = struct.unpack('>II', data[16:24])
        return width, height
    return _jpeg_size(data) if data[:2] == b'\xff\xd8' else None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    position = 2
    while position + 9 <= len(data) and data[position] == 0xFF:
        marker, length = data[position + 1], int.from_bytes(data[position + 2 : position + 4])
        if marker in _JPEG_SIZES:
            height, width = struct.unpack('>HH', data[position + 5 : position + 9])
            return width, height
        position += 2 + max(length, 2)
    return None


def _is_json(name: str) -> bool:
    return name == 'application/json' or name.endswith('+json')


def _json(value: object) -> tuple[Any, int]:
    try:
        safe = _safe(value, MAX_DEPTH)
        return safe, len(json.dumps(safe))
    except (ValueError, RecursionError):
        return None, 0


def _safe(value: object, depth: int) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    if depth == 0:
        raise ValueError('nested too deep')
    if isinstance(value, list):
        return [_safe(item, depth - 1) for item in value]
    if isinstance(value, dict):
        return {clean(str(key)): _safe(item, depth - 1) for key, item in value.items()}
    raise ValueError(f'not JSON: {type(value).__name__}')
