"""Texts from kernels and models, made fit to be shown: bounded, and without control characters."""

from lagent.console import printable
from lagent.utils.counts import many

LIVE = 32_000
"""Characters of a text that are kept while it grows; the beginning and the end of it."""


class Growing:
    """A text that grows, of which the first and the last part are kept.

    Args:
        limit: characters that are kept.
    """

    def __init__(self, limit: int = LIVE) -> None:
        self._half = limit // 2
        self._head, self._tail, self._cut = '', '', 0

    def add(self, piece: str) -> None:
        """Put a piece at the end.

        Args:
            piece: any text.
        """
        room = self._half - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        # Twice the half: cutting with every piece would copy the text with every piece.
        if len(self._tail) > 2 * self._half:
            self._cut += len(self._tail) - self._half
            self._tail = self._tail[-self._half :]

    def __str__(self) -> str:
        note = f'\n… {many(self._cut, "character")} not shown …\n' if self._cut else ''
        return f'{self._head}{note}{self._tail}'


def shown(text: str, limit: int = LIVE) -> str:
    """A kernel's text as a page shows it.

    Args:
        text: any text.
        limit: characters that are shown.

    Returns:
        Its first and last part, without control characters; of a progress bar, its last state.
    """
    growing = Growing(limit)
    growing.add('\n'.join(map(_last_state, text.split('\n'))))
    return printable(str(growing))


def _last_state(line: str) -> str:
    return line.rstrip('\r').rpartition('\r')[2]
