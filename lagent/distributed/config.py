"""The configuration dict of an agent that is to live in another process."""

from collections.abc import Mapping
from typing import Any

from lagent.errors import ConfigError
from lagent.utils import load_class_from_string


def read_config(config: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Read the configuration dict of an agent.

    Args:
        config: its class as ``type`` (or the dotted path of it, which may name any code that is
            installed: serve only configurations that you wrote), a folder ``python_path`` to find
            it in, and the arguments beside them. It is left as it is.

    Returns:
        The class, and the arguments.

    Raises:
        ConfigError: it is no mapping, or has no ``type``.
    """
    if not isinstance(config, Mapping):
        # Pairs would make a dict as well, and `from_config` does not look into those.
        raise ConfigError(f'the configuration of an agent is a mapping, not {config!r:.200}')
    arguments = dict(config)
    if (target := arguments.pop('type', None)) is None:
        raise ConfigError(f'the configuration of an agent needs a "type", it has {list(config)}')
    path = arguments.pop('python_path', None)
    if isinstance(target, str):
        target = load_class_from_string(target, path)
    return target, arguments
