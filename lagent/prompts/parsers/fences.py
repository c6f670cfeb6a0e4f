"""Markdown fences, found by line, with the eyes of someone who knows that they hold Python.

A fence opens with at least three backticks or tildes, after any indent, and an info string whose
first word is the language. It closes with a line of at least as many of the same character. That
is CommonMark, and not enough: code holds fences in its strings, and models glue a fence to the
code before it or glue text to the fence. So for a language whose syntax can be checked, the first
closing line before which the body parses is taken. This is exact: outside of a string or comment
a row of backticks is never Python, so a body that parses has not been cut inside of one.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

MAX_CANDIDATES = 8
"""Closing lines that are tried for one block."""

# Longer rows count as this long. It bounds how many blocks can look at the same line.
_MAX_ROW = 16
_ROW = re.compile(r'`{3,}+|~{3,}+')
_TAG = re.compile(r'[{.\s]*+([\w+#.-]*+)')


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a reply: its offsets, and its text without the line end."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        tag: language, in lower case; ``''`` without one.
        body: what is in it, without the opening fence's indent and the last newline.
        start: offset of the line (or, behind other text, of the row) that opens it.
        end: offset behind the fence that closes it.
        closed: whether a closing fence was found.
    """

    tag: str
    body: str
    start: int
    end: int
    closed: bool


@dataclass(frozen=True, slots=True)
class _Mark:
    """A row of fence characters: the first of its line, or else one that ends it."""

    line: int
    at: int
    char: str
    length: int
    head: str
    info: str

    @property
    def leads(self) -> bool:
        return not self.head.strip()

    @property
    def tag(self) -> str:
        found = _TAG.match(self.info)
        return found[1].lower() if found else ''

    @property
    def closes(self) -> bool:
        return self.leads and not self.info

    @property
    def opens(self) -> bool:
        return self.leads and not (self.char == '`' and '`' in self.info)


def split_lines(text: str, pieces: Sequence[tuple[int, int]]) -> list[Line]:
    r"""Cut parts of a text into lines.

    Args:
        text: the text.
        pieces: the parts, as offsets; each begins a new line.

    Returns:
        The lines. They end with ``\n`` or ``\r\n``, which their text lacks.
    """
    lines: list[Line] = []
    for start, end in pieces:
        at = start
        while at < end:
            newline = text.find('\n', at, end)
            stop = end if newline < 0 else newline + 1
            lines.append(Line(at, stop, text[at:stop].removesuffix('\n').rstrip('\r')))
            at = stop
    return lines


def language(tag: str) -> str:
    """A language's tag without a version.

    Args:
        tag: a tag such as ``Python3.12``.

    Returns:
        The tag in lower case, such as ``python``.
    """
    return tag.lower().rstrip('.0123456789')


def find_blocks(
    lines: Sequence[Line],
    languages: Collection[str],
    accepts: Callable[[str], bool] | None,
    *,
    cut: bool = False,
) -> list[Block]:
    """Find the fenced blocks of a reply.

    Args:
        lines: the reply's lines.
        languages: tags of the blocks that hold code; ``''`` for blocks without one.
        accepts: says of a text whether it is a whole piece of such code; None when nothing can be
            said, and then the first closing line counts.
        cut: whether the reply was cut off. A code block with no body that is accepted is then
            taken to be still open.

    Returns:
        The blocks in order. One that nothing closes lasts to the end of the reply.
    """
    return list(_Finder(lines, _languages(tuple(languages)), accepts, cut).blocks())


def holds_fence(text: str) -> bool:
    """Whether there is anything in a text that a fence could be.

    Args:
        text: the text.

    Returns:
        False if `find_blocks` would find nothing in its lines.
    """
    return _ROW.search(text) is not None


def is_code(tag: str, languages: Collection[str]) -> bool:
    """Whether a block's tag names one of some languages.

    Args:
        tag: the tag.
        languages: tags, with or without a version.

    Returns:
        True if it does.
    """
    return language(tag) in _languages(tuple(languages))


@lru_cache(maxsize=32)
def _languages(tags: tuple[str, ...]) -> frozenset[str]:
    return frozenset(map(language, tags))


def fence_for(code: str) -> str:
    """A fence that no row of backticks in a code closes.

    Args:
        code: the code.

    Returns:
        Three backticks, or one more than the longest row.
    """
    longest = max((len(row) for row in re.findall('`+', code)), default=0)
    return '`' * max(3, longest + 1)


def fenced(text: str, language: str) -> str:
    """A text as a block of code in Markdown.

    Args:
        text: the text.
        language: what the block says that it is.

    Returns:
        The block, without a line feed at its end.
    """
    fence = fence_for(text)
    return f'{fence}{language}\n{text}\n{fence}'


