"""Output parsers: the text of a reply in, what a program acts on out."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
