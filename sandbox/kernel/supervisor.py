"""The host's side of the guest's supervisor: life and death of the kernel, and its files.

A frame is a 4-byte big-endian length and a JSON object of at most 1 MiB; a `size` in it announces
raw bytes behind it. The supervisor runs beside hostile code and is not trusted either: every frame
is bounded and checked, and every answer has a deadline.
"""

import asyncio
import contextlib
import itertools
import json
import struct
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple, Self

from sandbox.errors import SandboxError, SandboxLost

MAX_FRAME = 1 << 20
CHUNK = 256 * 1024
_ANSWER = 10.0  # seconds until an answer is overdue
_PULSE = 5.0  # seconds until a sandbox that says nothing counts as gone
_STALL = 30.0  # seconds without progress after which a transfer is given up
_TRANSFER = 60.0  # seconds that any transfer may take, and
_SLOWEST = 1 << 20  # the bytes a second beyond them
_RETRY = 0.005
_NOW = 0.02  # seconds after which an answer says nothing of the present any more
_MAX_LOG = 4_096
_MAX_DIGEST = 64
_MAX_MODULES, _MAX_REASON = 65, 200
_MAX_TRANSFERS = 4  # the supervisor serves a few more at a time


class Exit(NamedTuple):
    """How a kernel process ended.

    Attributes:
        generation: Which kernel of this supervisor it was.
        code: Its exit code, or None where a signal ended it.
        signal: The signal that ended it, or None.
        oom_kills: Processes of the sandbox that were killed for lack of memory in its time.
        log: The end of what it wrote to its real standard error.
    """

    generation: int
    code: int | None
    signal: int | None
    oom_kills: int
    log: str


class FileEntry(NamedTuple):
    """A file as the supervisor sees it; with the digest of its content, if small and asked for."""

    path: str
    size: int
    mtime_ns: int
    kind: str
    inode: int
    digest: str = ''


