"""The end of what holds something open: sandboxes, processes, connections."""

import inspect
from collections.abc import Iterable
from typing import Any

from lagent.actions.hooked import settle
from lagent.flow import BlockingCall, Flow, arun, run
from lagent.utils.closable import AsyncClosable, Closable


class Closing(Closable):
    """Something that a flow closes."""

    def close(self) -> None:
        """Close what it has: sandboxes, tools, layers below it, and models that it made.

        Everything is closed, also where something fails; the first error is raised then.
        """
        run(self._closing())

    def _closing(self) -> Flow[None]:
        raise NotImplementedError


class AsyncClosing(AsyncClosable, Closing):
    """Something that a flow closes, awaited."""

    async def close(self) -> None:  # type: ignore[override]
        """See `Closing.close`."""
        await arun(self._closing())


class _Close(BlockingCall):
    """Closes one thing: plain code waits for a coroutine, an event loop for plain code."""

    __slots__ = ()

    def __call__(self) -> Any:
        return settle(self.fn)

    def on_loop(self) -> Any:
        return self.fn() if inspect.iscoroutinefunction(self.fn) else super().on_loop()


def close_all(things: Iterable[Any]) -> Flow[None]:
    """The flow that closes several things, each once, as far as they can be closed.

    Args:
        things: objects of any kind. A method `close` that a model may call is left alone.

    Raises:
        Exception: what the first one raised that could not be closed, after all were tried.
    """
    failures: list[Exception] = []
    for thing in {id(one): one for one in things}.values():
        close = getattr(thing, 'close', None)
        if not callable(close) or hasattr(close, 'api_description'):
            continue
        try:
            yield _Close(close, (), {})
        except Exception as error:  # noqa: BLE001 - raised when the others are closed
            failures.append(error)
    if failures:
        raise failures[0]
