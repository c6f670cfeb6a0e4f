"""Become an ordinary user who sees what a sandbox may see, and run a program as that user.

For root only, and a program of its own: it gathers the given places in a mount namespace, for the
interpreter may lie where nobody else can look, takes all rights off itself and turns into the
program. No process of ours stays between: the sandbox is a child of its owner and dies with it.

    python -I -S gather.py UID '[["/source", "/target"], ...]' PROGRAM [ARGUMENT...]
"""

import ctypes
import json
import os
import sys
from pathlib import Path

_NEW_MOUNTS = 0x00020000
_NO_SUID, _NO_DEVICES, _BIND, _DETACH, _RECURSIVE, _PRIVATE = 2, 4, 4096, 2, 16384, 1 << 18
_DROP_FROM_BOUNDING_SET = 24
_BASE = '/tmp'  # noqa: S108 - what is mounted there is seen by this process only
_OLD = '/old'


def main(uid: int, places: list[tuple[str, str]], program: list[str]) -> None:
    """Do as the module says; it does not return."""
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int, what: str = '') -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), what)

    def mount(source: str, target: str, kind: str | None, flags: int, options: str) -> None:
        words = (None if word is None else os.fsencode(word) for word in (source, target, kind))
        check(libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(options)), target)

    check(libc.unshare(_NEW_MOUNTS))
    mount('none', '/', None, _RECURSIVE | _PRIVATE, '')
    mount('lagent', _BASE, 'tmpfs', _NO_SUID | _NO_DEVICES, 'mode=0755')
    Path(_BASE + _OLD).mkdir()
    check(libc.pivot_root(os.fsencode(_BASE), os.fsencode(_BASE + _OLD)))
    # From here on nothing can be imported.
    os.umask(0o022)
    for source, target in places:
        _make(Path(_OLD + source), Path(target))
        if not Path(target).is_symlink():
            mount(_OLD + source, target, None, _BIND | _RECURSIVE, '')
    os.chdir('/')
    check(libc.umount2(os.fsencode(_OLD), _DETACH))
    Path(_OLD).rmdir()
    Path(_BASE).mkdir(exist_ok=True)  # the program begins its own work there

    capability = 0
    while libc.prctl(_DROP_FROM_BOUNDING_SET, ctypes.c_ulong(capability), 0, 0, 0) == 0:
        capability += 1
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    os.execv(program[0], program)  # noqa: S606 - no shell is wanted


def _make(source: Path, target: Path) -> None:
    """Make something to mount a place on, or the symbolic link that it is."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        target.symlink_to(source.readlink())
    elif source.is_dir():
        target.mkdir(exist_ok=True)
    else:
        target.touch()


if __name__ == '__main__':
    main(int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:])
