"""The parser of replies that call tools in their provider's own format."""

import hashlib
from typing import Any

from lagent.prompts.parsers.reply import Reply
from lagent.prompts.parsers.result import ParsedReply, ToolStatusCode
from lagent.prompts.parsers.str_parser import StrParser
from lagent.prompts.parsers.tool_calls import (
    BEGIN,
    Call,
    CallError,
    json_call,
    native_call,
    text_calls,
)


class ToolCallParser(StrParser):
    """Reads the tool calls that a completion carries beside its text.

    The ``action`` is a list of calls ``{'id', 'name', 'parameters'}``, with the arguments as the
    model wrote them. A local model may write ``<tool_call>`` tags into the text and leave the rest
    to its server: a reply that is nothing else counts as these calls.

    Attributes:
        tool_type: what calls are labelled with.
    """

    def __init__(self, template: str = '', tool_type: str = 'plugin', **format_field: Any) -> None:
        """Take the template; see `StrParser`.

        Args:
            template: text of the format instruction.
            tool_type: see the class.
            format_field: value of each field of the template.
        """
        super().__init__(template, **format_field)
        self.tool_type = tool_type

    def parse_response(self, data: str) -> ParsedReply:
        """Read a reply.

        Args:
            data: the reply, with ``tool_calls`` where there are any.

        Returns:
            The parsed reply. Calls of a reply that was cut off are not given: the end of their
            arguments may be missing.
        """
        reply = Reply.of(data)
        text, raw = reply.text, list(reply.tool_calls)
        try:
            calls = [native_call(call) for call in raw] or _written(text)
        except CallError as error:
            status = ToolStatusCode.PARSING_ERROR
            return ParsedReply(None, text, None, status, reason=error.reason, hint=error.hint)
        if not calls:
            return ParsedReply(None, text, None, ToolStatusCode.NO_TOOL)
        if reply.cut:
            return ParsedReply(
                None,
                text,
                None,
                ToolStatusCode.INCOMPLETE,
                reason='cut',
                hint='The reply was cut off in a tool call. It was not made: write less at once.',
            )
        ids = _ids([getattr(call, 'id', '') or '' for call in raw] or [''] * len(calls), calls)
        action = [
            {'id': id_, 'name': call.name, 'parameters': call.arguments}
            for id_, call in zip(ids, calls, strict=True)
        ]
        thought = text if raw else ''
        return ParsedReply(self.tool_type, thought, action, ToolStatusCode.VALID_TOOL)

    def format_response(self, parsed: Any) -> str:
        """The text of a reply; its calls are no part of it.

        Args:
            parsed: what `parse_response` gave.

        Returns:
            The text.
        """
        return str(parsed['thought'] or '')


def _written(text: str) -> list[Call]:
    text = text.strip()
    if not text.startswith(BEGIN):
        return []
    bodies, end, closed = text_calls(text)
    if not closed:
        raise CallError('unclosed', 'The tool call has no </tool_call>.')
    return [json_call(body) for body in bodies] if end == len(text) else []


def _ids(given: list[str], calls: list[Call]) -> list[str]:
    """Ids that are never empty and never the same; made of the calls where they have to be."""
    ids: list[str] = []
    for position, (id_, call) in enumerate(zip(given, calls, strict=True)):
        if not id_ or id_ in ids:
            told = f'{position} {call.name} {call.arguments}'.encode(errors='replace')
            id_ = f'call_{hashlib.sha256(told).hexdigest()[:12]}'  # noqa: PLW2901
        ids.append(id_)
    return ids
