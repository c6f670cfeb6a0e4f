"""Fields of pydantic models, as they are shown to a model and recognised in its replies."""

import types
from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined


def choices(annotation: Any) -> Iterator[Any]:
    """The types that a value may have.

    Args:
        annotation: a type annotation.

    Yields:
        The members of a union, or the annotation itself; without `Annotated` around them.
    """
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from choices(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from choices(member)
    else:
        yield annotation


def is_model(annotation: Any) -> bool:
    """Whether an annotation is a pydantic model.

    Args:
        annotation: the annotation.

    Returns:
        True if it is.
    """
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The model among the types that a value may have.

    Args:
        annotation: a type annotation.

    Returns:
        The first model, or None.
    """
    return next((choice for choice in choices(annotation) if is_model(choice)), None)


def item_of(annotation: Any) -> Any:
    """The type of a list's items.

    Args:
        annotation: a type annotation.

    Returns:
        Their annotation, `Any` for a bare list, or None if the value is no list.
    """
    for choice in choices(annotation):
        origin = get_origin(choice) or choice
        if origin in (list, set, frozenset, tuple):
            return next(iter(get_args(choice)), Any)
    return None


def constants(annotation: Any) -> list[Any] | None:
    """The values of an enum or a literal.

    Args:
        annotation: a type annotation without a union.

    Returns:
        The values, or None for other types.
    """
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [member.value for member in annotation]
    return None


def type_name(annotation: Any) -> str:
    """A type in words.

    Args:
        annotation: a type annotation.

    Returns:
        A text such as ``str``, ``list[str]``, ``int | None``; the values of an enum or literal.
    """
    return ' | '.join(_one_name(choice) for choice in choices(annotation))


def default_text(field: FieldInfo) -> str | None:
    """A field's default in words.

    Args:
        field: the field.

    Returns:
        The default; None for a field without one or with a factory.
    """
    if field.default is PydanticUndefined:
        return None
    return str(field.default.value if isinstance(field.default, Enum) else field.default)


def _one_name(annotation: Any) -> str:
    if annotation is None or annotation is types.NoneType:
        return 'None'
    values = constants(annotation)
    if values is not None:
        return ' | '.join(str(value) for value in values)
    origin = get_origin(annotation)
    if origin is None:
        return 'any' if annotation is Any else getattr(annotation, '__name__', str(annotation))
    arguments = ', '.join('...' if a is ... else type_name(a) for a in get_args(annotation))
    return f'{origin.__name__}[{arguments}]'
