"""What this machine can enforce, and why not: the findings behind `sandbox doctor`."""

import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from sandbox.errors import SandboxError
from sandbox.policy import DEFAULT_VARIANT, VARIANTS, SandboxPolicy

Status = Literal['ok', 'warning', 'missing']

_MEMORY_OF_A_SESSION = 1 << 30
_DISK_FOR_AN_IMAGE = 2 << 30
_BUBBLEWRAP_LIMITS = 'its limits'
"""What is looked at only where bubblewrap can be used."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: What was looked at.
        status: `ok`; `warning` when something works less well or protects less; `missing` when no
            sandbox can start without it.
        detail: What was found.
        hint: What to do about it; empty when there is nothing to do.
    """

    name: str
    status: Status
    detail: str
    hint: str = ''


def examine() -> list[Finding]:
    """Look at this machine; nothing is changed, and nothing that is missing is an error."""
    docker, bubblewrap = list(_docker()), list(_bubblewrap())
    if any(finding.name == _BUBBLEWRAP_LIMITS for finding in bubblewrap):
        docker = [_dispensable(finding) for finding in docker]
    return [_system(), *docker, _user_namespaces(), *bubblewrap, _memory(), _disk()]


def _dispensable(finding: Finding) -> Finding:
    """Judge what Docker lacks where bubblewrap can be used."""
    if finding.status != 'missing':
        return finding
    return replace(finding, status='warning', hint=f"{finding.hint} Or use backend='bubblewrap'.")


def usable(findings: list[Finding]) -> bool:
    """Tell whether sandboxes can start here."""
    return all(finding.status != 'missing' for finding in findings)


def _system() -> Finding:
    detail = (
        f'{platform.system()} {platform.release()}, {platform.machine()}, {os.cpu_count()} cores'
    )
    if platform.system() == 'Linux':
        return Finding('system', 'ok', detail)
    return Finding(
        'system',
        'warning',
        detail,
        'The sockets of a sandbox do not cross the border of a virtual machine: run this inside '
        'Linux.',
    )


def _docker() -> Iterator[Finding]:
    from sandbox.backends.engine import engine

    try:
        with engine() as client:
            info: dict[str, Any] = client.info()
            api = client.version().get('ApiVersion', '?')
    except SandboxError as error:
        yield Finding('docker engine', 'missing', error.message, error.hint)
        return
    version = info.get('ServerVersion', '?')
    yield Finding('docker engine', 'ok', f'{version}, API {api}, {info.get("OperatingSystem")}')
    yield from judge_engine(info)
    yield from _images()


def _images() -> Iterator[Finding]:
    from sandbox.image import build_command, find_image
    from sandbox.layer import layers

    try:
        yield Finding('kernel image', 'ok', find_image())
    except SandboxError as error:
        yield Finding('kernel image', 'missing', error.message, error.hint)
    for variant in VARIANTS:
        if variant == DEFAULT_VARIANT:
            continue
        name = f'kernel image {variant!r}'
        try:
            yield Finding(name, 'ok', find_image(variant=variant))
        except SandboxError:
            yield Finding(name, 'ok', 'not built (optional)', build_command(variant))
    for tag, packages in layers():
        yield Finding('kernel image with packages', 'ok', f'{tag}: {", ".join(packages)}')


def judge_engine(info: Mapping[str, Any]) -> Iterator[Finding]:
    """Judge what an engine says about itself.

    Args:
        info: The engine's answer to `GET /info`.
    """
    yield Finding('storage', 'ok', f'{info.get("Driver")} in {info.get("DockerRootDir")}')
    yield _limits(info)
    options = [str(option) for option in info.get('SecurityOptions') or []]
    yield _seccomp(options)
    yield _separation(options)
    yield _runtimes(info)
    yield _gvisor(info)


def _limits(info: Mapping[str, Any]) -> Finding:
    detail = f'cgroup v{info.get("CgroupVersion", "1")}, driver {info.get("CgroupDriver")}'
    needed = {'MemoryLimit': 'memory', 'PidsLimit': 'processes', 'CpuCfsQuota': 'processor time'}
    if lacking := [name for key, name in needed.items() if not info.get(key)]:
        return Finding(
            'limits',
            'missing',
            f'{detail}: no limit on {", ".join(lacking)}',
            'Enable the control groups of the Linux kernel; see `docker info`.',
        )
    if not info.get('SwapLimit'):
        return Finding(
            'limits',
            'warning',
            f'{detail}: memory, processes, processor time, but not swap',
            'Sessions may use the swap space of this machine: switch it off, or swap accounting '
            'on.',
        )
    return Finding('limits', 'ok', f'{detail}: memory, swap, processes, processor time')


