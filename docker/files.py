"""The file operations that a peer may ask for, each on a connection of its own.

They run in a short-lived child of the supervisor, so a slow peer holds up nobody else. A small
listing is an exception: the supervisor makes it itself.
"""

import errno
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

from .frames import RequestError, encode_frame, natural
from .workspace import NotQuick, Workspace

CHUNK, SEND_BUFFER = 1 << 18, 1 << 20
STALL = 30.0
"""Seconds without progress after which a peer is given up."""

_CODES = {
    errno.ENOENT: 'not_found',
    errno.ENOTDIR: 'not_a_directory',
    errno.EISDIR: 'is_directory',
    errno.ELOOP: 'is_link',
    errno.ENOSPC: 'no_space',
    errno.EDQUOT: 'no_space',
    errno.EFBIG: 'no_space',
    errno.EACCES: 'denied',
    errno.EPERM: 'denied',
    errno.EROFS: 'denied',
    errno.ENAMETOOLONG: 'bad_path',
}


def serve(connection: socket.socket, request: dict[str, Any], early: bytes, workspace: str) -> None:
    """Carry out one file request and answer it.

    Args:
        connection: the peer, closed by the caller.
        request: the decoded request.
        early: bytes that arrived behind the request already.
        workspace: the directory that paths are relative to.
    """
    connection.settimeout(STALL)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    body = _Body(connection, early, 0)
    try:
        if request['op'] == 'write':
            body = _Body(connection, early, natural(request, 'size'))
        _OPERATIONS[request['op']](connection, request, body, Workspace(workspace))
    except RequestError as error:
        body.skip()
        connection.sendall(_refusal(error.code, error.message, **error.details))
    except TimeoutError:
        return  # the peer stands still, and would not take an answer either
    except OSError as error:
        # A peer that is gone makes the answer fail as well, which ends this child: as it should.
        body.skip()
        connection.sendall(_refusal(*_reason(error)))


def list_quickly(request: dict[str, Any], workspace: str) -> dict[str, Any]:
    """Answer a request for a listing at once.

    Raises:
        RequestError: There is too much to look at, or no such folder.
    """
    try:
        entries = Workspace(workspace).list_quickly(
            request.get('path', ''),
            natural(request, 'max'),
            digests=request.get('digests') is True,
        )
    except NotQuick:
        raise RequestError('not_quick', 'there is too much to look at') from None
    except OSError as error:
        raise RequestError(*_reason(error)) from None
    return {'ok': True, 'entries': entries, 'more': False}


class _Body:
    """The raw bytes that follow a request."""

    def __init__(self, connection: socket.socket, early: bytes, size: int) -> None:
        self._connection, self._early, self._left = connection, early[:size], size

    def __iter__(self) -> Iterator[memoryview]:
        """Yield them in pieces, each of which is valid until the next one is asked for."""
        if self._early:
            early, self._early = self._early, b''
            self._left -= len(early)
            yield memoryview(early)
        room = memoryview(bytearray(min(CHUNK, self._left)))
        while self._left:
            size = self._connection.recv_into(room[: self._left])
            if not size:
                raise RequestError('bad_request', 'the connection ended within the data')
            self._left -= size
            yield room[:size]

    def skip(self) -> None:
        """Read what is left: to close with unread data would throw our answer away."""
        try:
            for _ in self:
                pass
        except RequestError:
            self._left = 0


def _list(
    connection: socket.socket, request: dict[str, Any], _: _Body, workspace: Workspace
) -> None:
    path, limit = request.get('path', ''), natural(request, 'max')
    for answer in workspace.pages(path, limit, digests=request.get('digests') is True):
        connection.sendall(encode_frame(answer))


def _read(
    connection: socket.socket, request: dict[str, Any], _: _Body, workspace: Workspace
) -> None:
    descriptor, size = workspace.read(request.get('path'), natural(request, 'max'))
    try:
        connection.sendall(encode_frame({'ok': True, 'size': size}))
        left, whole = size, True
        while left:
            chunk = _read_some(descriptor, min(CHUNK, left)) if whole else b''
            if not chunk:
                # The file shrank. The size is promised already: fill up and say so at the end.
                whole, chunk = False, bytes(min(CHUNK, left))
            connection.sendall(chunk)
            left -= len(chunk)
        trailer = {'ok': True} if whole else {'ok': False, 'error': 'changed'}
        connection.sendall(encode_frame(trailer))
    finally:
        os.close(descriptor)


def _write(
    connection: socket.socket, request: dict[str, Any], body: _Body, workspace: Workspace
) -> None:
    entry = workspace.write(request.get('path'), body)
    connection.sendall(encode_frame({'ok': True, 'entry': entry}))


def _delete(
    connection: socket.socket, request: dict[str, Any], _: _Body, workspace: Workspace
) -> None:
    workspace.delete(request.get('path'))
    connection.sendall(encode_frame({'ok': True}))


_OPERATIONS: dict[str, Callable[[socket.socket, dict[str, Any], _Body, Workspace], None]] = {
    'list': _list,
    'read': _read,
    'write': _write,
    'delete': _delete,
}
OPERATIONS = frozenset(_OPERATIONS)


def _refusal(code: str, message: str, **details: Any) -> bytes:
    return encode_frame({'ok': False, 'error': code, 'message': message, **details})


def _reason(error: OSError) -> tuple[str, str]:
    return _CODES.get(error.errno or 0, 'io_error'), os.strerror(error.errno or errno.EIO)


def _read_some(descriptor: int, size: int) -> bytes:
    try:
        return os.read(descriptor, size)
    except OSError:
        return b''
