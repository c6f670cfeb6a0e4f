"""The guest's processes: the kernel's, its descendants, and how they end. Linux only."""

import contextlib
import ctypes
import os
import signal
from pathlib import Path
from typing import Any

KERNEL_OOM_SCORE = '500'
LOG_BYTES = 4096
_OOM_COUNTERS = (
    Path('/sys/fs/cgroup/memory.events'),
    Path('/sys/fs/cgroup/memory/memory.oom_control'),
)

PARENT_DEATH_SIGNAL, DUMPABLE, CHILD_SUBREAPER = 1, 4, 36
"""Options of `prctl`."""


class Kernel:
    """The current kernel process, or how the last one ended."""

    def __init__(self) -> None:
        self.pid = 0
        self.starting = False
        self.generation = 0
        self.exited: dict[str, Any] | None = None
        self.log_pipe = -1
        self._log = b''
        self._oom_before = 0

    @property
    def oom_kills(self) -> int:
        """Processes killed for lack of memory since this kernel began."""
        return oom_kills() - self._oom_before

    def begins(self) -> None:
        """Take note that a new process is on its way."""
        self.pid, self.starting, self.exited = 0, True, None
        self.generation += 1
        self._oom_before = oom_kills()

    def logs_to(self, log_pipe: int) -> None:
        """Take note of where its stderr can be read."""
        self.log_pipe, self._log = log_pipe, b''

    def began(self, pid: int) -> None:
        """Take note of the new process."""
        self.pid, self.starting = pid, False

    def read_log(self) -> bool:
        """Keep the end of what the kernel wrote to its real stderr; False at its end."""
        try:
            data = os.read(self.log_pipe, 1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._log = (self._log + data)[-LOG_BYTES:]
        return bool(data)

    def ended(self, status: int) -> dict[str, Any]:
        """Take note of the exit status that `waitpid` gave, and return the event to report."""
        exit_code = os.waitstatus_to_exitcode(status)
        self.read_log()
        self.pid, self.starting = 0, False
        self.exited = {
            'event': 'exited',
            'generation': self.generation,
            'code': exit_code if exit_code >= 0 else None,
            'signal': -exit_code if exit_code < 0 else None,
            'oom_kills': self.oom_kills,
            'log': self._log.decode('utf-8', 'replace'),
        }
        return self.exited


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process; where the system lacks it, go on without."""
    ctypes.CDLL(None).prctl(option, *(ctypes.c_ulong(number) for number in (value, 0, 0, 0)))


def supervise() -> None:
    """Adopt all orphans, so that a kill finds them; and be closed to code of the same uid.

    Such code could otherwise rewrite our memory through `/proc`.
    """
    prctl(CHILD_SUBREAPER, 1)
    prctl(DUMPABLE, 0)


def become_servant(channel: int) -> None:
    """In a child: outlive nobody, and keep nothing of the parent's but one descriptor."""
    os.setsid()
    prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    silence()
    os.closerange(3, channel)
    os.closerange(channel + 1, os.sysconf('SC_OPEN_MAX'))


def become_session(log: int, parent: int) -> None:
    """In a child: lead a session of its own that outlives nobody, with `log` as its stderr.

    Raises:
        RuntimeError: `parent` is not, or no longer, the parent of this process.
    """
    if os.getsid(0) != os.getpid():
        os.setsid()
    prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # it may have ended before the signal was asked for
        raise RuntimeError('the supervisor has not adopted the kernel, or has ended')
    prctl(DUMPABLE, 1)  # what follows writes to /proc/self, which would not be ours
    with contextlib.suppress(OSError):
        Path('/proc/self/oom_score_adj').write_text(KERNEL_OOM_SCORE, encoding='ascii')
    silence()
    os.dup2(log, 2)
    os.close(log)


def silence() -> None:
    """Read nothing from the standard streams, and write nothing to them."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.close(nothing)


def oom_kills() -> int:
    """Return how many processes of this control group were killed for lack of memory."""
    for path in _OOM_COUNTERS:
        with contextlib.suppress(OSError, ValueError):
            for line in path.read_text(encoding='ascii').splitlines():
                name, _, value = line.partition(' ')
                if name == 'oom_kill':
                    return int(value)
    return 0


def descendants(spared: set[int], roots: set[int]) -> set[int]:
    """Return all processes below `roots`, without these, `spared` and the dead."""
    parents = {}
    for entry in os.scandir('/proc'):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                stat = Path(entry.path, 'stat').read_bytes()
                state, parent = stat.rpartition(b')')[2].split()[:2]
                parents[int(entry.name)] = (int(parent), state == b'Z')
    found: set[int] = set()
    level = roots
    while level:
        level = {pid for pid, (parent, _) in parents.items() if parent in level}
        level -= spared | found | roots
        found |= level
    return {pid for pid in found if not parents[pid][1]}


def send(number: int, pids: set[int]) -> None:
    """Send a signal to processes that may be gone already."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
