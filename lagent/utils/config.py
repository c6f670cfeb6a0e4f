"""Objects from configuration dicts: ``dict(type=<class or dotted path>, **arguments)``."""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

from lagent._variables import reset
from lagent.errors import ConfigError

_resolver: ContextVar[Callable[[str], Any] | None] = ContextVar('lagent_resolver', default=None)


@contextmanager
def resolved_by(resolver: Callable[[str], Any]) -> Iterator[None]:
    """Let `resolver` look up all dotted paths inside the ``with`` block.

    What is built from data may look up paths of its own, wherever in it: none gets past.

    Args:
        resolver: gives what a path names, or raises a `ConfigError`.
    """
    token = _resolver.set(resolver)
    try:
        yield
    finally:
        reset(_resolver, token)


def load_class_from_string(class_path: str, path: str | None = None) -> Any:
    """Import what a dotted path names.

    A dotted path can name any code that is installed: use only paths that you wrote. Inside
    `from_config`, what may be named is up to its caller.

    Args:
        class_path: such as ``'lagent.memory.Memory'``.
        path: a folder to look for the module in as well, during this call only.

    Returns:
        The class, function or other object.

    Raises:
        ConfigError: the path has no dot, or may not be named.
        ImportError: there is no such module.
        AttributeError: the module has no such name.
    """
    resolver = _resolver.get()
    if resolver is None:
        return import_from(class_path, path)
    if path is not None:
        raise ConfigError(f'{class_path!r} would be looked for in {path!r}, which data may not say')
    return resolver(class_path)


def import_from(class_path: str, path: str | None = None) -> Any:
    """See `load_class_from_string`; asks no resolver."""
    module_name, dot, name = class_path.rpartition('.')
    if not dot:
        raise ConfigError(f'{class_path!r} is no dotted path such as package.module.Class')
    if path is None:
        return getattr(importlib.import_module(module_name), name)
    sys.path.insert(0, path)
    try:
        return getattr(importlib.import_module(module_name), name)
    finally:
        sys.path.remove(path)


def create_object(config: Any = None) -> Any:
    """Build what a configuration dict describes.

    Args:
        config: a dict with a ``type`` (a class, another callable, or the dotted path of one) and
            the arguments beside it; it is left as it is. Anything else is returned unchanged.

    Returns:
        The instance; for a callable that is no class, a `functools.partial` of it.

    Raises:
        AssertionError: a dict without a ``type``.
    """
    if not isinstance(config, dict):
        return config
    assert 'type' in config, f'a configuration dict needs a "type": {sorted(map(str, config))}'
    arguments = {key: value for key, value in config.items() if key != 'type'}
    target = config['type']
    if isinstance(target, str):
        target = load_class_from_string(target)
    return target(**arguments) if inspect.isclass(target) else partial(target, **arguments)
