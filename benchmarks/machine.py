"""The machine that a run was made on."""

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_LIBRARIES = ('docker', 'ipykernel', 'jupyter_client', 'pyzmq', 'pydantic')


def describe() -> dict[str, str]:
    """Return what a reader has to know about the machine, by name."""
    return {
        'processor': f'{os.cpu_count()} x {_processor()}',
        'memory': f'{_memory() / 2**30:.0f} GiB',
        'kernel': f'{platform.system()} {platform.release()}',
        'Python': platform.python_version(),
        'engine': _engine(),
        'libraries': ', '.join(f'{name} {_version(name)}' for name in _LIBRARIES),
        'load at start': f'{os.getloadavg()[0]:.2f}',
    }


def available() -> int:
    """Return the bytes of memory that could be used now."""
    found = re.search(r'MemAvailable:\s+(\d+) kB', Path('/proc/meminfo').read_text('ascii'))
    return int(found[1]) * 1024 if found else 0


def seconds_in_queue() -> float:
    """Return how long this thread has waited for a processor; 0 where the kernel doesn't tell."""
    try:
        _, waited, _ = Path('/proc/thread-self/schedstat').read_text('ascii').split()
    except OSError:
        return 0.0
    return int(waited) / 1e9


def resident() -> int:
    """Return the bytes of memory that this process has."""
    pages = int(Path('/proc/self/statm').read_text('ascii').split()[1])
    return pages * os.sysconf('SC_PAGE_SIZE')


def _processor() -> str:
    found = re.search(r'model name\s*:\s*(.+)', Path('/proc/cpuinfo').read_text('utf-8'))
    return found[1] if found else platform.machine()


def _memory() -> int:
    return os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')


def _engine() -> str:
    import docker

    try:
        client = docker.from_env()
    except docker.errors.DockerException:
        return 'none'
    try:
        info = client.info()
        return (
            f'Docker {info["ServerVersion"]}, {info["DefaultRuntime"]}, {info["Driver"]}, '
            f'cgroup v{info.get("CgroupVersion", "1")}'
        )
    finally:
        client.close()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return '-'
