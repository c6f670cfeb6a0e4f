"""What a sandbox made by bubblewrap sees, and the commands that make it so.

It is one `bwrap`, run by an ordinary user. Root becomes the policy's user first (`gather.py`).
"""

import json
import os
import resource
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from sandbox.backends import gather
from sandbox.backends.layout import (
    HOME,
    OOM_SCORE,
    OPEN_FILES,
    SOCKETS,
    WORKSPACE,
    home_bytes,
    largest_file,
    threads,
)
from sandbox.backends.seccomp import guest_filter
from sandbox.errors import BackendUnavailable
from sandbox.image_names import guest_folder
from sandbox.policy import SandboxPolicy

_GUEST = '/opt/sandbox'
_SYSTEM = ('/usr', '/bin', '/sbin', '/lib', '/lib32', '/lib64', '/etc/ld.so.cache')
_OF_AN_INTERPRETER = ('bin', 'lib', 'lib64', 'pyvenv.cfg')
_JOIN = (
    f'{{ echo {OOM_SCORE} >/proc/self/oom_score_adj; }} 2>/dev/null; '
    'until [ "$1" = -- ]; do echo 0 >"$1" || exit 1; shift; done; shift; exec "$@"'
)
"""Joins control groups before anything of the sandbox runs: to write 0 moves the writer itself."""


class Mount(NamedTuple):
    """Something of the host that a sandbox is shown.

    Attributes:
        source: Its path on the host.
        target: Its path in the sandbox.
        writable: Whether it may be changed.
    """

    source: str
    target: str
    writable: bool = False


@dataclass(frozen=True)
class Plan:
    """One sandbox to be made.

    Attributes:
        policy: Its limits.
        program: What runs in it.
        mounts: What it is shown of the host besides the system and the interpreter.
        groups: The control groups to join.
        memory_each: Most memory of one process, in bytes, where no group limits all together.
    """

    policy: SandboxPolicy
    program: tuple[str, ...]
    mounts: tuple[Mount, ...] = ()
    groups: tuple[Path, ...] = ()
    memory_each: int | None = None


def supervisor(policy: SandboxPolicy) -> tuple[str, ...]:
    """Return the command that starts the supervisor in a sandbox."""
    return (
        *(sys.executable, '-I', f'{_GUEST}/supervisor.py'),
        *('--dir', SOCKETS, '--workspace', WORKSPACE),
        *('--orphan-grace', str(policy.orphan_grace)),
        # To the guest, the user that the host runs as is its own.
        *(() if os.geteuid() == 0 else ('--same-uid',)),
    )


def command(
    plan: Plan, open_files: ExitStack, info: int | None = None
) -> tuple[list[str], list[int]]:
    """Return the command that makes a sandbox, and the descriptors that it has to inherit.

    The command line and the environment of what is started can be read inside, and on the host by
    everybody: what is private goes through descriptors.

    Args:
        plan: The sandbox.
        open_files: Takes the descriptors; close it when the command has been started.
        info: Where to write the process id of the sandbox's first process, as JSON.
    """

    def handed(data: bytes) -> int:
        number = os.memfd_create('sandbox', 0)
        open_files.callback(os.close, number)
        os.write(number, data)
        os.lseek(number, 0, os.SEEK_SET)
        return number

    root = os.geteuid() == 0
    mounts = [*_base(), *plan.mounts]
    inside = [Mount(each.target, each.target, each.writable) for each in mounts] if root else mounts
    files = {path: handed(text.encode()) for path, text in _made_up(plan.policy.uid).items()}
    seccomp = handed(guest_filter())
    arguments = [
        *_isolation(plan.policy),
        *_memory_file_systems(plan.policy),
        *_binds(inside),
        *(word for path, number in files.items() for word in ('--file', str(number), path)),
        *('--remount-ro', '/', '--chdir', WORKSPACE, '--seccomp', str(seccomp)),
        *(() if info is None else ('--info-fd', str(info))),
    ]
    packed = handed(b'\0'.join(os.fsencode(word) for word in arguments) + b'\0')
    words = [tool('bwrap'), '--args', str(packed), '--', *_limits(plan), *plan.program]
    if root:
        words = [*_gathered(plan.policy.uid, mounts), *words]
    joined = [f'{folder}/cgroup.procs' for folder in plan.groups]
    words = ['/bin/sh', '-c', _JOIN, 'sh', *joined, '--', *words]
    inherited = [packed, seccomp, *files.values(), *(() if info is None else (info,))]
    return words, inherited


