"""The folder that code works in, for all that is not that code: list, read, write and delete.

Every path is relative and resolved one component at a time without following a symbolic link,
because the code that runs in the kernel may rearrange the tree while we walk through it.
"""

import contextlib
import errno
import hashlib
import json
import os
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from typing import Any

from .frames import MAX_FRAME, RequestError

MAX_PATH = 4096
MAX_DEPTH = 64
PAGE, MAX_LISTING = MAX_FRAME - 4096, 8 * MAX_FRAME
"""Bytes of the entries in one frame of a listing, and in all of them."""
DIGEST_FILE, DIGEST_ALL = 1 << 18, 1 << 21
"""Bytes of the largest file of which a listing tells a digest, and of all such files together."""
QUICK_ENTRIES, QUICK_BYTES, QUICK_TIME = 256, 1 << 17, 0.005
"""Entries, bytes and seconds of a listing that the supervisor itself may make."""

_OPEN = os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | _OPEN  # without it, to open a pipe would wait for a writer
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN

Entry = list[Any]
"""`[path, size, mtime_ns, kind, inode]`, and a digest where that is asked for."""


class NotQuick(Exception):
    """A listing that had to be quick would have taken too long."""


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

    def walk(self, path: object, limit: int, *, digests: bool = False) -> Iterator[Entry]:
        """Yield the tree below a path, breadth first, so that a cut spares what is on top.

        It ends after one entry more than `limit`, so that the caller knows that there are more.
        """
        pending = [split_path(path)]
        left = limit + 1
        digest_room = DIGEST_ALL if digests else 0
        for parts in pending:
            try:
                directory = self.open_directory(parts)
            except OSError:
                if parts is pending[0]:
                    raise
                continue
            try:
                for entry in _scan(directory, parts, left):
                    name = os.fsencode(entry[0]).rpartition(b'/')[2]
                    if digests:
                        read = _may_digest(entry, digest_room)
                        digest_room -= entry[1] if read else 0
                        entry.append(_digest_file(directory, name) if read else '')
                    yield entry
                    left -= 1
                    if entry[3] == 'dir' and len(parts) + 1 < MAX_DEPTH:
                        pending.append([*parts, name])
            finally:
                os.close(directory)
            if not left:
                return

    def pages(self, path: object, limit: int, *, digests: bool) -> Iterator[dict[str, Any]]:
        """Yield the answers to a request for a listing, each of which fits into a frame.

        All but the last one say `next`. The last one says whether there is `more` than `limit`
        entries, or than `MAX_LISTING` bytes of them.
        """
        page: list[Entry] = []
        page_room, room = PAGE, MAX_LISTING
        more = False
        for entry in self.walk(path, limit, digests=digests):
            size = len(json.dumps(entry)) + 1
            room -= size
            limit -= 1
            if limit < 0 or room < 0:
                more = True
                break
            if size > page_room:
                yield {'ok': True, 'entries': page, 'next': True}
                page, page_room = [], PAGE
            page_room -= size
            page.append(entry)
        yield {'ok': True, 'entries': page, 'more': more}

    def list_quickly(self, path: object, limit: int, *, digests: bool = True) -> list[Entry]:
        """Return a listing at once.

        Raises:
            NotQuick: There is too much to look at.
        """
        entries: list[Entry] = []
        limit, room = min(limit, QUICK_ENTRIES), QUICK_BYTES
        deadline = time.monotonic() + QUICK_TIME
        for entry in self.walk(path, limit, digests=digests):
            room -= len(json.dumps(entry)) + 1
            if len(entries) >= limit or room < 0 or time.monotonic() > deadline:
                raise NotQuick
            entries.append(entry)
        return entries

    def read(self, path: object, limit: int) -> tuple[int, int]:
        """Return a descriptor and the size of a regular file of at most `limit` bytes."""
        parts = _file_parts(path)
        directory = self.open_directory(parts[:-1])
        try:
            descriptor = os.open(parts[-1], _READ, dir_fd=directory)
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

    def write(self, path: object, chunks: Iterable[memoryview]) -> Entry:
        """Write a file under a temporary name, move it into its place, and say what it is."""
        parts = _file_parts(path)
        directory = self.open_directory(parts[:-1], create=True)
        temporary = f'.{secrets.token_hex(8)}.part'
        try:
            descriptor = os.open(temporary, _CREATE, 0o644, dir_fd=directory)
            try:
                for chunk in chunks:
                    _write_all(descriptor, chunk)
                entry = _entry(b'/'.join(parts), os.fstat(descriptor))
                read = _may_digest(entry, DIGEST_ALL)
                entry.append(_digest(os.pread(descriptor, DIGEST_FILE, 0)) if read else '')
                os.rename(temporary, parts[-1], src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                os.unlink(temporary, dir_fd=directory)
                raise
            finally:
                os.close(descriptor)
        finally:
            os.close(directory)
        return entry

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


def _open_directory(name: str | bytes, parent: int | None = None) -> int:
    # Not with O_DIRECTORY: together with it, gVisor heeds O_NOFOLLOW no more.
    try:
        descriptor = os.open(name, _READ, dir_fd=parent)
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


def _scan(directory: int, parts: list[bytes], limit: int) -> list[Entry]:
    """Return at most `limit` entries of a directory, sorted by name."""
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if len(found) >= limit:
                break
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            found.append(_entry(b'/'.join([*parts, os.fsencode(entry.name)]), status))
    return sorted(found)


def _entry(path: bytes, status: os.stat_result) -> Entry:
    kind = _kind(status.st_mode)
    return [os.fsdecode(path), status.st_size, status.st_mtime_ns, kind, status.st_ino]


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return 'file'
    if stat.S_ISDIR(mode):
        return 'dir'
    return 'link' if stat.S_ISLNK(mode) else 'other'


def _may_digest(entry: Entry, room: int) -> bool:
    return entry[3] == 'file' and entry[1] <= min(DIGEST_FILE, room)


def _digest_file(directory: int, name: bytes) -> str:
    try:
        descriptor = os.open(name, _READ, dir_fd=directory)
    except OSError:
        return ''
    try:
        return _digest(os.read(descriptor, DIGEST_FILE))
    except OSError:
        return ''  # no longer the file that it was
    finally:
        os.close(descriptor)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
