"""The parser of replies that are a JSON object."""

import json
from collections.abc import Iterator
from typing import Any, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from lagent.prompts.parsers.fences import find_blocks, split_lines
from lagent.prompts.parsers.json_lenient import find_object, loads
from lagent.prompts.parsers.model_fields import (
    choices,
    default_text,
    item_of,
    model_in,
    type_name,
)
from lagent.prompts.parsers.models_parser import ModelsParser
from lagent.prompts.parsers.reasoning import split_reasoning

_INDENT = '    '
_TAGS = ('json', 'jsonc', 'json5', '')


class JSONParser(ModelsParser):
    """Reads a JSON object and checks it with pydantic models.

    The instruction shows each model as JSON with comments. A reply may be the object alone, have it
    in a Markdown fence, or speak around it; comments and other slips of syntax are repaired, see
    `json_lenient`.

    Attributes:
        models: the fields of the template that are models, by name; earlier ones go first.
    """

    def _written(self, model: type[BaseModel]) -> str:
        return '\n'.join(_object(model, '', ()))

    def parse_response(self, data: str) -> dict[str, Any]:
        """Read a reply.

        Args:
            data: the reply.

        Returns:
            The fields of the first model that the object fits, with defaults and without unknown
            keys.

        Raises:
            ValueError: the reply holds no complete JSON object, or it fits no model.
        """
        value = _value(split_reasoning(str(data)).said())
        problems: list[str] = []
        for name, model in self.models.items():
            try:
                return model.model_validate(_filled(value, model)).model_dump()
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                where = '.'.join(str(part) for part in first['loc'])
                problems.append(f'{name}: {where or "the whole"}: {first["msg"]}')
        raise ValueError(f'the reply fits none of the formats ({"; ".join(problems)})')

    def format_response(self, parsed: Any) -> str:
        """Write an object as the model should have written it.

        Args:
            parsed: what `parse_response` gave, or an instance of a model.

        Returns:
            Its JSON.
        """
        if isinstance(parsed, BaseModel):
            return parsed.model_dump_json()
        return json.dumps(parsed, ensure_ascii=False, default=str)


def _value(text: str) -> Any:
    try:
        return loads(text)
    except ValueError:
        pass
    for block in find_blocks(split_lines(text, ((0, len(text)),)), _TAGS, None):
        if block.tag in _TAGS and block.closed:
            try:
                return loads(block.body)
            except ValueError:
                continue
    return find_object(text)


def _filled(value: Any, model: type[BaseModel]) -> Any:
    """The value without the placeholders that the model copied from the instruction."""
    if not isinstance(value, dict):
        return value
    result = dict(value)
    for name, field in model.model_fields.items():
        key = field.alias or name
        given = result.get(key)
        if isinstance(given, str) and given in _placeholders(field):
            del result[key]
        elif (nested := model_in(field.annotation)) and key in result:
            result[key] = _filled(given, nested)
    return result


def _placeholders(field: FieldInfo) -> set[str]:
    kinds = (get_origin(choice) or choice for choice in choices(field.annotation))
    names = {getattr(kind, '__name__', '') for kind in kinds}
    return (names & {'str', 'int', 'float', 'bool', 'list', 'dict'}) | {type_name(field.annotation)}


def _object(model: type[BaseModel], pad: str, outer: tuple[type, ...]) -> Iterator[str]:
    yield '{'
    inner = pad + _INDENT
    for name, field in model.model_fields.items():
        for line in (field.description or '').splitlines():
            yield f'{inner}// {line}'
        *lines, last = _field_value(field.annotation, inner, (*outer, model))
        head = f'{inner}"{field.alias or name}": '
        for line in lines:
            yield head + line
            head = ''
        yield f'{head}{last},  // {_note(field)}'
    yield f'{pad}}}'


def _field_value(annotation: Any, pad: str, outer: tuple[type, ...]) -> list[str]:
    if (model := model_in(annotation)) and model not in outer:
        return list(_object(model, pad, outer))
    item = item_of(annotation)
    if (model := model_in(item)) and model not in outer:
        inner = pad + _INDENT
        first, *rest = _object(model, inner, outer)
        return ['[', inner + first, *rest, f'{pad}]']
    return [json.dumps(type_name(annotation), ensure_ascii=False)]


def _note(field: FieldInfo) -> str:
    if field.is_required():
        return 'required'
    default = default_text(field)
    return 'optional' if default is None else f'default: {default}'
