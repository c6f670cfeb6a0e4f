"""The folder in which the host and the guest meet: the sockets of one instance.

::

    <runtime folder>/lagent-<uid>/   0700, checked to be ours
        <random>/                    one instance
            owner                    which process it belongs to
            session                  whom a warm one was given to
            groups                   its control groups, if the back end makes any itself
            k/                       the sockets: what the guest is shown

The guest may write to `k` only while it binds its sockets and before any code has run.
"""

import contextlib
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sandbox.backends import cgroups
from sandbox.backends.base import Endpoint
from sandbox.backends.layout import SOCKET_NAMES
from sandbox.errors import BackendUnavailable, StartFailed
from sandbox.owner import Owner

_OPEN, _SEALED = 0o1777, 0o555
_CONNECTION = 'connection.json'
_NAME = re.compile('[0-9a-f]{12}')
_UNFINISHED = 60.0  # seconds after which a folder without an owner is a dead program's
_LONGEST_NAME = 1_000  # characters of a session's name that are read
_LONGEST = 60
"""Bytes of the runtime folder's path; a socket's path has to stay below 108."""


class Rendezvous:
    """One instance's folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sockets = root / 'k'

    @classmethod
    def create(cls, guest_directory: str | None = None) -> tuple['Rendezvous', Endpoint]:
        """Make a folder with a new key.

        Args:
            guest_directory: What the guest calls the folder of sockets; None if as the host does.

        Raises:
            BackendUnavailable: The runtime folder is not safe to use.
            StartFailed: The folder could not be made, for instance on a full disk.
        """
        place = cls(runtime_folder() / secrets.token_hex(6))
        try:
            place.root.mkdir(mode=0o700)
            (place.root / 'owner').write_text(f'{Owner.current()}\n', encoding='ascii')
            key = secrets.token_hex(32)
            place.sockets.mkdir()
            file = place.sockets / _CONNECTION
            guest_view = _connection(f'{guest_directory or place.sockets}/s', key)
            file.write_text(json.dumps(guest_view), encoding='ascii')
            file.chmod(0o444)
            place.unseal()
        except BaseException as error:
            place.remove()
            if isinstance(error, OSError):
                raise StartFailed(f"The sandbox's folder could not be made: {error}.") from error
            raise
        return place, place.endpoint(key)

    def endpoint(self, key: str) -> Endpoint:
        """Return where the sockets are of an instance with this key."""
        return Endpoint(
            _connection(f'{self.sockets}/s', key), str(self.sockets / 'ctl'), self.sockets
        )

    def unseal(self) -> None:
        """Let the guest make its sockets.

        Raises:
            StartFailed: The folder is gone.
        """
        self._set_mode(_OPEN)

    def listens(self) -> bool:
        """Tell whether the supervisor has made its socket."""
        return (self.sockets / 'ctl').exists()

    def seal(self) -> None:
        """Let the guest change nothing here any more, and check what it has made.

        Raises:
            StartFailed: There is something besides the sockets, or the folder is gone.
        """
        self._set_mode(_SEALED)
        strange = [entry.name for entry in os.scandir(self.sockets) if not _belongs(entry)]
        if strange:
            raise StartFailed(
                f'The sandbox left {strange[0]!r} among its sockets and was not used.',
                hint='The kernel image may have been tampered with; build it again.',
            )

    def _set_mode(self, mode: int) -> None:
        try:
            self.sockets.chmod(mode)
        except OSError as error:
            raise StartFailed(f"The sandbox's folder cannot be used any more: {error}.") from error

    def assign(self, session: str) -> None:
        """Write down which session a warm instance was given to."""
        with contextlib.suppress(OSError):  # it is for people only
            (self.root / 'session').write_text(session, encoding='utf-8', errors='replace')

    def session(self) -> str | None:
        """Return what `assign` has written, None if nothing, or `''` if that cannot be seen."""
        try:
            with (self.root / 'session').open(encoding='utf-8', errors='replace') as file:
                return file.read(_LONGEST_NAME)
        except FileNotFoundError:
            return None
        except OSError:
            return ''

    def keep_groups(self, folders: Iterable[Path]) -> None:
        """Write down control groups that are to be removed with this folder."""
        (self.root / 'groups').write_text('\n'.join(map(str, folders)), encoding='utf-8')

    def remove(self) -> None:
        """Remove the folder and its control groups; it may be gone already.

        Raises:
            OSError: Something is left.
        """
        with contextlib.suppress(FileNotFoundError):
            groups = (self.root / 'groups').read_text(encoding='utf-8').splitlines()
            cgroups.remove(map(Path, groups))
        with contextlib.suppress(FileNotFoundError):
            self.sockets.chmod(0o700)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.root)

    def owner(self) -> Owner | None:
        """Return whom the folder belongs to, or None if that was never written."""
        try:
            return Owner.parse((self.root / 'owner').read_text(encoding='ascii'))
        except (OSError, UnicodeDecodeError):
            return None


def _connection(address: str, key: str) -> dict[str, Any]:
    return {
        'transport': 'ipc',
        'ip': address,
        'key': key,
        'signature_scheme': 'hmac-sha256',
        'shell_port': 1,
        'iopub_port': 2,
        'stdin_port': 3,
        'control_port': 4,
        'hb_port': 5,
    }


def deserted() -> Iterator[Rendezvous]:
    """Yield the folders whose owner is dead, or died before it could say who it is."""
    for root in sorted(runtime_folder().iterdir()):
        place = Rendezvous(root)
        owner = place.owner()
        if owner.is_dead_here() if owner else _was_never_finished(root):
            yield place


def _was_never_finished(root: Path) -> bool:
    try:
        age = time.time() - root.lstat().st_mtime
    except OSError:
        return False
    return _NAME.fullmatch(root.name) is not None and age > _UNFINISHED


def runtime_folder() -> Path:
    """Return the private folder below which everything is kept, made if need be.

    Raises:
        BackendUnavailable: It belongs to somebody else, others may write to it, or it could not be
            made.
    """
    parent = Path(os.environ.get('XDG_RUNTIME_DIR') or tempfile.gettempdir())
    # After `sudo -u` it is still the folder of the user before.
    usable = os.access(parent, os.W_OK | os.X_OK) and parent.is_dir()
    if not usable or len(os.fsencode(parent)) > _LONGEST:
        parent = Path('/tmp')  # noqa: S108 - what follows checks whose folder it is
    folder = parent / f'lagent-{os.geteuid()}'
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        status = folder.lstat()
    except OSError as error:
        raise BackendUnavailable(
            f'The folder of the sockets could not be made: {error}.',
            hint='Set XDG_RUNTIME_DIR to a folder of this user, with a path of at most '
            f'{_LONGEST} bytes.',
        ) from error
    private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077
    if not private or status.st_uid != os.geteuid():
        raise BackendUnavailable(
            f'{folder} is not a private folder of this user, so sockets are not safe in it.',
            hint=f'Look at what it is and remove it, or do: chmod 700 {folder}',
        )
    return folder


def _belongs(entry: os.DirEntry[str]) -> bool:
    status = entry.stat(follow_symlinks=False)
    if entry.name == _CONNECTION:
        return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
    return entry.name in SOCKET_NAMES and stat.S_ISSOCK(status.st_mode)
