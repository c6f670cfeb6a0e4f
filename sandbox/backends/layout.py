"""What every sandbox looks like inside, and the limits that no policy changes."""

from sandbox.policy import MIB, SandboxPolicy

SOCKETS, WORKSPACE, HOME = '/run/k', '/workspace', '/home/sandbox'

SOCKET_NAMES = ('ctl', *(f's-{number}' for number in range(1, 6)))
"""The supervisor's socket and the kernel's five."""

OPEN_FILES = 1024
OOM_SCORE = 300
"""When the host runs out of memory, sandboxes go first."""

_HOME_BYTES = 64 * MIB


def home_bytes(policy: SandboxPolicy) -> int:
    """Return the size of the home folder, in bytes."""
    return min(policy.tmp, _HOME_BYTES)


def largest_file(policy: SandboxPolicy) -> int:
    """Return the size that no file can exceed, in bytes.

    It is just above what the memory file systems hold: a full one says so itself, and a sparse file
    cannot claim to be larger than any of them.
    """
    return max(policy.disk, policy.tmp, policy.shm) + MIB


def threads(policy: SandboxPolicy) -> dict[str, str]:
    """Return the variables by which libraries start a thread for each core of the limit.

    Without them it is one for each core of the machine.
    """
    number = str(max(1, round(policy.cpus)))
    return {'OMP_NUM_THREADS': number, 'OPENBLAS_NUM_THREADS': number}
