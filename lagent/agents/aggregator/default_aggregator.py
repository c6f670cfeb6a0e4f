"""The plain conversation: own messages are the assistant's, all others the user's."""

import copy
from typing import Any

from lagent.memory import Memory
from lagent.utils.copies import copy_messages, copy_value


class DefaultAggregator:
    """Turns a memory into a chat of system, user and assistant messages."""

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
            parser: the agent's output parser; not used here.
            system_instruction: see `aggregate_system_intruction`.

        Returns:
            Dicts with ``role`` and ``content``. Neighbouring user messages are joined without a
            separator. Nothing of the memory or the instruction is shared with the result.
        """
        chat: list[dict[str, Any]] = []
        if system_instruction:
            chat.extend(self.aggregate_system_intruction(system_instruction))
        for message in messages.get_memory():
            content = message.content
            if message.sender == name:
                chat.append({'role': 'assistant', 'content': said(content)})
            elif chat and chat[-1]['role'] == 'user':
                chat[-1]['content'] = _joined(chat[-1]['content'], content)
            else:
                copied = content if type(content) is str else copy_value(content)
                chat.append({'role': 'user', 'content': copied})
        return chat

    @staticmethod
    def aggregate_system_intruction(system_intruction: Any) -> list[dict[str, Any]]:
        """A template as a list of messages (the spelling is InternLM's).

        Args:
            system_intruction: a text, which becomes a system message; a message dict; a list of
                them; or a `PromptTemplate` without open fields.

        Returns:
            New message dicts.

        Raises:
            TypeError: an item is no dict.
            KeyError: an item has no ``role`` or no ``content``.
        """
        if hasattr(system_intruction, 'format') and not isinstance(system_intruction, str):
            system_intruction = system_intruction.format()
        if isinstance(system_intruction, str):
            return [{'role': 'system', 'content': system_intruction}]
        if isinstance(system_intruction, dict):
            system_intruction = [system_intruction]
        if not isinstance(system_intruction, list | tuple):
            raise TypeError(
                'a template is a text, a message dict or a list of them, '
                f'not {type(system_intruction).__name__}'
            )
        for item in system_intruction:
            if not isinstance(item, dict):
                raise TypeError(f'a message of a template is a dict, not {type(item).__name__}')
            if missing := {'role', 'content'} - item.keys():
                raise KeyError(f'a message of a template needs {sorted(missing)}: {item!r}')
        return copy_messages(list(system_intruction))  # type: ignore[no-any-return]


def said(content: Any) -> str:
    """What a model said, as a plain text.

    Args:
        content: content of one of its messages.

    Returns:
        The text; a `Completion` with the ids of its prompt stays one, for models that continue it
        token by token.
    """
    if type(content) is str or getattr(content, 'prompt_token_ids', None) is not None:
        return content  # type: ignore[no-any-return]
    return str(content)


def _joined(first: Any, second: Any) -> Any:
    if isinstance(first, list) or isinstance(second, list):
        return [*_parts(first), *_parts(second)]
    return f'{first}{second}'


def _parts(content: Any) -> list[Any]:
    if isinstance(content, list):
        return copy.deepcopy(content)
    return [{'type': 'text', 'text': str(content)}]
