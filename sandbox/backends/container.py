"""What is asked of the Docker engine for one container: all of the hardening, in one place."""

import functools
import os
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from sandbox.backends.engine import load_library
from sandbox.backends.layout import (
    HOME,
    OOM_SCORE,
    OPEN_FILES,
    SOCKETS,
    home_bytes,
    largest_file,
    threads,
)
from sandbox.backends.rendezvous import Rendezvous
from sandbox.egress.allowlist import Allowlist
from sandbox.egress.container import UNWIRED, wiring
from sandbox.errors import PolicyError
from sandbox.image_names import guest_folder
from sandbox.owner import FOLDER_LABEL, OWNER_LABEL, Owner
from sandbox.policy import SandboxPolicy

EGRESS_FOLDER = 'e'

OWN_OPTIONS = (
    *('command', 'user', 'hostname', 'working_dir', 'labels', 'environment', 'use_config_proxy'),
    'stdin_open',
)
"""Options of the container itself; all others say what the host gives it."""

_LONGEST_PATH = 1024
_SYSTEM = frozenset(
    (
        *('bin', 'boot', 'dev', 'etc', 'lib', 'lib32', 'lib64', 'libx32', 'opt', 'proc'),
        *('root', 'run', 'sbin', 'sys', 'usr', 'var'),
    )
)


def check_workspace(path: str) -> None:
    """Refuse a path that hides a part of the system.

    Args:
        path: Path of the workspace inside the container.

    Raises:
        PolicyError: The path is not absolute and plain, or belongs to the system.
    """
    parts = PurePosixPath(path).parts
    if (
        len(path) > _LONGEST_PATH
        or str(PurePosixPath(path)) != path
        or parts[:1] != ('/',)
        or '..' in parts
        or len(parts) < 2
        or parts[1] in _SYSTEM
        or path in {'/tmp', '/home', HOME}  # noqa: S108 - the container's
        or not path.isprintable()
        or set(path) & set(':,')
    ):
        raise PolicyError(
            f'The workspace cannot be at {path!r}.',
            hint='Name an absolute path outside of the system, such as /data.',
        )


def check_user(uid: int) -> None:
    """Refuse a user for the code who is the host's own.

    The supervisor tells the host from the code by user id, and the folder of sockets would be the
    code's to open again.

    Args:
        uid: User id of the code.

    Raises:
        PolicyError: This program runs as that user.
    """
    if uid == os.geteuid():
        raise PolicyError(
            f'uid={uid} is the user that this program runs as, so code could pass for the host.',
            hint='Leave uid out, or name a user id that nothing else on this machine has.',
        )


def container_options(
    policy: SandboxPolicy, place: Rendezvous, labels: Mapping[str, str], workspace: str
) -> dict[str, Any]:
    """Return everything that is asked of the engine for one container."""
    load_library()
    from docker.types import LogConfig, Ulimit

    user = f'uid={policy.uid},gid={policy.uid},mode=0700'
    largest = largest_file(policy)
    has_proxy = isinstance(policy.network, Allowlist)
    egress = wiring(place.root / EGRESS_FOLDER) if has_proxy else UNWIRED
    return {
        'command': [
            *('--dir', SOCKETS, '--workspace', workspace),
            *('--orphan-grace', str(policy.orphan_grace)),
            *egress.command,
        ],
        'user': f'{policy.uid}:{policy.uid}',
        'hostname': 'sandbox',
        'working_dir': workspace,
        'stdin_open': False,
        'init': True,
        'auto_remove': True,
        'labels': {
            **labels,
            OWNER_LABEL: str(Owner.current()),
            FOLDER_LABEL: str(place.root),
        },
        'environment': {**threads(policy), **egress.environment, **policy.env},
        'use_config_proxy': False,
        'network_mode': 'bridge' if policy.network == 'full' else 'none',
        'read_only': True,
        'binds': {str(place.sockets): {'bind': SOCKETS, 'mode': 'rw'}, **egress.volumes},
        'tmpfs': {
            '/tmp': _tmpfs(policy.tmp, 'mode=1777'),  # noqa: S108 - the container's
            workspace: _tmpfs(policy.disk, user),
            HOME: _tmpfs(home_bytes(policy), user),
        },
        'shm_size': policy.shm,
        'ipc_mode': 'private',
        'cap_drop': ['ALL'],
        'security_opt': ['no-new-privileges:true', f'seccomp={_seccomp_profile()}'],
        'pids_limit': policy.pids,
        'mem_limit': policy.memory,
        'memswap_limit': policy.memory,
        'nano_cpus': int(min(policy.cpus, os.cpu_count() or 1) * 1e9),
        'oom_score_adj': OOM_SCORE,
        'ulimits': [
            Ulimit(name='nofile', soft=OPEN_FILES, hard=OPEN_FILES),
            Ulimit(name='fsize', soft=largest, hard=largest),
            Ulimit(name='core', soft=0, hard=0),
        ],
        # What the code writes to /proc/1/fd/1 must not grow a file on the host.
        'log_config': LogConfig(type=LogConfig.types.NONE),
    }


def _tmpfs(size: int, owner: str) -> str:
    # Executable: to compile and run a program is a fair use, and an interpreter that runs any code
    # already gains nothing by it. An empty file costs an inode, so these are limited as well.
    return f'rw,exec,nosuid,nodev,size={size},nr_inodes={max(1024, size // 4096)},{owner}'


@functools.cache
def _seccomp_profile() -> str:
    return (guest_folder() / 'seccomp.json').read_text(encoding='utf-8')
