"""Runs a command, and ends it with all its children when whoever asked for it is gone.

It is run as a script in a session of its own: ``python warden.py GRACE COMMAND...``. Its standard
input is a pipe that the other side holds open; the pipe ends when that side closes it, and also
when it is killed, which no handler there could do anything about.
"""

import os
import signal
import subprocess
import sys
import threading
from types import FrameType


def main(grace: float, command: list[str]) -> None:
    """Run the command until it ends, or the pipe does.

    Args:
        grace: seconds from asking the command to end until it is killed.
        command: the command and its arguments.
    """
    signal.signal(signal.SIGTERM, _survive)  # it is sent to the whole group, this process included
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_with_pipe, args=(child, grace), daemon=True).start()
    code = child.wait()
    print(f'[the command ended with code {code}]', file=sys.stderr, flush=True)
    os.killpg(0, signal.SIGKILL)


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
    main(float(sys.argv[1]), sys.argv[2:])
