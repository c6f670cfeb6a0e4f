"""Texts that fit into a number of tokens: head and tail, and an exact count of what is missing."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence, Sized
from itertools import takewhile

from lagent.utils.counts import many

Piece = str | int
"""Text, or the number of characters that are missing at this place."""

Tokenizer = Callable[[str], int | Sized]

_ASCII_PER_TOKEN = 4
_LONGEST_TOKEN = 16  # characters; no text of so many a token is looked at beyond this
_MARK_TOKENS = 24  # room for the line that stands for what is missing


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has, without a tokenizer.

    Four ASCII characters count as a token, and every other character as one: byte-pair
    vocabularies hold English words of about that length, and Chinese characters one by one.

    Args:
        text: the text.

    Returns:
        The number, rounded up.
    """
    ascii_only = len(text.encode('ascii', 'ignore'))
    return -(-ascii_only // _ASCII_PER_TOKEN) + len(text) - ascii_only


def counted(tokenizer: Tokenizer | None, text: str) -> int:
    """The number of tokens of a text.

    Args:
        tokenizer: gives the tokens of a text, or their number; None for an estimate.
        text: the text.

    Returns:
        The number.
    """
    tokens = estimate_tokens(text) if tokenizer is None else tokenizer(text)
    return tokens if isinstance(tokens, int) else len(tokens)


def left_out(count: int, whole: str = '') -> str:
    """The line that stands where text is missing.

    Args:
        count: how many characters are missing.
        whole: path of a file that holds all of it; ``''`` if there is none.

    Returns:
        The line, with a line feed before and behind it.
    """
    place = f'; all of it is in {whole}' if whole else ''
    return f'\n[... {many(count, "character")} left out{place} ...]\n'


def fit(
    pieces: str | Sequence[Piece],
    tokens: int,
    tokenizer: Tokenizer | None = None,
    *,
    tail: float = 0.5,
    whole: str = '',
) -> str:
    """A text, or its head and tail where it has too many tokens.

    Both end at a line break where one is near.

    Args:
        pieces: the text; or its pieces, a number among them for characters that are missing there.
        tokens: how many tokens it may have.
        tokenizer: see `counted`.
        tail: share of the room that its end gets.
        whole: path of a file that holds all of it.

    Returns:
        The text; where it was cut, it says how many characters are missing.
    """
    pieces = [pieces] if isinstance(pieces, str) else pieces
    text = ''.join(p if isinstance(p, str) else left_out(p, whole) for p in pieces)
    longest = tokens * _LONGEST_TOKEN
    if len(text) <= longest and counted(tokenizer, text) <= tokens:
        return text
    room = max(tokens - _MARK_TOKENS, 0)
    before, behind = _until_gap(pieces), _until_gap(reversed(pieces))[::-1]
    end = _from_line(_last(''.join(behind), int(room * tail), tokenizer))
    head = ''.join(before)
    if len(before) == len(pieces):  # without a gap both are the whole text
        head = head[: len(head) - len(end)]
    start = _to_line(_first(head, room - counted(tokenizer, end), tokenizer))
    cut = sum(len(p) if isinstance(p, str) else p for p in pieces) - len(start) - len(end)
    return start + left_out(cut, whole).removeprefix('\n' if start.endswith('\n') else '') + end


def _until_gap(pieces: Iterable[Piece]) -> list[str]:
    return list(takewhile(lambda piece: isinstance(piece, str), pieces))  # type: ignore[arg-type]


def _first(text: str, tokens: int, tokenizer: Tokenizer | None) -> str:
    """The longest beginning of a text that has at most so many tokens."""
    text = text[: max(tokens, 0) * _LONGEST_TOKEN]
    lengths = range(1, len(text) + 1)
    return text[: bisect_right(lengths, tokens, key=lambda n: counted(tokenizer, text[:n]))]


def _last(text: str, tokens: int, tokenizer: Tokenizer | None) -> str:
    """The longest end of a text that has at most so many tokens."""
    text = text[-max(tokens, 1) * _LONGEST_TOKEN :]
    lengths = range(1, len(text) + 1)
    fitting = bisect_right(lengths, tokens, key=lambda n: counted(tokenizer, text[-n:]))
    return text[len(text) - fitting :]


def _to_line(text: str) -> str:
    cut = text.rfind('\n') + 1
    return text[:cut] if cut * 2 > len(text) else text


def _from_line(text: str) -> str:
    cut = text.find('\n') + 1
    return text[cut:] if 0 < cut * 2 < len(text) else text
