"""What a back end is: it starts instances, and an instance is one running sandbox.

A back end knows nothing of kernels and cells. It starts the supervisor program in its isolation,
says where the sockets are, and takes the instance away.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from sandbox.kernel.contract import Machine
from sandbox.policy import HOST_SIDE, SandboxPolicy

SANDBOX_SIDE = (
    frozenset(field.name for field in fields(SandboxPolicy))
    - HOST_SIDE
    - {*('max_message_bytes', 'preload', 'variant')}
)
"""Fields of a policy that the sandbox has to enforce itself. The session does the others from
outside, whatever it is made of; and `variant` only chooses among images, where there are any."""

OWN_PACKAGES = 'code finds the packages of the interpreter that runs this program, and no others'
"""Why `packages` does not hold where there are no images."""


@dataclass(frozen=True)
class Endpoint:
    """Where the host finds the sockets of an instance.

    Attributes:
        connection: Jupyter connection information, with the host's address of the sockets.
        control: Path of the supervisor's socket.
        directory: The folder that holds them all.
    """

    connection: Mapping[str, Any] = field(repr=False)
    control: str
    directory: Path


class Instance(Protocol):
    """One running sandbox."""

    @property
    def id(self) -> str:
        """Container or process id, for people."""
        ...

    @property
    def endpoint(self) -> Endpoint:
        """Where its sockets are."""
        ...

    async def unseal(self) -> None:
        """Let a kernel bind its sockets; call it before one is started again."""
        ...

    async def seal(self) -> None:
        """Take away the sandbox's access to the sockets' folder.

        Call it when the kernel has answered and before the first cell runs: the folder is on the
        host's disk, and code that could write to it could fill that disk.

        Raises:
            StartFailed: The folder holds something that does not belong there.
        """
        ...

    async def describe_loss(self) -> str:
        """Say in one sentence why the instance does not answer any more; takes a few seconds."""
        ...

    async def remove(self) -> None:
        """Remove it with everything in it. May be repeated.

        Raises:
            SandboxError: It may still be there; call again.
        """
        ...


@runtime_checkable
class Reporter(Protocol):
    """An instance that may have something to say with the next result."""

    def notices(self) -> list[str]:
        """Return what has happened since the last call; never waits."""
        ...


@runtime_checkable
class Process(Protocol):
    """An instance that may be a process of the host."""

    @property
    def pid(self) -> int | None:
        """Its process id, or None if it is none."""
        ...


@runtime_checkable
class Assignable(Protocol):
    """An instance that can be told, after it was started, which session it serves."""

    def assign(self, session: str) -> None:
        """Write down the session's name for people and tools to see; never fails."""
        ...


class Backend(Protocol):
    """A way to run sandboxes."""

    @property
    def name(self) -> str:
        """The name it is chosen by."""
        ...

    def check(self) -> None:
        """Return when sandboxes can be started here. Blocks for a moment.

        Raises:
            BackendUnavailable: They cannot; the message says what to do.
            ImageMissing: The kernel image has to be built first.
        """
        ...

    def unenforced(self, policy: SandboxPolicy) -> Mapping[str, str]:
        """Return the fields that do not hold on this machine, each with the reason."""
        ...

    async def start(
        self, policy: SandboxPolicy, *, labels: Mapping[str, str]
    ) -> Instance | Machine:
        """Start a sandbox, without waiting for its kernel.

        Cancelling it leaves nothing behind. What needs no process is a whole machine at once.

        Args:
            policy: What it may use.
            labels: Names and values that are attached to it for people and tools to see.

        Raises:
            BackendUnavailable: Sandboxes cannot be started here.
            ImageMissing: The kernel image has to be built first.
            StartFailed: This one did not start.
        """
        ...
