"""File operations of the guest: list, read, write and delete below one directory.

They run in a short-lived child of the supervisor, so a slow peer holds up nobody else. Every path
is relative and resolved one component at a time without following a symbolic link, because the
code that runs in the kernel may rearrange the tree while we walk through it.
"""

import contextlib
import errno
import hashlib
import json
import os
import secrets
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

MAX_FRAME = 1 << 20
MAX_PATH = 4096
MAX_DEPTH = 64
CHUNK = 1 << 18
STALL = 30.0
"""Seconds without progress after which a peer is given up."""
DIGEST_FILE, DIGEST_ALL = 1 << 18, 1 << 21
"""Bytes of the largest file of which a listing tells a digest, and of all such files together."""
QUICK_ENTRIES, QUICK_FRAME, QUICK_TIME = 256, 1 << 17, 0.005
"""Entries, bytes and seconds of a listing that the supervisor itself may make."""

_DIRECTORY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
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


class RequestError(Exception):
    """A request that cannot be carried out; `code` is what the peer is told."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code, self.message, self.details = code, message, details


def encode_frame(message: dict[str, Any]) -> bytes:
    """Return a message as it goes on the wire: its length, then JSON in plain ASCII."""
    body = json.dumps(message, separators=(',', ':')).encode('ascii')
    return struct.pack('>I', len(body)) + body


class NotQuick(Exception):
    """A listing that had to be quick would have taken too long."""


def error_frame(code: str, message: str, **details: Any) -> bytes:
    """Return the frame of a refusal."""
    return encode_frame({'ok': False, 'error': code, 'message': message, **details})


def natural(request: dict[str, Any], name: str) -> int:
    """Return a whole number from zero up out of a request."""
    value = request.get(name)
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise RequestError('bad_request', f'{name} must be a whole number from zero up')
    return value


def split_path(path: object) -> list[bytes]:
    """Return the components of a relative path; the empty path is the workspace itself."""
    if not isinstance(path, str):
        raise RequestError('bad_path', 'path must be a string')
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError:
        raise RequestError('bad_path', 'the path cannot be encoded') from None
    parts = raw.split(b'/') if raw else []
    if len(raw) > MAX_PATH or len(parts) > MAX_DEPTH or b'\0' in raw:
        raise RequestError('bad_path', 'the path is too long or holds a NUL')
    if any(part in (b'', b'.', b'..') for part in parts):
        raise RequestError('bad_path', 'the path must be relative, without empty parts, . or ..')
    return parts


class Workspace:
    """The directory that the operations are confined to."""

    def __init__(self, path: str) -> None:
        self._path = path

    def open_directory(self, parts: list[bytes], *, create: bool = False) -> int:
        """Return a descriptor of a directory; a link on the way is refused by the kernel."""
        current = _open_directory(self._path)
        for part in parts:
            try:
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, 0o755, dir_fd=current)
                following = _open_directory(part, current)
            finally:
                os.close(current)
            current = following
        return current

    def list(
        self, path: object, limit: int, *, digests: bool = False, quick: bool = False
    ) -> dict[str, Any]:
        """Return the tree below a path, breadth first, so that a cut spares what is on top.

        Raises:
            NotQuick: It had to be `quick`, and there is too much to look at.
        """
        pending = [split_path(path)]
        entries: list[list[Any]] = []
        room = QUICK_FRAME if quick else MAX_FRAME - 4096
        limit = min(limit, QUICK_ENTRIES) if quick else limit
        deadline = time.monotonic() + (QUICK_TIME if quick else float('inf'))
        digester = _Digester()
        for parts in pending:
            try:
                directory = self.open_directory(parts)
            except OSError:
                if parts is pending[0]:
                    raise
                continue
            try:
                for entry in _scan(directory, parts, limit + 1 - len(entries)):
                    name = os.fsencode(entry[0]).rpartition(b'/')[2]
                    if digests:
                        entry.append(digester.digest(directory, name, entry))
                    room -= len(json.dumps(entry)) + 1
                    full = len(entries) >= limit or room < 0
                    if quick and (full or time.monotonic() > deadline):
                        raise NotQuick
                    if full:
                        return {'ok': True, 'entries': entries, 'more': True}
                    entries.append(entry)
                    if entry[3] == 'dir' and len(parts) + 1 < MAX_DEPTH:
                        pending.append([*parts, name])
            finally:
                os.close(directory)
        return {'ok': True, 'entries': entries, 'more': False}

    def read(self, path: object, limit: int) -> tuple[int, int]:
        """Return a descriptor and the size of a regular file of at most `limit` bytes."""
        parts = _file_parts(path)
        directory = self.open_directory(parts[:-1])
        try:
            # Without O_NONBLOCK the open of a pipe would wait for a writer.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            descriptor = os.open(parts[-1], flags, dir_fd=directory)
        except OSError as error:
            if error.errno == errno.ENXIO:
                raise RequestError('not_a_file', 'only regular files can be read') from None
            raise
        finally:
            os.close(directory)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise RequestError('not_a_file', 'only regular files can be read')
        if status.st_size > limit:
            os.close(descriptor)
            raise RequestError(
                'too_large', f'the file has {status.st_size} bytes', actual=status.st_size
            )
        return descriptor, status.st_size

    def write(self, path: object, chunks: Iterator[bytes]) -> None:
        """Write a file under a temporary name, then move it into its place."""
        parts = _file_parts(path)
        directory = self.open_directory(parts[:-1], create=True)
        temporary = f'.{secrets.token_hex(8)}.part'
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, 0o644, dir_fd=directory)
            try:
                with os.fdopen(descriptor, 'wb', buffering=0) as target:
                    for chunk in chunks:
                        _write_all(target.fileno(), chunk)
                os.rename(temporary, parts[-1], src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                os.unlink(temporary, dir_fd=directory)
                raise
        finally:
            os.close(directory)

    def delete(self, path: object) -> None:
        """Remove a file, a link itself, or a directory with all it holds."""
        parts = _file_parts(path)
        directory = self.open_directory(parts[:-1])
        try:
            status = os.stat(parts[-1], dir_fd=directory, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                import shutil  # costs more to import than everything else here

                shutil.rmtree(os.fsdecode(parts[-1]), dir_fd=directory)
            else:
                os.unlink(parts[-1], dir_fd=directory)
        finally:
            os.close(directory)


def serve(connection: socket.socket, request: dict[str, Any], early: bytes, workspace: str) -> None:
    """Carry out one file request and answer it.

    Args:
        connection: the peer, closed by the caller.
        request: the decoded request.
        early: bytes that arrived behind the request already.
        workspace: the directory that paths are relative to.
    """
    connection.settimeout(STALL)
    body = _Body(connection, early, 0)
    try:
        if request['op'] == 'write':
            body = _Body(connection, early, natural(request, 'size'))
        _OPERATIONS[request['op']](connection, request, body, Workspace(workspace))
    except RequestError as error:
        body.skip()
        connection.sendall(error_frame(error.code, error.message, **error.details))
    except TimeoutError:
        return  # the peer stands still, and would not take an answer either
    except OSError as error:
        # A peer that is gone makes the answer fail as well, which ends this child: as it should.
        body.skip()
        code = _CODES.get(error.errno or 0, 'io_error')
        connection.sendall(error_frame(code, os.strerror(error.errno or errno.EIO)))


def list_quickly(request: dict[str, Any], workspace: str) -> dict[str, Any]:
    """Answer a request for a listing at once.

    Raises:
        RequestError: There is too much to look at, or no such folder.
    """
    try:
        return Workspace(workspace).list(
            request.get('path', ''),
            natural(request, 'max'),
            digests=request.get('digests') is True,
            quick=True,
        )
    except NotQuick:
        raise RequestError('not_quick', 'there is too much to look at') from None
    except OSError as error:
        code = _CODES.get(error.errno or 0, 'io_error')
        raise RequestError(code, os.strerror(error.errno or errno.EIO)) from None


class _Digester:
    """Digests of small files, of a bounded number of bytes in all."""

    def __init__(self) -> None:
        self._room = DIGEST_ALL

    def digest(self, directory: int, name: bytes, entry: Sequence[Any]) -> str:
        """Return the digest of a file, or nothing where it is not a file or too much to read."""
        size, kind = entry[1], entry[3]
        if kind != 'file' or size > min(DIGEST_FILE, self._room):
            return ''
        self._room -= size
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            descriptor = os.open(name, flags, dir_fd=directory)
        except OSError:
            return ''
        try:
            data = os.read(descriptor, DIGEST_FILE)
        except OSError:
            return ''  # no longer the file that it was
        finally:
            os.close(descriptor)
        return hashlib.blake2b(data, digest_size=16).hexdigest()


class _Body:
    """The raw bytes that follow a request."""

    def __init__(self, connection: socket.socket, early: bytes, size: int) -> None:
        self._connection, self._early, self._left = connection, early[:size], size

    def __iter__(self) -> Iterator[bytes]:
        while self._left:
            chunk = self._early or self._connection.recv(min(CHUNK, self._left))
            if not chunk:
                raise RequestError('bad_request', 'the connection ended within the data')
            self._early = b''
            self._left -= len(chunk)
            yield chunk

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
    listing = workspace.list(
        request.get('path', ''), natural(request, 'max'), digests=request.get('digests') is True
    )
    connection.sendall(encode_frame(listing))


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
    workspace.write(request.get('path'), iter(body))
    connection.sendall(encode_frame({'ok': True}))


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


def _open_directory(name: str | bytes, parent: int | None = None) -> int:
    # Not with O_DIRECTORY: together with it, gVisor heeds O_NOFOLLOW no more.
    try:
        descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
        raise
    if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return descriptor


def _file_parts(path: object) -> list[bytes]:
    parts = split_path(path)
    if not parts:
        raise RequestError('bad_path', 'the path names the workspace itself')
    return parts


def _scan(directory: int, parts: list[bytes], limit: int) -> list[list[Any]]:
    """Return `[path, size, mtime_ns, kind, inode]` of at most `limit` entries, sorted by name."""
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if len(found) >= limit:
                break
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            path = os.fsdecode(b'/'.join([*parts, os.fsencode(entry.name)]))
            found.append(
                [path, status.st_size, status.st_mtime_ns, _kind(status.st_mode), status.st_ino]
            )
    return sorted(found)


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return 'file'
    if stat.S_ISDIR(mode):
        return 'dir'
    return 'link' if stat.S_ISLNK(mode) else 'other'


def _read_some(descriptor: int, size: int) -> bytes:
    try:
        return os.read(descriptor, size)
    except OSError:
        return b''


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
