"""The parser of replies that hold Python to run."""

from collections import deque
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from lagent.prompts.parsers.fences import (
    Block,
    fenced,
    find_blocks,
    holds_fence,
    is_code,
    split_lines,
)
from lagent.prompts.parsers.marks import Marks
from lagent.prompts.parsers.observations import MARKS, begins_observation, find_observation
from lagent.prompts.parsers.python_syntax import PythonSyntax
from lagent.prompts.parsers.reasoning import TAGS, split_reasoning
from lagent.prompts.parsers.reply import Reply
from lagent.prompts.parsers.result import ParsedCode, ToolStatusCode
from lagent.prompts.parsers.stop_words import find_stop, is_fence
from lagent.prompts.parsers.str_parser import StrParser
from lagent.prompts.parsers.tool_calls import (
    BEGIN,
    END,
    Call,
    CallError,
    code_of,
    is_known,
    json_call,
    native_call,
    text_calls,
    unknown_tools,
    whole_call,
)

Blocks: TypeAlias = Literal['all', 'first', 'last', 'one']

Item = TypeVar('Item')

LANGUAGES = ('python', 'py', 'python3', 'py3', 'ipython')
TOOL_NAMES = (
    'python',
    'interpreter',
    'code_interpreter',
    'python_interpreter',
    'ipython',
    'IPythonInterpreter',
    'IPythonInteractive',
    'execute_python',
    'run_python',
    'execute_code',
    'run_code',
)

HINTS = {
    'no_code': (
        'The reply holds no Python block, so nothing was run. To run code, put it in one '
        '```python block.'
    ),
    'empty': 'The reply was empty. Write code in one ```python block, or give the answer.',
    'empty_code': (
        'The code block was empty. The code begins on the line after the opening ```python.'
    ),
    'incomplete': (
        'The reply was cut off before it ended, so no code of it was run. Write it again, shorter '
        'or in smaller steps.'
    ),
    'unclosed_reasoning': (
        'The reply ended inside its reasoning, so nothing of it was said or run. Think less, then '
        'write code in one ```python block, or give the answer.'
    ),
    'several_blocks': 'Write exactly one ```python block a reply; this one had {count}.',
    'blocks_skipped': 'Only the {which} of the {count} code blocks was run.',
    'invented_observation': (
        'Do not write observations: the real one comes in the next message. What followed the '
        'invented one was dropped.'
    ),
    'after_stop_word': 'Stop after the code block. What followed it was dropped.',
}
"""Reasons, and what a model is told about each."""


class CodeParser(StrParser):
    """Finds the Python that a reply wants to be run, and tells why when there is none.

    Reasoning is never searched for code. What counts are fenced blocks with a Python tag, or, if
    there are none, those without a tag that are Python; and calls of a Python tool, in the
    provider's format or as ``<tool_call>`` JSON in the text. Code of a reply that was cut off
    inside of it is never run. What follows an observation that the model wrote itself, or a stop
    word, is dropped.

    Attributes:
        tool_type: value of ``tool_type`` when there is code.
        blocks: which blocks are run: ``'all'`` in order as cells, ``'first'``, ``'last'``, or
            ``'one'``, which makes more than one an error.
        languages: tags of code blocks, in any case and with any version behind them.
        stop_words: words at which the reply ends if the server did not end it there. A fence among
            them means that the reply ends with its first code block.
        observation_marks: what begins an observation; see `find_observation`.
        tool_names: tools whose calls are code.
        reasoning_tags: pairs of tags around reasoning.
    """

    def __init__(
        self,
        tool_type: str = 'interpreter',
        template: str = '',
        blocks: Blocks = 'all',
        *,
        languages: Sequence[str] = LANGUAGES,
        stop_words: Sequence[str] = (),
        observation_marks: Sequence[str] = MARKS,
        tool_names: Sequence[str] = TOOL_NAMES,
        reasoning_tags: Sequence[tuple[str, str]] = TAGS,
        **format_field: Any,
    ) -> None:
        """Make a parser; see the class for the arguments it does not share with `StrParser`.

        Raises:
            ValueError: `blocks` or the template is not right.
        """
        if blocks not in ('all', 'first', 'last', 'one'):
            raise ValueError(f"blocks must be 'all', 'first', 'last' or 'one', not {blocks!r}")
        fields = {'begin': f'```{next(iter(languages), "")}', 'end': '```', **format_field}
        super().__init__(template, **fields)
        self.tool_type = tool_type
        self.blocks = blocks
        self.languages = tuple(languages)
        self.stop_words = tuple(stop_words)
        self.observation_marks = tuple(observation_marks)
        self.tool_names = (*tool_names, tool_type)
        self.reasoning_tags = tuple(reasoning_tags)

    def parse_response(self, data: str) -> ParsedCode:
        """Read a reply.

        Args:
            data: the reply: a `str`, or a `Completion`, which tells how it ended as well.

        Returns:
            What was found; see `ParsedCode`. With ``NO_TOOL`` the ``thought`` is the answer, with
            ``VALID_TOOL`` what was said before the code.
        """
        return _Reading(self, Reply.of(data)).result()

    def format_response(self, parsed: dict[str, Any]) -> str:
        """Write what was parsed as the model should have written it.

        Args:
            parsed: dict with ``thought`` and ``cells``, or with an ``action`` instead of the cells.

        Returns:
            The thought and a fenced block for each cell. A fence is long enough that no row of
            backticks in the code closes it.

        Raises:
            AssertionError: the call is another tool's.
        """
        cells = parsed.get('cells') or ([parsed['action']] if parsed['action'] else [])
        if not cells:
            return str(parsed['thought'])
        assert parsed['tool_type'] == self.tool_type, (
            f'{self.tool_type!r} cannot write a call of {parsed["tool_type"]!r}'
        )
        parts = [parsed['thought'].rstrip('\n')] if parsed['thought'].strip() else []
        parts += [fenced(cell, self.languages[0]) for cell in cells]
        return '\n'.join(parts) + '\n'

    def stream_marks(self) -> Marks:
        """See `StrParser.stream_marks`."""
        return Marks(((BEGIN, END),), self.reasoning_tags, (*self.languages, ''))


