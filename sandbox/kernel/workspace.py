"""The host's side of the files of a sandbox."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from socket import SO_SNDBUF, SOL_SOCKET
from typing import IO, Any, NamedTuple, cast, get_args

from sandbox.counts import many
from sandbox.errors import SandboxLost
from sandbox.kernel.framing import Refusal, checked, close, encode, integer, natural, receive
from sandbox.threads import in_thread
from sandbox.types import FileKind

CHUNK = 256 * 1024
_SLICE = 1 << 20  # bytes of a file that count as progress
_STALL = 30.0  # seconds without progress after which a transfer is given up
_TRANSFER = 60.0  # seconds that any transfer may take, and
_SLOWEST = 1 << 20  # the bytes a second beyond them
_SEND_BUFFER = 1 << 20  # or what the system allows
_MAX_DIGEST = 64
_MAX_PAGES = 10  # frames of one listing
_MAX_TRANSFERS = 4  # the supervisor serves a few more at a time


class FileEntry(NamedTuple):
    """A file as the supervisor sees it; with the digest of its content, if small and asked for."""

    path: str
    size: int
    mtime_ns: int
    kind: FileKind
    inode: int
    digest: str = ''


Source = AsyncIterator[bytes] | IO[bytes]
"""What is written: pieces that are not there yet, or an open file of the host."""


class Workspace:
    """The files: a listing if it is small, else a connection each, served by a process of its own.

    Args:
        path: The supervisor's socket.
        request: Asks on the owner's connection; see `Supervisor.request`.
    """

    def __init__(self, path: str, request: Callable[..., Awaitable[dict[str, Any]]]) -> None:
        self._path = path
        self._request = request
        self._transfers = asyncio.Semaphore(_MAX_TRANSFERS)

    async def list(
        self, path: str, limit: int, *, digests: bool = False
    ) -> tuple[list[FileEntry], bool]:
        """Return the tree below a folder, and whether it holds more than that.

        Args:
            path: The folder; empty for the workspace.
            limit: Most entries to return.
            digests: Whether to tell digests of the contents of small files.

        Raises:
            Refusal: There is no such folder.
            SandboxLost: The sandbox is gone or does not answer.
        """
        wanted: dict[str, Any] = {'path': path, 'max': limit, 'digests': digests}
        try:
            answer = await self._request('list', **wanted)
        except Refusal as refusal:
            if refusal.code != 'not_quick':
                raise
        else:
            return _entries(answer)[:limit], bool(answer.get('more'))
        entries: list[FileEntry] = []
        async with self._connection() as (reader, writer):
            writer.write(encode({'op': 'list', **wanted}))
            for _ in range(_MAX_PAGES):
                answer = checked(await receive(reader, _STALL))
                entries += _entries(answer)[: limit - len(entries)]
                if not answer.get('next'):
                    return entries, bool(answer.get('more'))
        return entries, True

    async def write(self, path: str, size: int, source: Source) -> FileEntry:
        """Write a file of `size` bytes; folders on the way are made.

        Returns:
            The file, as a listing with digests would name it.

        Raises:
            Refusal: The path is refused, or there is no space.
            SandboxLost: The sandbox is gone or does not answer.
        """
        async with self._connection() as (reader, writer):
            patience = _Patience(size)
            writer.write(encode({'op': 'write', 'path': path, 'size': size}))
            if not isinstance(source, AsyncIterator) and not _has_sendfile():
                source = _pieces(source, size)
            if isinstance(source, AsyncIterator):
                async for chunk in source:
                    writer.write(chunk)
                    async with asyncio.timeout(patience.left()):
                        await writer.drain()
            else:
                await _send(source, size, writer.transport, patience)
            answer = checked(await receive(reader, patience.left()))
        if (entry := _entry(answer.get('entry'))) is None:
            raise SandboxLost('the sandbox did not say what it has written.')
        return entry._replace(path=path)

    async def read(self, path: str, limit: int) -> AsyncGenerator[bytes]:
        """Yield the bytes of a regular file of at most `limit` bytes.

        Raises:
            Refusal: There is no such file, it is not a regular one, too large, or it changed.
            SandboxLost: The sandbox is gone or does not answer.
        """
        async with self._connection() as (reader, writer):
            writer.write(encode({'op': 'read', 'path': path, 'max': limit}))
            left = natural(checked(await receive(reader, _STALL)).get('size'))
            if left > limit:
                raise Refusal('too_large', f'the file has {many(left, "byte")}')
            patience = _Patience(left)
            while left:
                async with asyncio.timeout(patience.left()):
                    chunk = await reader.read(min(CHUNK, left))
                if not chunk:
                    raise SandboxLost('the sandbox went away in the middle of a file.')
                left -= len(chunk)
                yield chunk
            checked(await receive(reader, patience.left()))

    async def delete(self, path: str) -> None:
        """Remove a file, a link, or a folder with all it holds.

        Raises:
            Refusal: There is no such file.
            SandboxLost: The sandbox is gone or does not answer.
        """
        async with self._connection() as (reader, writer):
            writer.write(encode({'op': 'delete', 'path': path}))
            checked(await receive(reader, _STALL))

    @contextlib.asynccontextmanager
    async def _connection(
        self,
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        async with self._transfers:
            try:
                reader, writer = await asyncio.open_unix_connection(self._path, limit=CHUNK)
            except OSError as error:
                raise SandboxLost(f'the sandbox is gone: {error}.') from error
            # The two sides take turns each time that it is full.
            writer.get_extra_info('socket').setsockopt(SOL_SOCKET, SO_SNDBUF, _SEND_BUFFER)
            try:
                yield reader, writer
            except TimeoutError as error:
                raise SandboxLost(
                    'the sandbox stood still, or was too slow, in the middle of a request.'
                ) from error
            except OSError as error:
                raise SandboxLost(f'the sandbox went away: {error}.') from error
            finally:
                await close(writer)


class _Patience:
    """How long to wait for the next part of a transfer that has a deadline in all, too.

    Args:
        size: Bytes of the transfer.
    """

    def __init__(self, size: int) -> None:
        self._deadline = time.monotonic() + _TRANSFER + size / _SLOWEST

    def left(self) -> float:
        # What never has to wait would never notice a deadline of `asyncio.timeout`.
        if (left := self._deadline - time.monotonic()) <= 0:
            raise TimeoutError
        return min(_STALL, left)


async def _send(
    file: IO[bytes], size: int, transport: asyncio.WriteTransport, patience: _Patience
) -> None:
    # By `os.sendfile`: through our memory it would take several times as long.
    loop = asyncio.get_running_loop()
    for start in range(0, size, _SLICE):
        async with asyncio.timeout(patience.left()):
            await loop.sendfile(transport, file, start, min(_SLICE, size - start))


async def _pieces(file: IO[bytes], size: int) -> AsyncIterator[bytes]:
    await in_thread(file.seek, 0)
    for start in range(0, size, CHUNK):
        yield await in_thread(file.read, min(CHUNK, size - start))


def _has_sendfile() -> bool:
    """Tell whether the running event loop has it: that of uvloop has not."""
    return type(asyncio.get_running_loop()).sendfile is not asyncio.AbstractEventLoop.sendfile


def _entries(answer: dict[str, Any]) -> list[FileEntry]:
    raw = answer.get('entries')
    entries = map(_entry, raw) if isinstance(raw, list) else ()
    return [entry for entry in entries if entry is not None]


def _entry(values: object) -> FileEntry | None:
    if not isinstance(values, list) or len(values) not in (5, 6):
        return None
    path, size, mtime_ns, kind, inode, digest = values if len(values) == 6 else [*values, '']
    if not all(isinstance(text, str) for text in (path, kind, digest)):
        return None
    known = cast('FileKind', kind if kind in get_args(FileKind) else 'other')
    times = integer(mtime_ns) or 0
    return FileEntry(path, natural(size), times, known, natural(inode), digest[:_MAX_DIGEST])
