"""Parsing a reply while it arrives."""

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

from lagent.prompts.parsers.fences import is_code
from lagent.prompts.parsers.marks import Marks
from lagent.prompts.parsers.result import ParsedReply, ToolStatusCode
from lagent.prompts.parsers.str_parser import StrParser

_FENCE = re.compile(r'[ \t]*+(`{3,}+|~{3,}+)[{. \t]*+([\w+#.-]*+)([^\n]*+)')
_anything = re.compile('').search
# A line that is this long before it is known to be a fence is none.
_LONGEST_FENCE = 200


Kind: TypeAlias = Literal['text', 'code', 'reasoning']
Search: TypeAlias = Callable[[str], re.Match[str] | None]


class Segment(NamedTuple):
    """A part of a reply, and what it is."""

    kind: Kind
    text: str


_new = tuple.__new__  # one is made for every chunk, and `Segment(...)` takes twice as long


class StreamParser:
    """Takes a reply in chunks, shows at once what each adds, and parses the whole at the end.

    The segments are for the eye: they come before it is known how the reply ends, hence nothing
    may be run because of them. Their texts, joined, do not depend on how the reply was cut into
    chunks, and the final parse is the parser's own. All of it costs about twice one parse.

    Attributes:
        parser: the parser.
    """

    def __init__(self, parser: StrParser) -> None:
        self.parser = parser
        self._splitter = _Splitter(parser.stream_marks())
        self._chunks: list[str] = []
        self._said: list[str] = []
        self._code: list[str] = []
        self._seen([])

    def feed(self, chunk: str) -> list[Segment]:
        """Take the next chunk.

        Args:
            chunk: any part of the reply.

        Returns:
            What can be shown now. The lines of fences and the marks around calls and reasoning are
            left out, and what may become one is held back.
        """
        self._chunks.append(chunk)
        if chunk and (self._mark not in chunk if self._mark else self._turn(chunk) is None):
            # So it is with most chunks: more of the same, in which nothing can begin or end.
            self._going_on.append(chunk)
            return [_new(Segment, (self._kind, chunk))]
        return self._seen(self._splitter.feed(chunk))

    def flush(self) -> list[Segment]:
        """Show what was held back, since no more will come.

        Returns:
            The last segments.
        """
        return self._seen(self._splitter.feed('', final=True))

    def partial(self) -> ParsedReply:
        """What is known of the reply so far.

        Returns:
            The ``thought`` so far and, once a call has begun, the ``action`` so far with the status
            ``INCOMPLETE``.
        """
        thought = _joined(self._said)
        if not self._code:
            return ParsedReply(None, thought, None, ToolStatusCode.NO_TOOL)
        tool_type = getattr(self.parser, 'tool_type', None)
        action = _joined(self._code)
        return ParsedReply(tool_type, thought, action, ToolStatusCode.INCOMPLETE, reason='partial')

    def finish(self, reply: str | None = None) -> Any:
        """Parse the whole.

        Args:
            reply: the whole reply if it says more than its text, such as a `Completion`.

        Returns:
            What the parser makes of the reply.
        """
        return self.parser.parse_response(''.join(self._chunks) if reply is None else reply)

    def _seen(self, segments: list[Segment]) -> list[Segment]:
        for kind, text in segments:
            self._texts(kind).append(text)
        splitter = self._splitter
        self._kind, self._mark, self._turn = splitter.kind, splitter.mark, splitter.turn
        self._going_on = self._texts(self._kind)
        return segments

    def _texts(self, kind: Kind) -> list[str]:
        if kind == 'code':
            return self._code
        return self._said if kind == 'text' and not self._code else []


def _joined(parts: list[str]) -> str:
    """Join parts, so that they need not be joined again when more have come."""
    parts[:] = [''.join(parts)]
    return parts[0]


