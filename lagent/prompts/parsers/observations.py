"""Where a model that should have stopped goes on with what it imagines its code to print."""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache

from lagent.prompts.parsers.fences import Block, Line

MARKS = ('Observation:', 'Observations:', '<observation>', '<|observation|>', '<tool_response>')
"""What begins an observation."""

_AFTER_CODE = ('output:', 'outputs:', 'execution result:', 'execution results:')
_OUTPUT_TAGS = frozenset({'output', 'observation', 'tool_output'})
_DECORATION = re.compile(r'[\s>#*_-]*+')
_LONGEST = 80


def find_observation(
    text: str,
    lines: Sequence[Line],
    blocks: Sequence[Block],
    code: Sequence[Block],
    marks: Sequence[str],
) -> int | None:
    """Find the first observation that a model wrote itself.

    A mark in ``<>`` is one wherever it stands outside of the blocks. A word is one at the beginning
    of a line, in any case and with Markdown around it, if the reply holds code: in a plain answer
    it is a heading like others. Directly behind code, ``Output:`` and the like are one too.

    Args:
        text: the reply.
        lines: its lines.
        blocks: its fenced blocks.
        code: those of them that hold code.
        marks: what begins an observation.

    Returns:
        The offset at which it begins, or None.
    """
    outputs = [b.start for b in blocks if code and b.tag in _OUTPUT_TAGS and b.start >= code[0].end]
    fence = min(outputs, default=len(text))
    tag = _tags(tuple(marks))
    if not code and not outputs and not tag.search(text):
        return None
    words = _words(tuple(marks))
    code_ends = deque(block.end for block in code)
    last_code = last_words = -1
    for start, end in _prose(lines, blocks):
        if start >= fence:
            break
        while code_ends and code_ends[0] <= start:
            last_code = code_ends.popleft()
        head = _head(text, start, end)
        after_code = _AFTER_CODE if last_code > last_words else ()
        if code and head.startswith((*words, *after_code)):
            return start
        if found := tag.search(text, start, end):
            return found.start()
        if head:
            last_words = start
    return min(outputs, default=None)


def begins_observation(text: str, marks: Sequence[str]) -> bool:
    """Whether the text behind a tool call is an observation that the model wrote itself.

    Args:
        text: the text.
        marks: what begins an observation.

    Returns:
        True if it begins with a mark or with ``Output:`` and the like.
    """
    head = _head(text, 0, len(text))
    return head.startswith((*_words(tuple(marks)), *_AFTER_CODE)) or bool(
        _tags(tuple(marks)).match(text)
    )


@lru_cache(maxsize=32)
def _words(marks: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(mark.lower() for mark in marks if mark and not mark.startswith('<'))


@lru_cache(maxsize=32)
def _tags(marks: tuple[str, ...]) -> re.Pattern[str]:
    tags = [re.escape(mark) for mark in marks if mark.startswith('<')]
    return re.compile('|'.join(tags) if tags else r'(?!)', re.IGNORECASE)


def _head(text: str, start: int, end: int) -> str:
    decoration = _DECORATION.match(text, start, end)
    at = decoration.end() if decoration else start
    return text[at : min(end, at + _LONGEST)].lower().replace('*', '')


def _prose(lines: Sequence[Line], blocks: Sequence[Block]) -> Iterator[tuple[int, int]]:
    """The parts of lines that are in no block."""
    ahead = deque(blocks)
    for line in lines:
        start, end = line.start, line.end
        while ahead and ahead[0].end <= start:
            ahead.popleft()
        if ahead and ahead[0].start <= start:
            start = min(ahead[0].end, end)
        elif ahead and ahead[0].start < end:
            end = ahead[0].start
        if start < end:
            yield start, end
