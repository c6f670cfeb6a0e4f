"""What an OpenAI-compatible server sends back: whole or in chunks, to one `Completion`."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lagent.llms.completion import Completion, ToolCall, Usage
from lagent.llms.errors import BadReply, EmptyReply, StreamCut
from lagent.llms.http_errors import error_of_status
from lagent.llms.stops import StopCutter
from lagent.utils.counts import many


@dataclass(slots=True)
class _PartialCall:
    index: Any
    id: str
    name: str
    arguments: str


class ReplyBuilder:
    """Puts a reply together. Everything it is fed was sent by a stranger.

    Args:
        stop_words: texts that end the reply; also checked here, since some servers ignore them.

    Attributes:
        text: what has come so far and is surely part of the reply.
        ended: whether the server said that nothing follows.
    """

    def __init__(self, stop_words: Iterable[str] | None = None) -> None:
        self.text = ''
        self.ended = False
        self._cutter = StopCutter(stop_words)
        self._stop_words = list(stop_words or ())
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[_PartialCall] = []
        self._logprobs: list[float] = []
        self._token_ids: list[int] = []
        self._prompt_ids: list[int] | None = None
        self._usage: Usage | None = None
        self._finish_reason: str | None = None
        self._stop_reason: str | int | None = None

    @property
    def started(self) -> bool:
        """Whether any part of the reply has come."""
        return bool(self.text or self._calls or self._reasoning)

    @property
    def stopped(self) -> bool:
        """Whether a stop word was met, after which nothing belongs to the reply any more."""
        return self._cutter.stopped is not None

    def is_reply(self, data: Any) -> bool:
        """Whether a document has the form of a whole reply, or of an error.

        Args:
            data: the decoded JSON.

        Returns:
            False for what a server of another protocol sends, or none.
        """
        return isinstance(data, dict) and ('choices' in data or 'error' in data)

    def feed(self, data: Any) -> str:
        """Take a whole reply, or the next chunk of a streamed one.

        Args:
            data: the decoded JSON.

        Returns:
            The text that it adds; leading white space of the reply is dropped.

        Raises:
            BadReply: it is not what the protocol says.
            ModelCallFailed: it is an error; the subclass says which.
        """
        if not isinstance(data, dict):
            raise BadReply(f'The server sent {_shown(data)} instead of a reply.')
        if data.get('error'):
            raise error_of_status(None, data['error'], str(data['error']))
        self._usage = _usage(data.get('usage')) or self._usage
        self._take_prompt(data)
        piece = ''
        for choice in _dicts(data.get('choices')):
            if not choice.get('index'):  # others are answers to an `n` that we never ask for
                piece += self._take(choice)
        return piece

    def _take(self, choice: dict[str, Any]) -> str:
        # A chunk has a delta where a whole reply has a message; their fields are the same.
        delta = choice.get('delta') or choice.get('message') or {}
        if not isinstance(delta, dict):
            raise BadReply(f'The server sent {_shown(delta)} instead of a message.')
        self._reasoning.append(_text(delta.get('reasoning_content') or delta.get('reasoning')))
        self._refusal.append(_text(delta.get('refusal')))
        for call in _dicts(delta.get('tool_calls')):
            self._add_call(call)
        self._logprobs += [
            token['logprob']
            for token in _dicts(_field(choice.get('logprobs'), 'content'))
            if isinstance(token.get('logprob'), float | int)
        ]
        self._take_prompt(choice)
        self._token_ids += _ids(choice.get('token_ids'))
        if isinstance(choice.get('finish_reason'), str):
            self._finish_reason = choice['finish_reason']
            self._stop_reason = choice.get('stop_reason')
        text = _text(delta.get('content')) or _text(choice.get('text'))  # of a continued prompt
        return self._show(self._cutter.feed(text))

    def _take_prompt(self, data: dict[str, Any]) -> None:
        # Where they are, and in which chunk, depends on the server and on the end point.
        self._prompt_ids = _ids(data.get('prompt_token_ids')) or self._prompt_ids

    def _show(self, piece: str) -> str:
        if not self.text:
            piece = piece.lstrip()
        self.text += piece
        return piece

    def _add_call(self, delta: dict[str, Any]) -> None:
        function = delta.get('function')
        index, id_ = delta.get('index'), _text(delta.get('id'))
        # Parts of one call share an index; a second id under the same index is another call.
        call = next((c for c in reversed(self._calls) if c.index == index), None)
        if call is None or (id_ and call.id and id_ != call.id):
            call = _PartialCall(index, id_, '', '')
            self._calls.append(call)
        call.id = call.id or id_
        call.name = call.name or _text(_field(function, 'name'))
        arguments = _field(function, 'arguments')
        if isinstance(arguments, dict):  # some servers decode them
            arguments = json.dumps(arguments, ensure_ascii=False)
        call.arguments += _text(arguments)

    def finish(self, *, complete: bool) -> tuple[str, Completion]:
        """End the reply.

        Args:
            complete: whether the server said that nothing follows: a whole reply, or a stream
                with its end mark.

        Returns:
            The text that had been held back, and the reply.

        Raises:
            StreamCut: the stream ended with neither a finish reason nor an end mark.
            EmptyReply: there is neither text nor a tool call.
        """
        if not (complete or self._finish_reason or self.stopped):
            raise StreamCut(
                f'The stream broke off after {many(len(self.text), "character")}, without a finish '
                'reason. What came is in `partial`; nothing of it was used.',
                usage=self._usage,
            )
        rest = self._show(self._cutter.flush())
        finish_reason, text = self._finish_reason, self.text.rstrip()
        refusal = ''.join(self._refusal).strip()
        if self.stopped:
            finish_reason, self._stop_reason = 'stop', self._cutter.stopped
        elif refusal and not text:
            finish_reason, text = 'refusal', refusal
        if not text and not self._calls:
            raise self._empty(finish_reason)
        return rest, Completion(
            text,
            finish_reason=finish_reason,
            stop_reason=self._stop_reason,
            usage=self._usage,
            reasoning=''.join(self._reasoning) or None,
            tool_calls=[ToolCall(c.id, c.name, c.arguments) for c in self._calls],
            token_ids=self._token_ids or None,
            logprobs=self._logprobs or None,
            prompt_token_ids=self._prompt_ids,
        )

    def _reasoned(self) -> bool:
        return bool(self._usage and self._usage.reasoning_tokens) or any(self._reasoning)

    def _empty(self, finish_reason: str | None) -> EmptyReply:
        details = f'finish_reason={finish_reason!r}, stop words: {self._stop_words}'
        said = 'The model said nothing'
        if finish_reason == 'content_filter':
            hint = "The provider's filter took the reply: ask differently."
        elif finish_reason == 'refusal':
            hint = 'It refused: ask differently.'
        elif self._reasoned():
            spent = self._usage.reasoning_tokens if self._usage else 0
            said = 'The model only reasoned' + (f', {many(spent, "token")}' if spent else '')
            hint = 'Ask for less reasoning, or ask again.'
            if finish_reason == 'length':
                hint = 'It reached its limit: raise max_new_tokens, or ask for less reasoning.'
        elif finish_reason == 'length':
            hint = 'It reached its limit, what it reasoned unseen included: raise max_new_tokens.'
        else:
            hint = 'Check that no stop word is what the reply begins with.'
        return EmptyReply(
            f'{said} ({details}). {hint}',
            finish_reason=finish_reason,
            usage=self._usage,
        )


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _ids(value: Any) -> list[int]:
    return [token for token in value if isinstance(token, int)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    """The text of a field that may be missing, null, or a list of parts."""
    if isinstance(value, str):
        return value
    return ''.join(_text(part.get('text')) for part in _dicts(value))


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _count(value: Any, name: str) -> int:
    count = _field(value, name)
    return count if isinstance(count, int) else 0


def _usage(value: Any) -> Usage | None:
    if not isinstance(value, dict):
        return None
    return Usage(
        prompt_tokens=_count(value, 'prompt_tokens'),
        completion_tokens=_count(value, 'completion_tokens'),
        cached_tokens=_count(value.get('prompt_tokens_details'), 'cached_tokens'),
        reasoning_tokens=_count(value.get('completion_tokens_details'), 'reasoning_tokens'),
    )


def _shown(value: Any) -> str:
    return f'{type(value).__name__} {str(value)[:80]!r}'
