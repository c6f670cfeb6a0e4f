"""The code that a message asks to be run."""

from typing import Any, NamedTuple

from lagent.prompts.parsers import ToolStatusCode
from lagent.schema import AgentMessage, FunctionCall

_CODE_PARAMETERS = ('command', 'code')


class Request(NamedTuple):
    """The cells to run; without any, `refusal` tells the model why nothing is run."""

    cells: list[str]
    refusal: str = ''


def requested_code(message: AgentMessage) -> Request:
    """Find the code in a message.

    Args:
        message: one whose `formatted` (or, where that is empty, `content`) is the dict of a tool or
            code parser, or a call with the code as its parameter ``command`` or ``code``.

    Returns:
        The cells in order. There are none where the parser found none, or found code that must not
        be run because it is malformed or was cut off.

    Raises:
        ValueError: the message was not parsed, so that nobody can tell code from prose.
    """
    parsed = message.content if message.formatted is None else message.formatted
    if isinstance(parsed, dict) and 'action' in parsed:
        return _of_parser(parsed)
    code = _of_call(parsed)
    if code is None:
        raise ValueError(
            'The message carries no parsed code, and nothing was run: its `formatted` is '
            f'{type(message.formatted).__name__}. Give the agent an output_format that finds code, '
            'such as CodeParser.'
        )
    return Request([code])


def _of_parser(parsed: dict[str, Any]) -> Request:
    # A parser's extra words are attributes of its dict, and gone once that has been through JSON.
    hint = getattr(parsed, 'hint', '') or parsed.get('hint', '')
    match parsed.get('status', ToolStatusCode.VALID_TOOL):
        case ToolStatusCode.VALID_TOOL:
            if cells := parsed.get('cells'):
                return Request(list(cells))
            action = parsed['action']
            code = action if isinstance(action, str) else _of_call(action)
            if code is not None:
                return Request([code])
            words = 'The reply calls a tool and has no code'
        case ToolStatusCode.NO_TOOL:
            words = 'The reply has no code'
        case ToolStatusCode.INCOMPLETE:
            words = 'The reply ended inside the code'
        case _:
            words = 'The code in the reply could not be read'
    return Request([], f'{words}, so nothing was run. {hint}'.rstrip())


def _of_call(call: Any) -> str | None:
    if isinstance(call, FunctionCall):
        parameters: Any = call.parameters
    elif isinstance(call, dict):
        parameters = call.get('parameters')
    else:
        return None
    if isinstance(parameters, dict):
        parameters = next((parameters[k] for k in _CODE_PARAMETERS if k in parameters), None)
    return parameters if isinstance(parameters, str) else None
