"""Jupyter messages as the kernel makes them: what a stock session does, with less around it.

A cell sends five messages. Stock code looks up forty traits for them, makes an encoder for each of
their twenty parts, and writes the header of the request out anew in each.
"""

import codecs
import itertools
import json
import os
from typing import Any

import zmq
from jupyter_client.jsonutil import json_clean, json_default
from jupyter_client.session import (
    DELIM,
    DONE,
    Session,
    extract_header,
    protocol_version,
    utcnow,
)
from zmq.backend import Socket

_SEND_MORE = int(zmq.SNDMORE)


def _spell_out(error: UnicodeError) -> tuple[str, int]:
    """Write what UTF-8 cannot hold as the text of its escape, ready for use inside JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    bad = error.object[error.start : error.end]
    return ''.join(f'\\\\u{ord(character):04x}' for character in bad), error.end


codecs.register_error('sandbox.spell_out', _spell_out)
_encode = json.JSONEncoder(default=json_default, ensure_ascii=False, allow_nan=False).encode


def pack(message: Any) -> bytes:
    """Turn a message into JSON; half a surrogate pair in a string must not cost the message."""
    try:
        text = _encode(message)
    except (TypeError, ValueError):
        text = json.dumps(json_clean(message), default=json_default, ensure_ascii=False)
    return text.encode('utf-8', 'sandbox.spell_out')


def send_parts(socket: Any, parts: list[bytes], copy: bool = True) -> None:
    """Send a message of several parts."""
    for part in parts[:-1]:
        Socket.send(socket, part, _SEND_MORE, copy=copy)
    Socket.send(socket, parts[-1], copy=copy)


class Messages(Session):
    """Makes, signs and sends messages."""

    ZERO_COPY = 1 << 16

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pack = pack
        self._request: tuple[Any, bytes] = ({}, b'{}')
        self._numbers = itertools.count()
        self._same = {'username': self.username, 'session': self.session}

    def msg_header(self, msg_type: str) -> dict[str, Any]:
        """Return a new header."""
        return {
            'msg_id': f'{self._same["session"]}_{os.getpid()}_{next(self._numbers)}',
            'msg_type': msg_type,
            **self._same,
            'date': json_default(utcnow()),
            'version': protocol_version,
        }

    def msg(
        self,
        msg_type: str,
        content: Any = None,
        parent: Any = None,
        header: Any = None,
        metadata: Any = None,
    ) -> dict[str, Any]:
        """Return a new message."""
        header = header or self.msg_header(msg_type)
        return {
            'header': header,
            'msg_id': header['msg_id'],
            'msg_type': header['msg_type'],
            'parent_header': extract_header(parent),
            'content': {} if content is None else content,
            'metadata': dict(metadata) if metadata else {},
        }

    def serialize(self, msg: dict[str, Any], ident: Any = None) -> list[bytes]:
        """Return the parts of a message."""
        content = msg.get('content') or {}
        parts = [
            pack(msg['header']),
            self._packed_request(msg['parent_header']),
            pack(msg['metadata']) if msg['metadata'] else b'{}',
            content if isinstance(content, bytes) else pack(content),
        ]
        route = ident if isinstance(ident, list) else [] if ident is None else [ident]
        signature = self.auth.copy()
        for part in parts:
            signature.update(part)
        return [*route, DELIM, signature.hexdigest().encode(), *parts]

    def _packed_request(self, header: Any) -> bytes:
        known, packed = self._request
        if header is not known:
            packed = pack(header)
            self._request = header, packed
        return packed

    def send(
        self,
        stream: Any,
        msg_or_type: Any,
        content: Any = None,
        parent: Any = None,
        ident: Any = None,
        buffers: Any = None,
        track: bool = False,
        header: Any = None,
        metadata: Any = None,
    ) -> Any:
        """Send a message, and return it."""
        message = msg_or_type
        if not isinstance(message, dict):
            message = self.msg(message, content, parent, header, metadata)
        buffers = buffers or message.get('buffers')
        if stream is None or buffers or os.getpid() != self.pid:
            return super().send(stream, message, ident=ident, buffers=buffers, track=track)
        parts = self.serialize(message, ident)
        copy = max(map(len, parts)) < self.ZERO_COPY
        if isinstance(stream, zmq.Socket):
            send_parts(stream, parts, copy)
        else:
            stream.send_multipart(parts, copy=copy)
        message['tracker'] = DONE
        return message