def _seccomp(options: list[str]) -> Finding:
    if any('name=seccomp' in option for option in options):
        return Finding('seccomp', 'ok', 'system calls are filtered')
    return Finding(
        'seccomp',
        'warning',
        'this engine does not filter system calls',
        'Use a kernel and an engine with seccomp: it is a wall of its own around the code.',
    )


def _separation(options: list[str]) -> Finding:
    names = {'rootless': 'rootless engine', 'userns': 'user namespaces', 'apparmor': 'AppArmor'}
    extra = [text for name, text in names.items() if any(f'name={name}' in o for o in options)]
    detail = ', '.join(extra) if extra else 'none beyond the defaults'
    return Finding('further walls', 'ok', detail)


def _runtimes(info: Mapping[str, Any]) -> Finding:
    names = sorted({name for name in info.get('Runtimes') or {} if not name.startswith('io.')})
    return Finding(
        'runtimes', 'ok', f'{", ".join(names) or "?"} (default {info.get("DefaultRuntime")})'
    )


def _gvisor(info: Mapping[str, Any]) -> Finding:
    if 'runsc' in (info.get('Runtimes') or {}):
        return Finding('gVisor', 'ok', "registered: SandboxPolicy(runtime='runsc') can be used")
    return Finding('gVisor', 'ok', "not registered, so runtime='runsc' is refused (optional)")


def _user_namespaces() -> Finding:
    most = _number('/proc/sys/user/max_user_namespaces')
    allowed = _number('/proc/sys/kernel/unprivileged_userns_clone')
    if most is None:
        return Finding('user namespaces', 'warning', 'not in this kernel')
    if most == 0 or allowed == 0:
        return Finding('user namespaces', 'warning', 'switched off for users')
    return Finding('user namespaces', 'ok', f'up to {most:,}')


def _bubblewrap() -> Iterator[Finding]:
    from sandbox.backends.bubblewrap import BubblewrapBackend

    path = shutil.which('bwrap')
    if path is None:
        yield Finding('bubblewrap', 'ok', 'not installed (Docker does not need it)')
        return
    backend = BubblewrapBackend()
    try:
        backend.check()
    except SandboxError as error:
        yield Finding('bubblewrap', 'warning', error.message, error.hint)
        return
    yield Finding('bubblewrap', 'ok', path)
    yield judge_gaps(backend.unenforced(SandboxPolicy()))


def judge_gaps(gaps: Mapping[str, str]) -> Finding:
    """Judge which limits bubblewrap cannot enforce.

    Args:
        gaps: Fields of a policy, each with the reason.
    """
    if not gaps:
        return Finding(_BUBBLEWRAP_LIMITS, 'ok', 'memory, processes, processor time')
    return Finding(
        _BUBBLEWRAP_LIMITS,
        'warning',
        '; '.join(f'{field}: {reason}' for field, reason in sorted(gaps.items())),
        'Run as root or with delegated control groups, such as: systemd-run --user --scope',
    )


def _memory() -> Finding:
    lines = _read('/proc/meminfo').splitlines()
    fields = {name: rest.split() for name, _, rest in (line.partition(':') for line in lines)}
    if 'MemAvailable' not in fields:
        return Finding('free memory', 'warning', 'unknown')
    free = int(fields['MemAvailable'][0]) * 1024
    detail = f'{free / 2**30:.1f} GiB'
    if free >= _MEMORY_OF_A_SESSION:
        return Finding('free memory', 'ok', detail)
    return Finding(
        'free memory',
        'warning',
        detail,
        'A session may use 1 GiB unless its policy says less: give it a smaller memory limit.',
    )


def _disk() -> Finding:
    place = Path('/var/lib/docker')
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    detail = f'{free / 2**30:.1f} GiB at {place}'
    if free >= _DISK_FOR_AN_IMAGE:
        return Finding('free disk', 'ok', detail)
    return Finding('free disk', 'warning', detail, 'Building the kernel image takes about 2 GiB.')


def _number(path: str) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdecimal() else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding='ascii', errors='replace')
    except OSError:
        return ''
