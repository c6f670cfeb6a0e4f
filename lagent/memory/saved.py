"""Messages as plain dicts, and back to what they were.

The dict of a message is that of InternLM's lagent. JSON knows no classes, so where a field holds
an object of one, its name is put beside the fields, under ``types``, which InternLM's ignores.
"""

import sys
from dataclasses import is_dataclass
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from lagent.prompts.parsers import ToolStatusCode
from lagent.schema import AgentMessage

TYPES = 'types'

_FIELDS = ('content', 'formatted', 'extra_info')
_PARSED = {'tool_type', 'thought', 'action', 'status'}


def dump(message: AgentMessage) -> dict[str, Any]:
    """The dict of a message.

    Args:
        message: the message.

    Returns:
        Its fields, and ``types`` where it needs them.
    """
    dumped = message.model_dump()
    types = {
        field: f'{kind.__module__}:{kind.__qualname__}'
        for field in _FIELDS
        if _is_typed(kind := type(getattr(message, field)))
    }
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
        kind = _loaded_class(name) if field in _FIELDS else None
        if kind is not None:
            setattr(message, field, _instance(kind, getattr(message, field)))
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


def _loaded_class(name: Any) -> type | None:
    module, _, qualname = str(name).partition(':')
    found: Any = sys.modules.get(module)
    for part in qualname.split('.'):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and _is_typed(found) else None


def _instance(kind: type, value: Any) -> Any:
    if isinstance(value, kind):
        return value
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return value


def _with_status(parsed: dict[str, Any]) -> dict[str, Any]:
    try:
        return {**parsed, 'status': ToolStatusCode(parsed['status'])}
    except ValueError:
        return parsed
