"""An egress proxy as the host sees it: a small process of its own for each sandbox.

It has none of the host's environment, no more rights than it needs, and ends with the process that
started it, however that ends.
"""

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from sandbox.egress.allowlist import Allowlist
from sandbox.egress.program import READY
from sandbox.errors import SandboxError, StartFailed

SOCKET = 'proxy'
"""Name of the proxy's socket in its folder."""

COMMAND = (
    *(sys.executable, '-I', '-c'),
    'import sys; sys.path.insert(0, sys.argv[1]); from sandbox.egress.program import main; main()',
    str(Path(__file__).parents[2]),
)

_BACKLOG = 64
_MAX_NEWS = 64 * 1024
_TOLD = 5
"""Refused targets that a notice names."""
_PATIENCE = 2.0


class EgressProxy:
    """A running proxy. Make it with `launch`; its methods block for a moment."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._rest = b''
        self._end_told = False

    @classmethod
    def launch(
        cls,
        folder: Path,
        allow: Allowlist,
        *,
        command: Sequence[str] = COMMAND,
        timeout: float = 30.0,
    ) -> Self:
        """Start a proxy that listens in a folder.

        Args:
            folder: Is made; then holds the socket and nothing else, and nobody else may write to
                it.
            allow: What the proxy lets through.
            command: The program and its arguments.
            timeout: How long it may take to become ready, in seconds.

        Raises:
            StartFailed: It did not become ready; nothing is left of it.
        """
        deadline = time.monotonic() + timeout
        try:
            folder.mkdir()
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(folder / SOCKET))
                listener.listen(_BACKLOG)
                (folder / SOCKET).chmod(0o666)
                folder.chmod(0o755)
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[listener.fileno()],
                    start_new_session=True,
                    env={'PATH': os.defpath, 'LANG': 'C.UTF-8'},
                )
                orders = {'allow': allow.hosts, 'listener': listener.fileno()}
        except OSError as error:
            raise StartFailed(f'The network proxy could not be started: {error}.') from error
        proxy = cls(process)
        try:
            proxy._begin(orders, deadline)
        except BaseException:
            proxy.stop()
            raise
        return proxy

    def _begin(self, orders: dict[str, object], deadline: float) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        with contextlib.suppress(OSError):  # one that has ended is noticed below
            self._process.stdin.write(json.dumps(orders).encode('ascii') + b'\n')
            self._process.stdin.flush()
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if self._read() != READY:
            raise StartFailed('The network proxy did not become ready; the sandbox was not used.')

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def notices(self) -> list[str]:
        """Return what has happened since the last call and is worth telling."""
        *lines, self._rest = (self._rest + self._read()).split(b'\n')
        seen: Counter[str] = Counter()
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                news = json.loads(line)
                seen[f'{news["target"]} ({news["why"]})'] += 1
        notices = []
        if seen:
            told = [f'{what}, {n} times' if n > 1 else what for what, n in seen.most_common(_TOLD)]
            more = f'; and {len(seen) - _TOLD} more' if len(seen) > _TOLD else ''
            notices.append(f'the network policy refused {"; ".join(told)}{more}')
        if not self._end_told and self._process.poll() is not None:
            self._end_told = True
            notices.append('the network proxy has ended: nothing outside can be reached any more')
        return notices

    def _read(self) -> bytes:
        assert self._process.stdout is not None
        if self._process.stdout.closed:
            return b''
        try:
            return os.read(self._process.stdout.fileno(), _MAX_NEWS)
        except BlockingIOError:
            return b''

    def stop(self) -> None:
        """End the process. May be repeated.

        Raises:
            SandboxError: It did not end.
        """
        self._end_told = True
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE)
        self._process.kill()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired as error:
            raise SandboxError(
                f'The network proxy {self.pid} did not end.', hint='Call close() again.'
            ) from error
