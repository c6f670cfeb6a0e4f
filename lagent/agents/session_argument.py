"""Whether a model is told the session that asks it."""

import inspect
from collections.abc import Callable, Hashable
from typing import Any
from weakref import WeakKeyDictionary

from lagent.llms import BaseLLM

_NAMES = ('session_ids', 'session_id')
# To read a signature takes as long as a whole step of an agent around its model.
_signatures: WeakKeyDictionary[Callable[..., Any], inspect.Signature] = WeakKeyDictionary()


def session_argument(method: Callable[..., Any], session_id: Hashable) -> dict[str, Any]:
    """The session as a keyword argument of a model's `chat` or `stream_chat`, if it takes one.

    Args:
        method: the method.
        session_id: the session.

    Returns:
        A dict with at most one entry. A method that gathers keywords is given the session if it is
        a `BaseLLM`'s, which hands it on: to other models they are parameters of the request.
    """
    name = _parameter(getattr(method, '__func__', method), hasattr(method, '__self__'))
    if name == '' and isinstance(getattr(method, '__self__', None), BaseLLM):
        name = _NAMES[0]
    return {name: session_id} if name else {}


def _parameter(function: Callable[..., Any], is_bound: bool) -> str | None:
    """The name of the parameter; ``''`` where keywords are gathered, and None without any."""
    try:
        parameters = [*_signature(function).parameters.values()][1 + is_bound :]
    except (TypeError, ValueError):
        return None
    named = [each.name for each in parameters if each.name in _NAMES]
    needed = [
        each.name
        for each in parameters[:1]
        if each.kind is each.POSITIONAL_OR_KEYWORD and each.default is each.empty
    ]
    gathers = any(each.kind is each.VAR_KEYWORD for each in parameters)
    return next(iter([*named, *needed]), '' if gathers else None)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        if function not in _signatures:
            _signatures[function] = inspect.signature(function)
        return _signatures[function]
    except TypeError:  # an object that cannot be a key, or that has no signature
        return inspect.signature(function)
