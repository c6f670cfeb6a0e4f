"""Tools as JSON schema: what models with native tool calls are told, and how arguments get types.

The schema of a parameter comes from its hint: `Annotated`, `Optional`, `Literal`, enums and nested
pydantic models included. Where there is none, the type in the tool's description counts.
"""

import functools
import inspect
import re
from collections.abc import Callable
from enum import Enum
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError

_MAX_NAME = 64  # characters that a function's name may have in OpenAI's format
_TYPES: dict[str, dict[str, Any]] = {
    'STRING': {'type': 'string'},
    'NUMBER': {'type': 'integer'},
    'FLOAT': {'type': 'number'},
    'BOOLEAN': {'type': 'boolean'},
    'Array': {'type': 'array', 'items': {}},
}


def parameters_schema(api: dict[str, Any], function: Callable[..., Any] | None) -> dict[str, Any]:
    """The JSON schema of an API's arguments.

    Args:
        api: the API's description, which says what the model is told about, and in which words.
        function: the function behind it, whose hints say more; None when there is none.

    Returns:
        The schema of an object; closed, so that invented arguments are refused.
    """
    hints = {} if function is None else hints_of(function)
    defaults = {} if function is None else _defaults(function)
    required = list(api.get('required', ()))
    adapters: list[tuple[str, Literal['validation'], TypeAdapter[Any]]] = []
    properties: dict[str, Any] = {}
    for parameter in api.get('parameters', ()):
        name, words = parameter['name'], parameter.get('description')
        kind: Any = hints.get(name)
        properties[name] = (
            {} if _has_schema(kind) else dict(_TYPES.get(parameter.get('type', ''), {}))
        )
        if _has_schema(kind):
            adapters.append((name, 'validation', TypeAdapter(kind)))
        if words:
            properties[name]['description'] = words
        if name in defaults and name not in required:
            properties[name]['default'] = defaults[name]
    # All at once, so that models that occur in several of them are defined once.
    schemas, shared = TypeAdapter.json_schemas(adapters)
    for name, mode, _ in adapters:
        properties[name] = {**schemas[name, mode], **properties[name]}
    schema: dict[str, Any] = _untitled(
        {
            'type': 'object',
            'properties': properties,
            'required': required,
            'additionalProperties': False,
            **shared,
        }
    )
    return schema


def function_name(name: str) -> str:
    """A tool's name in the form that providers accept: ``Tool.api`` becomes ``Tool-api``.

    Args:
        name: the name; letters, digits, ``_`` and ``-`` stay.

    Returns:
        At most 64 of these characters.
    """
    return re.sub(r'[^A-Za-z0-9_-]', '-', name)[:_MAX_NAME]


def typed_arguments(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Make pydantic models and enums of the plain values that a model sent for them.

    Args:
        function: the function that is about to be called.
        arguments: its arguments.

    Returns:
        The arguments; those of other types are as they were.

    Raises:
        ValueError: a value doesn't fit, in words that a model can act on.
    """
    hints = hints_of(function)
    typed = dict(arguments)
    for name, value in arguments.items():
        if name in hints and _needs_types(hints[name]) and _has_schema(hints[name]):
            try:
                typed[name] = TypeAdapter(hints[name]).validate_python(value)
            except ValidationError as error:
                problems = '; '.join(
                    '.'.join(map(str, (name, *one['loc']))) + f': {one["msg"]}'
                    for one in error.errors(include_url=False, include_input=False)
                )
                raise ValueError(f'invalid arguments: {problems}') from error
    return typed


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """A function's type hints.

    Args:
        function: a function or method.

    Returns:
        The hints by parameter; none when they name what can't be found at run time.
    """
    return _hints(getattr(function, '__func__', function))


@functools.lru_cache(maxsize=1024)
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - a hint may name what exists for type checkers only
        return {}


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    defaults = {}
    for parameter in inspect.signature(function).parameters.values():
        default = parameter.default
        if isinstance(default, Enum):
            default = default.value
        if isinstance(default, str | int | float):
            defaults[parameter.name] = default
    return defaults


def _has_schema(hint: Any) -> bool:
    if hint is None or hint is inspect.Parameter.empty:
        return False
    try:
        TypeAdapter(hint).json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError, TypeError):
        return False
    return True


def _needs_types(hint: Any) -> bool:
    if isinstance(hint, type) and get_origin(hint) is None:
        return issubclass(hint, BaseModel | Enum)
    return any(_needs_types(one) for one in get_args(hint))


def _untitled(schema: Any, *, names: bool = False) -> Any:
    """The schema without the titles that pydantic makes of names; `names` in a dict of names."""
    if isinstance(schema, list):
        return [_untitled(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _untitled(value, names=not names and key in ('properties', '$defs'))
        for key, value in schema.items()
        if names or key != 'title'
    }
