"""Who executes a run: a lease, so that no two processes do so at the same time.

A lease ends with its time, which is renewed with every record and by a thread in between. On its
holder's machine and in its process namespace a dead holder is seen at once: there is no process of
its number, or one that was started at another time. Of its own leases a process knows which ones
are over.
"""

import json
import os
import socket
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

LEASE = 30.0
"""Seconds that a lease is valid without being renewed."""

_live: set[str] = set()  # leases of this process that are not over
_BOOT = Path('/proc/sys/kernel/random/boot_id')


def new_owner() -> str:
    """An identity of the calling process for one lease.

    Returns:
        JSON: the host's name and boot, the process and when it was started, and a unique token.
    """
    pid = os.getpid()
    owner = json.dumps(
        {
            'host': socket.gethostname(),
            'boot': _machine(),
            'pid': pid,
            'started': _started(pid),
            'token': uuid.uuid4().hex,
        },
        sort_keys=True,
    )
    _live.add(owner)
    return owner


def release_owner(owner: str) -> None:
    """Note that a lease of this process is over, also where no journal could be told.

    Args:
        owner: what `new_owner` gave.
    """
    _live.discard(owner)


def describe(owner: str) -> str:
    """An owner in words.

    Args:
        owner: what `new_owner` gave.

    Returns:
        Such as ``process 4711 on build-3``.
    """
    try:
        said = json.loads(owner)
        return f'process {said["pid"]} on {said["host"]}'
    except (ValueError, KeyError, TypeError):
        return repr(owner)


def is_gone(owner: str) -> bool:
    """Whether an owner is certainly dead.

    Args:
        owner: what `new_owner` gave, perhaps on another machine.

    Returns:
        True only if it was a process of this machine and this process namespace, or a lease of the
        calling process that is over.
    """
    try:
        said = json.loads(owner)
        here = _machine()
        if here is None or said['boot'] != here or said['started'] is None:
            return False
        os.kill(said['pid'], 0)
        started = _started(said['pid'])
        if started is not None and started != said['started']:
            return True
        return said['pid'] == os.getpid() and owner not in _live
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # there is one, of another user, and /proc may not show it
    except (ValueError, KeyError, TypeError, OverflowError):
        return False


def _machine() -> str | None:
    """Boot and process namespace: where a process number means the same process."""
    try:
        return f'{_BOOT.read_text().strip()} {Path("/proc/self/ns/pid").readlink()}'
    except OSError:
        return None


def _started(pid: int) -> str | None:
    """When a process was started, in ticks after the boot (proc(5), field 22 of stat).

    Of one that has ended and waits for its parent it is ``''``; None where it cannot be seen.
    """
    try:
        stat = Path(f'/proc/{pid}/stat').read_text()
    except OSError:
        return None
    state, *fields = stat.rpartition(') ')[2].split()
    return '' if state in 'ZX' else fields[18]


class Heartbeat:
    """Renews a lease while nothing is recorded.

    Args:
        renew: renews it; an error that is not `retryable` ends the thread.
        seconds: how long to wait between two times.
    """

    def __init__(self, renew: Callable[[], None], seconds: float = LEASE / 3) -> None:
        self._renew, self._seconds = renew, seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name='lagent-lease', daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._stop.wait(self._seconds):
            try:
                self._renew()
            except Exception as error:  # noqa: BLE001 - the next record meets the same, and is heard
                if not getattr(error, 'retryable', False):
                    return

    def stop(self) -> None:
        """End the thread; one that is renewing right now ends after that."""
        self._stop.set()
