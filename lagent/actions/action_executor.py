"""Executors: from a message that asks for a tool call to the message with its result."""

import asyncio
import inspect
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from lagent.actions.base_action import CONTROL_ERRORS, BaseAction
from lagent.actions.builtin_actions import FinishAction, InvalidAction, NoAction
from lagent.actions.hooked import AsyncResponder, Responder, settle
from lagent.effects import Effect, within
from lagent.flow import Flow, arun, call, run
from lagent.hooks import Hook
from lagent.schema import ActionReturn, ActionStatusCode, AgentMessage, FunctionCall
from lagent.utils import create_object

Action = BaseAction | dict[str, Any]

INVALID_ACTION: dict[str, Any] = {'type': InvalidAction}
NO_ACTION: dict[str, Any] = {'type': NoAction}
FINISH_ACTION: dict[str, Any] = {'type': FinishAction}


class ActionExecutor(Responder):
    """Calls the tool that a message asks for.

    The message's content is a `FunctionCall` or a dict with ``name`` and ``parameters``; the name
    is that of a tool, or ``Tool.api`` for one of several APIs. The answer's content is an
    `ActionReturn`, whatever happens to the tool.

    Args:
        actions: the tools, or configuration dicts of tools; one need not be in a list.
        invalid_action: answers calls of unknown tools.
        no_action: answers messages in which no call could be read.
        finish_action: ends a run; known even where it is not listed.
        finish_in_action: whether to list it among the tools.
        hooks: hooks around every call.

    Attributes:
        actions: the tools by name.
    """

    def __init__(
        self,
        actions: Action | Iterable[Action],
        invalid_action: Action = INVALID_ACTION,
        no_action: Action = NO_ACTION,
        finish_action: Action = FINISH_ACTION,
        finish_in_action: bool = False,
        hooks: Hook | dict[str, Any] | Iterable[Hook | dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(hooks)
        self.invalid_action: BaseAction = create_object(invalid_action)
        self.no_action: BaseAction = create_object(no_action)
        self.finish_action: BaseAction = create_object(finish_action)
        given = [actions] if isinstance(actions, BaseAction | dict) else [*actions]
        tools = [create_object(action) for action in given]
        if finish_in_action:
            tools.append(self.finish_action)
        self.actions: dict[str, BaseAction] = {tool.name: tool for tool in tools}

    def __call__(
        self, message: AgentMessage, session_id: Hashable | None = None, **kwargs: Any
    ) -> AgentMessage:
        """Answer a message that asks for a tool call.

        Args:
            message: the message; it is copied.
            session_id: the session; inside an agent's call its session, else 0.
            kwargs: given to `forward`.

        Returns:
            The result, from a sender named like the class.

        Raises:
            AssertionError: the content is no call.
            LimitExceeded: the run reached one of its limits.
        """
        return run(self._respond(message, session_id, self._answer(kwargs)))

    def forward(self, name: str, parameters: Any, **kwargs: Any) -> Any:
        """Call a tool; a subclass may do so in its own way.

        Args:
            name: the tool's name, or ``Tool.api``.
            parameters: the arguments, as the tool's parser reads them.
            kwargs: what the caller gave beside the message.

        Returns:
            An `ActionReturn`, an `AgentMessage`, or any object to become the content of one.
        """
        return run(self._call_tool(name, parameters))

    def description(self) -> list[dict[str, Any]]:
        """What models are told about the tools.

        Returns:
            A description for each API, named ``Tool.api`` in toolkits.
        """
        return [
            api | {'name': f'{name}.{api["name"]}'} if tool.is_toolkit else dict(api)
            for name, tool in self.actions.items()
            for api in tool.description.get('api_list', [tool.description])
        ]

    def keys(self) -> list[str]:
        """The names of the tools.

        Returns:
            The names, in the order of the tools.
        """
        return list(self.actions)

    def __contains__(self, name: object) -> bool:
        return name in self.actions

    def __setitem__(self, key: str, action: Action) -> None:
        """Add a tool under its own name; the key is ignored, as in InternLM's."""
        tool = create_object(action)
        self.actions[tool.name] = tool

    def __delitem__(self, name: str) -> None:
        del self.actions[name]

    def _answer(self, kwargs: dict[str, Any]) -> Callable[[AgentMessage], Flow[AgentMessage]]:
        def act(message: AgentMessage) -> Flow[AgentMessage]:
            name, parameters = _requested(message.content)
            answer = yield from self._ask(self.forward, name=name, parameters=parameters, **kwargs)
            if isinstance(answer, AgentMessage):
                return answer
            return AgentMessage(sender=type(self).__name__, content=answer)

        return act

    def _call_tool(self, name: Any, parameters: Any) -> Flow[ActionReturn]:
        tool, api = self._find(name)
        if tool is None and name == self.no_action.name:
            return (yield from self._guarded(self.no_action, parameters, 'run'))
        if tool is None and name == self.finish_action.name:
            return (yield from self._guarded(self.finish_action, parameters, 'run'))
        effect = Effect('tool', str(name), parameters)
        if tool is None:
            # The parameters say nothing about the unknown tool.
            tool, parameters, api = self.invalid_action, '', 'run'
        return (yield from within(effect, self._guarded(tool, parameters, api)))

    def _guarded(self, tool: BaseAction, parameters: Any, api: str) -> Flow[ActionReturn]:
        try:
            result: ActionReturn = yield from self._use(tool, parameters, api)
        except CONTROL_ERRORS:
            raise
        except Exception as error:  # noqa: BLE001 - a tool may have a `__call__` of its own
            return ActionReturn(
                {'inputs': parameters, 'name': api},
                type=tool.name,
                errmsg=str(error) or type(error).__name__,
                state=ActionStatusCode.API_ERROR,
            )
        return result

    def _find(self, name: Any) -> tuple[BaseAction | None, str]:
        if not isinstance(name, str):
            return None, 'run'
        if name in self.actions:
            return self.actions[name], 'run'
        tool_name, _, api = name.partition('.')
        return self.actions.get(tool_name), api

    def _use(self, tool: BaseAction, parameters: Any, api: str) -> Flow[Any]:
        return call(settle, tool, parameters, api)


class AsyncActionExecutor(AsyncResponder, ActionExecutor):
    """An `ActionExecutor` that is awaited, as are asynchronous tools and hooks.

    Plain tools run in a worker thread, so that they don't hold up the event loop. Cancelling the
    call doesn't end such a thread.
    """

    async def __call__(  # type: ignore[override]
        self, message: AgentMessage, session_id: Hashable | None = None, **kwargs: Any
    ) -> AgentMessage:
        """See `ActionExecutor.__call__`."""
        return await arun(self._respond(message, session_id, self._answer(kwargs)))

    async def forward(self, name: str, parameters: Any, **kwargs: Any) -> Any:
        """See `ActionExecutor.forward`."""
        return await arun(self._call_tool(name, parameters))

    def _use(self, tool: BaseAction, parameters: Any, api: str) -> Flow[Any]:
        if inspect.iscoroutinefunction(type(tool).__call__):
            return call(tool, parameters, api)
        return call(asyncio.to_thread, tool, parameters, api)


def _requested(content: Any) -> tuple[Any, Any]:
    if isinstance(content, FunctionCall):
        return content.name, content.parameters
    is_call = isinstance(content, dict) and {'name', 'parameters'} <= set(content)
    assert is_call, (
        'the content must be a tool call: a FunctionCall or a dict with "name" and "parameters", '
        f'not {content!r:.200}'
    )
    return content['name'], content['parameters']
