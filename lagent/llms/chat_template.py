"""Dialogs for models whose tokenizer brings a chat template."""

import json
from dataclasses import dataclass
from typing import Any

from lagent.llms.base_llm import Message
from lagent.llms.errors import BadRequest


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model continues.

    Attributes:
        token_ids: the prompt.
        opening: the end of the prompt that is part of the reply, because the reply was begun for
            the model.
    """

    token_ids: list[int]
    opening: str = ''


def has_chat_template(tokenizer: Any) -> bool:
    """Whether a tokenizer can write dialogs.

    Args:
        tokenizer: the tokenizer, or None for an engine that has none.

    Returns:
        False for the tokenizer of a base model, which has no chat template.
    """
    if not hasattr(tokenizer, 'apply_chat_template'):
        return False
    # Tokenizers without the attribute have their format built in.
    return getattr(tokenizer, 'chat_template', 'built in') is not None


def chat_prompt(tokenizer: Any, dialog: str | list[Message], prefill: str = '') -> Prompt:
    """Write a dialog with the tokenizer's chat template.

    Args:
        tokenizer: the tokenizer.
        dialog: messages; a text is the user's. When it ends with the assistant's message, the
            model continues that one.
        prefill: the beginning of the reply, where the dialog does not end so.

    Returns:
        The prompt, as token ids: a prompt that went through text once more could get its special
        tokens twice.

    Raises:
        BadRequest: a message has content that is not text.
    """
    if isinstance(dialog, str):
        dialog = [{'role': 'user', 'content': dialog}]
    messages = [_plain(message) for message in dialog]
    continued = bool(messages) and messages[-1]['role'] == 'assistant'
    opening = '' if continued else prefill
    if opening:
        messages.append({'role': 'assistant', 'content': opening})
    ids: list[int] = tokenizer.apply_chat_template(
        messages,
        tokenize=True,
        return_dict=False,
        add_generation_prompt=not (continued or opening),
        continue_final_message=bool(continued or opening),
    )
    return Prompt(ids, opening)


def _plain(message: Message) -> Message:
    """The message with its content as a text and its tool calls decoded, as templates want them."""
    plain = {**message, 'content': _content(message.get('content'))}
    if message.get('tool_calls'):
        plain['tool_calls'] = [_decoded(call) for call in message['tool_calls']]
    return plain


def _content(content: Any) -> str:
    if content is None:
        return ''
    if isinstance(content, str):
        return str(content)
    if not isinstance(content, list):
        return json.dumps(content, ensure_ascii=False, default=str)
    other = {str(part.get('type')) for part in content} - {'text'}
    if other:
        raise BadRequest(f'This model takes text only, and the message has {", ".join(other)}.')
    return '\n'.join(part['text'] for part in content)


def _decoded(call: dict[str, Any]) -> dict[str, Any]:
    function = dict(call.get('function') or {})
    try:
        function['arguments'] = json.loads(function['arguments'])
    except (KeyError, TypeError, ValueError):
        return call
    return {**call, 'function': function}