class _Splitter:
    """Tells code and reasoning from text; holds back only what is not decided yet.

    Attributes:
        kind: what is going on.
        turn: finds where something else may begin or end in a chunk that is next.
        mark: the one character that `turn` looks for, and quicker to look for; empty if there are
            several.
    """

    def __init__(self, marks: Marks) -> None:
        self.languages = marks.languages
        self.openers: dict[str, tuple[Kind, str]] = {
            **{begin: ('code', end.rstrip('\n')) for begin, end in marks.calls},
            **{begin: ('reasoning', end) for begin, end in marks.reasoning},
        }
        self.buffer = ''
        self.at = 0
        self.line_start = True
        self.kind: Kind = 'text'
        self.closer = ''
        self.fence = ''
        self.out: list[Segment] = []
        self.searches: dict[tuple[str, bool, bool], tuple[Search, Search, str]] = {}
        self.search()

    def feed(self, chunk: str, *, final: bool = False) -> list[Segment]:
        if chunk and self.at == len(self.buffer) and self.surely(chunk) is None:
            self.line_start = chunk[-1] == '\n'
            self.search()
            return [Segment(self.kind, chunk)]
        self.buffer = self.buffer[self.at :] + chunk
        self.at = 0
        while self.at < len(self.buffer) and self.step(final=final):
            pass
        self.search()
        out, self.out = self.out, []
        return out

    def search(self) -> None:
        """Choose what finds the chunks that something begins or ends in, as things stand."""
        state = (self.closer, bool(self.fence), self.line_start)
        if state not in self.searches:
            self.searches[state] = self.new_search()
        maybe, self.surely, mark = self.searches[state]
        decided = self.at == len(self.buffer)
        self.turn, self.mark = (maybe, mark) if decided else (_anything, '')

    def new_search(self) -> tuple[Search, Search, str]:
        """A quick search that finds too many of them, a slower one that is right, and `mark`."""
        tokens = [self.closer] if self.closer else [] if self.fence else list(self.openers)
        firsts = {token[0] for token in tokens}
        parts = list(map(re.escape, firsts))
        if by_line := bool(self.languages) and not self.closer:
            firsts.add('\n')
            parts.append(r'\n[ \t]*+[`~]|\n[ \t]++\Z')
            if self.line_start:
                parts.append(r'\A[ \t]*+(?:[`~]|\Z)')
        surely = re.compile('|'.join(parts) or r'(?!)').search
        if by_line and self.line_start:
            return _anything, surely, ''
        if not firsts:
            return surely, surely, ''
        quick = re.compile(f'[{"".join(map(re.escape, firsts))}]').search
        return quick, surely, firsts.pop() if len(firsts) == 1 else ''

    def step(self, *, final: bool) -> bool:
        """Decide about what comes next; False if more of the reply must come first."""
        if self.closer or not self.languages:
            tokens = [self.closer] if self.closer else list(self.openers)
            return self.show(tokens, len(self.buffer), final=final)
        end = self.buffer.find('\n', self.at) + 1
        limit = end or len(self.buffer)
        if self.line_start and self.may_be_fence():
            if not end and not final:
                return False
            if self.is_hidden_fence(self.buffer[self.at : limit]):
                self.at = limit
                return True
        return self.show([] if self.fence else list(self.openers), limit, final=final or end > 0)

    def may_be_fence(self) -> bool:
        head = self.buffer[self.at : self.at + _LONGEST_FENCE]
        text = head.lstrip(' \t')
        undecided = len(head) < _LONGEST_FENCE or '\n' in head
        return undecided and (not text or text[0] in '`~')

    def is_hidden_fence(self, line: str) -> bool:
        """Follow a line that may be a fence; True if it surrounds code and is not shown."""
        found = _FENCE.match(line)
        if found is None:
            return False
        row, tag, rest = found[1], found[2], found[3].strip()
        if not self.fence:
            if row[0] == '`' and '`' in rest:
                return False
            self.fence = row
            self.kind = 'code' if is_code(tag, self.languages) else 'text'
            return self.kind == 'code'
        if not row.startswith(self.fence) or tag or rest:
            return False
        was_code = self.kind == 'code'
        self.fence, self.kind = '', 'text'
        return was_code

    def show(self, tokens: list[str], limit: int, *, final: bool) -> bool:
        """Show the buffer up to the first token or the limit; `final`: no token goes beyond."""
        found = [
            (at, len(token), token)
            for token in tokens
            if (at := self.buffer.find(token, self.at, limit)) >= 0
        ]
        if found:
            at, length, token = min(found)
            self.emit(at)
            self.at = at + length
            self.line_start = bool(self.closer) or token.endswith('\n')
            self.kind, self.closer = ('text', '') if self.closer else self.openers[token]
            return True
        held = 0 if final else self.held(tokens, limit)
        self.emit(limit - held)
        return not held

    def held(self, tokens: list[str], limit: int) -> int:
        """How many characters at the end may be the beginning of a token."""
        longest = min(limit - self.at, max(map(len, tokens), default=1) - 1)
        for length in range(longest, 0, -1):
            tail = self.buffer[limit - length : limit]
            if any(token.startswith(tail) for token in tokens):
                return length
        return 0

    def emit(self, end: int) -> None:
        if self.at < end:
            text = self.buffer[self.at : end]
            self.at = end
            self.line_start = text.endswith('\n')
            self.out.append(Segment(self.kind, text))
