"""What is sent to an OpenAI-compatible server: InternLM's parameters in the protocol's words."""

import json
from typing import Any

from lagent.llms.base_llm import Message

_REASONING_FAMILIES = ('o1', 'o3', 'o4', 'gpt-5')
_CLAUDE = 'claude'


def request_body(
    model: str, dialog: str | list[Message], params: dict[str, Any], *, json_mode: bool = False
) -> dict[str, Any]:
    """Build the body of a chat-completions request.

    Args:
        model: the model's name.
        dialog: messages as the template parser wrote them, or a text to send as the user's.
        params: generation parameters under InternLM's names; others go along as they are. What
            is None is left out: a server's default is then its own.
        json_mode: ask for a JSON object.

    Returns:
        The body. Parameters that the protocol or the model's family lacks are not in it.
    """
    rest = dict(params)
    max_new_tokens = rest.pop('max_new_tokens', None)
    stops = [stop for stop in rest.pop('stop_words', None) or () if stop]
    penalty = rest.pop('repetition_penalty', None)
    for unknown in ('top_k', 'skip_special_tokens', 'session_id', 'session_ids'):
        rest.pop(unknown, None)
    if isinstance(dialog, str):
        dialog = [{'role': 'user', 'content': dialog}]
    body = {'model': model, 'messages': [_wire_message(m) for m in dialog], 'n': 1}
    name = model.lower().rpartition('/')[2]  # routers put a provider before it
    if name.startswith(_REASONING_FAMILIES):
        # These refuse to be sampled differently, and count their reasoning.
        for refused in ('temperature', 'top_p'):
            rest.pop(refused, None)
        body['max_completion_tokens'] = max_new_tokens
    else:
        if name.startswith(_CLAUDE):  # it takes one of the two
            rest.pop('top_p', None)
        body |= {'max_tokens': max_new_tokens, 'stop': stops or None, 'frequency_penalty': penalty}
    if json_mode:
        body['response_format'] = {'type': 'json_object'}
    return {key: value for key, value in (body | rest).items() if value is not None}


def _wire_message(message: Message) -> Message:
    message = {name: value for name, value in message.items() if name != 'thinking_blocks'}
    content = message.get('content')
    if content is None:
        # Only a message that calls tools may come without content.
        return message if message.get('tool_calls') else {**message, 'content': ''}
    if isinstance(content, str):
        return message
    if isinstance(content, list):
        return {**message, 'content': [_wire_part(part) for part in content]}
    return {**message, 'content': json.dumps(content, ensure_ascii=False, default=str)}


def _wire_part(part: Any) -> Any:
    """A part of a message's content; an image in Anthropic's format becomes one in OpenAI's."""
    source = part.get('source') if isinstance(part, dict) and part.get('type') == 'image' else None
    if not isinstance(source, dict):
        return part
    url = source.get('url') or f'data:{source.get("media_type")};base64,{source.get("data")}'
    return {'type': 'image_url', 'image_url': {'url': url}}
