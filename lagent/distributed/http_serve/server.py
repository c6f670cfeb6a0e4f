"""An agent in a process of its own, behind HTTP."""

import json
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from typing import Any, Self

from lagent.distributed.http_serve.client import AsyncHTTPAgentClient, HTTPAgentClient
from lagent.errors import LagentError

_PATIENCE = 10.0  # seconds that the process has to end by itself
_POLL = 0.1  # seconds between two looks at a process that is starting


class ServerFailed(LagentError):
    """The process of an agent ended, or did not begin to serve, before it could be used."""

    code = 'server_failed'


class HTTPAgentServer(HTTPAgentClient):
    """Starts a process that serves an agent, and is a client of it.

    The process ends with `shutdown`, with the ``with`` block, or with this one.

    Args:
        gpu_id: value of ``CUDA_VISIBLE_DEVICES`` in the process; ``''`` for no GPU.
        config: the agent's configuration; see `read_config`. It must be JSON, but for classes.
        host: address that the process listens at.
        port: port that it listens at.
        start_timeout: how long it may take until it serves, in seconds.

    Raises:
        ServerFailed: the port is in use, or the process ended or did not serve in time.

    Attributes:
        process: the process.
    """

    def __init__(
        self,
        gpu_id: str,
        config: Mapping[str, Any],
        host: str = '127.0.0.1',
        port: int = 8090,
        *,
        start_timeout: float = 600.0,
    ) -> None:
        super().__init__(host, port)
        self.gpu_id = gpu_id
        self.config = config
        if self.is_alive:
            raise ServerFailed(f'Something else is served at {host}:{port}. Give another port.')
        self.process = self._start()
        self._stop = weakref.finalize(self, _end, self.process)
        try:
            self._wait(time.monotonic() + start_timeout)
        except BaseException:
            self.shutdown()
            raise

    def shutdown(self) -> None:
        """End the process; more than once is harmless."""
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.shutdown()

    def _start(self) -> subprocess.Popen[str]:
        module = 'lagent.distributed.http_serve.app'
        process = subprocess.Popen(
            [
                *(sys.executable, '-m', module, '--config', '-'),
                *('--host', self.host, '--port', str(self.port)),
            ],
            env={**os.environ, 'CUDA_VISIBLE_DEVICES': self.gpu_id},
            stdin=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        try:
            # Command lines can be read by everybody on the machine, and keys may be among this.
            with process.stdin as pipe:
                json.dump(self.config, pipe, default=_dotted_path)
        except BrokenPipeError:
            pass  # it has ended already, which is reported in a moment
        except BaseException:
            _end(process)
            raise
        return process

    def _wait(self, deadline: float) -> None:
        while not self.is_alive:
            if (code := self.process.poll()) is not None:
                raise ServerFailed(
                    f"The agent's process ended with exit code {code} before it served. "
                    'Why is in its output, on standard error.'
                )
            if time.monotonic() >= deadline:
                raise ServerFailed(
                    "The agent's process did not begin to serve in time and was ended. "
                    'Raise start_timeout if its model takes longer to load.'
                )
            time.sleep(_POLL)


class AsyncHTTPAgentServer(AsyncHTTPAgentClient, HTTPAgentServer):
    """An `HTTPAgentServer` whose call is awaited."""


def _end(process: 'subprocess.Popen[str]') -> None:
    process.terminate()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_PATIENCE)


def _dotted_path(value: Any) -> str:
    if isinstance(value, type):
        return f'{value.__module__}.{value.__qualname__}'
    raise TypeError(f'the configuration of a served agent must be JSON, not {value!r:.200}')
