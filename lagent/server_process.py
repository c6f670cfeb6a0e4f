"""A server in a process of its own: started, waited for, watched, and surely stopped."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import IO, Any, NoReturn, Self
from weakref import finalize

import httpx

from lagent import warden
from lagent.errors import ConfigError, ServerFailed

logger = logging.getLogger(__name__)

_GRACE = 15.0  # seconds from asking a server to end until it is killed
_POLL = 0.2  # seconds
_TAIL = 3000  # characters of the server's output that an error shows
_MAX_KEPT = 64 * 1024  # bytes


class ServerProcess:
    """A server that runs a command, until this object is closed or collected, or its owner ends.

    Args:
        command: the command and its arguments.
        health: URL that answers with 200 once the server takes requests.
        env: environment variables that are added to this process's.
        timeout: seconds that it may take to come up.
        progress: called with each line that the server writes while it comes up.
        stdin: what the server reads from its standard input. Unlike a command line, nobody else on
            the machine can read it.
    """

    def __init__(
        self,
        command: list[str],
        health: str,
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = 600.0,
        progress: Callable[[str], None] | None = None,
        stdin: bytes = b'',
    ) -> None:
        self._health, self._timeout = health, timeout
        self._started = time.monotonic()
        self._ready = False
        self._process = subprocess.Popen(
            [sys.executable, '-I', warden.__file__, str(_GRACE), str(len(stdin)), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            start_new_session=True,  # so that the processes it starts can be ended with it
        )
        assert self._process.stdout is not None
        self._output = _Output(self._process.stdout, progress)
        self._finalizer = finalize(self, _stop, self._process, self._output, os.getpid())
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, which `until_ready` tells
            self._process.stdin.write(stdin)
            self._process.stdin.flush()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # there is one process, and what is copied goes on to use it

    def __reduce__(self) -> NoReturn:
        raise ConfigError(
            'A server that was started here belongs to this process, so that what uses it can not '
            'be pickled. Give the other process the address of the server.'
        )

    @property
    def pid(self) -> int:
        """Process id of the server's process group."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the server's process lives."""
        return self._process.poll() is None

    @property
    def output(self) -> str:
        """The last of what the server wrote."""
        return self._output.tail()

    async def until_ready(self) -> None:
        """Wait until the server takes requests; later calls only see whether it still lives.

        Raises:
            ServerFailed: it has ended, or did not come up in time and was stopped.
        """
        if self._ready:
            self._check()
            return
        # Not through a proxy that the environment names: the server is on this machine.
        async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
            # In a task: failed requests keep the frames of their callers until the garbage
            # collector runs, and this one would keep the server.
            while not await asyncio.create_task(_is_healthy(client, self._health)):
                self._check()
                if time.monotonic() - self._started > self._timeout:
                    await asyncio.to_thread(self.close)
                    raise ServerFailed(
                        f'The server did not come up within {self._timeout:g} s and was stopped. '
                        f'The last of its output:\n{self.output}'
                    )
                await asyncio.sleep(_POLL)
        self._check()  # it could be somebody else's server that answered
        self._ready = True
        self._output.progress = None

    def _check(self) -> None:
        if not self._finalizer.alive:
            raise ServerFailed('The server was stopped. Start another one.')
        if not self.running:
            self._output.wait()
            raise ServerFailed(
                f'The server has ended by itself. The last of its output:\n{self.output}'
            )

    def close(self) -> None:
        """Stop the server and every process that it started. Closing twice does nothing."""
        self._finalizer()


async def _is_healthy(client: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await client.get(url)).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


class _Output:
    """Reads what a process writes, without end, and keeps the last of it.

    Attributes:
        progress: called with each line, until it is None.
    """

    def __init__(self, pipe: IO[bytes], progress: Callable[[str], None] | None) -> None:
        self.progress = progress
        self._pipe = pipe
        self._kept = bytearray()
        self._line = bytearray()
        self._thread = threading.Thread(target=self._read, name='server output', daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._pipe:
            while piece := os.read(self._pipe.fileno(), 8192):
                self._kept += piece
                del self._kept[:-_MAX_KEPT]
                if self.progress is not None:
                    self._report(piece)

    def _report(self, piece: bytes) -> None:
        *lines, rest = (bytes(self._line) + piece).split(b'\n')
        self._line = bytearray(rest[-_MAX_KEPT:])
        for line in lines:
            if self.progress is not None:
                try:
                    self.progress(line.decode('utf-8', 'replace'))
                except Exception:
                    # A server whose output nobody reads stands still.
                    logger.exception('the callback for the progress of a server failed')
                    self.progress = None

    def tail(self) -> str:
        return bytes(self._kept).decode('utf-8', 'replace')[-_TAIL:].strip()

    def wait(self) -> None:
        self._thread.join(_GRACE)


def _stop(process: subprocess.Popen[bytes], output: _Output, owner: int) -> None:
    if os.getpid() != owner:  # a fork ends, not the process whose server it is
        return
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE + 5)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    output.wait()


def free_port() -> int:
    """A port of this machine that nobody listens on.

    Returns:
        Its number.
    """
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        port: int = probe.getsockname()[1]
        return port


def check_port(host: str, port: int) -> None:
    """Make sure that nobody listens on a port, whom requests would go to instead.

    Args:
        host: the address that a server is to listen on.
        port: the port's number.

    Raises:
        ConfigError: somebody does.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigError(f'Cannot listen on {host}:{port}: {error}. Choose another.') from None


def options(settings: Mapping[str, object]) -> list[str]:
    """Settings as options of a command line.

    Args:
        settings: values by the option's name, with underscores for dashes. True is an option
            without a value; None and False are none.

    Returns:
        The words.
    """
    words: list[str] = []
    for name, value in settings.items():
        if value is None or value is False:
            continue
        words.append('--' + name.replace('_', '-'))
        if isinstance(value, list | tuple):
            words += [str(item) for item in value]
        elif value is not True:
            words.append(str(value))
    return words


def local_url(host: str, port: int) -> str:
    """Where a server is reached from this machine.

    Args:
        host: the address that it listens on.
        port: its port.

    Returns:
        The URL, without a path.
    """
    return f'http://{"127.0.0.1" if host == "0.0.0.0" else host}:{port}'  # noqa: S104  # no bind
