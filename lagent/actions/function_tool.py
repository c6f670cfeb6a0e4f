"""A function as a tool."""

import inspect
from collections.abc import Callable
from typing import Any

from lagent.actions.base_action import AsyncActionMixin, BaseAction
from lagent.actions.parser import BaseParser, JsonParser
from lagent.utils import create_object


class FunctionTool(BaseAction):
    """A simple tool, named and described like a function that is decorated with `tool_api`.

    Args:
        function: the function.
        parser: class that reads the inputs and writes the outputs.

    Raises:
        TypeError: the function is not decorated, or no function.
    """

    def __init__(self, function: Callable[..., Any], parser: type[BaseParser] = JsonParser) -> None:
        description = getattr(function, 'api_description', None)
        if description is None or not callable(function):
            raise TypeError(
                f'{function!r:.200} is no tool: give a BaseAction, its configuration dict, or a '
                'function that is decorated with @tool_api'
            )
        self.run = function
        super().__init__(description, parser)


class AsyncFunctionTool(AsyncActionMixin, FunctionTool):
    """A `FunctionTool` of a coroutine function."""


def as_tool(given: Any) -> BaseAction:
    """Make a tool of what an executor may be given.

    Args:
        given: a tool, the configuration dict of one, or a function decorated with `tool_api`.

    Returns:
        The tool.

    Raises:
        TypeError: it is none of these.
    """
    given = create_object(given)
    if isinstance(given, BaseAction):
        return given
    kind = AsyncFunctionTool if inspect.iscoroutinefunction(given) else FunctionTool
    return kind(given)
