"""Deep copies that spend nothing on what cannot change.

A message is copied at every layer that it passes, and most of it are texts and numbers.
"""

import copy
from enum import EnumType
from typing import Any

_UNCHANGING = frozenset({str, int, float, bool, bytes, type(None)})


def copy_value(value: Any, memo: dict[int, Any] | None = None) -> Any:
    """A deep copy.

    Args:
        value: anything that can be copied.
        memo: what `copy.deepcopy` has given to `__deepcopy__`.

    Returns:
        The copy; the value itself where it cannot change.
    """
    kind = type(value)
    if kind in _UNCHANGING or isinstance(kind, EnumType):
        return value
    if (kind is list or kind is tuple) and _UNCHANGING.issuperset(map(type, value)):
        return value[:]
    own = getattr(kind, '__deepcopy__', None)
    if own is None or memo is None:
        return copy.deepcopy(value, memo)
    if (copied := memo.get(id(value))) is None:
        copied = memo[id(value)] = own(value, memo)
    return copied


def copy_values(values: dict[Any, Any], memo: dict[int, Any] | None = None) -> dict[Any, Any]:
    """A dict of deep copies.

    Args:
        values: names and values.
        memo: what `copy.deepcopy` has given to `__deepcopy__`.

    Returns:
        A new dict.
    """
    copied = values.copy()
    for name, value in copied.items():
        if value is not None and type(value) is not str:
            copied[name] = copy_value(value, memo)
    return copied


def copy_messages(messages: Any) -> Any:
    """A deep copy of a dialog.

    Args:
        messages: usually a list of dicts of texts; anything that can be copied.

    Returns:
        The copy.
    """
    if type(messages) is not list:
        return copy.deepcopy(messages)
    copied = []
    for message in messages:
        if type(message) is not dict:
            copied.append(copy_value(message))
            continue
        for value in message.values():
            if type(value) is not str:
                copied.append(copy_values(message))
                break
        else:  # as most are, and this takes less time than a call
            copied.append(message.copy())
    return copied