class Refusal(SandboxError):
    """The supervisor refused a request; `code` says why in one word."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Supervisor:
    """The owner's connection. Make it with `connect`.

    Attributes:
        exit: How the kernel ended, or None while it runs.
        lost: Whether the connection has ended.
        ended: Done when the kernel has ended or the connection is lost.
        preloaded: What became of the last request to preload: why it failed, by module.
    """

    def __init__(
        self, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.exit: Exit | None = None
        self.lost = False
        self.preloaded: dict[str, str] | None = None
        self.generation = 0
        self._path = path
        self._reader = reader
        self._writer = writer
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._heard = -_NOW
        self._preloaded = asyncio.Event()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._count = 0
        self._transfers = asyncio.Semaphore(_MAX_TRANSFERS)
        self._task = asyncio.create_task(self._read(), name='sandbox-supervisor')

    @classmethod
    async def connect(cls, path: str) -> Self:
        """Connect and become the owner. Goes on trying: the caller sets the deadline."""
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(path, limit=CHUNK)
            except OSError:
                await asyncio.sleep(_RETRY)
                continue
            client = cls(path, reader, writer)
            try:
                answer = await client.request('own')
            except SandboxLost:
                # It listens before it serves; or nobody could be told from a stale socket.
                await client.close()
                await asyncio.sleep(_RETRY)
            except BaseException:
                await client.close()
                raise
            else:
                client.generation = _natural(answer.get('generation'))
                return client

    async def request(self, op: str, *, patience: float = _ANSWER, **fields: Any) -> dict[str, Any]:
        """Ask the supervisor for something and return its answer.

        Raises:
            Refusal: It refused.
            SandboxLost: It did not answer in time, or is gone.
        """
        if self.lost:
            raise SandboxLost('the sandbox is gone.')
        self._count += 1
        number = self._count
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self._writer.write(_encode({'op': op, 'id': number, **fields}))
            async with asyncio.timeout(patience):
                return _checked(await answer)
        except TimeoutError:
            raise SandboxLost(f'the sandbox did not answer within {patience:g} s.') from None
        finally:
            self._waiting.pop(number, None)

    async def signal(self, number: int) -> None:
        """Send a signal to the kernel and its process group; one that has ended is left alone."""
        with contextlib.suppress(Refusal):
            await self.request('signal', signal=number)

    async def kill(self) -> None:
        """Kill the kernel and all other processes of the session, and wait for the end.

        Raises:
            SandboxLost: It did not end, or the sandbox is gone.
        """
        await self.request('kill')
        try:
            async with asyncio.timeout(_ANSWER):
                await self.gone()
        except TimeoutError:
            raise SandboxLost(f'the kernel was killed but did not end in {_ANSWER:g} s.') from None

    @property
    def answers_now(self) -> bool:
        """Whether it has said something a moment ago, and not that its kernel has ended."""
        there = self.exit is None and not self.lost
        return there and time.monotonic() - self._heard < _NOW

    def seen_alive(self) -> None:
        """Take note that its kernel, which does not outlive it, has answered."""
        self._heard = time.monotonic()

    async def probe(self) -> None:
        """Return if the sandbox answers, soon.

        Raises:
            SandboxLost: It does not.
        """
        await self.request('status', patience=_PULSE)

    async def start(self) -> None:
        """Start a kernel where none runs."""
        answer = await self.request('start')
        self.generation = _natural(answer.get('generation'))
        if self.exit and self.exit.generation < self.generation:
            self.exit = None
            self.ended = asyncio.get_running_loop().create_future()
            if self.lost:
                self._end()

    async def preload(self, modules: Sequence[str]) -> None:
        """Have modules imported for the kernels to come, in the background."""
        self._preloaded.clear()
        try:
            await self.request('preload', modules=list(modules))
        except Refusal as refusal:
            self._take_preloaded({'': refusal.message})

    async def has_preloaded(self) -> None:
        """Wait until that is done, or the connection is lost."""
        await self._preloaded.wait()

    async def gone(self) -> None:
        """Wait until the kernel has ended or the connection is lost."""
        await asyncio.shield(self.ended)

    async def close(self) -> None:
        """Close the connection."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await _close(self._writer)

    async def _read(self) -> None:
        try:
            while True:
                message = await _receive(self._reader, None)
                self._heard = time.monotonic()
                if message.get('event') == 'exited':
                    self._exited(message)
                elif message.get('event') == 'preloaded':
                    self._take_preloaded(message.get('failed'))
                else:
                    self._answered(message)
        except (OSError, SandboxError):
            self.lost = True
            self._end()
            self._preloaded.set()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(SandboxLost('the sandbox is gone.'))

    def _answered(self, message: dict[str, Any]) -> None:
        answer = self._waiting.get(_natural(message.get('id')))
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _take_preloaded(self, failed: object) -> None:
        known = failed.items() if isinstance(failed, dict) else ()
        self.preloaded = {
            name: text[:_MAX_REASON]
            for name, text in itertools.islice(known, _MAX_MODULES)
            if isinstance(text, str)
        }
        self._preloaded.set()

    def _exited(self, event: dict[str, Any]) -> None:
        log = event.get('log')
        self.exit = Exit(
            generation=_natural(event.get('generation')),
            code=_integer(event.get('code')),
            signal=_integer(event.get('signal')),
            oom_kills=_natural(event.get('oom_kills')),
            log=log[-_MAX_LOG:] if isinstance(log, str) else '',
        )
        self._end()

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    # Files: a listing if it is small, else one connection each, served by a process of its own.

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
            answer = await self.request('list', **wanted)
        except Refusal as refusal:
            if refusal.code != 'not_quick':
                raise
            async with self._connection() as (reader, writer):
                writer.write(_encode({'op': 'list', **wanted}))
                answer = _checked(await _receive(reader, _STALL))
        raw = answer.get('entries')
        entries = [_entry(values) for values in raw] if isinstance(raw, list) else []
        return [entry for entry in entries if entry is not None][:limit], bool(answer.get('more'))

    async def write(self, path: str, size: int, chunks: AsyncIterator[bytes]) -> None:
        """Write a file of `size` bytes; folders on the way are made.

        Raises:
            Refusal: The path is refused, or there is no space.
            SandboxLost: The sandbox is gone or does not answer.
        """
        async with self._connection() as (reader, writer):
            patience = _Patience(size)
            writer.write(_encode({'op': 'write', 'path': path, 'size': size}))
            async for chunk in chunks:
                writer.write(chunk)
                async with asyncio.timeout(patience.left()):
                    await writer.drain()
            _checked(await _receive(reader, patience.left()))

    async def read(self, path: str, limit: int) -> AsyncIterator[bytes]:
        """Yield the bytes of a regular file of at most `limit` bytes.

        Raises:
            Refusal: There is no such file, it is not a regular one, too large, or it changed.
            SandboxLost: The sandbox is gone or does not answer.
        """
        async with self._connection() as (reader, writer):
            writer.write(_encode({'op': 'read', 'path': path, 'max': limit}))
            left = _natural(_checked(await _receive(reader, _STALL)).get('size'))
            if left > limit:
                raise Refusal('too_large', f'the file has {left:,} bytes')
            patience = _Patience(left)
            while left:
                async with asyncio.timeout(patience.left()):
                    chunk = await reader.read(min(CHUNK, left))
                if not chunk:
                    raise SandboxLost('the sandbox went away in the middle of a file.')
                left -= len(chunk)
                yield chunk
            _checked(await _receive(reader, patience.left()))

    async def delete(self, path: str) -> None:
        """Remove a file, a link, or a folder with all it holds.

        Raises:
            Refusal: There is no such file.
            SandboxLost: The sandbox is gone or does not answer.
        """
        async with self._connection() as (reader, writer):
            writer.write(_encode({'op': 'delete', 'path': path}))
            _checked(await _receive(reader, _STALL))

    @contextlib.asynccontextmanager
    async def _connection(
        self,
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        async with self._transfers:
            try:
                reader, writer = await asyncio.open_unix_connection(self._path, limit=CHUNK)
            except OSError as error:
                raise SandboxLost(f'the sandbox is gone: {error}.') from error
            try:
                yield reader, writer
            except TimeoutError as error:
                raise SandboxLost(
                    'the sandbox stood still, or was too slow, in the middle of a request.'
                ) from error
            except OSError as error:
                raise SandboxLost(f'the sandbox went away: {error}.') from error
            finally:
                await _close(writer)


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


def _encode(message: dict[str, Any]) -> bytes:
    body = json.dumps(message).encode('ascii')
    return struct.pack('>I', len(body)) + body


async def _receive(reader: asyncio.StreamReader, patience: float | None) -> dict[str, Any]:
    try:
        async with asyncio.timeout(patience):
            (length,) = struct.unpack('>I', await reader.readexactly(4))
            if length > MAX_FRAME:
                raise SandboxLost(f'the sandbox sent a frame of {length:,} bytes.')
            message = json.loads(await reader.readexactly(length))
    except asyncio.IncompleteReadError:
        raise SandboxLost('the sandbox closed the connection.') from None
    except (ValueError, RecursionError):
        raise SandboxLost('the sandbox sent something that is not JSON.') from None
    return message if isinstance(message, dict) else {}


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if answer.get('ok') is not True:
        raise Refusal(str(answer.get('error'))[:100], str(answer.get('message'))[:1_000])
    return answer


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def _integer(value: object) -> int | None:
    return value if type(value) is int and abs(value) < 1 << 62 else None


def _natural(value: object) -> int:
    return max(_integer(value) or 0, 0)


def _entry(values: object) -> FileEntry | None:
    if not isinstance(values, list) or len(values) not in (5, 6):
        return None
    path, size, mtime_ns, kind, inode, digest = values if len(values) == 6 else [*values, '']
    if not all(isinstance(text, str) for text in (path, kind, digest)):
        return None
    times = _integer(mtime_ns) or 0
    return FileEntry(path, _natural(size), times, kind, _natural(inode), digest[:_MAX_DIGEST])
