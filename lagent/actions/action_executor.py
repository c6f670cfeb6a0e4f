"""Executors: from a message that asks for a tool call to the message with its result."""

import asyncio
import contextvars
import inspect
import json
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any

from lagent._variables import reset
from lagent.actions.base_action import BaseAction
from lagent.actions.bounds import bounded
from lagent.actions.builtin_actions import FinishAction, InvalidAction, NoAction
from lagent.actions.closing import AsyncClosing, Closing, close_all
from lagent.actions.function_tool import as_tool
from lagent.actions.hooked import AsyncResponder, Responder, settle
from lagent.actions.toolbox import Action, Toolbox
from lagent.concurrency import gather
from lagent.effects import Effect, within
from lagent.errors import CONTROL_ERRORS, LagentError, NotDone, RepeatedCall
from lagent.flow import Flow, arun, call, run
from lagent.hooks import Hook
from lagent.positions import branched
from lagent.prompts.parsers import ToolStatusCode
from lagent.schema import (
    ActionReturn,
    ActionStatusCode,
    AgentMessage,
    FunctionCall,
)

INVALID_ACTION: dict[str, Any] = {'type': InvalidAction}
NO_ACTION: dict[str, Any] = {'type': NoAction}
FINISH_ACTION: dict[str, Any] = {'type': FinishAction}


MAX_RESULT_CHARS = 100_000
_MAX_PARALLEL = 16  # tools of one message that run at once

# A subclass's `forward` need not know of it.
_call_id: contextvars.ContextVar[str | None] = contextvars.ContextVar(
    'lagent_call_id', default=None
)


@dataclass(frozen=True, slots=True)
class _Request:
    name: Any
    parameters: Any
    id: str | None = None


