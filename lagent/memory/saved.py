"""Messages as plain dicts, and back to what they were.

The dict of a message is that of InternLM's lagent. JSON knows no classes, so where a field holds
an object of one, its name is put beside the fields, under ``types``, which InternLM's ignores. A
`Completion` is dumped as its text; what the provider said about it is there as well.
"""

from contextlib import suppress
from dataclasses import asdict, is_dataclass
from typing import Any

from pydantic import BaseModel, TypeAdapter

from lagent.llms.completion import Completion, ToolCall, Usage
from lagent.prompts.parsers import ToolStatusCode
from lagent.schema import AgentMessage
from lagent.utils.loaded import loaded

TYPES = 'types'

_FIELDS = ('content', 'formatted', 'extra_info')
_COMPLETION = 'completion'
_PARSED = {'tool_type', 'thought', 'action', 'status'}


def dump(message: AgentMessage) -> dict[str, Any]:
    """The dict of a message.

    Args:
        message: the message.

    Returns:
        Its fields, and ``types`` where it needs them.
    """
    dumped = message.model_dump()
    types: dict[str, Any] = {
        field: f'{kind.__module__}:{kind.__qualname__}'
        for field in _FIELDS
        if _is_typed(kind := type(getattr(message, field)))
    }
    if isinstance(message.content, Completion):
        types['content'] = {_COMPLETION: _said(message.content)}
    return {**dumped, TYPES: types} if types else dumped


def restore(dumped: dict[str, Any]) -> AgentMessage:
    """The message of a dict.

    No code is imported for it: a class counts only if its module is loaded already, and only if it
    is a dataclass or a pydantic model whose fields the values fit. Otherwise the plain dict stays.

    Args:
        dumped: what `dump` gave, perhaps after a trip through JSON; missing fields take their
            default.

    Returns:
        The message.

    Raises:
        pydantic.ValidationError: it is no message.
    """
    message = AgentMessage(**dumped)
    types = dumped.get(TYPES)
    for field, name in types.items() if isinstance(types, dict) else ():
        if field in _FIELDS:
            # A state that could be saved can be loaded: what has no class any more stays plain.
            with suppress(Exception):
                setattr(message, field, _typed(name, getattr(message, field)))
    parsed = message.formatted
    if isinstance(parsed, dict) and parsed.keys() >= _PARSED:
        message.formatted = _with_status(parsed)
    return message


def _is_typed(kind: type) -> bool:
    # A class inside a function can't be found again, and a subclass such as a sandbox's result
    # that writes itself differently can't be read by its fields.
    return (
        '<' not in kind.__qualname__
        and (is_dataclass(kind) or issubclass(kind, BaseModel))
        and not hasattr(kind, 'from_dict')
    )


def _typed(name: Any, value: Any) -> Any:
    if isinstance(name, dict):
        return _completion(value, **name[_COMPLETION])
    kind = loaded(str(name))
    if kind is None or not _is_typed(kind) or isinstance(value, kind):
        return value
    return TypeAdapter(kind).validate_python(value)


def _said(reply: Completion) -> dict[str, Any]:
    """What a completion says beside its text, for JSON."""
    fields = reply.said()
    usage, calls = fields.pop('usage', None), fields.pop('tool_calls', ())
    if isinstance(usage, Usage):  # a completion that was built by hand may hold others
        fields['usage'] = asdict(usage)
    if dumped := [asdict(call) for call in calls if isinstance(call, ToolCall)]:
        fields['tool_calls'] = dumped
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()
    }


def _completion(
    text: str,
    usage: dict[str, Any] | None = None,
    tool_calls: list[dict[str, Any]] | tuple[()] = (),
    **said: Any,
) -> Completion:
    return Completion(
        text,
        usage=None if usage is None else Usage(**usage),
        tool_calls=[ToolCall(**call) for call in tool_calls],
        **said,
    )


def _with_status(parsed: dict[str, Any]) -> dict[str, Any]:
    try:
        return {**parsed, 'status': ToolStatusCode(parsed['status'])}
    except ValueError:
        return parsed
