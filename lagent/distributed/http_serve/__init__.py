"""An agent behind HTTP: the server, the process it runs in, and its clients."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
