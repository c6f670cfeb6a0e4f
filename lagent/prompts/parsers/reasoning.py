"""What a model thinks, told apart from what it says."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

TAGS = (
    ('<think>', '</think>'),
    ('<thinking>', '</thinking>'),
    ('<reasoning>', '</reasoning>'),
    ('[THINK]', '[/THINK]'),
)
"""Pairs of tags around reasoning; their case does not matter."""


_REST = re.compile(r'[ \t\r]*+(?:\n|\Z)')


class Answer(NamedTuple):
    """The parts of a reply that are not reasoning.

    Attributes:
        text: the whole reply.
        pieces: where the parts begin and end, as character offsets, in order.
        unclosed: whether the reply ends inside its reasoning.
    """

    text: str
    pieces: tuple[tuple[int, int], ...]
    unclosed: bool = False

    def said(self, end: int | None = None) -> str:
        """The answer.

        Args:
            end: offset in the reply to stop at; the end by default.

        Returns:
            The parts up to there, joined; without the white space behind a reasoning that comes
            first.
        """
        if len(self.pieces) == 1 and self.pieces[0][0] == 0:
            return self.text[: self.pieces[0][1]][:end]
        stop = len(self.text) if end is None else end
        joined = ''.join(self.text[a : min(b, stop)] for a, b in self.pieces if a < stop)
        return joined.lstrip()

    def thought(self) -> str:
        """The reasoning with its tags, stripped.

        Returns:
            The parts of the reply that are not the answer.
        """
        if self.pieces == ((0, len(self.text)),):
            return ''
        gaps: list[str] = []
        at = 0
        for start, end in (*self.pieces, (len(self.text), len(self.text))):
            gaps.append(self.text[at:start].strip())
            at = end
        return '\n'.join(gap for gap in gaps if gap)

    def cut(self, end: int) -> 'Answer':
        """The same answer, ended earlier.

        Args:
            end: offset in the reply.

        Returns:
            The answer up to there.
        """
        pieces = tuple((a, min(b, end)) for a, b in self.pieces if a < end)
        return Answer(self.text, pieces, self.unclosed)


def split_reasoning(text: str, tags: Sequence[tuple[str, str]] = TAGS) -> Answer:
    """Find the reasoning in a reply.

    A tag in a code fence, or with a quote or backtick before it, is text that speaks of the tag.
    A closing tag without an opening one ends a reasoning whose opening tag was in the prompt:
    everything before it is reasoning. Such a tag counts in a fence as well if its line begins or
    ends with it, since a fence that the model left open while it was thinking must not hide it.

    Args:
        text: the reply.
        tags: pairs of opening and closing tag.

    Returns:
        What remains. A reasoning that is not closed lasts to the end.
    """
    if not tags or not _events(tuple(tags)).search(text):
        return Answer(text, ((0, len(text)),) if text else ())
    return _Splitter(text, tags).split()


@lru_cache(maxsize=32)
def _events(tags: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    opening = '|'.join(re.escape(tag) for tag, _ in tags)
    closing = '|'.join(re.escape(tag) for _, tag in tags)
    return re.compile(
        rf'^[ \t]*+(?P<run>`{{3,}}+|~{{3,}}+)(?=(?P<info>[^\n]*+))'
        rf'|(?P<open>{opening})|(?P<close>{closing})',
        re.IGNORECASE | re.MULTILINE,
    )


class _Splitter:
    def __init__(self, text: str, tags: Sequence[tuple[str, str]]) -> None:
        self.text = text
        self.pattern = _events(tuple(tags))
        self.closers = {start.lower(): end.lower() for start, end in tags}
        self.pieces: list[tuple[int, int]] = []
        self.start = 0
        self.closer = ''
        self.fence = ''

    def split(self) -> Answer:
        for event in self.pattern.finditer(self.text):
            if event['run']:
                self.see_fence(event['run'], event['info'].strip())
            elif event['open']:
                self.see_open(event)
            else:
                self.see_close(event)
        if not self.closer:
            self.keep(len(self.text))
        return Answer(self.text, tuple(self.pieces), bool(self.closer))

    def keep(self, end: int) -> None:
        if self.start < end:
            self.pieces.append((self.start, end))

    def see_fence(self, run: str, info: str) -> None:
        if not self.fence:
            self.fence = '' if run[0] == '`' and '`' in info else run
        elif run.startswith(self.fence) and not info:
            self.fence = ''

    def see_open(self, event: re.Match[str]) -> None:
        if self.closer or self.fence or self.quoted(event):
            return
        self.keep(event.start())
        self.closer = self.closers[event['open'].lower()]

    def see_close(self, event: re.Match[str]) -> None:
        if self.closer:
            if event['close'].lower() != self.closer:
                return
        elif self.quoted(event) or (self.fence and not self.alone(event)):
            return
        else:
            self.pieces.clear()
        self.start = event.end()
        self.closer = self.fence = ''

    def quoted(self, event: re.Match[str]) -> bool:
        before = self.text[event.start() - 1 : event.start()]
        return before in ('`', "'", '"')

    def alone(self, event: re.Match[str]) -> bool:
        """Whether the tag's line begins or ends with it."""
        start = event.start()
        while start and self.text[start - 1] in ' \t':
            start -= 1
        return (
            not start or self.text[start - 1] == '\n' or bool(_REST.match(self.text, event.end()))
        )
