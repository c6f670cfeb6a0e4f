"""What a model is told about a function: a description read from its hints and docstring."""

import inspect
import numbers
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin, get_type_hints

from docstring_parser import Docstring, DocstringParam
from docstring_parser import ParseError as DocstringError
from docstring_parser.google import GoogleParser, Section, SectionType
from pydantic import BaseModel

SESSION_PARAMETER = 'session_id'

_ROLE = re.compile(r':[\w:.+-]+:`([^`]+)`')
_BULLETS = ' \t-+*#.'
_ARGUMENT_TITLES = ('Args', 'Arguments', 'Params', 'Parameters')
_OTHER_TITLES = (
    *('Returns', 'Yields', 'Receives', 'Raises', 'Warns', 'Exceptions', 'Attributes', 'Methods'),
    *('Example', 'Examples', 'Note', 'Notes', 'Warning', 'Warnings', 'See Also', 'References'),
)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
# Looked for in this order, whatever the order in the text: 'str or int' is a STRING.
_TYPE_WORDS = (
    (('str', 'string'), 'STRING'),
    (('float',), 'FLOAT'),
    (('int', 'integer', 'number'), 'NUMBER'),
    (('bool', 'boolean'), 'BOOLEAN'),
)
_ARRAY_WORDS = ('list', 'array', 'tuple', 'set', 'frozenset', 'sequence', 'iterable')


def _plain(title: str) -> Section:
    return Section(title, title, SectionType.SINGULAR)


_PARSER = GoogleParser(
    [
        *(Section(title, 'param', SectionType.MULTIPLE) for title in _ARGUMENT_TITLES),
        *map(_plain, _OTHER_TITLES),
    ]
)
_WITHOUT_ARGUMENTS = GoogleParser([*map(_plain, _ARGUMENT_TITLES), *map(_plain, _OTHER_TITLES)])


def describe(
    function: Callable[..., Any],
    *,
    explode_return: bool = False,
    returns_named_value: bool = False,
    include_arguments: Collection[str] | None = None,
    exclude_arguments: Collection[str] | None = None,
) -> dict[str, Any]:
    """Describe a function for a model.

    Hints beat the types of the docstring, and the text of an `Annotated` hint beats its text. A
    parameter `session_id` is for the executor, which knows the session: it is left out unless the
    docstring documents it or `include_arguments` names it. So are ``*args`` and ``**kwargs``.

    Args:
        function: a function or method with a docstring in Google style.
        explode_return: describe the bulleted members of the return value as ``return_data``.
        returns_named_value: describe the named return values as ``return_data``.
        include_arguments: the only parameters to describe.
        exclude_arguments: parameters to leave out.

    Returns:
        A dict with ``name``, ``description``, ``parameters``, ``required`` and, where it was asked
        for and found, ``return_data``.
    """
    docstring = _parsed(function.__doc__)
    documented = {entry.arg_name: entry for entry in docstring.params}
    hints = _hints(function)
    parameters, required = [], []
    for parameter in _own_parameters(function):
        name = parameter.name
        if include_arguments is not None and name not in include_arguments:
            continue
        if exclude_arguments is not None and name in exclude_arguments:
            continue
        if name == SESSION_PARAMETER and name not in {*documented, *(include_arguments or ())}:
            continue
        parameters.append(_described(name, hints.get(name), documented.get(name)))
        if parameter.default is parameter.empty:
            required.append(name)
    description = {
        'name': function.__name__,
        'description': summary(docstring),
        'parameters': parameters,
        'required': required,
    }
    returns = ''.join(meta.description or '' for meta in docstring.meta if 'Returns' in meta.args)
    lines = returns.splitlines()
    members = lines[1:] if explode_return else lines if returns_named_value else []
    return_data = [_member(entry) for entry in _entries(members)]
    if return_data:
        description['return_data'] = return_data
    return description


