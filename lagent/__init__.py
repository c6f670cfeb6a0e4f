"""Agents that run code: layers, parsers, tools and models, with a sandbox beside them."""

import lazy_loader as _lazy

from lagent.version import __version__, version_info

__getattr__, __dir__, _names = _lazy.attach_stub(__name__, __file__)

__all__ = [*_names, '__version__', 'version_info']  # noqa: PLE0604 - the names are strings
