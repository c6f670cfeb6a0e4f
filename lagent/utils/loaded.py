"""Classes by the names that saved data gives, without importing anything for its sake."""

import sys
from types import ModuleType
from typing import Any


def loaded(name: str) -> type | None:
    """The class of a name, if its module is loaded; nothing is imported or computed for it.

    Args:
        name: ``module:qualname``.

    Returns:
        The class, or None where there is none.
    """
    module, _, qualname = name.partition(':')
    found: Any = sys.modules.get(module)
    for part in qualname.split('.'):
        # A look into the bare namespace: modules that load others when they are asked for a name
        # must not do so because a file says it.
        if issubclass(type(found), ModuleType):
            names = object.__getattribute__(found, '__dict__')
        elif issubclass(type(found), type):
            names = type.__getattribute__(found, '__dict__')
        else:
            return None
        found = names.get(part)
    return found if isinstance(found, type) else None
