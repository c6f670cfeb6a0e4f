"""What a file is: found out from its first bytes and its name, with bounded reading."""

import json
import os
import stat
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from .compressed import compressed_profile, compression, is_tar, tar_profile
from .containers import archive_profile, database_profile, parquet_profile
from .delimited import text_profile
from .documents import Unreadable, json_profile, lines_profile, pdf_profile
from .images import image_profile

_HEAD_BYTES = 512  # a tape archive is told from its first block
_MAX_TEXT = 200  # characters of one cell or name
_MAX_PROFILE = 200_000  # characters; a wide table with long names is told in part

Profile = dict[str, Any]


def _by_content(path: Path, head: bytes) -> Profile | None:
    """Return the profile of a file that its first bytes tell; None where they don't."""
    images = {b'\x89PNG\r\n\x1a\n': 'png', b'GIF8': 'gif', b'\xff\xd8\xff': 'jpeg', b'BM': 'bmp'}
    for magic, kind in images.items():
        if head.startswith(magic) and (kind != 'bmp' or path.suffix.lower() == '.bmp'):
            return image_profile(path, kind)
    if head.startswith(b'RIFF') and head[8:12] == b'WEBP':
        return image_profile(path, 'webp')
    readers: dict[bytes, Callable[[Path], Profile]] = {
        b'PK\x03\x04': archive_profile,
        b'PK\x05\x06': archive_profile,
        b'PAR1': parquet_profile,
        b'SQLite format 3\x00': database_profile,
        b'%PDF-': pdf_profile,
    }
    for magic, reader in readers.items():
        if head.startswith(magic):
            return reader(path)
    if head.startswith(b'\xd0\xcf\x11\xe0'):
        raise Unreadable('an old Office file (before 2007), which is not looked into here')
    return tar_profile(path) if is_tar(head) else None


_CLAIMED: dict[str, Callable[[Path], Profile]] = {
    '.xlsx': archive_profile,
    '.zip': archive_profile,
    '.parquet': parquet_profile,
    '.sqlite': database_profile,
    '.pdf': pdf_profile,
    '.png': partial(image_profile, kind='png'),
    '.gif': partial(image_profile, kind='gif'),
    '.bmp': partial(image_profile, kind='bmp'),
    '.webp': partial(image_profile, kind='webp'),
    '.jpg': partial(image_profile, kind='jpeg'),
    '.jpeg': partial(image_profile, kind='jpeg'),
}


def _by_name(path: Path, size: int) -> Profile | None:
    suffix = path.suffix.lower()
    if suffix in ('.json', '.geojson', '.ipynb'):
        return json_profile(path, size)
    if suffix in ('.jsonl', '.ndjson'):
        return lines_profile(path, size)
    reader = _CLAIMED.get(suffix)
    return reader(path) if reader else None  # which says what is wrong with it


def _look_at(path: Path) -> Profile:
    with path.open('rb') as file:
        head = file.read(_HEAD_BYTES)
    size = path.stat().st_size
    found = _by_content(path, head) or _by_name(path, size) or text_profile(path, size)
    return found or {'kind': 'binary', 'notes': []}


def profile_file(path: Path) -> Profile:
    """Describe a file; never raises for what is in it."""
    about: Profile = {'kind': 'unknown', 'size': 0}
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            return {**about, 'error': 'it is no regular file'}
        about['size'] = status.st_size
        if status.st_size == 0:
            return {**about, 'kind': 'empty', 'notes': ['the file is empty: 0 bytes']}
        packed = compression(path)
        found = compressed_profile(path, packed, _look_at) if packed else _look_at(path)
        return _bounded(_short({**about, **found}))
    except Unreadable as error:
        return {**about, 'error': str(error)[:1_000]}
    except Exception as error:  # noqa: BLE001 - whatever is in the file
        return {**about, 'error': f'it could not be looked at: {type(error).__name__}: {error}'}


def _bounded(profile: Profile) -> Profile:
    if len(json.dumps(profile)) <= _MAX_PROFILE:
        return profile
    tables = [
        {**table, 'rows': [], 'columns': table.get('columns', [])[:20]}
        for table in profile.get('tables', [])
    ]
    return {**profile, 'tables': tables}


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _MAX_TEXT else f'{value[:_MAX_TEXT]}...'
    if isinstance(value, list):
        return [_short(item) for item in value]
    if isinstance(value, dict):
        return {k: item if k == 'text' else _short(item) for k, item in value.items()}
    return value


def profile_named(name: str, folders: list[str]) -> Profile:
    """Describe a file of the workspace.

    Args:
        name: Its path there.
        folders: Where the workspace may be, the likeliest first.
    """
    places = [Path(folder, name) for folder in folders]
    path = next((place for place in places if os.path.lexists(place)), None)
    if path is None:
        return {'kind': 'unknown', 'error': 'there is no such file'}
    return profile_file(path)


def yield_to_others() -> None:
    """Have the system end this process, and not the kernel, when memory runs out."""
    if sys.platform == 'linux':
        Path('/proc/self/oom_score_adj').write_text('1000')
