"""The files of a session that hold what was too long for its results."""

import asyncio
import contextlib
from collections import deque

from sandbox.errors import SandboxError
from sandbox.kernel.contract import Files
from sandbox.kernel.framing import Refusal
from sandbox.kernel.spill import Spill
from sandbox.kernel.workspace import FileEntry
from sandbox.policy import MIB, SandboxPolicy

_FOLDER = '.outputs'
_PATIENCE = 10.0  # seconds for all files of a cell


class Outputs:
    """Keeps the newest of them, of a bounded size in all.

    Args:
        policy: Its `spill_bytes` is the limit of each cell, and of all cells together.
    """

    def __init__(self, policy: SandboxPolicy) -> None:
        self._limit = policy.spill_bytes
        self._cell = 0
        self._kept: deque[tuple[str, int]] = deque()

    def begin(self) -> Spill:
        """Return where the text of the next cell goes."""
        self._cell += 1
        return Spill(self._limit)

    def begin_after(self, cells: int) -> None:
        """Take note that the workspace has files of so many cells before."""
        self._cell = cells

    def forget(self) -> None:
        """Take note that the workspace is a new one."""
        self._kept.clear()

    async def keep(self, files: Files, spill: Spill) -> tuple[list[FileEntry], list[str]]:
        """Write what the last cell's result does not hold; return the files and what to say."""
        kept: list[FileEntry] = []
        try:
            async with asyncio.timeout(_PATIENCE):
                return kept, await self._write(files, spill, kept)
        except TimeoutError:
            return kept, [f'the full output could not be kept in a file within {_PATIENCE:g} s']

    async def _write(self, files: Files, spill: Spill, kept: list[FileEntry]) -> list[str]:
        for name, size, file in spill.wanted():
            path = f'{_FOLDER}/cell-{self._cell}-{name}.txt'
            await self._make_room(files, size)
            try:
                kept.append(await files.write(path, size, file))
            except SandboxError as error:
                why = error.code if isinstance(error, Refusal) else error.message
                return [f'the full output could not be kept in {path} ({why})']
            self._kept.append((path, size))
        if spill.failure:
            return [f'the full output could not be kept in a file ({spill.failure})']
        if kept and not spill.complete:
            return [
                f'only the first {self._limit / MIB:g} MiB of the full output are kept in a file'
            ]
        return []

    async def _make_room(self, files: Files, size: int) -> None:
        while self._kept and sum(kept for _, kept in self._kept) + size > self._limit:
            path, _ = self._kept.popleft()
            with contextlib.suppress(SandboxError):
                await files.delete(path)
