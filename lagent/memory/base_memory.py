"""The messages of one session."""

from collections.abc import Callable, Sequence
from typing import Any

from lagent.memory.saved import dump, restore
from lagent.schema import AgentMessage


class Memory:
    """The messages of one session, oldest first.

    Attributes:
        memory: the messages.
        recent_n: how many of them `get_memory` gives when it is not told; None or 0 for all.

    Raises:
        ValueError: `recent_n` is negative.
    """

    def __init__(self, recent_n: int | None = None) -> None:
        _check(recent_n)
        self.memory: list[AgentMessage] = []
        self.recent_n = recent_n

    def __repr__(self) -> str:
        return f'{type(self).__name__}(messages={len(self.memory)}, recent_n={self.recent_n})'

    def get_memory(
        self,
        recent_n: int | None = None,
        filter_func: Callable[[int, AgentMessage], bool] | None = None,
    ) -> list[AgentMessage]:
        """The last messages.

        Args:
            recent_n: how many; the constructor's number when None or 0, as in InternLM's.
            filter_func: keeps the messages for which it is true; called with the index inside the
                slice and the message.

        Returns:
            A new list of the stored messages.

        Raises:
            ValueError: `recent_n` is negative.
        """
        _check(recent_n)
        recent_n = recent_n or self.recent_n
        memory = self.memory[-recent_n:] if recent_n else self.memory[:]
        if filter_func is not None:
            memory = [message for i, message in enumerate(memory) if filter_func(i, message)]
        return memory

    def add(self, memories: str | AgentMessage | Sequence[str | AgentMessage] | None) -> None:
        """Remember messages.

        Args:
            memories: one or several; a str is a message from the user. Anything else is ignored.
        """
        if not isinstance(memories, list | tuple):
            memories = [memories]  # type: ignore[list-item]
        for memory in memories:
            if isinstance(memory, str):
                self.memory.append(AgentMessage(sender='user', content=memory))
            elif isinstance(memory, AgentMessage):
                self.memory.append(memory)

    def delete(self, index: int | Sequence[int]) -> None:
        """Forget messages.

        Args:
            index: position or positions, as they are before the call; negative from the end.

        Raises:
            IndexError: a position does not exist; nothing is deleted.
        """
        indices = [index] if isinstance(index, int) else index
        kept = range(len(self.memory))
        for position in sorted({kept[i] for i in indices}, reverse=True):
            del self.memory[position]

    def load(
        self,
        memories: str | dict[str, Any] | AgentMessage | Sequence[dict[str, Any] | AgentMessage],
        overwrite: bool = True,
    ) -> None:
        """Take over messages that `save` gave.

        Args:
            memories: one or several messages, as dicts of fields (missing ones take their default)
                or as they are.
            overwrite: whether they replace what is there, or are added to it.

        Raises:
            TypeError: something else was given; nothing is changed.
            pydantic.ValidationError: a dict is no message; nothing is changed.
        """
        items = memories if isinstance(memories, list | tuple) else [memories]
        loaded = [_message(item) for item in items]
        self.memory = loaded if overwrite else [*self.memory, *loaded]

    def save(self) -> list[dict[str, Any]]:
        """The messages as dicts.

        Returns:
            One dict of fields a message; enums stay enums, and JSON writes them as numbers. A
            message whose content or `formatted` is a dataclass or a pydantic model, or whose
            content is a `Completion`, has one more entry, ``types``, with which `load` makes such
            objects again.
        """
        return [dump(message) for message in self.memory[:]]


def _message(item: Any) -> AgentMessage:
    if isinstance(item, AgentMessage):
        return item
    if isinstance(item, dict):
        return restore(item)
    raise TypeError(f'a message or a dict of its fields is needed, got {type(item).__name__}')


def _check(recent_n: int | None) -> None:
    if recent_n is not None and recent_n < 0:
        raise ValueError(f'recent_n must not be negative: {recent_n}')
