"""What a session needs of a running sandbox, whatever it is made of."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Protocol, runtime_checkable

from sandbox.kernel.spill import Spill
from sandbox.kernel.workspace import FileEntry, Source
from sandbox.policy import SandboxPolicy
from sandbox.types import ExecutionEvent, ExecutionResult

Listener = Callable[[ExecutionEvent], None]


class Files(Protocol):
    """The files of a running sandbox. `Workspace` is one."""

    async def list(
        self, path: str, limit: int, *, digests: bool = False
    ) -> tuple[list[FileEntry], bool]:
        """Return the tree below a folder, and whether there is more of it."""
        ...

    def read(self, path: str, limit: int) -> AsyncGenerator[bytes]:
        """Yield the bytes of a file."""
        ...

    async def write(self, path: str, size: int, source: Source) -> FileEntry:
        """Write a file, and return it as a listing with digests would name it."""
        ...

    async def delete(self, path: str) -> None:
        """Remove a file."""
        ...


@runtime_checkable
class Machine(Protocol):
    """What a session needs of a running sandbox."""

    @property
    def files(self) -> Files:
        """Its files."""
        ...

    @property
    def id(self) -> str:
        """Container or process id."""
        ...

    @property
    def pid(self) -> int | None:
        """Process id, where it is a process of the host."""
        ...

    @property
    def loss(self) -> str | None:
        """Why it is gone, or None."""
        ...

    @property
    def has_kernel(self) -> bool:
        """Whether a kernel is there that waits for a cell."""
        ...

    @property
    def unchanged(self) -> bool:
        """Whether the last cell has left the files just as the one before it, if that is known."""
        ...

    def assign(self, session: str, policy: SandboxPolicy) -> None:
        """Give it to a session, with a policy that differs in what the host enforces only."""
        ...

    async def gone(self) -> None:
        """Wait, between cells, until it or its kernel is gone."""
        ...

    async def probe(self) -> None:
        """Find out whether it is still there: sets `loss` if it is not."""
        ...

    async def run(
        self,
        code: str,
        limit: float,
        listener: Listener | None,
        stop: asyncio.Future[None],
        spill: Spill,
        tag: str | None = None,
    ) -> ExecutionResult:
        """Run one cell for at most `limit` seconds; `stop`, once done, ends it early.

        What the result has no room for goes to `spill`. By its `tag` the cell is known to the next
        owner of a machine that survives this one. Never raises for user code.
        """
        ...

    async def interrupt(self) -> None:
        """Interrupt the cell that runs, if one does."""
        ...

    async def restart(self) -> None:
        """Replace the kernel by a new one; files stay."""
        ...

    async def warm(self) -> None:
        """Replace a kernel that has run nothing by one with the policy's `preload` loaded."""
        ...

    async def close(self) -> None:
        """Remove the sandbox. May be repeated; raises if it may still be there."""
        ...
