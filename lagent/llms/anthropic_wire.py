"""Anthropic's Messages protocol: what is sent, and what comes back."""

import json
import re
from contextlib import suppress
from typing import Any

from lagent.llms.base_llm import Message
from lagent.llms.completion import Completion
from lagent.llms.errors import ModelCallFailed, QuotaExhausted
from lagent.llms.http_errors import error_of_status
from lagent.llms.openai_reply import ReplyBuilder

_NOT_SENT = ('repetition_penalty', 'skip_special_tokens', 'session_id', 'session_ids')
_THOUGHT = ('thinking', 'signature', 'data')  # what a block of thinking consists of
_DATA_URL = re.compile(r'data:(?P<media_type>[\w.+-]+/[\w.+-]+);base64,(?P<data>.*)', re.DOTALL)
_FINISH_REASONS = {
    'end_turn': 'stop',
    'stop_sequence': 'stop',
    'max_tokens': 'length',
    'model_context_window_exceeded': 'length',
    'tool_use': 'tool_calls',
}
# The status that an error has when it is not sent inside a stream.
_STATUS = {
    'invalid_request_error': 400,
    'authentication_error': 401,
    'billing_error': 402,
    'permission_error': 403,
    'not_found_error': 404,
    'request_too_large': 413,
    'rate_limit_error': 429,
    'api_error': 500,
    'timeout_error': 504,
    'overloaded_error': 529,
}


def messages_body(
    model: str, dialog: str | list[Message], params: dict[str, Any]
) -> dict[str, Any]:
    """Build the body of a request.

    Args:
        model: the model's name.
        dialog: messages as the template parser wrote them, or a text to send as the user's.
        params: generation parameters under InternLM's names; others go along as they are, tools
            also in OpenAI's format. What is None is left out.

    Returns:
        The body. What the system says is apart, wherever in the dialog it was said; neighbours of
        one role are one message; what a tool answered is the user's.
    """
    if isinstance(dialog, str):
        dialog = [{'role': 'user', 'content': dialog}]
    system: list[dict[str, Any]] = []
    messages: list[Message] = []
    for message in dialog:
        blocks = _blocks(message)
        if message['role'] in ('system', 'developer'):
            system += blocks
            continue
        role = 'assistant' if message['role'] == 'assistant' else 'user'
        if messages and messages[-1]['role'] == role:
            messages[-1]['content'] += blocks
        elif blocks:  # an empty message is refused
            messages.append({'role': role, 'content': blocks})
    if messages and messages[-1]['role'] == 'assistant':
        _strip_end(messages[-1]['content'])
    rest = {name: value for name, value in params.items() if name not in _NOT_SENT}
    # Stop words of white space are refused; they still end the reply, on this side.
    stops = [stop for stop in rest.pop('stop_words', None) or () if stop.strip()]
    body = {
        'model': model,
        'messages': messages,
        'system': system or None,
        'max_tokens': rest.pop('max_new_tokens'),
        'stop_sequences': stops or None,
        **rest,
    }
    if body.get('tools'):
        body['tools'] = [_tool(tool) for tool in body['tools']]
    if 'tool_choice' in body:
        body['tool_choice'] = _tool_choice(body['tool_choice'])
    return {name: value for name, value in body.items() if value is not None}


def _blocks(message: Message) -> list[dict[str, Any]]:
    content = message.get('content')
    if message['role'] == 'tool':
        answer = {'type': 'tool_result', 'tool_use_id': message.get('tool_call_id')}
        return [{**answer, 'content': _parts(content)}]
    thought = list(message.get('thinking_blocks') or ())
    calls = [_tool_use(call) for call in message.get('tool_calls') or ()]
    return thought + _parts(content) + calls


