"""Agents that run code: layers, parsers, tools and models, with a sandbox beside them."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
