"""The Docker back end with `runtime='runsc'` for every sandbox."""

from collections.abc import Mapping

from sandbox import SandboxPolicy
from sandbox.backends import Instance, gvisor
from sandbox.backends.docker import DockerBackend
from sandbox.backends.engine import engine


class InGvisor:
    """Starts every sandbox in gVisor, whatever the policy says."""

    name = 'docker'

    def __init__(self) -> None:
        self._docker = DockerBackend()

    def check(self) -> None:
        """Return when sandboxes can be started."""
        self._docker.check()
        with engine() as client:
            gvisor.check(SandboxPolicy(runtime='runsc'), client.info())

    def unenforced(self, policy: SandboxPolicy) -> Mapping[str, str]:
        """Return the fields that do not hold, each with the reason."""
        return gvisor.unenforced(policy.tighten(runtime='runsc'))

    async def start(self, policy: SandboxPolicy, *, labels: Mapping[str, str]) -> Instance:
        """Start a sandbox in gVisor."""
        return await self._docker.start(policy.tighten(runtime='runsc'), labels=labels)