def _parts(content: Any) -> list[dict[str, Any]]:
    if content is None:
        return []
    if not isinstance(content, str | list):
        content = json.dumps(content, ensure_ascii=False, default=str)
    if isinstance(content, str):
        content = [{'type': 'text', 'text': str(content)}]
    parts = [_part(part) for part in content]
    return [part for part in parts if part.get('type') != 'text' or part['text'].strip()]


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, str):
        return {'type': 'text', 'text': part}
    if part.get('type') != 'image_url':
        return dict(part)
    image = part['image_url']
    url = image if isinstance(image, str) else image['url']
    encoded = _DATA_URL.fullmatch(url)
    source = {'type': 'base64', **encoded.groupdict()} if encoded else {'type': 'url', 'url': url}
    return {'type': 'image', 'source': source}


def _strip_end(blocks: list[dict[str, Any]]) -> None:
    """Take the white space from the end of a reply's beginning, which may not have any."""
    if blocks[-1].get('type') == 'text':
        blocks[-1] = {**blocks[-1], 'text': blocks[-1]['text'].rstrip()}


def _tool_use(call: dict[str, Any]) -> dict[str, Any]:
    function = call['function']
    arguments = function.get('arguments') or '{}'
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):
            arguments = json.loads(arguments)
    if not isinstance(arguments, dict):  # which is all that a server takes
        arguments = {'arguments': arguments}
    return {'type': 'tool_use', 'id': call['id'], 'name': function['name'], 'input': arguments}


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool.get('function')
    if tool.get('type') != 'function' or function is None:
        return tool
    described = {'name': function['name'], 'description': function.get('description', '')}
    return {**described, 'input_schema': function.get('parameters') or {'type': 'object'}}


def _tool_choice(choice: Any) -> Any:
    if isinstance(choice, str):
        return {'type': {'required': 'any'}.get(choice, choice)}
    if isinstance(choice, dict) and choice.get('type') == 'function':
        return {'type': 'tool', 'name': choice['function']['name']}
    return choice


class MessageBuilder(ReplyBuilder):
    """A `ReplyBuilder` that reads Anthropic's messages, and the events of their streams.

    Args:
        stop_words: texts that end the reply.
    """

    def __init__(self, stop_words: list[str] | None = None) -> None:
        super().__init__(stop_words)
        self._counts: dict[str, Any] = {}
        self._thoughts: list[tuple[Any, dict[str, str]]] = []  # with the index of the block

    def is_reply(self, data: Any) -> bool:
        """Whether a document has the form of a whole message, see `ReplyBuilder.is_reply`."""
        return isinstance(data, dict) and data.get('type') in ('message', 'error')

    def feed(self, data: Any) -> str:
        """Take a whole message, or the next event of a streamed one.

        Args:
            data: the decoded JSON.

        Returns:
            The text that it adds.

        Raises:
            BadReply: it is not what the protocol says.
            ModelCallFailed: it is an error; the subclass says which.
        """
        if not isinstance(data, dict):
            return super().feed(data)
        kind = data.get('type')
        if kind == 'error':
            raise error_in(data)
        if kind == 'message_stop':
            self.ended = True
        event = _dict(data.get('message')) if kind == 'message_start' else data
        self._counts |= {name: n for name, n in _dict(event.get('usage')).items() if n is not None}
        chunk: dict[str, Any] = {'choices': self._choices(kind, event), 'usage': self._usage_of()}
        return super().feed(chunk)

    def _choices(self, kind: Any, event: dict[str, Any]) -> list[dict[str, Any]]:
        """The event in the words of the protocol that `ReplyBuilder` reads."""
        index = event.get('index')
        if kind in ('content_block_start', 'content_block_delta'):
            part = _dict(event.get('content_block' if kind.endswith('start') else 'delta'))
            self._keep_thought(part, index)
            return [{'delta': _delta(part, index)}]
        if kind == 'message_delta':
            return [_end(_dict(event.get('delta')))]
        content = event.get('content') if kind == 'message' else None
        if not isinstance(content, list):
            return []
        for n, block in enumerate(content):
            self._keep_thought(_dict(block), n)
        return [*({'delta': _delta(block, n)} for n, block in enumerate(content)), _end(event)]

    def _keep_thought(self, part: dict[str, Any], index: Any) -> None:
        """Keep a block of thinking, or what is added to one, as it is to go back."""
        kind = part.get('type')
        texts = {name: part[name] for name in _THOUGHT if isinstance(part.get(name), str)}
        if kind in ('thinking', 'redacted_thinking'):
            self._thoughts.append((index, {'type': kind, **texts}))
        elif kind in ('thinking_delta', 'signature_delta') and self._thoughts:
            begun, block = self._thoughts[-1]
            if begun == index:
                for name, text in texts.items():
                    block[name] = block.get(name, '') + text

    def _usage_of(self) -> dict[str, Any] | None:
        if not self._counts:
            return None
        prompt = ('input_tokens', 'cache_creation_input_tokens', 'cache_read_input_tokens')
        details = _dict(self._counts.get('output_tokens_details'))
        return {
            'prompt_tokens': sum(self._count(name) for name in prompt),
            'completion_tokens': self._count('output_tokens'),
            'prompt_tokens_details': {'cached_tokens': self._count('cache_read_input_tokens')},
            'completion_tokens_details': {'reasoning_tokens': details.get('thinking_tokens')},
        }

    def _count(self, name: str) -> int:
        count = self._counts.get(name)
        return count if isinstance(count, int) else 0

    def _reasoned(self) -> bool:
        return bool(self._thoughts) or super()._reasoned()  # the text of a thought may be withheld

    def finish(self, *, complete: bool) -> tuple[str, Completion]:
        """End the reply, see `ReplyBuilder.finish`."""
        for call in self._calls:
            call.arguments = call.arguments or '{}'  # a call without arguments streams none
        rest, reply = super().finish(complete=complete)
        # Without its signature a block is refused.
        reply.thinking_blocks = tuple(
            block for _, block in self._thoughts if block.get('signature') or 'data' in block
        )
        return rest, reply


