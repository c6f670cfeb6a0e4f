"""Values of classes that say what they consist of: taken apart, and put together again."""

import dataclasses
import enum
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

Form = Callable[[Any], dict[str, dict[str, Any]]]


def form_of(kind: type) -> Form | None:
    """What takes a value of a class apart; None for classes that say nothing of their parts.

    Args:
        kind: the class.

    Returns:
        A function that gives the arguments of `make`, as dicts.
    """
    if issubclass(kind, enum.Enum):
        return _enum_parts
    if issubclass(kind, BaseModel):
        return _model_parts
    if dataclasses.is_dataclass(kind):
        return _dataclass_parts
    if issubclass(kind, dict) and kind.__dictoffset__:  # not one of C's, such as a defaultdict
        return _dict_parts
    return None


def _enum_parts(value: enum.Enum) -> dict[str, dict[str, Any]]:
    return {'fields': {'value': value.value}}


def _model_parts(value: BaseModel) -> dict[str, dict[str, Any]]:
    fields = {name: getattr(value, name) for name in type(value).model_fields}
    parts = {'fields': fields | (value.__pydantic_extra__ or {})}
    private = value.__pydantic_private__
    return parts if private is None else {**parts, 'private': dict(private)}


def _dataclass_parts(value: Any) -> dict[str, dict[str, Any]]:
    return {
        'fields': {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    }


def _dict_parts(value: dict[Any, Any]) -> dict[str, dict[str, Any]]:
    return {'items': dict(value), 'fields': dict(vars(value))}


def make(
    kind: Any,
    fields: dict[str, Any],
    items: dict[Any, Any] | None = None,
    private: dict[str, Any] | None = None,
) -> Any:
    """A value of a class, as it was: no code of the class runs, which could make another one.

    Args:
        kind: the class.
        fields: its fields; those that a later version of the class has added get their defaults.
        items: the items of a dict.
        private: private attributes of a pydantic model.

    Returns:
        The value.

    Raises:
        TypeError: these are not the fields of the class.
        ValueError: an enumeration has no such value.
    """
    if issubclass(kind, enum.Enum):
        return _member(kind, fields['value'])
    if issubclass(kind, BaseModel):
        return _model(kind, fields, private or {})
    if issubclass(kind, dict):
        made = kind.__new__(kind)
        base = OrderedDict if issubclass(kind, OrderedDict) else dict
        base.update(made, items or {})
        vars(made).update(fields)
        return made
    own = {field.name: field for field in dataclasses.fields(kind)}
    if unknown := fields.keys() - own.keys():
        raise TypeError(f'it has no field {min(unknown)!r}')
    made = object.__new__(kind)
    for name, field in own.items():
        object.__setattr__(made, name, fields[name] if name in fields else _default(field))
    return made


def _member(kind: Any, value: Any) -> Any:
    if issubclass(kind, enum.Flag):
        return kind(value)  # several of them may be one value
    for member in kind:
        if member.value == value:
            return member
    raise ValueError(f'it has no value {value!r}')


def _model(kind: type[BaseModel], fields: dict[str, Any], private: dict[str, Any]) -> Any:
    made = kind.__new__(kind)
    own = {
        name: fields[name] if name in fields else field.get_default(call_default_factory=True)
        for name, field in kind.model_fields.items()
    }
    extra = {name: value for name, value in fields.items() if name not in own}
    is_open = kind.model_config.get('extra') == 'allow'
    defaults = {name: each.get_default() for name, each in kind.__private_attributes__.items()}
    hidden = {k: v for k, v in (defaults | private).items() if v is not PydanticUndefined}
    object.__setattr__(made, '__dict__', own)
    object.__setattr__(made, '__pydantic_fields_set__', {*fields})
    object.__setattr__(made, '__pydantic_extra__', extra if is_open else None)
    object.__setattr__(made, '__pydantic_private__', hidden if defaults else None)
    return made


def _default(field: 'dataclasses.Field[Any]') -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    if field.default is dataclasses.MISSING:
        raise TypeError(f'it needs a field {field.name!r}')
    return field.default