class _Reading:
    """One reading of one reply; `end` moves forward as parts of the reply are dropped."""

    def __init__(self, parser: CodeParser, reply: Reply) -> None:
        self.parser = parser
        self.reply = reply
        self.text = reply.text
        self.cut = reply.cut
        self.end = len(self.text)
        self.reason = self.hint = ''
        self.syntax = PythonSyntax()
        self.answer = split_reasoning(self.text, parser.reasoning_tags)
        thoughts = (reply.reasoning.strip(), self.answer.thought())
        self.reasoning = '\n'.join(filter(None, thoughts))

    def result(self) -> ParsedCode:
        try:
            if self.reply.tool_calls and self.cut:
                return self.failed('incomplete')
            if self.reply.tool_calls:
                return self.called([native_call(call) for call in self.reply.tool_calls], None)
            self.end_at_stop_word()
            return self.written_call() or self.fenced()
        except CallError as error:
            return self.failed(error.reason, hint=error.hint)

    def end_at(self, end: int, reason: str = '') -> None:
        """Drop the reply from an offset on."""
        self.end = end
        self.answer = self.answer.cut(end)
        # It was the model that ended here, whatever ended the server's reply later.
        self.cut = False
        self.note(reason)

    def note(self, reason: str, **details: Any) -> None:
        if reason and not self.reason:
            self.reason, self.hint = reason, HINTS[reason].format(**details)

    def end_at_stop_word(self) -> None:
        words = [*self.parser.stop_words, *filter(None, [self.reply.stop_word])]
        if not words:
            return
        stop = find_stop(self.text, words, self.answer.pieces, cut=self.cut)
        if stop.behind is not None:
            more = self.text[stop.behind :].strip()
            self.end_at(stop.end, 'after_stop_word' if more else '')
        elif stop.end < self.end:
            self.end_at(stop.end)

    def written_call(self) -> ParsedCode | None:
        """The code of calls that stand in the text, if they are not only quoted there."""
        if call := whole_call(self.answer.said()):
            return self.called([call], (0, self.end))
        start = self.call_start()
        if start is None:
            return None
        bodies, length, closed = text_calls(self.text[start : self.end])
        behind = start + length
        if rest := self.text[behind : self.end].strip():
            if not begins_observation(rest, self.parser.observation_marks):
                return None
            self.end_at(behind, 'invented_observation')
        elif self.cut and not closed:
            return self.failed('incomplete', (start, self.end))
        return self.called([json_call(body) for body in bodies], (start, behind))

    def call_start(self) -> int | None:
        """Where the first line that begins with a tool call is, outside of fences."""
        if BEGIN not in self.text or not self.answer.pieces:
            return None
        lines = split_lines(self.text, self.answer.pieces[-1:])
        fenced = deque(find_blocks(lines, self.parser.languages, self.syntax.accepts, cut=self.cut))
        for line in lines:
            while fenced and fenced[0].end <= line.start:
                fenced.popleft()
            indent = len(line.text) - len(line.text.lstrip())
            if line.text.startswith(BEGIN, indent) and not (
                fenced and fenced[0].start <= line.start
            ):
                return line.start + indent
        return None

    def called(self, calls: list[Call], span: tuple[int, int] | None) -> ParsedCode:
        known = [call for call in calls if is_known(call.name, self.parser.tool_names)]
        if len(known) < len(calls):
            names = [call.name for call in calls if not is_known(call.name, self.parser.tool_names)]
            error = unknown_tools(names, self.parser.tool_names)
            if not known:
                raise error
            self.reason, self.hint = error.reason, error.hint
        return self.valid(self.chosen([code_of(call, self.syntax) for call in known]), span)

    def fenced(self) -> ParsedCode:
        if not holds_fence(self.text) and '<' not in self.text:
            return self.no_code()  # nor an observation: without code only one in `<>` counts
        lines = split_lines(self.text, self.answer.pieces)
        blocks = find_blocks(lines, self.parser.languages, self.syntax.accepts, cut=self.cut)
        code = self.code_blocks(blocks)
        mark = find_observation(self.text, lines, blocks, code, self.parser.observation_marks)
        if mark is not None:
            self.end_at(mark, 'invented_observation')
            before = [block for block in code if block.start < mark]
            if code and not before:
                return self.failed('invented_observation')
            code = before
        elif self.cut and blocks and self.is_open(blocks[-1]):
            return self.failed('incomplete', (blocks[-1].start, blocks[-1].end))
        if code and any(is_fence(word) for word in self.parser.stop_words):
            more = self.text[code[0].end : self.end].strip()
            self.end_at(code[0].end, 'after_stop_word' if more else '')
            code = code[:1]
        code = [block for block in code if block.body.strip()] or code[:1]
        if not code:
            return self.no_code()
        if not code[0].body.strip():
            return self.failed('empty_code', (code[0].start, code[0].end))
        chosen = self.chosen(code)
        if self.parser.blocks == 'first' and len(code) > 1:
            self.end_at(chosen[0].end)
        return self.valid([block.body for block in chosen], (chosen[0].start, chosen[-1].end))

    def code_blocks(self, blocks: list[Block]) -> list[Block]:
        tagged = [block for block in blocks if is_code(block.tag, self.parser.languages)]
        return tagged or [
            block
            for block in blocks
            if not block.tag
            and block.body.strip()
            # A plan or an output in a bare fence is prose, and only strict Python is code there.
            and self.syntax.accepts(block.body, magics=False)
        ]

    def is_open(self, block: Block) -> bool:
        """Whether a cut reply ends in a block that is code, or may have become it."""
        if block.closed:
            return False
        known = not block.tag or is_code(block.tag, self.parser.languages)
        return known or '\n' not in self.text[block.start : block.end]

    def chosen(self, items: list[Item]) -> list[Item]:
        """Those of several cells that the option `blocks` asks for."""
        blocks, count = self.parser.blocks, len(items)
        if blocks == 'all' or count == 1:
            return items
        if blocks == 'one':
            raise CallError('several_blocks', HINTS['several_blocks'].format(count=count))
        self.note('blocks_skipped', which=blocks, count=count)
        return items[:1] if blocks == 'first' else items[-1:]

    def no_code(self) -> ParsedCode:
        if self.answer.unclosed:
            return self.failed('unclosed_reasoning')
        if not self.answer.said().strip():
            return self.failed(
                'empty' if self.reason == 'after_stop_word' else self.reason or 'empty'
            )
        self.note('incomplete' if self.cut else 'no_code')
        return self.parsed(ToolStatusCode.NO_TOOL, None)

    def failed(
        self, reason: str, span: tuple[int, int] | None = None, *, hint: str = ''
    ) -> ParsedCode:
        unfinished = reason == 'incomplete' or (reason == 'unclosed_reasoning' and self.cut)
        status = ToolStatusCode.INCOMPLETE if unfinished else ToolStatusCode.PARSING_ERROR
        self.reason, self.hint = reason, hint or HINTS[reason]
        return self.parsed(status, self.parser.tool_type, span=span)

    def valid(self, cells: list[str], span: tuple[int, int] | None) -> ParsedCode:
        status = ToolStatusCode.VALID_TOOL
        return self.parsed(status, self.parser.tool_type, cells=cells, span=span)

    def parsed(
        self,
        status: ToolStatusCode,
        tool_type: str | None,
        *,
        cells: Sequence[str] = (),
        span: tuple[int, int] | None = None,
    ) -> ParsedCode:
        return ParsedCode(
            tool_type,
            self.answer.said(span[0] if span else None),
            status,
            cells=cells,
            reason=self.reason,
            hint=self.hint,
            dropped=self.text[self.end :],
            span=span,
            reasoning=self.reasoning,
        )
