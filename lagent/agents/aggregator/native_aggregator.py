"""The conversation with tool calls in the formats of OpenAI and of Anthropic."""

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from typing import Any, Literal

from lagent.agents.aggregator.default_aggregator import DefaultAggregator, said
from lagent.memory import Memory
from lagent.schema import ActionReturn, AgentMessage

Message = dict[str, Any]

LOST = '[no result: the call failed or was interrupted, and may have run in part]'
"""What a model is told about a call whose result never came."""

_RESULT_FIELDS = {field.name for field in fields(ActionReturn)}


class ToolCallAggregator(DefaultAggregator):
    """Writes tool calls and their results the way a provider's API wants them.

    Calls are read from what a `ToolCallParser` left in a message's `formatted`, or else from the
    completion itself. Results are those of an `ActionExecutor`, or any message that follows a
    single call. Each call gets exactly one result: one that never came, because the run failed or
    was interrupted, is made up for in words. No content is null. What one of Anthropic's models
    thought before a call goes back with it, signed as it came.

    Args:
        format: ``'openai'`` for messages of the role ``tool``; ``'anthropic'`` for blocks of the
            types ``tool_use`` and ``tool_result``.
    """

    def __init__(self, format: Literal['openai', 'anthropic'] = 'openai') -> None:  # noqa: A002
        if format not in ('openai', 'anthropic'):
            raise ValueError(f"the format is 'openai' or 'anthropic', not {format!r}")
        self.format = format

    def aggregate(
        self,
        messages: Memory,
        name: str | None,
        parser: Any = None,
        system_instruction: Any = None,
    ) -> list[Message]:
        """The messages that a model is given.

        Args:
            messages: the session's memory.
            name: sender of the assistant's messages.
            parser: the agent's output parser; not used here.
            system_instruction: see `DefaultAggregator.aggregate_system_intruction`.

        Returns:
            Instruction and conversation. Neighbouring user messages are joined by a blank line.
        """
        write = _OpenAI() if self.format == 'openai' else _Anthropic()
        if system_instruction:
            write.chat.extend(self.aggregate_system_intruction(system_instruction))
        pending: dict[str, Any] = {}  # results by the id of their call, None while there is none
        for message in messages.get_memory():
            if message.sender == name:
                write.results(pending)
                calls = _calls(message)
                pending = {call['id']: None for call in calls}
                thought = getattr(message.content, 'thinking_blocks', ()) if calls else ()
                write.assistant(said(message.content), calls, copy.deepcopy(list(thought)))
                continue
            if results := _results(message, pending):
                pending.update(results)
                continue
            write.results(pending)
            pending = {}
            write.user(message.content)
        write.results(pending)
        return write.chat


class _Writer:
    def __init__(self) -> None:
        self.chat: list[Message] = []

    def user(self, content: Any) -> None:
        content = content if isinstance(content, list) else _shown(content)
        last = self.chat[-1] if self.chat else {}
        if last.get('role') != 'user':
            self.chat.append({'role': 'user', 'content': content})
        elif isinstance(last['content'], str) and isinstance(content, str):
            last['content'] += f'\n\n{content}'
        else:
            last['content'] = [*_parts(last['content']), *_parts(content)]


class _OpenAI(_Writer):
    def assistant(self, text: str, calls: list[Message], thought: list[Message]) -> None:
        message: Message = {'role': 'assistant', 'content': text}
        if thought:
            message['thinking_blocks'] = thought
        if calls:
            message['tool_calls'] = [
                {
                    'id': call['id'],
                    'type': 'function',
                    'function': {
                        'name': call['name'],
                        'arguments': json.dumps(_arguments(call), ensure_ascii=False),
                    },
                }
                for call in calls
            ]
        self.chat.append(message)

    def results(self, results: dict[str, Any]) -> None:
        for id_, result in results.items():
            content = LOST if result is None else _shown(result)
            self.chat.append({'role': 'tool', 'tool_call_id': id_, 'content': content})


class _Anthropic(_Writer):
    def assistant(self, text: str, calls: list[Message], thought: list[Message]) -> None:
        if not calls:
            self.chat.append({'role': 'assistant', 'content': text})
            return
        blocks = list(thought)
        if text.strip():
            blocks.append({'type': 'text', 'text': text})
        blocks += [
            {'type': 'tool_use', 'id': call['id'], 'name': call['name'], 'input': _arguments(call)}
            for call in calls
        ]
        self.chat.append({'role': 'assistant', 'content': blocks})

    def results(self, results: dict[str, Any]) -> None:
        blocks = []
        for id_, result in results.items():
            content = LOST if result is None else _shown(result)
            block: Message = {'type': 'tool_result', 'tool_use_id': id_, 'content': content}
            if result is None or (isinstance(result, ActionReturn) and result.errmsg):
                block['is_error'] = True
            blocks.append(block)
        if blocks:
            self.chat.append({'role': 'user', 'content': blocks})


def _calls(message: AgentMessage) -> list[Message]:
    parsed = message.formatted
    action = parsed.get('action') if isinstance(parsed, dict) else None
    if isinstance(action, list) and all(isinstance(call, dict) and 'id' in call for call in action):
        return action
    if isinstance(parsed, dict) and 'action' in parsed:
        return []  # the parser has read the reply, and found no call to be made
    return [
        {'id': call.id, 'name': call.name, 'parameters': call.arguments}
        for call in getattr(message.content, 'tool_calls', ())
    ]


def _results(message: AgentMessage, pending: dict[str, Any]) -> dict[str, Any]:
    open_ids = [id_ for id_, result in pending.items() if result is None]
    content, info = message.content, message.extra_info
    ids = info.get('tool_call_ids') if isinstance(info, dict) else None
    if ids is None and len(open_ids) == len(pending) == 1 and message.sender != 'user':
        ids, content = open_ids, [content]
    if not isinstance(ids, list) or not isinstance(content, list):
        return {}
    pairs: Iterator[tuple[Any, Any]] = zip(ids, content, strict=False)
    return {id_: _as_result(result) for id_, result in pairs if id_ in open_ids}


def _as_result(value: Any) -> Any:
    # A list of results that went through JSON is a list of dicts.
    if isinstance(value, dict) and value.keys() == _RESULT_FIELDS:
        return ActionReturn(**value)
    return '' if value is None else value


def _shown(value: Any) -> str:
    if isinstance(value, ActionReturn):
        return value.errmsg or value.format_result()
    return '' if value is None else str(value)


def _arguments(call: Message) -> dict[str, Any]:
    """The arguments as an object: servers refuse a history in which they are anything else."""
    arguments = call['parameters']
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):
            arguments = json.loads(arguments)
    return arguments if isinstance(arguments, dict) else {'input': arguments}


def _parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{'type': 'text', 'text': content}]
