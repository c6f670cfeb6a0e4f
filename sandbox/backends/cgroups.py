"""Control groups of one sandbox: memory, processes and processor time, in version 1 and 2.

Version 1 has one tree for each controller, and a group is made below our own. In version 2 a group
that holds processes cannot have limited children, so it is made beside our own. Either needs
folders that this user may write to: root's, or those that systemd has delegated.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.policy import SandboxPolicy

FIELDS = {'memory': 'memory', 'pids': 'pids', 'cpu': 'cpus'}
"""Controllers, and the fields of a policy that they enforce."""

_PERIOD = 100_000  # microseconds
_PATIENCE = 5.0
_SWAP = ('memory.memsw.limit_in_bytes', 'memory.swap.max')


@dataclass(frozen=True)
class Hierarchy:
    """Where groups can be made.

    Attributes:
        version: 1 or 2.
        parents: For each usable controller, the folder to make a group in.
    """

    version: int
    parents: Mapping[str, Path]


@dataclass(frozen=True)
class Group:
    """The groups of one sandbox, one for each tree.

    Attributes:
        version: 1 or 2.
        folders: Their folders.
        memory: The folder of the one that limits memory, or None.
    """

    version: int
    folders: tuple[Path, ...]
    memory: Path | None

    @property
    def oom_counter(self) -> tuple[Path, str] | None:
        """The file that counts processes killed for memory, and its place inside a sandbox."""
        if self.memory is None:
            return None
        if self.version == 2:
            return self.memory / 'memory.events', '/sys/fs/cgroup/memory.events'
        return self.memory / 'memory.oom_control', '/sys/fs/cgroup/memory/memory.oom_control'

    def oom_kills(self) -> int:
        """Return how many processes were killed for lack of memory."""
        if counter := self.oom_counter:
            with contextlib.suppress(OSError):
                for line in counter[0].read_text(encoding='ascii').splitlines():
                    if line.startswith('oom_kill '):
                        return int(line.split()[1])
        return 0


def hierarchy(process: Path = Path('/proc/self')) -> Hierarchy:
    """Find out which groups this process may make; without any, there are no parents."""
    own = _own_groups((process / 'cgroup').read_text(encoding='utf-8', errors='replace'))
    mounts = list(_mounts((process / 'mountinfo').read_text(encoding='utf-8', errors='replace')))
    first = {}
    for controllers, root, folder in mounts:
        for name in controllers & FIELDS.keys() & own.keys():
            place = _inside(own[name], root, folder)
            if place is not None and os.access(place, os.W_OK):
                first[name] = place
    if first:
        return Hierarchy(1, first)
    for controllers, root, folder in mounts:
        place = _inside(own.get('', '/..'), root, folder)
        if not controllers and place is not None:
            parent = place if place == folder else place.parent
            return Hierarchy(2, dict.fromkeys(_delegated(parent), parent))
    return Hierarchy(2, {})


def plan(where: Hierarchy, name: str) -> tuple[Path, ...]:
    """Return the folders that `create` will make."""
    return tuple(sorted({parent / name for parent in where.parents.values()}))


def create(where: Hierarchy, name: str, policy: SandboxPolicy, *, spare_pids: int) -> Group:
    """Make the groups of a sandbox, with the limits of its policy.

    Args:
        where: Where to make them.
        name: Name of each.
        policy: The limits.
        spare_pids: Processes of our own that the group has to hold besides.

    Raises:
        OSError: The kernel refused; nothing is left.
    """
    folders = plan(where, name)
    try:
        for folder in folders:
            folder.mkdir()
        for controller, parent in where.parents.items():
            for file, value in _limits(where.version, controller, policy, spare_pids):
                # Swap can be limited where the kernel counts it.
                if file not in _SWAP or (parent / name / file).exists():
                    (parent / name / file).write_text(f'{value}\n', encoding='ascii')
    except BaseException:
        remove(folders)
        raise
    memory = where.parents.get('memory')
    return Group(where.version, folders, memory / name if memory else None)


def remove(folders: Iterable[Path]) -> None:
    """Kill what runs in groups and remove them; they may be gone already.

    Raises:
        OSError: One could not be removed within a few seconds.
    """
    deadline = time.monotonic() + _PATIENCE
    for folder in folders:
        while True:
            try:
                folder.rmdir()
            except FileNotFoundError:
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                _kill(folder)
                time.sleep(0.005)
            else:
                break


def _kill(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for pid in (folder / 'cgroup.procs').read_text(encoding='ascii').split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def _limits(
    version: int, controller: str, policy: SandboxPolicy, spare_pids: int
) -> list[tuple[str, str]]:
    quota = str(max(1_000, round(policy.cpus * _PERIOD)))
    memory, pids = str(policy.memory), str(policy.pids + spare_pids)
    if controller == 'pids':
        return [('pids.max', pids)]
    if version == 2:
        if controller == 'memory':
            return [('memory.max', memory), ('memory.swap.max', '0')]
        return [('cpu.max', f'{quota} {_PERIOD}')]
    if controller == 'memory':
        return [('memory.limit_in_bytes', memory), ('memory.memsw.limit_in_bytes', memory)]
    return [('cpu.cfs_period_us', str(_PERIOD)), ('cpu.cfs_quota_us', quota)]


def _own_groups(text: str) -> dict[str, str]:
    """Read `/proc/PID/cgroup`: the group in each controller's tree; version 2 has no name."""
    groups = {}
    for line in text.splitlines():
        _, names, path = line.split(':', 2)
        groups.update(dict.fromkeys(names.split(','), path))
    return groups


def _mounts(text: str) -> Iterator[tuple[set[str], str, Path]]:
    """Read `/proc/PID/mountinfo`: controllers, root and folder of each mounted tree."""
    for line in text.splitlines():
        before, _, after = line.partition(' - ')
        kind, _, options = after.split(' ', 2)
        if kind in ('cgroup', 'cgroup2'):
            root, folder = before.split()[3:5]
            yield set(options.split(',')) if kind == 'cgroup' else set(), root, Path(folder)


def _inside(group: str, root: str, folder: Path) -> Path | None:
    """Return the folder of a group in a tree of which only `root` is mounted at `folder`."""
    if '..' in Path(group).parts or not Path(group).is_relative_to(root):
        return None
    return folder / Path(group).relative_to(root)


def _delegated(parent: Path) -> set[str]:
    """Return the controllers that groups in a folder of version 2 have, if we may make any."""
    try:
        enabled = (parent / 'cgroup.subtree_control').read_text(encoding='ascii').split()
    except OSError:
        return set()
    # Moving a process takes the right to write to the common ancestor's list as well.
    if not os.access(parent, os.W_OK) or not os.access(parent / 'cgroup.procs', os.W_OK):
        return set()
    return set(enabled) & FIELDS.keys()
