"""The whole text of a cell, on the host's disk until the cell has ended.

A result keeps head and tail of what is printed. What lies between them is not thrown away: up to
a limit it becomes a file of the session. Memory holds no more of it than a small buffer.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from typing import IO, Self

_BUFFER = 256 * 1024


class Spill:
    """Text of several streams, of a bounded size in all.

    Args:
        limit: Most bytes that are kept, of all streams together.

    Attributes:
        complete: Whether nothing had to be left out.
    """

    def __init__(self, limit: int) -> None:
        self.complete = True
        self._limit = self._room = limit
        self._files: dict[str, IO[bytes]] = {}
        self._wanted: list[str] = []
        self._failures: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def add(self, name: str, text: str) -> None:
        """Take the next text of a stream; it holds nothing that UTF-8 cannot encode."""
        if not self._room:
            self.complete = False
            return
        data = text.encode()
        if len(data) > self._room:
            self.complete = False
            data = data[: self._room].decode('utf-8', 'ignore').encode()
            self._room = len(data)  # it ends with a whole character
        try:
            self._file(name).write(data)
            self._room -= len(data)
        except OSError as error:
            self._give_up(name, error)
            self._room = 0  # the disk is full: what follows has no place either

    def want(self, name: str) -> None:
        """Take note that a result does not hold all of a stream."""
        if name not in self._wanted:
            self._wanted.append(name)

    def clear(self) -> None:
        """Forget everything."""
        for name in list(self._files):
            self._close(name)
        self._wanted.clear()
        self._failures.clear()
        self._room, self.complete = self._limit, True

    @property
    def failure(self) -> str:
        """Why the host has not kept a text that a result does not hold all of, or nothing."""
        return next((self._failures[name] for name in self._wanted if name in self._failures), '')

    def wanted(self) -> Iterator[tuple[str, int, IO[bytes]]]:
        """Yield name, size in bytes, and file of each stream that a result does not hold."""
        for name in self._wanted:
            if (file := self._files.get(name)) is not None:
                try:
                    size = file.seek(0, 2)  # writes what a buffer still holds
                    file.seek(0)
                    file.fileno()  # puts it on the disk, so that a full one is noticed here
                except OSError as error:
                    self._give_up(name, error)
                else:
                    yield name, size, file

    def _file(self, name: str) -> IO[bytes]:
        if name not in self._files:
            self._files[name] = tempfile.SpooledTemporaryFile(_BUFFER)  # noqa: SIM115 - see `clear`
        return self._files[name]

    def _give_up(self, name: str, error: OSError) -> None:
        self._failures[name] = error.strerror or str(error)
        self.complete = False
        self._close(name)

    def _close(self, name: str) -> None:
        file = self._files.pop(name, None)
        with contextlib.suppress(OSError):  # it may try to write what its buffer holds
            if file is not None:
                file.close()
