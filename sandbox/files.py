"""Files between host and sandbox. Names come from users, models and hostile code: each is checked.

Nothing is ever written or read outside the two roots: names are checked here before anything else
happens, the guest resolves them without following links, and what comes back is written under a
temporary name in the folder that the caller chose.
"""

import asyncio
import contextlib
import os
import secrets
import stat
import unicodedata
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path, PurePosixPath

from sandbox.counts import many
from sandbox.errors import FileRefused
from sandbox.kernel.contract import Files
from sandbox.kernel.framing import Refusal
from sandbox.kernel.workspace import CHUNK, FileEntry
from sandbox.policy import SandboxPolicy
from sandbox.types import FileInfo

_MAX_PART = 255
_MAX_NAME = 1_024
_REASONS = {
    'not_found': 'there is no such file',
    'not_a_directory': 'a part of its path is a link or not a folder',
    'is_directory': 'it is a folder',
    'is_link': 'it is a symbolic link',
    'not_a_file': 'it is not a regular file',
    'no_space': 'there is no space left in the sandbox',
    'too_large': 'it is larger than the policy, or the call, allows',
    'changed': 'it was changed while it was read',
    'denied': 'the sandbox may not do that',
}


def check_name(name: object) -> str:
    """Return a name that is safe to use as a path below the workspace, unchanged.

    Raises:
        FileRefused: The name is empty, too long, absolute, leaves the folder, or holds characters
            that no file name should.
    """
    if not isinstance(name, str) or not name:
        raise _refused(name, 'a name must be a text that is not empty')
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise _refused(name, 'it cannot be written in UTF-8') from None
    if any(unicodedata.category(character) == 'Cc' for character in name):
        raise _refused(name, 'it holds a control character')
    if '\\' in name:
        raise _refused(name, 'it holds a backslash; use / between folders')
    if name.startswith('/'):
        raise _refused(name, 'it must be relative to the workspace')
    parts = name.split('/')
    if any(part in ('', '.', '..') for part in parts):
        raise _refused(name, 'it has an empty part, . or ..')
    if length > _MAX_NAME or any(len(part.encode()) > _MAX_PART for part in parts):
        raise _refused(name, 'it is too long')
    return name


def check_size(name: str, size: int, policy: SandboxPolicy) -> None:
    """Refuse a file that is larger than the policy allows.

    Raises:
        FileRefused: It is.
    """
    if size > policy.max_file_bytes:
        raise _refused(
            name,
            f'it has {many(size, "byte")}, and SandboxPolicy.max_file_bytes is '
            f'{policy.max_file_bytes:,}',
        )


def file_info(entry: FileEntry) -> FileInfo:
    """Return what is told about a file; a name that is not UTF-8 shows its bytes as escapes."""
    path = entry.path.encode('utf-8', 'surrogateescape').decode('utf-8', 'backslashreplace')
    return FileInfo(path, entry.size, entry.mtime_ns / 1e9, entry.kind)


async def upload(
    files: Files, source: bytes | str | os.PathLike[str], name: str | None, policy: SandboxPolicy
) -> FileEntry:
    """Copy bytes or a file of the host into the workspace, without holding the file in memory."""
    if isinstance(source, bytes):
        if name is None:
            raise FileRefused('bytes were given without a name for them; nothing was uploaded.')
        return await _send(files, check_name(name), len(source), _pieces(source), policy)
    path = Path(source)
    target = check_name(path.name if name is None else name)
    descriptor = _open_regular(path)  # at once: a wait that is broken off would leave it open
    with open(descriptor, 'rb', buffering=0) as file:  # noqa: ASYNC230, PTH123 - it is open already
        size = os.fstat(descriptor).st_size
        return await _send(files, target, size, _chunks(file.fileno(), path, size), policy)


