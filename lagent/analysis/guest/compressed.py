"""Compressed files: what is inside, told from as much as is worth unpacking."""

import bz2
import gzip
import lzma
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .delimited import COUNTED_BYTES
from .documents import Unreadable
from .words import many

_PIECE = 64 * 1024  # what a damaged file gives before its end is not lost with a larger one
_MAX_MEMBERS = 30
_OPENERS: dict[str, Callable[[Path], Any]] = {
    'gzip': gzip.open,
    'bz2': bz2.open,
    'xz': lzma.open,
}
_MAGIC = {b'\x1f\x8b': 'gzip', b'BZh': 'bz2', b'\xfd7zXZ\x00': 'xz'}

Profile = dict[str, Any]


def compression(path: Path) -> str | None:
    """Return what a file was compressed with, by its first bytes; None if it was not."""
    with path.open('rb') as file:
        head = file.read(6)
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def compressed_profile(path: Path, kind: str, inside: Callable[[Path], Profile]) -> Profile:
    """Describe a compressed file by what is in it.

    Args:
        path: The file.
        kind: What it was compressed with.
        inside: Describes the unpacked file, or its beginning.
    """
    named = path.stem if path.suffix.lower() in ('.gz', '.bz2', '.xz') else path.name
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder, named)
        size, reason = _unpack(path, kind, unpacked)
        profile = inside(unpacked)
    notes = [f'compressed with {kind}', *profile.get('notes', [])]
    if reason:
        notes.insert(1, f'it is damaged or cut: {reason}')
    if size > COUNTED_BYTES:
        mib = COUNTED_BYTES // 1024**2
        notes.insert(1, f'only the first {mib} MiB of what is inside were looked at')
    if reason or size > COUNTED_BYTES:
        tables = profile.get('tables', [])
        profile['tables'] = [{**table, 'total': None, 'estimated': False} for table in tables]
    return {**profile, 'compression': kind, 'notes': notes}


def _unpack(path: Path, kind: str, target: Path) -> tuple[int, str]:
    """Write the beginning of what is inside; return its size, and why it ends too early."""
    size = 0
    with target.open('wb') as out:
        try:
            with _OPENERS[kind](path) as file:
                while size <= COUNTED_BYTES and (piece := file.read1(_PIECE)):
                    out.write(piece[: max(COUNTED_BYTES - size, 0)])
                    size += len(piece)
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if not size:
                raise Unreadable(f'it could not be unpacked as {kind}: {error}') from None
            return size, str(error)
    return size, ''


def tar_profile(path: Path) -> Profile:
    """Describe a tape archive, as far as it is there."""
    listed: list[str] = []
    notes: list[str] = []
    try:
        with tarfile.open(path, 'r:') as archive:
            for member in archive:
                if len(listed) == _MAX_MEMBERS:
                    notes.append('and more')
                    break
                if member.isfile():
                    listed.append(f'{member.name} ({many(member.size, "byte")})')
    except (tarfile.TarError, OSError, UnicodeError) as error:
        notes.append(f'the list ends here: {error}')
    return {'kind': 'archive', 'notes': ['a tape archive (tar)', *listed, *notes]}


def is_tar(head: bytes) -> bool:
    """Return whether a file of these first bytes is a tape archive."""
    return head[257:262] == b'ustar'
