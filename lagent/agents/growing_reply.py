"""What a parser says of a reply while it grows, and at its end."""

import copy
from typing import Any

from lagent.prompts.parsers import StreamParser, ToolStatusCode

_LONGEST_REPARSED = 20_000  # characters

_UNPARSED: Any = object()


class GrowingReply:
    """A streamed reply and its parser.

    A parser that says by `stream_marks` what surrounds its calls is never asked before the end:
    the parts of the reply are told apart once, as they come. Any other one is asked about each
    beginning of the reply, as in InternLM's, as long as that is short. Neither way is a call valid
    before the reply has ended.

    Args:
        parser: the parser; None for replies that are not parsed.

    Attributes:
        text: the reply so far.
    """

    def __init__(self, parser: Any) -> None:
        self.parser = parser
        self.text: Any = ''
        self._streaming = StreamParser(parser) if _tells_marks(parser) else None
        self._whole = _UNPARSED

    def grow(self, text: Any) -> str:
        """Take a longer beginning of the reply.

        Args:
            text: the whole text so far. A `Completion` is kept as it is.

        Returns:
            What it adds; all of it where the model has taken back what it said.
        """
        grows = text.startswith(self.text)
        added = str(text[len(self.text) :] if grows else text)
        self.text, self._whole = text, _UNPARSED
        if self._streaming is not None:
            if not grows:  # a model may take back what it has said
                self._streaming = StreamParser(self.parser)
            self._streaming.feed(added)
        return added

    def partial(self) -> Any:
        """What is known of the reply so far.

        Returns:
            What the parser makes of it, with the status ``INCOMPLETE`` in place of ``VALID_TOOL``;
            None if it can't say.
        """
        if self._streaming is not None:
            return self._streaming.partial()
        if self.parser is None or len(self.text) > _LONGEST_REPARSED:
            return None
        try:
            parsed = self.parser.parse_response(self.text)
        except Exception:  # noqa: BLE001 - a parser may know nothing of the beginning of a text
            return None
        if isinstance(parsed, dict) and parsed.get('status') == ToolStatusCode.VALID_TOOL:
            parsed = copy.copy(parsed)
            parsed['status'] = ToolStatusCode.INCOMPLETE
        return parsed

    def whole(self) -> Any:
        """What the parser makes of the reply, now that it has ended.

        Returns:
            What it gives, once for the same text; None without a parser.

        Raises:
            Exception: what the parser raises.
        """
        if self._whole is _UNPARSED:
            self._whole = None if self.parser is None else self.parser.parse_response(self.text)
        return self._whole


def _tells_marks(parser: Any) -> bool:
    """Whether the marks that a parser tells are those that it reads."""
    tells = next((kind for kind in type(parser).__mro__ if 'stream_marks' in vars(kind)), None)
    reads = next((kind for kind in type(parser).__mro__ if 'parse_response' in vars(kind)), None)
    if tells is None or reads is None or not issubclass(tells, reads):
        return False
    marks = parser.stream_marks()
    return bool(marks.calls or marks.languages)
