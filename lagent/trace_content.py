"""What was said, as the conventions for generative AI write it, without secrets."""

import json
from typing import Any

from lagent.events import json_value
from lagent.journal.codec import Decoder, Encoder
from lagent.journal.errors import NotReadable, NotRecordable
from lagent.journal.redact import Redactor

Message = dict[str, Any]


def input_messages(payload: Any) -> list[Message]:
    """What a model was asked.

    Args:
        payload: a dialog, a text, token ids, or a list of those.

    Returns:
        Messages of parts.
    """
    if isinstance(payload, list) and payload and all(isinstance(each, dict) for each in payload):
        return [_message(each) for each in payload]
    return [{'role': 'user', 'parts': [_text(payload)]}]


def output_messages(result: Any) -> list[Message]:
    """What a model said.

    Args:
        result: its reply, or replies.

    Returns:
        A message of parts for each.
    """
    replies = result if isinstance(result, list) else [result]
    return [_reply(reply) for reply in replies]


def redacted_json(value: Any, redactor: Redactor) -> str:
    """A value as JSON, cleaned by the rules by which a journal cleans what it writes.

    Args:
        value: any value; what a journal could not keep is written as its `str`.
        redactor: the rules.

    Returns:
        The JSON text.
    """
    try:
        clean = _clean(value, redactor)
    except (NotRecordable, NotReadable):
        try:
            # Texts in the same shape, so that fields are still known by their names.
            clean = _clean(json_value(value), redactor)
        except (NotRecordable, RecursionError):
            clean = redactor.text(str(value))
    return json.dumps(json_value(clean))


def _clean(value: Any, redactor: Redactor) -> Any:
    encoder = Encoder(redactor, plain=True)
    tree = encoder.encode(value)
    return Decoder(encoder.blobs.__getitem__).decode(tree)


def _message(message: Message) -> Message:
    parts: list[Message] = []
    content = message.get('content')
    if message.get('role') == 'tool':
        id_ = message.get('tool_call_id')
        return {
            'role': 'tool',
            'parts': [{'type': 'tool_call_response', 'id': id_, 'response': content}],
        }
    if isinstance(content, list):
        parts += [
            _text(part['text']) if set(part) == {'type', 'text'} else part for part in content
        ]
    elif content:
        parts.append(_text(content))
    for asked in message.get('tool_calls') or ():
        function = asked.get('function', {})
        parts.append(_call(asked.get('id'), function.get('name'), function.get('arguments')))
    return {'role': message.get('role', 'user'), 'parts': parts}


def _reply(reply: Any) -> Message:
    parts: list[Message] = []
    if reasoning := getattr(reply, 'reasoning', None):
        parts.append({'type': 'reasoning', 'content': reasoning})
    if reply:
        parts.append(_text(reply))
    calls = getattr(reply, 'tool_calls', ())
    parts += [_call(asked.id, asked.name, asked.arguments) for asked in calls]
    reason = getattr(reply, 'finish_reason', None)
    return {'role': 'assistant', 'parts': parts, 'finish_reason': reason or 'unknown'}


def _call(id_: Any, name: Any, arguments: Any) -> Message:
    return {'type': 'tool_call', 'id': id_, 'name': name, 'arguments': arguments}


def _text(content: Any) -> Message:
    return {'type': 'text', 'content': content}
