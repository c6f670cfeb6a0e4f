"""Models: one contract for engines in this process, servers, and scripts for tests.

The modules behind these names are loaded when a name is first used; the engines that they wrap,
when a model is made.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
