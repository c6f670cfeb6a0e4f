"""An agent in a process of its own, behind HTTP."""

import json
import sys
from collections.abc import Mapping
from typing import Any, Self

from lagent.distributed.http_serve.client import AsyncHTTPAgentClient, HTTPAgentClient
from lagent.errors import ServerFailed
from lagent.portal import get_portal
from lagent.server_process import ServerProcess, local_url


class HTTPAgentServer(HTTPAgentClient):
    """Starts a process that serves an agent, and is a client of it.

    The process ends with `shutdown`, with the ``with`` block, or with this one, however that ends.

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
        module = 'lagent.distributed.http_serve.app'
        self.process = ServerProcess(
            [
                *(sys.executable, '-m', module, '--config', '-'),
                *('--host', host, '--port', str(port)),
            ],
            f'{local_url(host, port)}/health_check',
            env={'CUDA_VISIBLE_DEVICES': gpu_id},
            timeout=start_timeout,
            # Command lines can be read by everybody on the machine, and keys may be among this.
            stdin=json.dumps(config, default=_dotted_path).encode(),
        )
        try:
            get_portal().call(self.process.until_ready)
        except BaseException:
            self.shutdown()
            raise

    def shutdown(self) -> None:
        """End the process; more than once is harmless."""
        self.process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.shutdown()


class AsyncHTTPAgentServer(AsyncHTTPAgentClient, HTTPAgentServer):
    """An `HTTPAgentServer` whose call is awaited."""


def _dotted_path(value: Any) -> str:
    if isinstance(value, type):
        return f'{value.__module__}.{value.__qualname__}'
    raise TypeError(f'the configuration of a served agent must be JSON, not {value!r:.200}')
