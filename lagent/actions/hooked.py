"""What executors and interpreters share: hooks around the answer to a message."""

import inspect
from collections.abc import Callable, Hashable
from typing import Any

from lagent.context import run_context
from lagent.errors import LagentError
from lagent.flow import Flow, call
from lagent.hooks import Hookable
from lagent.schema import AgentMessage


def settle(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function from synchronous code, waiting on the portal if it is asynchronous.

    Args:
        fn: the function.
        args: its positional arguments.
        kwargs: its keyword arguments.

    Returns:
        What the function gives, awaited.

    Raises:
        PortalError: the function is asynchronous, and this is the portal's own thread.
    """
    value = fn(*args, **kwargs)
    if not inspect.isawaitable(value):
        return value
    from lagent.portal import PortalError, get_portal

    async def awaited() -> Any:
        return await value

    try:
        return get_portal().call(awaited)
    except PortalError:
        if inspect.iscoroutine(value):
            value.close()
        raise


class Responder(Hookable):
    """Answers a message, with hooks before and after."""

    def _respond(
        self,
        message: AgentMessage,
        session: Hashable | None,
        act: Callable[[AgentMessage], Flow[AgentMessage]],
    ) -> Flow[AgentMessage]:
        with run_context(session) as context:
            session_id = context.session_id
            message = message.model_copy(deep=True)
            for hook in tuple(self._hooks.values()):
                replaced = yield from self._ask(hook.before_action, self, message, session_id)
                message = replaced or message
            try:
                answer = yield from act(message)
            except LagentError as error:
                if error.results is not None:
                    error.results = yield from self._after(error.results, session_id)
                raise
            return (yield from self._after(answer, session_id))

    def _after(self, answer: AgentMessage, session_id: Hashable) -> Flow[AgentMessage]:
        for hook in tuple(self._hooks.values()):
            replaced = yield from self._ask(hook.after_action, self, answer, session_id)
            answer = replaced or answer
        return answer

    def _ask(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Flow[Any]:
        return call(settle, fn, *args, **kwargs)


class AsyncResponder(Responder):
    """A `Responder` whose flow is driven by coroutines, which await what is asynchronous."""

    def _ask(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Flow[Any]:
        return call(fn, *args, **kwargs)
