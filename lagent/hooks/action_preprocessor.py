"""Hooks that turn parsed replies into tool calls, and results into text."""

from collections.abc import Hashable
from typing import Any

from lagent.hooks.hook import Hook
from lagent.prompts.parsers import ToolStatusCode
from lagent.schema import (
    ActionReturn,
    ActionStatusCode,
    AgentMessage,
    FunctionCall,
)

_PARTS = {'tool_type', 'thought', 'action', 'status'}


class ActionPreprocessor(Hook):
    """Makes a tool call of a message's `formatted`, and a text of the call's result.

    `formatted` may be a `FunctionCall`, a dict with ``name`` and ``parameters``, or a dict whose
    ``action`` is one of these.
    """

    def before_action(
        self, executor: Any, message: AgentMessage, session_id: Hashable
    ) -> AgentMessage:
        """Make the tool call.

        Args:
            executor: the executor.
            message: a message with a parsed call.
            session_id: the session.

        Returns:
            The message with the call as its content.

        Raises:
            AssertionError: `formatted` holds no call.
        """
        return _asking(message, message.formatted)

    def after_action(
        self, executor: Any, message: AgentMessage, session_id: Hashable
    ) -> AgentMessage:
        """Make the text that the model is shown.

        Args:
            executor: the executor.
            message: the message with the result.
            session_id: the session.

        Returns:
            The message with the result's text, or with the words of its error; see
            `ActionExecutor.explained`.
        """
        result = message.content
        if not isinstance(result, ActionReturn):
            return message
        if result.state == ActionStatusCode.SUCCESS:
            return _with(message, result.format_result())
        return _with(message, executor.explained(result).errmsg)


class InternLMActionProcessor(ActionPreprocessor):
    """Makes a tool call of what InternLM's tool parsers give.

    Code goes to the executor's first tool; a reply that could not be parsed, or was cut off, is
    answered with the reason, and nothing is run.

    Args:
        code_parameter: name of the parameter that takes the code.
    """

    def __init__(self, code_parameter: str = 'command') -> None:
        self.code_parameter = code_parameter

    def before_action(
        self, executor: Any, message: AgentMessage, session_id: Hashable
    ) -> AgentMessage:
        """Make the tool call.

        Args:
            executor: the executor.
            message: a message whose `formatted` is the dict of a tool parser.
            session_id: the session.

        Returns:
            The message with the call as its content.

        Raises:
            AssertionError: `formatted` is no such dict, or holds no action.
        """
        parsed: Any = message.formatted
        is_parsed = isinstance(parsed, dict) and set(parsed) >= _PARTS
        assert is_parsed, f'`formatted` must be the dict of a tool parser, not {parsed!r:.200}'
        action = parsed['action']
        if parsed['status'] not in (ToolStatusCode.VALID_TOOL, ToolStatusCode.NO_TOOL):
            hint = getattr(parsed, 'hint', None) or ''
            action = {'name': executor.no_action.name, 'parameters': hint}
        elif isinstance(action, str):
            action = self._code_call(executor, action, session_id)
        return _asking(message, action)

    def _code_call(self, executor: Any, code: str, session_id: Hashable) -> dict[str, Any]:
        assert executor.actions, 'the executor has no tool that could run the code'
        name, tool = next(iter(executor.actions.items()))
        parameters: dict[str, Any] = {self.code_parameter: code}
        if any(one['name'] == 'session_id' for one in tool.description.get('parameters', ())):
            parameters['session_id'] = session_id
        return {'name': name, 'parameters': parameters}


def _asking(message: AgentMessage, requested: Any) -> AgentMessage:
    if isinstance(requested, dict) and 'action' in requested and 'name' not in requested:
        requested = requested['action']
    if isinstance(requested, FunctionCall):
        requested = {'name': requested.name, 'parameters': requested.parameters}
    is_call = isinstance(requested, dict) and {'name', 'parameters'} <= set(requested)
    assert is_call, (
        'the message holds no parsed tool call: a FunctionCall or a dict with "name" and '
        f'"parameters" is needed, not {requested!r:.200}'
    )
    return _with(message, {key: requested[key] for key in ('name', 'parameters')})


def _with(message: AgentMessage, content: Any) -> AgentMessage:
    return message.model_copy(update={'content': content})