class _Finder:
    def __init__(
        self,
        lines: Sequence[Line],
        languages: Collection[str],
        accepts: Callable[[str], bool] | None,
        cut: bool,
    ) -> None:
        self.lines = lines
        self.languages = languages
        self.accepts = accepts
        self.cut = cut
        self.loose_openers = MAX_CANDIDATES
        rows = ((index, row) for index, line in enumerate(lines) if (row := _ROW.search(line.text)))
        self.marks = [mark for index, row in rows if (mark := self.mark(index, row))]

    def mark(self, index: int, row: re.Match[str]) -> _Mark | None:
        text = self.lines[index].text
        if text[: row.start()].strip() and not self.opens_behind(text, row):
            tail = text.rstrip()
            run = len(tail) - len(tail.rstrip('`'))
            if run < 3:
                return None
            start = len(tail) - run
            return _Mark(index, start, '`', min(run, _MAX_ROW), text[:start], '')
        info = text[row.end() :].strip()
        length = min(row.end() - row.start(), _MAX_ROW)
        return _Mark(index, row.start(), row[0][0], length, text[: row.start()], info)

    def opens_behind(self, text: str, row: re.Match[str]) -> bool:
        """Whether a row that is not the first thing on its line may open a code block."""
        info = text[row.end() :].strip()
        return bool(info) and '`' not in text[: row.start()] and self.is_code(info)

    def is_code(self, tag: str) -> bool:
        return language(tag) in self.languages

    def blocks(self) -> Iterator[Block]:
        at = 0
        while at < len(self.marks):
            block, at = self.block_at(at)
            if block:
                yield block

    def block_at(self, at: int) -> tuple[Block | None, int]:
        """The block that a mark opens, if it does, and the next mark to look at."""
        mark = self.marks[at]
        if mark.opens:
            return self.code_block(at)[:2] if self.is_code(mark.tag) else self.text_block(at)
        if mark.leads:
            return self.one_line_block(mark), at + 1
        if mark.info and self.loose_openers:
            self.loose_openers -= 1
            block, after, believed = self.code_block(at)
            # A fence behind other text on its line is no Markdown: it takes a whole body.
            return (block, after) if believed else (None, at + 1)
        return None, at + 1

    def text_block(self, at: int) -> tuple[Block, int]:
        opener = self.marks[at]
        for index in range(at + 1, len(self.marks)):
            mark = self.marks[index]
            if mark.closes and mark.char == opener.char and mark.length >= opener.length:
                return self.closed(opener, mark), index + 1
        return self.open(opener), len(self.marks)

    def one_line_block(self, mark: _Mark) -> Block | None:
        """The block of a line such as ```` ```python print(1)``` ````."""
        body = mark.info.rstrip('`')
        if not self.accepts or len(mark.info) - len(body) < 3 or not self.is_code(mark.tag):
            return None
        code = body[len(mark.tag) :].strip() if body.lower().startswith(mark.tag) else ''
        if not code or '`' in code or not self.accepts(code):
            return None
        line = self.lines[mark.line]
        return Block(mark.tag, code, line.start, line.end, closed=True)

    def code_block(self, at: int) -> tuple[Block, int, bool]:
        """The block that a mark opens, the next mark to look at, and whether to believe it."""
        opener = self.marks[at]
        if self.accepts is None:
            block, after = self.text_block(at)
            return block, after, block.closed
        tried: list[int] = []
        for index in range(at + 1, len(self.marks)):
            mark = self.marks[index]
            if not self.may_close(opener, mark):
                continue
            if self.accepts(self.body(opener, mark)):
                return self.closed(opener, mark), self.after(index), True
            tried.append(index)
            if len(tried) == MAX_CANDIDATES:
                break
        else:
            whole = self.open(opener)
            if not self.cut and self.accepts(whole.body):
                return whole, len(self.marks), True
        if self.cut or not tried:
            return self.open(opener), len(self.marks), False
        first = next((index for index in tried if self.marks[index].closes), tried[0])
        return self.closed(opener, self.marks[first]), self.after(first), False

    @staticmethod
    def may_close(opener: _Mark, mark: _Mark) -> bool:
        if mark.char != opener.char or mark.length < opener.length:
            return False
        # Behind code on the same line: in a comment a row of backticks is legal Python.
        return mark.leads or (not mark.info and '#' not in mark.head)

    def after(self, index: int) -> int:
        """The next mark to look at, behind a mark that closes a block."""
        mark = self.marks[index]
        return index if mark.leads and mark.info and self.is_code(mark.tag) else index + 1

    def body(self, opener: _Mark, mark: _Mark | None) -> str:
        last = len(self.lines) if mark is None else mark.line
        indent = len(opener.head) if opener.leads else 0
        body = [self.dedented(self.lines[at].text, indent) for at in range(opener.line + 1, last)]
        if mark and not mark.leads:
            body.append(self.dedented(mark.head, indent))
        return '\n'.join(body)

    @staticmethod
    def dedented(text: str, indent: int) -> str:
        spaces = len(text) - len(text.lstrip(' \t'))
        return text[min(indent, spaces) :]

    def start(self, opener: _Mark) -> int:
        return self.lines[opener.line].start + (0 if opener.leads else opener.at)

    def closed(self, opener: _Mark, mark: _Mark) -> Block:
        line = self.lines[mark.line]
        end = line.end
        if mark.leads and mark.info:
            row = line.text[mark.at :]
            behind = line.start + mark.at + len(row) - len(row.lstrip(mark.char))
            end = line.start if self.is_code(mark.tag) else behind
        return Block(opener.tag, self.body(opener, mark), self.start(opener), end, closed=True)

    def open(self, opener: _Mark) -> Block:
        body = self.body(opener, None)
        tail = body.rstrip()
        run = len(tail) - len(tail.rstrip(opener.char))
        if run and (run < opener.length or self.accepts is None):
            # The start of a closing fence, the rest of which a stop word ate. Code never ends so.
            body = tail[:-run].rstrip()
        return Block(opener.tag, body, self.start(opener), self.lines[-1].end, closed=False)
