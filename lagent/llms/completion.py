"""What a model gives back: a text that knows how it came about."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that a call cost.

    Attributes:
        prompt_tokens: tokens sent, cached ones included.
        completion_tokens: tokens received, reasoning included.
        cached_tokens: tokens of the prompt that the provider had cached.
        reasoning_tokens: tokens of the completion that were reasoning.
        attempts: requests that were made for one reply, failed ones included.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    attempts: int = 1

    @property
    def total_tokens(self) -> int:
        """Prompt and completion, together."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: 'Usage') -> 'Usage':
        return Usage(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Usage)))


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asks for in its provider's own format.

    Attributes:
        id: what the answer must refer to.
        name: the tool.
        arguments: the arguments as the model wrote them, usually JSON.
    """

    id: str
    name: str
    arguments: str


_FIELDS = (
    'finish_reason',
    'stop_reason',
    'usage',
    'reasoning',
    'tool_calls',
    'thinking_blocks',
    'token_ids',
    'logprobs',
    'prompt_token_ids',
    'latency',
)


class Completion(str):
    """A model's reply: a `str`, with what the provider said about it.

    Everything that takes a text takes a completion. Methods of `str` give plain strings;
    `replace_text` gives a completion with another text.

    Attributes:
        finish_reason: ``'stop'`` (the model ended, or wrote a stop word), ``'length'`` (it was
            cut), ``'tool_calls'``, ``'content_filter'``, ``'refusal'``, a provider's own word, or
            None where nothing is known.
        stop_reason: the stop word that ended the reply, or the id of a stop token.
        usage: tokens that it cost, or None where they are not known.
        reasoning: what the model thought before it answered, where the provider separates it.
        tool_calls: calls in the provider's own format, in order.
        thinking_blocks: the reasoning in Anthropic's own blocks, with their signatures. They go
            back with the calls, so that a model can go on from what it thought.
        token_ids: ids of the generated tokens, where the engine gives them.
        logprobs: log probability of each generated token, where it was asked for.
        prompt_token_ids: ids of the tokens that were continued, where they were asked for
            (``return_token_ids=True``).
        latency: seconds from asking to the whole reply, retries included.
    """

    __slots__ = _FIELDS

    finish_reason: str | None
    stop_reason: str | int | None
    usage: Usage | None
    reasoning: str | None
    tool_calls: tuple[ToolCall, ...]
    thinking_blocks: tuple[dict[str, Any], ...]
    token_ids: tuple[int, ...] | None
    logprobs: tuple[float, ...] | None
    prompt_token_ids: tuple[int, ...] | None
    latency: float | None

    def __new__(
        cls,
        text: str = '',
        *,
        finish_reason: str | None = 'stop',
        stop_reason: str | int | None = None,
        usage: Usage | None = None,
        reasoning: str | None = None,
        tool_calls: Iterable[ToolCall] = (),
        thinking_blocks: Iterable[dict[str, Any]] = (),
        token_ids: Iterable[int] | None = None,
        logprobs: Iterable[float] | None = None,
        prompt_token_ids: Iterable[int] | None = None,
        latency: float | None = None,
    ) -> Self:
        """Make a completion; all but the text are keywords."""
        self = super().__new__(cls, text)
        self.finish_reason = finish_reason
        self.stop_reason = stop_reason
        self.usage = usage
        self.reasoning = reasoning
        self.tool_calls = tuple(tool_calls)
        self.thinking_blocks = tuple(thinking_blocks)
        self.token_ids = None if token_ids is None else tuple(token_ids)
        self.logprobs = None if logprobs is None else tuple(logprobs)
        self.prompt_token_ids = None if prompt_token_ids is None else tuple(prompt_token_ids)
        self.latency = latency
        return self

    @property
    def text(self) -> str:
        """The reply as a plain `str`."""
        return str(self)

    def replace_text(self, text: str) -> Self:
        """The same reply with another text.

        Args:
            text: the new text.

        Returns:
            A new completion; this one is unchanged. Where the text is really another one, it has
            no `prompt_token_ids`: a model would go on from the tokens of the old text.
        """
        fields = self._fields()
        if text != self:
            fields['prompt_token_ids'] = None
        return type(self)(text, **fields)

    def said(self) -> dict[str, Any]:
        """What is known beside the text, by the names of the attributes.

        Returns:
            What `Completion` takes beside the text: what holds something, and `finish_reason`,
            whose None is not its default.
        """
        fields = self._fields()
        known = {name: value for name, value in fields.items() if value not in (None, ())}
        return {'finish_reason': self.finish_reason, **known}

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _FIELDS}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Nobody changes what it holds, and that may be as long as a conversation. A loop over the
        # names takes four times as long.
        copied = str.__new__(type(self), self)
        copied.finish_reason = self.finish_reason
        copied.stop_reason = self.stop_reason
        copied.usage = self.usage
        copied.reasoning = self.reasoning
        copied.tool_calls = self.tool_calls
        copied.thinking_blocks = self.thinking_blocks
        copied.token_ids = self.token_ids
        copied.logprobs = self.logprobs
        copied.prompt_token_ids = self.prompt_token_ids
        copied.latency = self.latency
        return copied

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:
        return (str(self),), self._fields()

    def __getstate__(self) -> None:
        return None  # all of it goes through __new__