def _delta(block: Any, index: Any) -> dict[str, Any]:
    """A block of content, or what is added to one."""
    block = _dict(block)
    kind = block.get('type')
    if kind in ('text', 'text_delta'):
        return {'content': block.get('text')}
    if kind in ('thinking', 'thinking_delta'):
        return {'reasoning_content': block.get('thinking')}
    if kind == 'tool_use':
        function = {'name': block.get('name'), 'arguments': block.get('input') or ''}
        return {'tool_calls': [{'index': index, 'id': block.get('id'), 'function': function}]}
    if kind == 'input_json_delta':
        function = {'arguments': block.get('partial_json')}
        return {'tool_calls': [{'index': index, 'function': function}]}
    return {}


def _end(event: dict[str, Any]) -> dict[str, Any]:
    reason = event.get('stop_reason')
    details = _dict(event.get('stop_details'))
    return {
        'delta': {'refusal': details.get('explanation') if reason == 'refusal' else None},
        'finish_reason': _FINISH_REASONS.get(reason, reason) if isinstance(reason, str) else None,
        'stop_reason': event.get('stop_sequence'),
    }


def error_in(data: dict[str, Any]) -> ModelCallFailed:
    """What an error inside a stream means to a caller.

    Args:
        data: the event.

    Returns:
        The typed error.
    """
    fields = _dict(data.get('error'))
    status = _STATUS.get(str(fields.get('type')))
    return out_of_credit(error_of_status(status, fields, str(data)), fields)


def out_of_credit(error: ModelCallFailed, body: Any) -> ModelCallFailed:
    """Recognize that a key has no credit left, for which there is no code.

    Args:
        error: the error as its status types it.
        body: the decoded error.

    Returns:
        `QuotaExhausted` if that is what it says, else the error.
    """
    if error.status == 402 or 'credit balance is too low' in str(_dict(body).get('message')):
        return QuotaExhausted(str(error), status=error.status)
    return error


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
