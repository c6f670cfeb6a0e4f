"""What a session knows of its files, and so which of them a cell has made."""

from collections.abc import Iterable

from sandbox.errors import SandboxError
from sandbox.files import file_info
from sandbox.kernel.contract import Files
from sandbox.kernel.workspace import FileEntry
from sandbox.types import FileInfo


class Artifacts:
    """The files as they were last seen.

    Args:
        limit: Files and folders that are looked at.

    Attributes:
        known: Whether they are as they were last seen, as far as anybody knows.
        incomplete: Whether there are more than were looked at.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.forget()

    def forget(self, *, known: bool = True) -> None:
        """Take note that the workspace is a new one: an empty one, or one that nobody knows."""
        self._files: dict[str, FileEntry] = {}
        self.known, self.incomplete = known, False

    def add(self, entry: FileEntry) -> None:
        """Take note of a file that was put there from outside: no cell has made it."""
        self._files[file_info(entry).path] = entry

    async def look(self, files: Files) -> dict[str, FileEntry]:
        """Look at the files, and return them as they were seen before."""
        before = self._files
        try:
            entries, more = await files.list('', self._limit, digests=True)
        except SandboxError:  # no process is left to look with, or the sandbox is gone
            self.forget(known=False)
            self.incomplete = True
        else:
            self._files = {file_info(e).path: e for e in entries if e.kind == 'file'}
            self.known, self.incomplete = True, more
        return before

    async def changes(self, files: Files, kept: Iterable[FileEntry]) -> tuple[FileInfo, ...]:
        """Return the files that a cell has created or changed, but for those `kept` for it."""
        before = await self.look(files)
        ours = {file_info(entry).path for entry in kept}
        return tuple(
            file_info(entry)
            for name, entry in sorted(self._files.items())
            if name not in ours and (name not in before or _differs(before[name], entry))
        )


def _differs(old: FileEntry, new: FileEntry) -> bool:
    """Compare contents where both are known, else what else tells of a change."""
    if old.digest and new.digest:
        return old.digest != new.digest
    return (old.size, old.mtime_ns, old.inode) != (new.size, new.mtime_ns, new.inode)
