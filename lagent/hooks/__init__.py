"""What looks at, and may change, the messages that go into and come out of agents and tools."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
