"""Images: what their headers say, and whether those are whole."""

import struct
import zlib
from pathlib import Path
from typing import Any

from .delimited import HEAD_BYTES
from .documents import Unreadable

_PNG = b'\x89PNG\r\n\x1a\n'
_MOST = 2**31 - 1  # pixels a side, which PNG allows and no other format here exceeds
_PNG_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_JPEG_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}

Profile = dict[str, Any]
Size = tuple[int, int]


def image_profile(path: Path, kind: str) -> Profile:
    """Describe an image by its header.

    Raises:
        Unreadable: It has none, or a broken one.
    """
    with path.open('rb') as file:
        head = file.read(HEAD_BYTES)
    try:
        width, height = _SIZES[kind](head)
    except (struct.error, IndexError, ValueError):
        width = height = 0
    if not (0 < width <= _MOST and 0 < height <= _MOST):
        raise Unreadable(f'it can not be read: its header is not that of a {kind} image')
    return {'kind': 'image', 'notes': [f'{kind}, {width} x {height} pixels']}


def _expect(is_right: bool) -> None:
    if not is_right:
        raise ValueError


def _png_size(data: bytes) -> Size:
    """By the specification's first chunk, whose checksum is part of it."""
    _expect(data.startswith(_PNG + b'\x00\x00\x00\x0dIHDR'))
    width, height, depth, colour, packing, filters, lacing, checksum = struct.unpack(
        '>IIBBBBBI', data[16:33]
    )
    _expect(checksum == zlib.crc32(data[12:29]))
    _expect(depth in _PNG_DEPTHS.get(colour, ()) and not packing and not filters and lacing < 2)
    return width, height


def _gif_size(data: bytes) -> Size:
    _expect(data.startswith((b'GIF87a', b'GIF89a')))
    width, height = struct.unpack('<HH', data[6:10])
    return width, height


def _bmp_size(data: bytes) -> Size:
    _expect(data.startswith(b'BM'))
    (length,) = struct.unpack('<I', data[14:18])
    if length == 12:  # the first header there was
        width, height, planes = struct.unpack('<HHH', data[18:24])
    else:
        width, height, planes = struct.unpack('<iiH', data[18:28])
    _expect(planes == 1 and 12 <= length <= 124)
    return width, abs(height)  # a negative height says that the rows go down


def _webp_size(data: bytes) -> Size:
    _expect(data.startswith(b'RIFF') and data[8:12] == b'WEBP')
    form = data[12:16]
    if form == b'VP8X':
        _expect(len(data) >= 30)
        return 1 + int.from_bytes(data[24:27], 'little'), 1 + int.from_bytes(data[27:30], 'little')
    if form == b'VP8L':
        signature, bits = struct.unpack('<BI', data[20:25])
        _expect(signature == 0x2F)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    _expect(form == b'VP8 ' and data[23:26] == b'\x9d\x01\x2a')
    width, height = struct.unpack('<HH', data[26:30])
    return width & 0x3FFF, height & 0x3FFF


def _jpeg_size(data: bytes) -> Size:
    _expect(data.startswith(b'\xff\xd8'))
    position = 2
    while data[position] == 0xFF:
        marker, length = data[position + 1], int.from_bytes(data[position + 2 : position + 4])
        if marker in _JPEG_SIZES:
            height, width = struct.unpack('>HH', data[position + 5 : position + 9])
            return width, height
        position += 2 + max(length, 2)
    raise ValueError


_SIZES = {
    'png': _png_size,
    'gif': _gif_size,
    'bmp': _bmp_size,
    'webp': _webp_size,
    'jpeg': _jpeg_size,
}
