"""What a data analyst needs beside a model and a sandbox: profiles of files, and notebooks."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
