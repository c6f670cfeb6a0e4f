"""Which process a sandbox belongs to, in a form that survives that process.

A process id alone is reused; with its start time and the machine's boot id it is not. The pid
namespace is part of it because an id means nothing in another one.
"""

import os
from pathlib import Path
from typing import Literal, NamedTuple, Self

OWNER_LABEL = 'lagent.sandbox.owner'
FOLDER_LABEL = 'lagent.sandbox.folder'
SESSION_LABEL = 'lagent.sandbox.session'
POOL_LABEL = 'lagent.sandbox.pool'
"""On a container that was started for whoever comes next; its folder says who that was."""

_BOOT_ID = Path('/proc/sys/kernel/random/boot_id')


class Owner(NamedTuple):
    """Identity of a process.

    Attributes:
        boot_id: Identity of this run of the machine's kernel.
        pid: Process id.
        started: Start time of the process in clock ticks since boot.
        namespace: Inode of the pid namespace in which `pid` counts.
    """

    boot_id: str
    pid: int
    started: int
    namespace: int

    @classmethod
    def current(cls) -> Self:
        """Return the identity of this process."""
        pid = os.getpid()
        return cls(_boot_id(), pid, _start_time(pid) or 0, _namespace())

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the identity that `str` has written, or None for any other text."""
        parts = text.strip().split(':')
        if len(parts) != 4 or not all(part.isdecimal() for part in parts[1:]):
            return None
        return cls(parts[0], *map(int, parts[1:]))

    def __str__(self) -> str:
        return f'{self.boot_id}:{self.pid}:{self.started}:{self.namespace}'

    def state(self) -> Literal['alive', 'dead', 'unknown']:
        """Tell whether the process still runs; `unknown` when it cannot be seen from here."""
        if self.boot_id != _boot_id() or self.namespace != _namespace():
            return 'unknown'
        return 'alive' if _start_time(self.pid) == self.started else 'dead'

    def is_dead_here(self) -> bool:
        """Tell whether it is dead for sure, given that it ran on this very machine.

        An earlier run of the machine's kernel has left no process behind.
        """
        return self.boot_id != _boot_id() or self.state() == 'dead'


def _boot_id() -> str:
    return _BOOT_ID.read_text(encoding='ascii').strip()


def _namespace() -> int:
    return Path('/proc/self/ns/pid').stat().st_ino


def _start_time(pid: int) -> int | None:
    try:
        stat = Path(f'/proc/{pid}/stat').read_bytes()
    except OSError:
        return None
    state, *rest = stat.rpartition(b')')[2].split()
    return None if state in (b'Z', b'X') else int(rest[18])
