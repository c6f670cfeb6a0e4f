"""The base of the tools that run a model's code."""

import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Unpack

from lagent.actions.base_action import AsyncActionMixin, BaseAction
from lagent.actions.cells import Cells, SandboxOptions, on_portal
from lagent.actions.closing import AsyncClosing, Closing
from lagent.actions.parser import BaseParser, JsonParser
from lagent.flow import Flow, call
from lagent.portal import get_portal

_LONGEST = 3600.0  # seconds that a model may ask for


class CodeTool(Closing, BaseAction):
    """A tool that runs code in sandboxes, one a session.

    The sandboxes are removed when the tool is closed, when nobody refers to it any more, and at
    the end of the process.

    Args:
        description: replaces the description that was read from the class.
        parser: class that reads the inputs and writes the outputs.
        timeout: wall clock of one call that is given none, in seconds.
        setup: code that each new kernel runs first.
        folder: folder of the host that the code works with.
        max_sessions: how many sandboxes may exist at once.
        options: see `SandboxOptions`.
    """

    runs_code = True

    def __init__(
        self,
        description: dict[str, Any] | None = None,
        parser: type[BaseParser] = JsonParser,
        *,
        timeout: float,
        setup: str = '',
        folder: Path | None = None,
        max_sessions: int = 32,
        **options: Unpack[SandboxOptions],
    ) -> None:
        super().__init__(description, parser)
        self.timeout = timeout
        self._cells = Cells(options, timeout, setup, folder, max_sessions)
        weakref.finalize(self, self._cells.abandon).atexit = False

    def _closing(self) -> Flow[None]:
        return self._at(self._cells.close)

    def _at(self, fn: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> Flow[Any]:
        """The flow of a coroutine on the portal's loop, where the sandboxes live."""
        return call(get_portal().call, fn, *args)


class AsyncCodeTool(AsyncClosing, AsyncActionMixin, CodeTool):
    """A `CodeTool` whose APIs are coroutines."""

    def _at(self, fn: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> Flow[Any]:
        return call(on_portal, fn, *args)


def seconds(timeout: Any) -> float | None:
    """The wall clock that a call asks for.

    Args:
        timeout: seconds, as a model may write them; nothing, or 0, for the tool's own limit.

    Returns:
        The seconds, at most an hour; None for the tool's own limit.

    Raises:
        ValueError: it is no number.
    """
    return min(float(timeout), _LONGEST) if timeout else None
