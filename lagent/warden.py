"""Runs a command, and ends it with all its children when whoever asked for it is gone.

It is run as a script in a session of its own: ``python warden.py GRACE SIZE COMMAND...``. Its
standard input is a pipe that the other side holds open, with SIZE bytes for the command. The pipe
ends when that side closes it, and also when it is killed, which no handler there could do anything
about.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from types import FrameType


def main(grace: float, size: int, command: list[str]) -> None:
    """Run the command until it ends, or the pipe does.

    Args:
        grace: seconds from asking the command to end until it is killed.
        size: how many bytes of the standard input are the command's.
        command: the command and its arguments.
    """
    given = _read(size)
    signal.signal(signal.SIGTERM, _survive)  # it is sent to the whole group, this process included
    child = subprocess.Popen(command, stdin=subprocess.PIPE)
    threading.Thread(target=_end_with_pipe, args=(child, grace), daemon=True).start()
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError), child.stdin as pipe:
        pipe.write(given)
    code = child.wait()
    print(f'[the command ended with code {code}]', file=sys.stderr, flush=True)
    os.killpg(0, signal.SIGKILL)


def _read(size: int) -> bytes:
    given = b''
    while len(given) < size and (piece := os.read(0, size - len(given))):
        given += piece
    return given


def _survive(number: int, frame: FrameType | None) -> None:
    """Unlike an ignored signal, a handled one is not inherited by the command."""


def _end_with_pipe(child: subprocess.Popen[bytes], grace: float) -> None:
    while os.read(0, 1024):
        pass
    os.killpg(0, signal.SIGTERM)
    try:
        child.wait(grace)
    except subprocess.TimeoutExpired:
        os.killpg(0, signal.SIGKILL)


if __name__ == '__main__':
    main(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
