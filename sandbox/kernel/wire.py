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
        """Return the content.

        Raises:
            WireError: It is not a JSON object.
        """
        return _object(self._content)


class Signer:
    """Makes and checks messages of one kernel.

    Args:
        key: The key of the connection file.
    """

    def __init__(self, key: str) -> None:
        self._mac = hmac.new(key.encode(), digestmod=hashlib.sha256)
        self._session = os.urandom(16).hex()
        self._count = 0

    def request(self, kind: str, content: dict[str, Any]) -> tuple[str, list[bytes]]:
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
        parts = [json.dumps(part).encode('ascii') for part in (header, {}, {}, content)]
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


def _object(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw.decode('utf-8', 'replace'))
    except (ValueError, RecursionError) as error:
        raise WireError('not JSON') from error
    if not isinstance(value, dict):
        raise WireError('not a JSON object')
    return value
