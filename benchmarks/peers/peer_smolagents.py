"""smolagents: `DockerExecutor`, a kernel gateway on a port of the host."""

import logging

from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import DockerExecutor


class Adapter:
    """An executor on a ready image. It has no timeout."""

    def __init__(self, image: str) -> None:
        logging.disable()
        self._image = image
        self._executor: DockerExecutor | None = None

    def open(self) -> None:
        """Start a container and a kernel in it."""
        logger = AgentLogger(level=LogLevel.OFF)
        self._executor = DockerExecutor(
            [], logger, image_name=self._image, build_new_image=False, port=8899
        )

    def run(self, code: str, timeout: float) -> str:
        """Run a cell."""
        del timeout
        assert self._executor is not None
        return str(self._executor.run_code_raise_errors(code).logs)

    def close(self) -> None:
        """Stop the container."""
        if self._executor is not None:
            self._executor.cleanup()
