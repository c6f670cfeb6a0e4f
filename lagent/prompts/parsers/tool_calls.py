"""Code that comes as a tool call instead of a fenced block."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lagent.prompts.parsers.fences import fence_for, find_blocks, split_lines
from lagent.prompts.parsers.json_lenient import loads, loads_object
from lagent.prompts.parsers.python_syntax import PythonSyntax

_SPACE = re.compile(r'\s*+')

BEGIN = '<tool_call>'
END = '</tool_call>'
CODE_KEYS = ('code', 'command', 'source', 'script', 'python', 'input', 'cmd')
"""Names of the argument that holds the code, the likeliest first."""


class CallError(Exception):
    """A tool call that gives no code.

    Attributes:
        reason: machine-readable word.
        hint: a sentence for the model.
    """

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.reason, self.hint = reason, hint


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call: the tool's name, and its arguments as an object or as the model's text."""

    name: str
    arguments: Any


def native_call(call: Any) -> Call:
    """Read a call in a provider's own format.

    Args:
        call: an object or mapping with ``name`` and ``arguments``, or with a ``function`` that has
            them.

    Returns:
        The call; ``''`` for what it lacks.
    """
    inner = _get(call, 'function') or call
    arguments = _get(inner, 'arguments')
    return Call(str(_get(inner, 'name') or ''), '' if arguments is None else arguments)


def text_calls(text: str) -> tuple[list[str], int, bool]:
    """Take apart calls that were written into the text.

    Args:
        text: text that begins with a ``<tool_call>``.

    Returns:
        What is between the tags of each call that follows, the offset of what is behind the last
        one, and whether that one was closed.
    """
    bodies: list[str] = []
    at = 0
    while text.startswith(BEGIN, at):
        end = text.find(END, at)
        if end < 0:
            return [*bodies, text[at + len(BEGIN) :]], len(text), False
        bodies.append(text[at + len(BEGIN) : end])
        at = end + len(END)
        space = _SPACE.match(text, at)
        at = space.end() if space else at
    return bodies, at, True


def json_call(text: str) -> Call:
    """Read a call that was written as JSON.

    Args:
        text: object with ``name`` and ``arguments`` (or ``parameters``), perhaps in a
            ``function``.

    Returns:
        The call.

    Raises:
        CallError: it is no such object.
    """
    try:
        call = loads_object(text)
    except ValueError as error:
        raise CallError(
            'bad_json',
            f'The tool call is not valid JSON ({error}). '
            'Send {"name": "python", "arguments": {"code": "..."}}.',
        ) from None
    call = call['function'] if isinstance(call.get('function'), dict) else call
    name = call.get('name')
    if not isinstance(name, str) or not name:
        raise CallError('bad_json', 'The tool call has no "name".')
    return Call(name, call.get('arguments', call.get('parameters', {})))


def whole_call(text: str) -> Call | None:
    """Read a reply that is nothing but the JSON of a call.

    Args:
        text: the reply.

    Returns:
        The call, or None if it is something else, such as an answer in JSON.
    """
    text = text.strip()
    if not (text.startswith('{') and text.endswith('}')):
        return None
    try:
        keys = loads_object(text).keys()
        return json_call(text) if keys & {'arguments', 'parameters', 'function'} else None
    except (ValueError, CallError):
        return None


def code_of(call: Call, syntax: PythonSyntax) -> str:
    """The code that a call wants to be run.

    Args:
        call: a call of a tool that runs code.
        syntax: asked whether arguments that are no JSON are Python.

    Returns:
        The code, without a Markdown fence around it.

    Raises:
        CallError: the arguments hold no code.
    """
    arguments = call.arguments
    if isinstance(arguments, str):
        try:
            arguments = loads(arguments)
        except ValueError as error:
            # Raw Python in place of JSON. JSON that was cut off is no Python either.
            if arguments.lstrip()[:1] in ('', '{') or not syntax.accepts(arguments):
                raise CallError(
                    'bad_json',
                    f'The arguments of {call.name} are not valid JSON ({error}). '
                    'Send them as {"code": "..."}.',
                ) from None
    if isinstance(arguments, Mapping):
        texts = [arguments[key] for key in CODE_KEYS if isinstance(arguments.get(key), str)]
        values = list(arguments.values())
        arguments = texts[0] if texts else values[0] if len(values) == 1 else None
    if not isinstance(arguments, str) or not arguments.strip():
        raise CallError(
            'no_code', f'The call of {call.name} holds no code. Send it as {{"code": "..."}}.'
        )
    return _unfenced(arguments.replace('\r\n', '\n'), syntax)


def is_known(name: str, known: Collection[str]) -> bool:
    """Whether a tool's name is one of some names.

    Args:
        name: the name; a toolkit's ``.run`` behind it and its case do not matter.
        known: the names.

    Returns:
        True if it is.
    """
    return name.lower().removesuffix('.run') in {one.lower() for one in known}


def unknown_tools(names: Iterable[str], known: Collection[str]) -> CallError:
    """The error for tools that do not exist.

    Args:
        names: the tools that were called.
        known: the tools that run code.

    Returns:
        An error that names both.
    """
    called = ', '.join(repr(name[:80]) for name in names)
    return CallError(
        'unknown_tool', f'There is no tool {called}. To run code, call {next(iter(known))!r}.'
    )


def _get(call: Any, key: str) -> Any:
    return call.get(key) if isinstance(call, Mapping) else getattr(call, key, None)


def _unfenced(code: str, syntax: PythonSyntax) -> str:
    if fence_for(code) == '```':
        return code
    blocks = find_blocks(split_lines(code, ((0, len(code)),)), ('python', 'py'), syntax.accepts)
    whole = len(blocks) == 1 and not (code[: blocks[0].start] + code[blocks[0].end :]).strip()
    return blocks[0].body if whole else code
