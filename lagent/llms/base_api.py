"""Models behind a chat API, and how a dialog is written for them."""

import warnings
from typing import Any

from lagent.llms.base_llm import (
    AsyncBaseLLM,
    BaseLLM,
    Dialog,
    Message,
    find_role,
    plain_text,
    roles_of,
)
from lagent.llms.retry import RetryPolicy


class APITemplateParser:
    """Writes a dialog as the messages of a chat API.

    Args:
        meta_template: one entry a role, ``{'role', 'api_role', 'begin', 'end', 'fallback_role'}``.
            `begin` and `end` are put around the content.
    """

    def __init__(self, meta_template: list[dict[str, Any]] | None = None) -> None:
        self.meta_template = meta_template
        self.roles = roles_of(meta_template)

    def __call__(self, dialog: Dialog) -> Any:
        """Write a dialog.

        Args:
            dialog: messages; or a text, which is returned unchanged.

        Returns:
            Messages with the API's roles. Neighbours of one role become one message, their
            contents joined by a newline; tool calls and their answers stay apart. Without a meta
            template, the contents as one text, a line each.

        Raises:
            KeyError: a role is not in the meta template.
        """
        if isinstance(dialog, str) or not self.roles:
            return plain_text(dialog)
        messages: list[Message] = []
        for item in dialog:
            if isinstance(item, str):
                warnings.warn(
                    f'a text between messages is not sent to a chat API: {item[:40]!r}',
                    stacklevel=2,
                )
                continue
            message = self._write(item)
            if messages and _can_join(messages[-1], message):
                messages[-1]['content'] += '\n' + message['content']
            else:
                messages.append(message)
        return messages

    def _write(self, message: Message) -> Message:
        role = find_role(self.roles, message['role'])
        content = message.get('content')
        begin, end = role.get('begin', ''), role.get('end', '')
        if (begin or end) and isinstance(content, str):
            content = f'{begin}{content}{end}'
        elif isinstance(content, str) and getattr(content, 'prompt_token_ids', None) is None:
            content = str(content)  # a plain text, so that joining works on no one's object
        return {**message, 'role': role['api_role'], 'content': content}


def _can_join(first: Message, second: Message) -> bool:
    if first['role'] != second['role']:
        return False
    protocol = {'tool_calls', 'tool_call_id'}
    return all(
        isinstance(message['content'], str) and not protocol & message.keys()
        for message in (first, second)
    )


class BaseAPILLM(BaseLLM):
    """A model behind a chat API.

    Args:
        model_type: the model's name at its provider.
        retry: how many attempts a call may make, or a whole policy.
        template_parser: see `BaseLLM`.
        meta_template: see `APITemplateParser`.
        max_new_tokens: see `BaseLLM`, as for all others; a penalty of 0 means none here.
        top_p: see `BaseLLM`.
        top_k: see `BaseLLM`; many APIs have no such parameter.
        temperature: see `BaseLLM`.
        repetition_penalty: see `BaseLLM`.
        stop_words: see `BaseLLM`.
        skip_special_tokens: leave special tokens out of the reply, where an API can.
    """

    is_api = True

    def __init__(
        self,
        model_type: str,
        retry: int | RetryPolicy = 2,
        template_parser: Any = APITemplateParser,
        meta_template: Any = None,
        *,
        max_new_tokens: int | None = 512,
        top_p: float = 0.8,
        top_k: int | None = 40,
        temperature: float = 0.8,
        repetition_penalty: float = 0.0,
        stop_words: list[str] | str | None = None,
        skip_special_tokens: bool = False,
    ) -> None:
        super().__init__(
            model_type,
            template_parser=template_parser,
            meta_template=meta_template,
            max_new_tokens=max_new_tokens,
            top_p=top_p,
            top_k=top_k,
            temperature=temperature,
            repetition_penalty=repetition_penalty,
            stop_words=stop_words,
        )
        self.gen_params['skip_special_tokens'] = skip_special_tokens
        self.model_type = model_type
        self.meta_template = meta_template
        self.retry = retry
        self.retry_policy = RetryPolicy(attempts=retry) if isinstance(retry, int) else retry


class AsyncBaseAPILLM(BaseAPILLM, AsyncBaseLLM):
    """`BaseAPILLM` for models that are awaited."""
