"""Short representations of objects that are made from many arguments."""

import inspect
import reprlib
from typing import Any

_short = reprlib.Repr()
_short.maxstring = 40
_short.maxother = 80


def repr_of(thing: Any) -> str:
    """The class of an object, with those arguments that it keeps and that are not the defaults.

    Args:
        thing: the object. An argument is kept by an attribute of the same name.

    Returns:
        A line such as ``CodeParser(blocks='last')``; long values are shortened.
    """
    shown = []
    for name, parameter in inspect.signature(type(thing)).parameters.items():
        default = {} if parameter.kind is parameter.VAR_KEYWORD else parameter.default
        value = getattr(thing, name, default)
        if value != default:
            shown.append(f'{name}={_short.repr(value)}')
    return f'{type(thing).__name__}({", ".join(shown)})'
