"""gVisor (`runtime='runsc'`): a container whose system calls never reach the kernel of the host.

Nothing of the host is shared with it, not even sockets: everything goes over the container's
standard streams (see `bridge.py`). What limits a container does not all limit the code in gVisor in
the same way, and is arranged for here.
"""

import base64
from collections.abc import Mapping
from typing import Any

from sandbox.backends.base import Endpoint
from sandbox.backends.engine import engine, load_library
from sandbox.backends.layout import SOCKETS
from sandbox.backends.seccomp import guest_filter
from sandbox.errors import PolicyNotEnforced, SandboxError
from sandbox.policy import MIB, SandboxPolicy

RUNTIME = 'runsc'
"""The name that the engine must know it by."""

_SETUP = ('SETUID', 'SETGID', 'SETPCAP')
"""With these the supervisor begins, to give them all up; no code ever has them."""
_TASKS_OF_ITS_OWN, _TASKS_FOR_EACH = 256, 16
"""Threads of the host for gVisor itself, and for each process inside: up to 11 were seen."""


def gaps(policy: SandboxPolicy, info: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of a policy with gVisor that do not hold, each with the reason.

    Args:
        policy: The policy; one that does not ask for gVisor has no gaps here.
        info: The engine's answer to `GET /info`.
    """
    found = {}
    if policy.runtime == RUNTIME:
        if RUNTIME not in (info.get('Runtimes') or {}):
            found['runtime'] = f'this Docker engine has no runtime {RUNTIME!r}'
        if policy.network != 'none':
            found['network'] = "with gVisor only network='none' is supported"
        if policy.preload:
            found['preload'] = 'in gVisor kernels are not forked from a process that could preload'
    return found


def check(policy: SandboxPolicy, info: Mapping[str, Any]) -> None:
    """Return when a policy that asks for gVisor can be enforced.

    Args:
        policy: The policy.
        info: The engine's answer to `GET /info`.

    Raises:
        PolicyNotEnforced: The engine has no gVisor, or the policy asks for what it cannot give.
    """
    if found := gaps(policy, info):
        raise PolicyNotEnforced(
            f'The policy asks for gVisor (runtime={RUNTIME!r}), but {"; ".join(found.values())}.',
            hint='Install gVisor and register it with the engine (docs/sandbox.md), or leave '
            'runtime out.'
            if 'runtime' in found
            else f'Leave {" and ".join(found)} out, or runtime.',
        )


def adapt(options: Mapping[str, Any], policy: SandboxPolicy) -> dict[str, Any]:
    """Return what is asked of the engine for a container in gVisor.

    Args:
        options: What would be asked for without it.
        policy: What the code may use.
    """
    load_library()
    from docker.types import Ulimit

    owner = f'uid={policy.uid},gid={policy.uid},mode=0711'
    return {
        **options,
        'runtime': RUNTIME,
        'command': [*options['command'], '--bridge', str(policy.uid)],
        # The first program is the bridge: it has to begin with the right to become two users.
        'user': '0:0',
        'cap_add': list(_SETUP),
        'init': False,
        'stdin_open': True,
        'binds': {},
        'tmpfs': {**options['tmpfs'], SOCKETS: f'rw,noexec,nosuid,nodev,size={MIB},{owner}'},
        # The filter of system calls goes over the bridge: gVisor would not load it.
        'security_opt': ['no-new-privileges:true'],
        # The engine's limit counts threads of gVisor, and would end all of it.
        'pids_limit': _TASKS_OF_ITS_OWN + _TASKS_FOR_EACH * policy.pids,
        'ulimits': [
            *options['ulimits'],
            Ulimit(name='nproc', soft=policy.pids, hard=policy.pids),
        ],
    }


def greeting(endpoint: Endpoint) -> dict[str, Any]:
    """Return what the bridge in the container is told first."""
    return {
        'connection': {**endpoint.connection, 'ip': f'{SOCKETS}/s'},
        'filter': base64.b64encode(guest_filter()).decode('ascii'),
    }


def unenforced(policy: SandboxPolicy) -> dict[str, str]:
    """Return what `gaps` does, for the engine of this machine; without one gVisor is missing."""
    if policy.runtime != RUNTIME:
        return {}
    try:
        with engine() as client:
            return gaps(policy, client.info())
    except SandboxError as error:
        return {'runtime': error.message}