class ActionExecutor(Closing, Toolbox, Responder):
    """Calls the tools that a message asks for.

    The message's content is a `FunctionCall` or a dict with ``name`` and ``parameters``; the name
    is that of a tool, or ``Tool.api`` for one of several APIs. The answer's content is an
    `ActionReturn`, whatever happens to the tool.

    A list of calls as the content, or the calls that a `ToolCallParser` put into `formatted`, run
    at the same time; the answer's content is then the list of results, in the order of the calls.
    Where calls have ids, the answer's `extra_info` says them, as ``tool_call_ids``.

    Args:
        actions: the tools, functions decorated with `tool_api`, or configuration dicts of tools;
            one need not be in a list.
        invalid_action: answers calls of unknown tools.
        no_action: answers messages in which no call could be read.
        finish_action: ends a run; known even where it is not listed.
        finish_in_action: whether to list it among the tools.
        hooks: hooks around every call.
        max_result_chars: how many characters of a tool's answer go on, to the model, into memory
            and into a journal; the rest is counted in its place. None for all of them.

    Attributes:
        actions: the tools by name.

    Raises:
        ValueError: `max_result_chars` is not positive.
    """

    def __init__(
        self,
        actions: Action | Iterable[Action],
        invalid_action: Action = INVALID_ACTION,
        no_action: Action = NO_ACTION,
        finish_action: Action = FINISH_ACTION,
        finish_in_action: bool = False,
        hooks: Hook | dict[str, Any] | Iterable[Hook | dict[str, Any]] | None = None,
        *,
        max_result_chars: int | None = MAX_RESULT_CHARS,
    ) -> None:
        super().__init__(hooks)
        if max_result_chars is not None and max_result_chars < 1:
            raise ValueError(f'max_result_chars must be positive, got {max_result_chars}')
        self.max_result_chars = max_result_chars
        self.invalid_action = as_tool(invalid_action)
        self.no_action = as_tool(no_action)
        self.finish_action = as_tool(finish_action)
        given = [actions] if isinstance(actions, dict) or callable(actions) else [*actions]
        tools = [as_tool(action) for action in given]
        if finish_in_action:
            tools.append(self.finish_action)
        self.actions: dict[str, BaseAction] = {tool.name: tool for tool in tools}

    def __call__(
        self, message: AgentMessage, session_id: Hashable | None = None, **kwargs: Any
    ) -> AgentMessage:
        """Answer a message that asks for tool calls.

        Args:
            message: the message; it is copied.
            session_id: the session; inside an agent's call its session, else 0.
            kwargs: given to `forward`.

        Returns:
            The result, from a sender named like the class.

        Raises:
            AssertionError: the content is no call.
            LimitExceeded: the run reached one of its limits. Where one call of several did, the
                others that had begun are seen through, and the error's `results` is the message
                with what each of them gave.
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

    def _closing(self) -> Flow[None]:
        return close_all(self.actions.values())

    def _answer(self, kwargs: dict[str, Any]) -> Callable[[AgentMessage], Flow[AgentMessage]]:
        def one(request: _Request) -> Flow[Any]:
            asked = {'name': request.name, 'parameters': request.parameters}
            token = _call_id.set(request.id)
            try:
                result = yield from self._ask(self.forward, **asked, **kwargs)
                return self._corrected(result, request.name)
            except LagentError as error:
                error.results = None  # an agent inside of the tool has remembered them
                raise
            finally:
                reset(_call_id, token)

        def act(message: AgentMessage) -> Flow[AgentMessage]:
            requests = self._requested(message)
            if not isinstance(requests, list):
                answer = yield from one(requests)
                return answer if isinstance(answer, AgentMessage) else self._message(answer)
            return (yield from self._answer_all(requests, [one(request) for request in requests]))

        return act

    def _answer_all(self, requests: list[_Request], flows: list[Flow[Any]]) -> Flow[AgentMessage]:
        ends: list[LagentError] = []

        def settled(flow: Flow[Any]) -> Flow[Any]:
            # The end of the run must not take along what other calls have done or are doing.
            if ends:
                return ends[0]
            try:
                return (yield from flow)
            except CONTROL_ERRORS as error:
                if not isinstance(error, RepeatedCall):
                    ends.append(error)
                return error

        answers: list[Any] = yield from self._all([settled(flow) for flow in flows])
        ids = [request.id for request in requests]
        results = [self._result(*pair) for pair in zip(answers, requests, strict=True)]
        message = self._message(results, {'tool_call_ids': ids} if any(ids) else None)
        if errors := ends or [one for one in answers if isinstance(one, RepeatedCall)]:
            errors[0].results = message
            raise errors[0]
        return message

    def _result(self, answer: Any, request: _Request) -> Any:
        if isinstance(answer, CONTROL_ERRORS):
            inputs = {'inputs': request.parameters, 'name': request.name}
            words, state = f'No result. {answer}', ActionStatusCode.API_ERROR
            return ActionReturn(inputs, type=str(request.name), errmsg=words, state=state)
        if isinstance(answer, AgentMessage):
            return answer.content
        return self.explained(answer)

    def _requested(self, message: AgentMessage) -> _Request | list[_Request]:
        content, parsed = message.content, message.formatted
        if isinstance(content, str) and isinstance(parsed, dict):
            if isinstance(parsed.get('action'), list):
                content = parsed['action']
            elif parsed.get('status') in (ToolStatusCode.PARSING_ERROR, ToolStatusCode.INCOMPLETE):
                return _Request(self.no_action.name, getattr(parsed, 'hint', ''))
        if isinstance(content, list):
            return [_request(one) for one in content]
        return _request(content)

    def _message(self, content: Any, extra_info: dict[str, Any] | None = None) -> AgentMessage:
        return AgentMessage(sender=type(self).__name__, content=content, extra_info=extra_info)

    def _all(self, flows: list[Flow[Any]]) -> Flow[list[Any]]:
        return call(_run_all, branched(flows))

    def _call_tool(self, name: Any, parameters: Any) -> Flow[ActionReturn]:
        tool, api = self._find(name)
        if tool is None and name == self.no_action.name:
            return (yield from self._guarded(self.no_action, parameters, 'run'))
        if tool is None and name == self.finish_action.name:
            return (yield from self._guarded(self.finish_action, parameters, 'run'))
        asked = parameters
        if tool is None:
            # The parameters say nothing about the unknown tool.
            tool, parameters, api = self.invalid_action, '', 'run'
        else:
            # However the model spells it: policies know one name.
            name = tool.name if api == 'run' else f'{tool.name}.{api}'
        begun = False

        def guarded(parameters: Any) -> Flow[ActionReturn]:
            nonlocal begun
            begun = True
            return (yield from self._guarded(tool, parameters, api))

        def edited(parameters: Any) -> Flow[ActionReturn]:
            return _told_of_edit((yield from guarded(parameters)), parameters)

        effect = Effect(
            'tool',
            str(name),
            asked,
            idempotent=tool.declares('idempotent', api),
            network=tool.declares('network', api),
            runs_code=tool.runs_code,
            edited=edited,
            call_id=_call_id.get(),
        )
        try:
            return (yield from within(effect, guarded(parameters)))
        except (RepeatedCall, NotDone) as refused:
            if begun:  # it was something inside of the tool
                raise
            return ActionReturn(
                {'inputs': parameters, 'name': api},
                type=tool.name,
                errmsg=str(refused),
                state=ActionStatusCode.API_ERROR,
            )

    def _guarded(self, tool: BaseAction, parameters: Any, api: str) -> Flow[ActionReturn]:
        try:
            result: ActionReturn = yield from self._use(tool, parameters, api)
        except CONTROL_ERRORS:
            raise
        except Exception as error:  # noqa: BLE001 - a tool may have a `__call__` of its own
            result = ActionReturn(
                {'inputs': parameters, 'name': api},
                type=tool.name,
                errmsg=str(error) or type(error).__name__,
                state=ActionStatusCode.API_ERROR,
            )
        if self.max_result_chars is None or not isinstance(result, ActionReturn):
            return result
        return bounded(result, self.max_result_chars)

    def _use(self, tool: BaseAction, parameters: Any, api: str) -> Flow[Any]:
        return call(settle, tool, parameters, api)


def _told_of_edit(result: ActionReturn, parameters: Any) -> ActionReturn:
    notice = (
        'Somebody has changed the parameters before the call. It was called with: '
        f'{json.dumps(parameters, ensure_ascii=False, default=str)}'
    )
    if result.errmsg:
        return replace(result, errmsg=f'{notice}\n{result.errmsg}')
    return replace(result, result=[{'type': 'text', 'content': notice}, *(result.result or [])])


class AsyncActionExecutor(AsyncClosing, AsyncResponder, ActionExecutor):
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

    def _all(self, flows: list[Flow[Any]]) -> Flow[list[Any]]:
        return call(gather, arun, branched(flows), _MAX_PARALLEL)


def _run_all(flows: list[Flow[Any]]) -> list[Any]:
    pool = ThreadPoolExecutor(min(len(flows), _MAX_PARALLEL) or 1, 'lagent-tools')
    awaits_running = False
    try:
        futures = [pool.submit(contextvars.copy_context().run, run, flow) for flow in flows]
        failed = [
            future
            for future in wait(futures, return_when=FIRST_EXCEPTION).done
            if future.exception() is not None
        ]
        awaits_running = True
        return [future.result() for future in failed or futures]
    finally:
        # After an interrupt nobody waits for a tool, which can't be ended from here.
        pool.shutdown(wait=awaits_running, cancel_futures=True)


def _request(content: Any) -> _Request:
    if isinstance(content, FunctionCall):
        return _Request(content.name, content.parameters)
    is_call = isinstance(content, dict) and {'name', 'parameters'} <= set(content)
    assert is_call, (
        'the content must be a tool call: a FunctionCall or a dict with "name" and "parameters", '
        f'not {content!r:.200}'
    )
    return _Request(content['name'], content['parameters'], content.get('id'))