async def download(
    files: Files, name: str, to: str | os.PathLike[str], policy: SandboxPolicy
) -> Path:
    """Copy a file of the workspace into a folder of the host, which is made if need be."""
    folder = Path(to)
    target = folder / PurePosixPath(check_name(name)).name
    with _refusing(folder):
        await asyncio.to_thread(_prepare, folder, target)
        descriptor, temporary = _create(folder)  # at once: see `upload`
    try:
        with open(descriptor, 'wb', buffering=0) as file:  # noqa: ASYNC230, PTH123 - it is open already
            async with contextlib.aclosing(read(files, name, policy)) as chunks:
                async for chunk in chunks:
                    with _refusing(target):
                        await asyncio.to_thread(_write_all, file.fileno(), chunk)
        with _refusing(target):
            await asyncio.to_thread(temporary.replace, target)
    except BaseException:
        await asyncio.to_thread(_discard, temporary)
        raise
    return target


async def read(files: Files, name: str, policy: SandboxPolicy) -> AsyncGenerator[bytes]:
    """Yield the bytes of a file of the workspace."""
    try:
        async with contextlib.aclosing(
            files.read(check_name(name), policy.max_file_bytes)
        ) as chunks:
            async for chunk in chunks:
                yield chunk
    except Refusal as refusal:
        raise explain(name, refusal) from None


async def listing(files: Files, path: str, policy: SandboxPolicy) -> list[FileInfo]:
    """Return the files below a folder of the workspace, sorted by path."""
    folder = check_name(path) if path else ''
    try:
        entries, more = await files.list(folder, policy.max_files)
    except Refusal as refusal:
        raise explain(path, refusal) from None
    if more:
        limit = f'SandboxPolicy.max_files is {policy.max_files:,}'
        if len(entries) < policy.max_files:
            limit = f'{len(entries):,} of such long names'
        raise FileRefused(
            f'{path or "the workspace"!r} holds more files and folders than one listing names '
            f'({limit}).',
            hint='List one of its folders, or have the code itself count them.',
        )
    return sorted(
        (file_info(entry) for entry in entries if entry.kind != 'dir'), key=lambda info: info.path
    )


async def delete(files: Files, name: str) -> None:
    """Remove a file, a link, or a folder with all it holds."""
    try:
        await files.delete(check_name(name))
    except Refusal as refusal:
        raise explain(name, refusal) from None


def explain(name: str, refusal: Refusal) -> FileRefused:
    """Return the error that a caller sees for a refusal of the guest."""
    return _refused(name, _REASONS.get(refusal.code, refusal.message or refusal.code))


async def _send(
    files: Files, name: str, size: int, chunks: AsyncIterator[bytes], policy: SandboxPolicy
) -> FileEntry:
    check_size(name, size, policy)
    try:
        return await files.write(name, size, chunks)
    except Refusal as refusal:
        raise explain(name, refusal) from None


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), CHUNK):
        yield data[start : start + CHUNK]


async def _chunks(descriptor: int, path: Path, size: int) -> AsyncIterator[bytes]:
    left = size
    while left:
        chunk = await asyncio.to_thread(os.read, descriptor, min(CHUNK, left))
        if not chunk:
            raise FileRefused(f'{str(path)!r} became shorter while it was uploaded.')
        left -= len(chunk)
        yield chunk


def _open_regular(path: Path) -> int:
    with _refusing(path):
        # Without O_NONBLOCK the open of a pipe would wait for somebody to write into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _refused(str(path), 'it is not a regular file')
    return descriptor


def _prepare(folder: Path, target: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if target.is_dir() and not target.is_symlink():
        raise _refused(str(target), 'a folder of that name is in the way')


def _create(folder: Path) -> tuple[int, Path]:
    path = folder / f'.{secrets.token_hex(8)}.part'
    # The mode that any new file gets here: the system applies the umask.
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), path


def _discard(temporary: Path) -> None:
    with contextlib.suppress(OSError):
        temporary.unlink()


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Have the host's file system refuse a file, as everybody else does."""
    try:
        yield
    except OSError as error:
        raise _refused(str(path), error.strerror or str(error)) from error


def _refused(name: object, reason: str) -> FileRefused:
    return FileRefused(f'{name!r} was refused: {reason}; nothing was changed.')
