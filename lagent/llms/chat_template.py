"""Dialogs for models whose tokenizer brings a chat template."""

import json
from dataclasses import dataclass
from typing import Any

from lagent.errors import ConfigError
from lagent.llms.base_llm import Message
from lagent.llms.completion import Completion
from lagent.llms.control_tokens import broken_up
from lagent.llms.errors import BadRequest
from lagent.schema import without_surrogates

_SAID = 'A reply that stands for another one.'


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


def as_prompt(dialog: Any) -> Prompt | None:
    """A prompt that is given as token ids, where a dialog may stand.

    Args:
        dialog: anything that a model may be asked with.

    Returns:
        The prompt of a sequence of ids, of ``{'prompt_token_ids': [...]}``, or of a `Prompt`; None
        for messages and texts.
    """
    if isinstance(dialog, Prompt):
        return dialog
    if isinstance(dialog, dict):
        dialog = dialog.get('prompt_token_ids')
    if isinstance(dialog, list | tuple) and dialog and isinstance(dialog[0], int):
        return Prompt(list(dialog))
    return None


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
    messages, opening = _open(tokenizer, dialog, prefill)
    ids: list[int] = tokenizer.apply_chat_template(
        messages, tokenize=True, return_dict=False, **_ending(messages)
    )
    return Prompt(ids, opening)


class TokenDialogs:
    """Conversations of a model in token ids, in which nothing is tokenized twice.

    Text that is tokenized again may come out as other tokens than those that a model wrote; a
    training step on them would be off policy.

    Attributes:
        tokenizer: the model's tokenizer.
        prefill: the beginning of every reply.
    """

    tokenizer: Any
    prefill: str

    def next_prompt(self, reply: Completion, messages: list[Message]) -> Prompt:
        """The prompt after a reply: its own tokens as they were, and what is said to it.

        Args:
            reply: the reply; asked for with ``return_token_ids=True``.
            messages: the messages that follow it, written with the chat template.

        Returns:
            A prompt for `chat` and `generate`. Its ids begin with those of the reply's prompt and
            of the reply.

        Raises:
            ConfigError: the reply has no ids, or the template doesn't show a reply as it is.
        """
        if reply.prompt_token_ids is None or reply.token_ids is None:
            raise ConfigError('The reply has no token ids. Ask with return_token_ids=True.')
        # The messages are written behind a reply that stands for the real one.
        said = [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': _SAID}]
        following, opening = _open(self.tokenizer, messages, self.prefill)
        text: str = self.tokenizer.apply_chat_template(
            said + following, tokenize=False, **_ending(following)
        )
        _, found, after = text.partition(_SAID)
        if not found:
            raise ConfigError('The chat template changes replies: what follows one is unknown.')
        ids: list[int] = self.tokenizer.encode(after, add_special_tokens=False)
        # A reply that came to its end has the token that ends a message already.
        if reply.token_ids and ids and reply.token_ids[-1] == ids[0]:
            ids = ids[1:]
        return Prompt([*reply.prompt_token_ids, *reply.token_ids, *ids], opening)

    def prompt_of(self, dialog: str | list[Message]) -> Prompt:
        """Write a dialog with the chat template.

        Replies that know their token ids, as those of an `Agent` do that were asked for with
        ``return_token_ids=True``, are continued as they were: as long as the dialog is the one
        that each of them answered.

        Args:
            dialog: the messages, or a text of the user's.

        Returns:
            The prompt.
        """
        if isinstance(dialog, str):
            return chat_prompt(self.tokenizer, dialog, self.prefill)
        reply: Completion | None = None
        start = 0
        for end, message in enumerate(dialog[:-1]):
            said = message.get('content')
            # What another agent's model wrote is told as the user's, and is no reply here.
            if message.get('role') != 'assistant' or not isinstance(said, Completion):
                continue
            if said.prompt_token_ids is not None and end:
                asked = tuple(self._written(reply, dialog[start:end]).token_ids)
                reply, start = (said, end + 1) if asked == said.prompt_token_ids else (None, 0)
        return self._written(reply, dialog[start:])

    def _written(self, reply: Completion | None, messages: list[Message]) -> Prompt:
        if reply is None:
            return chat_prompt(self.tokenizer, messages, self.prefill)
        return self.next_prompt(reply, messages)


def _open(tokenizer: Any, dialog: list[Message], prefill: str) -> tuple[list[Message], str]:
    """Messages as templates want them, with the reply that is begun for the model; its opening."""
    messages = broken_up(tokenizer, [_plain(message) for message in dialog])
    if not prefill or (messages and messages[-1]['role'] == 'assistant'):
        return messages, ''
    return [*messages, {'role': 'assistant', 'content': prefill}], prefill


def _ending(messages: list[Message]) -> dict[str, bool]:
    continued = bool(messages) and messages[-1]['role'] == 'assistant'
    return {'add_generation_prompt': not continued, 'continue_final_message': continued}


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
        return without_surrogates(content)  # which tokenizers refuse
    if not isinstance(content, list):
        return json.dumps(content, ensure_ascii=False, default=str)
    other = {str(part.get('type')) for part in content} - {'text'}
    if other:
        raise BadRequest(
            f'This model takes text only, and the message has {", ".join(sorted(other))}. A model '
            'that sees images is asked through its server, with VllmServer or GPTAPI.'
        )
    return without_surrogates('\n'.join(part['text'] for part in content))


def _decoded(call: dict[str, Any]) -> dict[str, Any]:
    function = dict(call.get('function') or {})
    try:
        function['arguments'] = json.loads(function['arguments'])
    except (KeyError, TypeError, ValueError, RecursionError):
        return call
    return {**call, 'function': function}
