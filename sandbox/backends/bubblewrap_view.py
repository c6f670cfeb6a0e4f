"""What a sandbox made by bubblewrap sees, and the commands that make it so.

An ordinary user's sandbox is one `bwrap` in a user namespace. Root's is two: the first, still root,
gathers what may be seen in a mount namespace, for the interpreter may lie where nobody else can
look; `setpriv` then becomes the policy's user, and the second isolates as for an ordinary user.
"""

import functools
import json
import os
import resource
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from sandbox.backends.seccomp import assemble
from sandbox.errors import BackendUnavailable
from sandbox.image import guest_folder
from sandbox.policy import MIB, SandboxPolicy

SOCKETS, WORKSPACE = '/run/k', '/workspace'
_HOME, _GUEST = '/home/sandbox', '/opt/sandbox'
_HOME_BYTES = 64 * MIB
_OPEN_FILES = 1024
_OOM_SCORE = 300
"""When the host runs out of memory, sandboxes go first."""

_SYSTEM = ('/usr', '/bin', '/sbin', '/lib', '/lib32', '/lib64', '/etc/ld.so.cache')
_JOIN = (
    f'echo {_OOM_SCORE} >/proc/self/oom_score_adj; '
    'until [ "$1" = -- ]; do echo 0 >"$1" || exit 1; shift; done; shift; exec "$@"'
)
"""Joins control groups before anything of the sandbox runs; writing 0 moves the writer itself."""


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
    return os.path.realpath(path)


def interpreter() -> tuple[str, list[str]]:
    """Return the Python that runs the kernel, and the folders it needs.

    Raises:
        BackendUnavailable: These folders hold more of the host than an interpreter.
    """
    folders = list(dict.fromkeys(os.path.abspath(each) for each in (sys.prefix, sys.base_prefix)))
    private = {Path(os.path.expanduser('~')).resolve(), Path.cwd(), Path('/')}
    for folder in folders:
        if any(place.is_relative_to(folder) for place in private - {Path('/')}) or folder == '/':
            raise BackendUnavailable(
                f'The interpreter lies in {folder}, which holds more than an interpreter, and all '
                'of it would be shown to the sandbox.',
                hint='Use a virtual environment in a folder of its own.',
            )
    return sys.executable, [each for each in folders if not each.startswith('/usr/')]


def shown(place: Path, extra: Iterable[Mount] = ()) -> list[Mount]:
    """Return what a sandbox is shown of the host; nothing else of it exists there.

    Args:
        place: A private folder for made-up files.
        extra: More than every sandbox sees.
    """
    made_up = {
        'passwd': 'sandbox:x:{0}:{0}::{1}:/bin/sh\n',
        'group': 'sandbox:x:{0}:\n',
        'hosts': '127.0.0.1 localhost sandbox\n::1 localhost\n',
    }
    del made_up, place
    _, folders = interpreter()
    mounts = [Mount(path, path) for path in (*_SYSTEM, *folders) if os.path.exists(path)]
    return [*mounts, Mount(str(guest_folder()), _GUEST), *extra]
