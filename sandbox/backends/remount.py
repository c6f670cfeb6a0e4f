"""Make a folder in another process's mount namespace read-only, or writable again.

A program of its own, because only a process with a single thread may enter a user namespace. It
works for the user who made the namespaces, and leaves the code inside no way to undo it.

    python -I remount.py PID FOLDER ro|rw
"""

import ctypes
import fcntl
import os
import sys

_USER_NAMESPACE, _MOUNT_NAMESPACE = 0x10000000, 0x00020000
_PARENT = 0xB702  # ioctl NS_GET_PARENT
_NO_SUID, _NO_DEVICES, _READ_ONLY, _REMOUNT, _BIND = 2, 4, 1, 32, 4096


def main(pid: str, folder: str, how: str) -> None:
    """Enter the namespaces of a process and change the mount."""
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    user = os.open(f'/proc/{pid}/ns/user', os.O_RDONLY)
    mounts = os.open(f'/proc/{pid}/ns/mnt', os.O_RDONLY)
    # The sandbox is in the second of two user namespaces; the first one owns its mounts.
    check(libc.setns(fcntl.ioctl(user, _PARENT), _USER_NAMESPACE))
    check(libc.setns(mounts, _MOUNT_NAMESPACE))
    flags = _REMOUNT | _BIND | _NO_SUID | _NO_DEVICES | (_READ_ONLY if how == 'ro' else 0)
    check(libc.mount(None, os.fsencode(folder), None, ctypes.c_ulong(flags), None))


if __name__ == '__main__':
    main(*sys.argv[1:])
