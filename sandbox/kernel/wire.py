"""Jupyter messages: signed requests out, verified messages in. Free of input and output."""

import hashlib
import hmac
import json
import os
import re
from datetime import UTC, datetime
from typing import Any

_DELIMITER = b'<IDS|MSG>'
_PROTOCOL = '5.4'
_MAX_PREFIX = 4  # routing frames before the delimiter
_CHEAP = 1 << 20  # bytes whose decoded form is small enough, whatever they hold
_MAX_WIDE = 4 << 20
_MAX_ELEMENTS = 200_000
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_MESSAGE_ID = re.compile(r'[\x21-\x7e]{1,200}')


class WireError(Exception):
    """A message is malformed, or its signature is wrong."""


class Incoming:
    """A message whose signature is right. The content is decoded when it is asked for."""

    __slots__ = ('_content', 'kind', 'parent')

    def __init__(self, kind: str, parent: str, content: bytes) -> None:
        self.kind = kind
        self.parent = parent
        self._content = content

    def content(self) -> dict[str, Any]:
        """Return the content; it can be asked for once.

        Raises:
            WireError: It is not a JSON object, or one that would fill the memory.
        """
        raw, self._content = self._content, b''
        _check_cost(raw)
        text = raw.decode('utf-8', 'replace')
        del raw  # a large message is held twice, not three times
        return _parse(text)


class Signer:
    """Makes and checks messages of one kernel.

    Args:
        key: The key of the connection file.
    """

    def __init__(self, key: str) -> None:
        self._mac = hmac.new(key.encode(), digestmod=hashlib.sha256)
        self._session = os.urandom(16).hex()
        self._count = 0

    def request(
        self, kind: str, content: dict[str, Any], metadata: dict[str, Any] | None = None
    ) -> tuple[str, list[bytes]]:
        """Return the id and the frames of a new request."""
        self._count += 1
        message_id = f'{self._session}_{self._count}'
        header = {
            'msg_id': message_id,
            'session': self._session,
            'username': 'sandbox',
            'date': datetime.now(UTC).isoformat(),
            'msg_type': kind,
            'version': _PROTOCOL,
        }
        parts = [json.dumps(part).encode('ascii') for part in (header, {}, metadata or {}, content)]
        return message_id, [_DELIMITER, self._sign(parts), *parts]

    def parse(self, frames: list[bytes]) -> Incoming:
        """Check and decode a message.

        Raises:
            WireError: It is malformed, or its signature is wrong.
        """
        try:
            start = frames.index(_DELIMITER, 0, _MAX_PREFIX) + 1
            signature, header, parent, metadata, content = frames[start : start + 5]
        except ValueError:
            raise WireError('not a Jupyter message') from None
        if not hmac.compare_digest(signature, self._sign([header, parent, metadata, content])):
            raise WireError('wrong signature')
        kind = _object(header).get('msg_type')
        parent_id = _object(parent).get('msg_id', '')
        if not isinstance(kind, str) or not isinstance(parent_id, str):
            raise WireError('a header of the wrong shape')
        return Incoming(kind, parent_id if _MESSAGE_ID.fullmatch(parent_id) else '', content)

    def _sign(self, parts: list[bytes]) -> bytes:
        mac = self._mac.copy()
        for part in parts:
            mac.update(part)
        return mac.hexdigest().encode('ascii')


def _check_cost(raw: bytes) -> None:
    """Refuse what takes many times its size in memory once it is decoded.

    One character outside of Latin makes each of a text take four bytes, and an empty list in a
    list takes 64. What is large and ASCII, such as an image, takes no more than its size.
    """
    if len(raw) > _MAX_WIDE and (not raw.isascii() or b'\\u' in raw):
        raise WireError('too much text')
    # The marks may be those of a text, in which they cost nothing.
    many = len(raw) > _CHEAP and _elements(raw) > _MAX_ELEMENTS
    if many and _elements(_STRING.sub(b'', raw)) > _MAX_ELEMENTS:
        raise WireError('too many elements')


def _elements(raw: bytes) -> int:
    return raw.count(b'[') + raw.count(b'{') + raw.count(b',')


def _object(raw: bytes) -> dict[str, Any]:
    _check_cost(raw)
    return _parse(raw.decode('utf-8', 'replace'))


def _parse(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError('not JSON') from error
    if not isinstance(value, dict):
        raise WireError('not a JSON object')
    return value
