"""`FakeSandbox` and `AsyncFakeSandbox`: sessions for tests of programs that use one."""

from typing import Any

from sandbox.backends.fake import FakeBackend, Script
from sandbox.session import AsyncSandbox, Sandbox

__all__ = ['AsyncFakeSandbox', 'FakeSandbox']


class AsyncFakeSandbox(AsyncSandbox):
    """An `AsyncSandbox` that answers from a script.

    Args:
        script: Where answers come from; see `FakeBackend`.
        policy: Its limits on files hold, and on what a model is shown of a result.
    """

    def __init__(self, script: Script = lambda _: '', **options: Any) -> None:
        super().__init__(backend=FakeBackend(script), **options)


class FakeSandbox(Sandbox):
    """A `Sandbox` that answers from a script.

    Args:
        script: Where answers come from; see `FakeBackend`.
        policy: Its limits on files hold, and on what a model is shown of a result.

    Example:
        >>> with FakeSandbox({'6 * 7': '42'}) as box:
        ...     box.execute('6 * 7').stdout
        '42'
    """

    def __init__(self, script: Script = lambda _: '', **options: Any) -> None:
        super().__init__(backend=FakeBackend(script), **options)
