"""What a parser may know about a reply beside its text."""

from typing import Any, NamedTuple, Self

# Providers name the same event differently; after each of these the text may end anywhere.
_CUT = frozenset(
    {'length', 'max_tokens', 'model_length', 'content_filter', 'abort', 'error', 'incomplete'}
)


class Reply(NamedTuple):
    """A reply and how it ended.

    Attributes:
        text: the text.
        cut: whether it was cut off before the model ended it. A plain `str` counts as ended.
        stop_word: the stop word that ended it and is not in the text, or None.
        reasoning: what the model thought, where the provider separates it.
        tool_calls: calls in the provider's own format.
    """

    text: str
    cut: bool = False
    stop_word: str | None = None
    reasoning: str = ''
    tool_calls: tuple[Any, ...] = ()

    @classmethod
    def of(cls, data: str) -> Self:
        """Read a text that may carry a completion's attributes.

        Args:
            data: a `str`, or a subclass of it with some of ``finish_reason``, ``stop_reason``,
                ``reasoning`` and ``tool_calls``.

        Returns:
            What is known.
        """
        stop_reason = getattr(data, 'stop_reason', None)
        return cls(
            str(data),
            str(getattr(data, 'finish_reason', None)).lower() in _CUT,
            stop_reason if isinstance(stop_reason, str) and stop_reason else None,
            getattr(data, 'reasoning', None) or '',
            tuple(getattr(data, 'tool_calls', None) or ()),
        )