def tool(name: str) -> str:
    """Return the path of a program.

    Raises:
        BackendUnavailable: It is not installed.
    """
    path = shutil.which(name)
    if path is None:
        package = 'bubblewrap' if name == 'bwrap' else 'util-linux'
        raise BackendUnavailable(
            f"The back end 'bubblewrap' needs the program {name}, which is not installed.",
            hint=f'Install the package {package} of your distribution.',
        )
    return path


def _base() -> Iterator[Mount]:
    """Yield the system, the interpreter and the guest's programs."""
    parts = [
        Path(prefix).absolute() / part
        for prefix in dict.fromkeys((sys.prefix, sys.base_prefix))
        for part in _OF_AN_INTERPRETER
    ]
    tools = [Path(tool(name)) for name in ('bwrap', 'prlimit')]
    system = [Path(path) for path in _SYSTEM]
    seen = set(system)
    for path in (*system, *parts, *tools):
        if path.exists() and (path in seen or seen.isdisjoint(path.parents)):
            yield Mount(str(path), str(path))
    yield Mount(str(guest_folder()), _GUEST)


def _isolation(policy: SandboxPolicy) -> Iterator[str]:
    yield from ('--unshare-all', '--unshare-user', '--disable-userns')
    yield from ('--die-with-parent', '--new-session', '--as-pid-1', '--hostname', 'sandbox')
    yield from ('--uid', str(policy.uid), '--gid', str(policy.uid), '--clearenv')
    for name, value in _environment(policy).items():
        yield from ('--setenv', name, value)


def _environment(policy: SandboxPolicy) -> dict[str, str]:
    return {
        'PATH': f'{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin',
        'HOME': HOME,
        'HOSTNAME': 'sandbox',
        'LANG': 'C.UTF-8',
        'PYTHONNOUSERSITE': '1',
        'MPLCONFIGDIR': f'{HOME}/.config/matplotlib',
        **threads(policy),
        **policy.env,
    }


def _memory_file_systems(policy: SandboxPolicy) -> Iterator[str]:
    """Yield what can be written to, and `/proc` and `/dev`; bubblewrap's have no limit."""
    yield from ('--proc', '/proc', '--dev', '/dev')
    for path, size, mode in (
        ('/dev/shm', policy.shm, '1777'),  # noqa: S108 - the sandbox's
        ('/tmp', policy.tmp, '1777'),  # noqa: S108 - the sandbox's
        (WORKSPACE, policy.disk, '0700'),
        (HOME, home_bytes(policy), '0700'),
    ):
        yield from ('--perms', mode, '--size', str(size), '--tmpfs', path)
    yield from ('--remount-ro', '/dev')


def _binds(mounts: Iterable[Mount]) -> Iterator[str]:
    made = {'/'}
    for source, target, writable in mounts:
        # Bubblewrap would close the folders above to everybody but their maker.
        for parent in reversed(PurePosixPath(target).parents):
            if str(parent) not in made:
                yield from ('--perms', '0755', '--dir', str(parent))
                made.add(str(parent))
        if Path(source).is_symlink():
            yield from ('--symlink', str(Path(source).readlink()), target)
        else:
            yield from ('--bind' if writable else '--ro-bind', source, target)


def _made_up(uid: int) -> dict[str, str]:
    return {
        '/etc/passwd': f'sandbox:x:{uid}:{uid}::{HOME}:/bin/sh\n',
        '/etc/group': f'sandbox:x:{uid}:\n',
        '/etc/hosts': '127.0.0.1 localhost sandbox\n::1 localhost\n',
    }


def _gathered(uid: int, mounts: list[Mount]) -> Iterator[str]:
    places = [(path, path) for path in ('/dev', '/proc')]
    # Where they are gathered, a link on the way to one would lead to where nothing is yet.
    places += [(_without_links_above(each.source), each.target) for each in mounts]
    yield from (sys.executable, '-I', '-S', gather.__file__, str(uid), json.dumps(places))


def _without_links_above(path: str) -> str:
    return str(Path(path).parent.resolve() / Path(path).name)


def _limits(plan: Plan) -> Iterator[str]:
    policy = plan.policy
    yield tool('prlimit')
    limits = {
        'nofile': (resource.RLIMIT_NOFILE, OPEN_FILES),
        'fsize': (resource.RLIMIT_FSIZE, largest_file(policy)),
        'core': (resource.RLIMIT_CORE, 0),
        # Since Linux 5.14 counted within the user namespace that it is set in, which is why all
        # these are set inside.
        'nproc': (resource.RLIMIT_NPROC, policy.pids),
    }
    if plan.memory_each is not None:
        limits['data'] = (resource.RLIMIT_DATA, plan.memory_each)
    for name, (number, value) in limits.items():
        most = resource.getrlimit(number)[1]
        least = value if most == resource.RLIM_INFINITY else min(value, most)
        yield f'--{name}={least}:{least}'
    yield '--'
