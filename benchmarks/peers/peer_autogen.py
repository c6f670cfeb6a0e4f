"""AutoGen: `DockerJupyterCodeExecutor`, a kernel gateway on a published port."""

import asyncio
import time
import urllib.error
import urllib.request

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_ext.code_executors.docker_jupyter import (
    DockerJupyterCodeExecutor,
    DockerJupyterServer,
)


class Adapter:
    """A server of its own for the session. The time limit of a cell is the executor's."""

    def __init__(self, image: str) -> None:
        self._image = image
        self._loop = asyncio.new_event_loop()
        self._server: DockerJupyterServer | None = None
        self._executor: DockerJupyterCodeExecutor | None = None

    def open(self) -> None:
        """Start a container, wait for its server, and start a kernel in it."""
        self._server = DockerJupyterServer(custom_image_name=self._image)
        _await_server(self._server)
        self._executor = DockerJupyterCodeExecutor(self._server, timeout=30)
        self._loop.run_until_complete(self._executor.start())

    def run(self, code: str, timeout: float) -> str:
        """Run a cell."""
        assert self._executor is not None
        self._executor._timeout = int(timeout)
        block = CodeBlock(code=code, language='python')
        result = self._loop.run_until_complete(
            self._executor.execute_code_blocks([block], CancellationToken())
        )
        if result.exit_code:
            raise RuntimeError(result.output)
        return str(result.output)

    def close(self) -> None:
        """Stop the kernel and the container."""
        if self._executor is not None:
            self._loop.run_until_complete(self._executor.stop())
        if self._server is not None:
            self._loop.run_until_complete(self._server.stop())
        self._executor = self._server = None


def _await_server(server: DockerJupyterServer) -> None:
    """Wait until the server listens: the library waits for its container to run, and no longer."""
    url = f'http://127.0.0.1:{server.connection_info.port}/api'
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url, timeout=2.0).close()
        except urllib.error.HTTPError:
            return  # it wants the token, so it is there
        except OSError:
            time.sleep(0.02)
