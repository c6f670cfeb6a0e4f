"""Stop words that the server left in the text, whole or in part."""

from collections.abc import Sequence
from typing import NamedTuple


class Stop(NamedTuple):
    """Where a reply ends.

    Attributes:
        end: offset at which it ends.
        behind: offset behind the stop word that ends it; None if no whole one was found.
    """

    end: int
    behind: int | None


def is_fence(word: str) -> bool:
    """Whether a stop word is the fence that closes a code block.

    Args:
        word: the stop word.

    Returns:
        True if it is nothing but three or more fence characters and white space.
    """
    row = word.strip()
    return len(row) >= 3 and row[0] in '`~' and not row.strip(row[0])


def find_stop(
    text: str, words: Sequence[str], pieces: Sequence[tuple[int, int]], *, cut: bool
) -> Stop:
    """Find the first stop word.

    Args:
        text: the reply.
        words: stop words. A fence is not looked for: it also opens blocks.
        pieces: the parts of the reply to look at, as offsets.
        cut: whether the reply was cut off; otherwise the start of a stop word at its end is one
            that arrived in part.

    Returns:
        Where the reply ends.
    """
    usable = [word for word in words if word and not is_fence(word)]
    if not usable:
        return Stop(len(text), None)
    found = [
        (at, at + len(word))
        for start, end in pieces
        for word in usable
        if (at := text.find(word, start, end)) >= 0
    ]
    if found:
        return Stop(*min(found))
    partial = 0 if cut else max((_partial(text, word) for word in usable), default=0)
    return Stop(len(text) - partial, None)


def _partial(text: str, word: str) -> int:
    """How many characters at the end of a text are the start of a stop word."""
    for length in range(len(word) - 1, 1, -1):
        if text.endswith(word[:length]):
            before = text[: len(text) - length][-1:]
            # An answer may well end with the first letters of a stop word that is a plain word.
            return length if not word[0].isalnum() or before in ('', '\n') else 0
    return 0
