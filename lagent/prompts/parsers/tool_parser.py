"""The tool parsers of InternLM's lagent: one call between two marks."""

import json
import re
from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from lagent.prompts.parsers.fences import find_blocks, is_code, language, split_lines
from lagent.prompts.parsers.json_lenient import loads_object
from lagent.prompts.parsers.marks import Marks
from lagent.prompts.parsers.python_syntax import PythonSyntax
from lagent.prompts.parsers.reasoning import TAGS, split_reasoning
from lagent.prompts.parsers.reply import Reply
from lagent.prompts.parsers.result import ParsedReply, ToolStatusCode
from lagent.prompts.parsers.str_parser import StrParser
from lagent.utils import create_object, load_class_from_string

_FENCE = re.compile(r'(`{3,}|~{3,})[ \t]*([\w+#.-]*)')
_PYTHON = ('python', 'py', 'ipython')

_CUT_OFF = 'The reply was cut off inside the call, so nothing was run. Write it again, shorter.'
_THINKING = 'The reply was cut off inside its reasoning, so nothing was run. Think less.'


class _Found(NamedTuple):
    """A call in a reply: where it begins and ends, its text, and whether it is all there."""

    start: int
    end: int
    action: str
    complete: bool


class ToolParser(StrParser):
    """Finds one call between two marks.

    The first complete call counts; without an end mark the call lasts to the end of the reply,
    since that mark is often a stop word. A reply that was cut off inside its call is
    ``INCOMPLETE``. Marks are plain text, unless both are one Markdown fence: then fences are
    recognised in all the ways that models write them, and reasoning is not searched.

    Attributes:
        tool_type: value of ``tool_type`` when there is a call.
        begin: mark before the call.
        end: mark behind it.
        validate: checks a call's text and may convert it; any exception refuses it.
    """

    def __init__(
        self,
        tool_type: str,
        template: str = '',
        begin: str = '<tool>\n',
        end: str = '</tool>\n',
        validate: Callable[[str], Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        """Make a parser.

        Args:
            tool_type: see the class.
            template: see `StrParser`; has the fields ``begin`` and ``end`` as well.
            begin: see the class.
            end: see the class.
            validate: see the class; may be the dotted path of a function. In the data of
                `from_config` it has to be allowed there.
            kwargs: further fields of the template.

        Raises:
            ValueError: the template lacks a field, or a mark is empty.
        """
        if not begin or not end:
            raise ValueError('the marks around a call cannot be empty')
        super().__init__(template, begin=begin, end=end, **kwargs)
        self.tool_type = tool_type
        self.begin = begin
        self.end = end
        self.validate: Callable[[str], Any] | None = (
            load_class_from_string(validate) if isinstance(validate, str) else validate
        )

    def parse_response(self, data: str) -> ParsedReply:
        """Read a reply.

        Args:
            data: the reply: a `str`, or a `Completion`, which tells how it ended as well.

        Returns:
            What was found; see `ParsedReply`. Its ``thought`` is the text before the call.
        """
        reply = Reply.of(data)
        tag = self._fence_tag()
        found = self._marked(reply) if tag is None else self._fenced(reply, tag)
        if found is None and tag is not None and reply.cut and split_reasoning(reply.text).unclosed:
            status = ToolStatusCode.INCOMPLETE
            return ParsedReply(
                None, reply.text, None, status, reason='unclosed_reasoning', hint=_THINKING
            )
        if found is None:
            return ParsedReply(None, reply.text, None, ToolStatusCode.NO_TOOL, reason='no_call')
        action, status, reason, hint = self._checked(found)
        return ParsedReply(
            self.tool_type,
            reply.text[: found.start],
            action,
            status,
            reason=reason,
            hint=hint,
            dropped=reply.text[found.end :],
            span=(found.start, found.end),
        )

    def format_response(self, parsed: dict[str, Any]) -> str:
        """Write what was parsed as the model should have written it.

        Args:
            parsed: dict with ``thought``, ``action`` and ``tool_type``.

        Returns:
            The thought, followed by the call between the marks if there is one.

        Raises:
            AssertionError: the call is another tool's.
        """
        action = parsed['action']
        if action is None:
            return str(parsed['thought'])
        assert parsed['tool_type'] == self.tool_type, (
            f'{self.tool_type!r} cannot write a call of {parsed["tool_type"]!r}'
        )
        if isinstance(action, dict):
            action = json.dumps(action, ensure_ascii=False)
        return f'{parsed["thought"]}{self.begin}{action}{self.end}'

    def stream_marks(self) -> Marks:
        """See `StrParser.stream_marks`."""
        tag = self._fence_tag()
        if tag is None:
            return Marks(calls=((self.begin, self.end),))
        return Marks(reasoning=TAGS, languages=_tags(tag))

    def _fence_tag(self) -> str | None:
        """The language if the marks are a Markdown fence, else None."""
        fence = _FENCE.fullmatch(self.begin.strip())
        return fence[2] if fence and self.end.strip() == fence[1] else None

    def _marked(self, reply: Reply) -> _Found | None:
        thought, begin, rest = reply.text.partition(self.begin)
        if not begin:
            return None
        start = len(thought)
        action, end, _ = rest.partition(self.end)
        if end:
            return _Found(start, start + len(begin + action + end), action, complete=True)
        mark = self.end.rstrip('\n')
        if mark and rest.endswith(mark):
            # Models end with the mark, and only rarely with the newline behind it.
            action = rest.removesuffix(mark)
            return _Found(start, len(reply.text), action, complete=True)
        return _Found(start, len(reply.text), rest, complete=not reply.cut)

    def _fenced(self, reply: Reply, tag: str) -> _Found | None:
        tags = _tags(tag)
        accepts = PythonSyntax().accepts if tags is _PYTHON else None
        lines = split_lines(reply.text, split_reasoning(reply.text).pieces)
        for block in find_blocks(lines, tags, accepts, cut=reply.cut):
            if is_code(block.tag, tags):
                complete = block.closed or not reply.cut
                return _Found(block.start, block.end, block.body, complete)
        return None

    def _checked(self, found: _Found) -> tuple[Any, ToolStatusCode, str, str]:
        if not found.complete:
            return found.action, ToolStatusCode.INCOMPLETE, 'incomplete', _CUT_OFF
        if self.validate is None:
            return found.action, ToolStatusCode.VALID_TOOL, '', ''
        try:
            return self.validate(found.action), ToolStatusCode.VALID_TOOL, '', ''
        except Exception as error:  # noqa: BLE001 - a user's function; refusing is its job
            hint = f'The {self.tool_type} call is not valid: {error!s:.500}'
            return found.action, ToolStatusCode.PARSING_ERROR, 'invalid_call', hint


def _tags(tag: str) -> tuple[str, ...]:
    return _PYTHON if language(tag) in _PYTHON else (tag,)


class InterpreterParser(ToolParser):
    """A `ToolParser` with InternLM's marks around code."""

    def __init__(
        self,
        tool_type: str = 'interpreter',
        template: str = '',
        begin: str = '<|action_start|><|interpreter|>\n',
        end: str = '<|action_end|>\n',
        validate: Callable[[str], Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        """See `ToolParser`."""
        super().__init__(tool_type, template, begin, end, validate, **kwargs)


class PluginParser(ToolParser):
    """A `ToolParser` with InternLM's marks around a JSON object.

    Slips of syntax in the JSON are repaired; see `json_lenient`.
    """

    def __init__(
        self,
        tool_type: str = 'plugin',
        template: str = '',
        begin: str = '<|action_start|><|plugin|>\n',
        end: str = '<|action_end|>\n',
        validate: Callable[[str], Any] | str | None = loads_object,
        **kwargs: Any,
    ) -> None:
        """See `ToolParser`."""
        super().__init__(tool_type, template, begin, end, validate, **kwargs)


class MixedToolParser(StrParser):
    """Several parsers for one reply; the first that finds something counts.

    Attributes:
        tool_type: name of the own instruction's message, or None.
        parsers: the parsers by their `tool_type`, in order.
    """

    def __init__(
        self,
        tool_type: str | None = None,
        template: str = '',
        parsers: Sequence[Any] | None = None,
        **format_field: Any,
    ) -> None:
        """Make a parser.

        Args:
            tool_type: see the class.
            template: see `StrParser`.
            parsers: the parsers, or configuration dicts of them; earlier ones go first.
            format_field: see `StrParser`.

        Raises:
            ValueError: the template lacks a field, or two parsers have the same `tool_type`.
        """
        super().__init__(template, **format_field)
        self.tool_type = tool_type
        made = [create_object(parser) for parser in parsers or ()]
        self.parsers: dict[str, Any] = {parser.tool_type: parser for parser in made}
        if len(self.parsers) < len(made):
            given = [parser.tool_type for parser in made]
            raise ValueError(f'each parser needs a tool_type of its own, got {given}')

    def format_instruction(self) -> list[dict[str, str]]:
        """What the model is told about the formats.

        Returns:
            System messages: the own instruction, then one a parser with its tool type as ``name``.
            Blank ones are left out.
        """
        own = {'role': 'system', 'content': super().format_instruction()}
        if self.tool_type:
            own['name'] = self.tool_type
        messages = [own]
        for name, parser in self.parsers.items():
            content = parser.format_instruction()
            messages.append({'role': 'system', 'content': content, 'name': name})
        return [message for message in messages if message['content'].strip()]

    def parse_response(self, data: str) -> ParsedReply:
        """Read a reply.

        Args:
            data: the reply.

        Returns:
            What the first parser that finds anything made of it, be it an error.
        """
        for parser in self.parsers.values():
            parsed: ParsedReply = parser.parse_response(data)
            if parsed['status'] != ToolStatusCode.NO_TOOL:
                return parsed
        return ParsedReply(None, str(data), None, ToolStatusCode.NO_TOOL, reason='no_call')

    def format_response(self, parsed: dict[str, Any]) -> str:
        """Write what was parsed as the model should have written it.

        Args:
            parsed: see `ToolParser.format_response`.

        Returns:
            The reply, written by the parser of the call's tool type.

        Raises:
            AssertionError: no parser has this tool type.
        """
        if parsed['action'] is None:
            return str(parsed['thought'])
        assert parsed['tool_type'] in self.parsers, f'no parser for {parsed["tool_type"]!r}'
        return str(self.parsers[parsed['tool_type']].format_response(parsed))

    def stream_marks(self) -> Marks:
        """See `StrParser.stream_marks`."""
        return reduce(or_, (parser.stream_marks() for parser in self.parsers.values()), Marks())
