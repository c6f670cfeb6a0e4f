"""Reading a body that may be of any size, and packed to a thousandth of it."""

import zlib
from collections.abc import AsyncIterable

from lagent.actions.web.errors import BadReply, TooLarge

ENCODINGS = 'gzip, deflate'


async def read_body(pieces: AsyncIterable[bytes], encoding: str, max_bytes: int) -> bytes:
    """Read and unpack a body.

    Args:
        pieces: the body as it arrives.
        encoding: the header ``Content-Encoding``.
        max_bytes: what it may have, packed and unpacked.

    Returns:
        The unpacked body.

    Raises:
        TooLarge: it has more.
        BadReply: it is packed in a way that wasn't asked for, or damaged.
    """
    unpack = _unpacker(encoding)
    body = bytearray()
    received = 0
    async for piece in pieces:
        received += len(piece)
        body += unpack(piece, max_bytes + 1 - len(body))
        if max(received, len(body)) > max_bytes:
            raise TooLarge(f'The answer has more than {max_bytes} bytes; it was not read further.')
    return bytes(body)


class _Plain:
    def __call__(self, piece: bytes, room: int) -> bytes:
        return piece


class _Zlib:
    """Unpacks no more than there is room for; what a stream has after its end is dropped."""

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._stream = zlib.decompressobj(bits)
        self._begun = False

    def __call__(self, piece: bytes, room: int) -> bytes:
        try:
            unpacked = self._stream.decompress(piece, room)
        except zlib.error as error:
            # Servers that say "deflate" send it with and without the header of zlib.
            if self._begun or self._bits != zlib.MAX_WBITS:
                raise BadReply('The answer is damaged: it cannot be unpacked.') from error
            self._bits = -zlib.MAX_WBITS
            self._stream = zlib.decompressobj(self._bits)
            return self(piece, room)
        self._begun = True
        return unpacked


def _unpacker(encoding: str) -> _Plain | _Zlib:
    match encoding.strip().lower():
        case '' | 'identity':
            return _Plain()
        case 'gzip' | 'x-gzip':
            return _Zlib(zlib.MAX_WBITS | 16)
        case 'deflate':
            return _Zlib(zlib.MAX_WBITS)
    raise BadReply(f'The answer is packed as {encoding[:40]!r}, which was not asked for.')
