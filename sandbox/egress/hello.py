"""The server name in a TLS ClientHello. Reads bytes of a hostile client and does no I/O."""

MAX_HELLO = 16 * 1024
"""Bytes within which a hello has to be complete."""

UNRECOGNIZED_NAME = b'\x15\x03\x03\x00\x02\x02\x70'
"""The alert for a client whose name was refused."""

_HANDSHAKE, _CLIENT_HELLO, _HOST_NAME = 22, 1, 0
_SERVER_NAME, _ENCRYPTED_HELLO, _ENCRYPTED_NAME = 0, 0xFE0D, 0xFFCE


class BadHello(Exception):
    """The bytes are not a hello that says openly where it wants to go; the text says why."""


class _Cut(Exception):
    """A field reaches beyond its container."""


class _Fields:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, count: int) -> bytes:
        piece = self._data[self._at : self._at + count]
        if len(piece) < count:
            raise _Cut
        self._at += count
        return piece

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), 'big')

    def block(self, width: int) -> bytes:
        """Return what is behind its own length, a number of `width` bytes."""
        return self.take(self.number(width))


def server_name(data: bytes) -> str | None:
    """Return the one server name of a ClientHello, or None while bytes are missing.

    Args:
        data: What the client has sent so far.

    Raises:
        BadHello: It is not TLS, names no server, or hides the name.
    """
    message = _handshake(data)
    if message is None:
        if len(data) >= MAX_HELLO:
            raise BadHello('its TLS hello is too long')
        return None
    try:
        return _name(message)
    except _Cut:
        raise BadHello('its TLS hello is malformed') from None


def _handshake(data: bytes) -> bytes | None:
    """Put the first handshake message together from the records it is split over."""
    records, message = _Fields(data), b''
    try:
        while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4], 'big'):
            if records.number(1) != _HANDSHAKE:
                raise BadHello('it does not speak TLS')
            if records.number(2) >> 8 != 3:
                raise BadHello('it does not speak TLS')
            if not (fragment := records.block(2)):
                raise BadHello('its TLS hello is malformed')
            message += fragment
            if message[0] != _CLIENT_HELLO:
                raise BadHello('it does not begin with a TLS hello')
    except _Cut:
        return None
    return message[4 : 4 + int.from_bytes(message[1:4], 'big')]


def _name(message: bytes) -> str:
    fields = _Fields(message)
    fields.take(2 + 32)  # version and random
    fields.block(1)  # session
    fields.block(2)  # cipher suites
    fields.block(1)  # compression methods
    extensions = _Fields(fields.block(2)) if fields else _Fields(b'')
    names: list[bytes] = []
    while extensions:
        kind, body = extensions.number(2), extensions.block(2)
        if kind in (_ENCRYPTED_HELLO, _ENCRYPTED_NAME):
            raise BadHello('its TLS hello is encrypted')
        if kind == _SERVER_NAME:
            entries = _Fields(_Fields(body).block(2))
            while entries:
                if entries.number(1) != _HOST_NAME:
                    raise BadHello('its TLS hello is malformed')
                names.append(entries.block(2))
    if len(names) != 1:
        raise BadHello('its TLS hello does not name one server')
    return names[0].decode('ascii', 'replace')
