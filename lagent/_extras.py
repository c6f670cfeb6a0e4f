"""Optional libraries, imported where they are used and missed with a helpful error."""

import importlib
from types import ModuleType

from lagent.errors import ExtraMissing


def require(module: str, extra: str) -> ModuleType:
    """Import an optional library.

    Args:
        module: dotted name of the module to import, such as ``'vllm'``.
        extra: the extra of this distribution that brings it.

    Returns:
        The imported module.

    Raises:
        ExtraMissing: the library is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition('.')[0] != module.partition('.')[0]:
            raise
        raise ExtraMissing(module, extra) from error