def summary(docstring: Docstring | str | None) -> str:
    """The words of a docstring before its first section.

    Args:
        docstring: the docstring, parsed or not.

    Returns:
        The words, or ``''``.
    """
    parsed = docstring if isinstance(docstring, Docstring) else _parsed(docstring)
    return (parsed.description or '').strip()


def _parsed(docstring: str | None) -> Docstring:
    text = _ROLE.sub(r'\1', docstring or '')
    try:
        return _PARSER.parse(text)
    except DocstringError:
        # A malformed list of arguments costs what it says about them, not the rest.
        return _WITHOUT_ARGUMENTS.parse(text)


def _entries(lines: Iterable[str]) -> list[DocstringParam]:
    section = ['', 'Args:']
    for line in lines:
        begins = not line[:1].isspace() and ':' in line
        section.append('    ' + line.strip(_BULLETS) if begins else '        ' + line.strip())
    return _parsed('\n'.join(section)).params


def _member(entry: DocstringParam) -> dict[str, Any]:
    name, type_name = entry.arg_name, entry.type_name
    if type_name is None and name.startswith('(') and name.endswith(')'):
        name, type_name = '', name[1:-1]
    member = {'name': name} if name else {}
    member['description'] = entry.description or ''
    if type_name:
        member['type'] = _named_type(type_name)
    return member


def _own_parameters(function: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    for position, parameter in enumerate(inspect.signature(function).parameters.values()):
        is_receiver = position == 0 and parameter.name in ('self', 'cls')
        if not is_receiver and parameter.kind not in _VARIADIC:
            yield parameter


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - a hint may name what exists for type checkers only
        return dict(getattr(function, '__annotations__', {}))


def _described(name: str, hint: Any, entry: DocstringParam | None) -> dict[str, Any]:
    text = (entry and entry.description) or ''
    if get_origin(hint) is Annotated:
        notes = (getattr(note, 'description', note) for note in get_args(hint)[1:])
        text = next((note for note in notes if note and isinstance(note, str)), text)
    if hint is not None:
        type_name = _hinted_type(hint)
    else:
        type_name = _named_type((entry and entry.type_name) or '')
    return {'name': name, 'type': type_name, 'description': text}


def _named_type(text: str) -> str:
    words = re.findall('[a-z]+', text.lower())
    if 'dict' in words[:1]:
        return 'STRING'
    if any(word in _ARRAY_WORDS for word in words):
        return 'Array'
    for names, type_name in _TYPE_WORDS:
        if any(word in names for word in words):
            return type_name
    return 'STRING'


def _hinted_type(hint: Any) -> str:
    if isinstance(hint, str):
        return _named_type(hint)
    if isinstance(hint, NewType):
        return _hinted_type(hint.__supertype__)
    origin = get_origin(hint)
    if origin is Annotated:
        return _hinted_type(get_args(hint)[0])
    if origin in (Union, UnionType):
        return _common_type({_hinted_type(one) for one in get_args(hint) if one is not NoneType})
    if origin is Literal:
        return _common_type({_class_type(type(value)) for value in get_args(hint)})
    kind = origin or hint
    return _class_type(kind) if isinstance(kind, type) else 'STRING'


def _class_type(kind: type) -> str:
    if issubclass(kind, Enum):
        return _common_type({_class_type(type(member.value)) for member in kind})
    if issubclass(kind, str | bytes | Mapping | BaseModel):
        return 'STRING'
    if issubclass(kind, bool):
        return 'BOOLEAN'
    if issubclass(kind, numbers.Integral):
        return 'NUMBER'
    if issubclass(kind, numbers.Real):
        return 'FLOAT'
    return 'Array' if issubclass(kind, Iterable) else 'STRING'


def _common_type(types: set[str]) -> str:
    if len(types) == 1:
        return types.pop()
    if types and types <= {'FLOAT', 'NUMBER', 'BOOLEAN'}:
        return 'FLOAT' if 'FLOAT' in types else 'NUMBER'
    return 'STRING'
