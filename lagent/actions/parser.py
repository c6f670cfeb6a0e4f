"""Between a model's words and a tool's arguments, and back."""

import json
import logging
import re
from ast import literal_eval
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from lagent.errors import LagentError
from lagent.prompts.parsers.json_lenient import loads
from lagent.utils.counts import many

if TYPE_CHECKING:
    from lagent.actions.base_action import BaseAction

logger = logging.getLogger(__name__)

_SHOWN_CHARS = 1000
_ADDRESS = re.compile(r'<.* at 0x[0-9a-fA-F]+>+')  # another one in each process


class ParseError(LagentError):
    """The input of a tool could not be read.

    Attributes:
        err_msg: what is wrong with it, in words a model can act on.
    """

    code = 'parse_error'

    def __init__(self, err_msg: str) -> None:
        super().__init__(err_msg)
        self.err_msg = err_msg


class BaseParser:
    """Hands the whole input to a tool's first parameter.

    Subclasses override `parse_inputs` and `parse_outputs`.

    Args:
        action: the tool that the parser works for. Its description is checked, and gains the
            `PARAMETER_DESCRIPTION` where there is one.

    Raises:
        ValueError: the description requires a parameter that it doesn't list.

    Attributes:
        PARAMETER_DESCRIPTION: tells a model in which form to write the arguments.
    """

    PARAMETER_DESCRIPTION: str = ''

    def __init__(self, action: 'BaseAction') -> None:
        self.action = action
        self._api2param: dict[str, list[dict[str, Any]]] = {}
        self._api2required: dict[str, list[str]] = {}
        toolkit = action.is_toolkit
        for api in action.description['api_list'] if toolkit else [action.description]:
            parameters, required = api.get('parameters', []), api.get('required', [])
            unknown = set(required) - {parameter['name'] for parameter in parameters}
            if unknown:
                title = f'{action.name}.{api["name"]}' if toolkit else api['name']
                raise ValueError(f'unknown parameters for function "{title}": {_listed(unknown)}')
            if self.PARAMETER_DESCRIPTION:
                api['parameter_description'] = self.PARAMETER_DESCRIPTION
            key = api['name'] if toolkit else 'run'
            self._api2param[key], self._api2required[key] = parameters, required

    def parse_inputs(self, inputs: Any, name: str = 'run') -> dict[str, Any]:
        """Turn what a model wrote into keyword arguments.

        Args:
            inputs: the model's input.
            name: which API of the tool it is for.

        Returns:
            The arguments of the API, by name.

        Raises:
            ParseError: the input doesn't fit the API.
        """
        parameters = self._api2param[name]
        if parameters:
            return {parameters[0]['name']: inputs}
        if inputs:
            raise ParseError(f'{name} takes no arguments')
        return {}

    def parse_outputs(self, outputs: Any) -> list[dict[str, Any]]:
        """Turn what an API returned into result items.

        Args:
            outputs: a text as it is; a dict, which is written as JSON; anything else as `str`,
                but for an object whose text would only be its address.

        Returns:
            Items ``{'type': ..., 'content': ...}``.
        """
        if isinstance(outputs, dict):
            outputs = json.dumps(outputs, ensure_ascii=False, default=str)
        text = str(outputs)
        if not isinstance(outputs, str) and _ADDRESS.fullmatch(text):
            kind = type(outputs).__name__
            logger.warning(
                '%s returned a %s, which has no text of its own: return a text, a dict, or an '
                'object with __str__',
                self.action.name,
                kind,
            )
            text = f'It returned a {kind}, which has no text of its own.'
        return [{'type': 'text', 'content': text}]


class JsonParser(BaseParser):
    """Arguments as a JSON object: a dict, or its text as models write it; see `json_lenient`."""

    PARAMETER_DESCRIPTION = (
        'Pass the arguments of this tool as one JSON object {key: value}, '
        'where every key is the name of a parameter.'
    )

    def parse_inputs(self, inputs: Any, name: str = 'run') -> dict[str, Any]:
        """Turn a JSON object into keyword arguments.

        Args:
            inputs: the object as a dict or as text.
            name: which API of the tool it is for.

        Returns:
            The arguments of the API, by name.

        Raises:
            ParseError: not an object, or one with unknown or missing arguments.
        """
        arguments = inputs
        if isinstance(inputs, str):
            try:
                arguments = loads(inputs)
            except ValueError as error:
                raise ParseError(f'invalid json format: {_shortened(inputs)} ({error})') from error
        if not isinstance(arguments, dict):
            raise ParseError(
                f'invalid json format: {_shortened(inputs)} is no {{key: value}} object'
            )
        unknown = set(arguments) - {parameter['name'] for parameter in self._api2param[name]}
        if unknown:
            raise ParseError(f'unknown arguments: {_listed(unknown)}')
        missing = set(self._api2required[name]) - set(arguments)
        if missing:
            raise ParseError(f'missing required arguments: {_listed(missing)}')
        return arguments


class TupleParser(BaseParser):
    """Arguments by position: a tuple, or the text of a Python literal of one."""

    PARAMETER_DESCRIPTION = (
        'Pass the arguments of this tool as a tuple (arg1, arg2, arg3), in the order in which '
        'the parameters are listed.'
    )

    def parse_inputs(self, inputs: Any, name: str = 'run') -> dict[str, Any]:
        """Turn a tuple into keyword arguments.

        Args:
            inputs: the tuple or its text.
            name: which API of the tool it is for.

        Returns:
            The arguments of the API, by name.

        Raises:
            ParseError: not a tuple, or one with too few or too many items.
        """
        values = inputs
        if isinstance(inputs, str):
            try:
                values = literal_eval(inputs.strip())
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
                raise ParseError(f'invalid tuple format: {_shortened(inputs)}') from error
        if not isinstance(values, tuple | list):
            raise ParseError(
                f'invalid tuple format: {_shortened(inputs)} (a tuple of one item is written (x,))'
            )
        parameters, least = self._api2param[name], len(self._api2required[name])
        if len(values) < least:
            raise ParseError(f'at least {many(least, "argument")} required, {len(values)} given')
        if len(values) > len(parameters):
            raise ParseError(
                f'at most {many(len(parameters), "argument")} accepted, {len(values)} given'
            )
        return {
            parameter['name']: value for parameter, value in zip(parameters, values, strict=False)
        }


def _listed(names: Iterable[Any]) -> str:
    return '{' + ', '.join(sorted(map(repr, names))) + '}'


def _shortened(value: Any) -> str:
    text = str(value)
    if len(text) <= _SHOWN_CHARS:
        return text
    return f'{text[:_SHOWN_CHARS]}... ({many(len(text), "character")})'
