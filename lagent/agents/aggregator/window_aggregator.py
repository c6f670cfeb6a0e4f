"""A conversation that fits into a number of tokens."""

import bisect
import json
from collections.abc import Callable, Sequence
from typing import Any

from lagent.agents.aggregator.default_aggregator import DefaultAggregator
from lagent.memory import Memory
from lagent.schema import AgentMessage
from lagent.utils import create_object
from lagent.view.tokens import Tokenizer, counted

PER_MESSAGE = 4  # tokens that a message costs beside its text, about
PER_MEDIUM = 1_000  # tokens of an image or another part that is no text, about

AGGREGATOR: dict[str, Any] = {'type': DefaultAggregator}


def is_pinned(message: AgentMessage) -> bool:
    """Whether a message must stay: its `extra_info` says ``{'pinned': True}``.

    Args:
        message: a message.

    Returns:
        True if it must.
    """
    info = message.extra_info
    return isinstance(info, dict) and bool(info.get('pinned'))


class TokenWindowAggregator:
    """Leaves out the oldest messages until the rest fits into a budget.

    What another aggregator writes is what is counted. Instructions, pinned messages, the last
    question and the last reply with its results always stay, even where they alone are more than
    the budget: then the model has the last word. A reply and what was answered to it, such as the
    results of its tool calls, stay or go together, and so does a question with all that followed
    it, up to the next one. The same memory always gives the same window.

    Args:
        budget: tokens that the messages may have together.
        tokenizer: gives the tokens of a text, or their number, such as ``llm.tokenize``; without
            one, they are estimated.
        aggregator: writes the messages, or its configuration dict.
        pinned: whether a message must stay.
        user_names: senders whose messages are questions.

    Raises:
        ValueError: the budget is not positive.
    """

    def __init__(
        self,
        budget: int,
        tokenizer: Tokenizer | None = None,
        aggregator: Any = AGGREGATOR,
        pinned: Callable[[AgentMessage], bool] = is_pinned,
        user_names: Sequence[str] = ('user',),
    ) -> None:
        if budget <= 0:
            raise ValueError(f'the budget must be positive: {budget}')
        self.budget = budget
        self.tokenizer = tokenizer
        self.aggregator = create_object(aggregator)
        self.pinned = pinned
        self.user_names = tuple(user_names)

    def aggregate(
        self,
        messages: Memory,
        name: str | None,
        parser: Any = None,
        system_instruction: Any = None,
    ) -> list[dict[str, Any]]:
        """The messages that a model is given.

        Args:
            messages: the session's memory.
            name: sender of the assistant's messages.
            parser: the agent's output parser.
            system_instruction: the agent's template.

        Returns:
            What the inner aggregator writes for as much of the memory as fits.
        """
        history = messages.get_memory()
        steps = self._steps(history, name)

        def written(count: int) -> list[dict[str, Any]]:
            dropped = {position for step in steps[:count] for position in step}
            view = Memory()
            view.load([one for position, one in enumerate(history) if position not in dropped])
            chat: list[dict[str, Any]] = self.aggregator.aggregate(
                view, name, parser, system_instruction
            )
            return chat

        def fits(count: int) -> bool:
            return self.count(written(count)) <= self.budget

        # The more is left out, the less there is: the first number of steps that fits is wanted.
        enough = bisect.bisect_left(range(len(steps)), True, key=fits)
        return written(enough)

    def count(self, chat: Sequence[dict[str, Any]]) -> int:
        """The number of tokens of messages.

        Args:
            chat: dicts with ``role`` and ``content``.

        Returns:
            The tokens of their texts and calls, and an estimate for the rest.
        """
        return sum(PER_MESSAGE + self._content(message) for message in chat)

    def _content(self, message: dict[str, Any]) -> int:
        content = message.get('content')
        parts = content if isinstance(content, list) else [content]
        total = 0
        for part in parts:
            if isinstance(part, dict) and part.get('type') in ('image', 'image_url', 'input_audio'):
                total += PER_MEDIUM
            elif isinstance(part, dict) and set(part) == {'type', 'text'}:
                total += counted(self.tokenizer, str(part['text']))
            elif part is not None:
                total += counted(self.tokenizer, part if isinstance(part, str) else _as_text(part))
        if message.get('tool_calls'):
            total += counted(self.tokenizer, _as_text(message['tool_calls']))
        return total

    def _steps(self, history: list[AgentMessage], name: str | None) -> list[list[int]]:
        """Positions that may be left out, in order; those of one step go together."""
        exchanges: list[list[list[int]]] = []
        for position, message in enumerate(history):
            is_question = message.sender in self.user_names
            if is_question or not exchanges:
                exchanges.append([[position]])
            elif message.sender == name:
                exchanges[-1].append([position])
            else:
                exchanges[-1][-1].append(position)
        if not exchanges:
            return []
        *earlier, current = exchanges
        steps = [
            [position for unit in exchange if not self._stays(unit, history) for position in unit]
            for exchange in earlier
        ]
        steps += [unit for unit in current[1:-1] if not self._stays(unit, history)]
        return [step for step in steps if step]

    def _stays(self, unit: list[int], history: list[AgentMessage]) -> bool:
        return any(self.pinned(history[position]) for position in unit)


def _as_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
