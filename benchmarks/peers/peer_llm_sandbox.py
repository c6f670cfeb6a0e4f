"""llm-sandbox: `InteractiveSandboxSession`, its session that keeps variables."""

from llm_sandbox import SandboxBackend
from llm_sandbox.interactive import InteractiveSandboxSession


class Adapter:
    """A session on an image that has all it would install, which it is told to leave alone."""

    def __init__(self, image: str) -> None:
        self._session = InteractiveSandboxSession(
            backend=SandboxBackend.DOCKER,
            image=image,
            skip_environment_setup=True,
            runtime_configs={'command': 'sleep infinity'},
        )

    def open(self) -> None:
        """Start a container and the runner in it."""
        self._session.open()

    def run(self, code: str, timeout: float) -> str:
        """Run a cell."""
        return str(self._session.run(code, timeout=timeout).stdout)

    def close(self) -> None:
        """Stop the container."""
        if self._session.is_open:
            self._session.close()
