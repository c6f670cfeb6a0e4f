"""The parser of replies that are written in XML-like tags."""

import json
import re
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape, unescape

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from lagent.prompts.parsers.json_lenient import loads
from lagent.prompts.parsers.model_fields import (
    choices,
    constants,
    default_text,
    item_of,
    model_in,
    type_name,
)
from lagent.prompts.parsers.models_parser import ModelsParser
from lagent.prompts.parsers.reasoning import split_reasoning

_INDENT = '    '
_ITEM = 'item'


class CustomFormatParser(ModelsParser):
    """Reads a tag for each field of a pydantic model.

    Nested models are tags in tags, and lists hold an ``<item>`` for each item. A field whose tag is
    missing, or empty where it has a default, has its default.

    Attributes:
        models: the fields of the template that are models, by name; earlier ones go first. The
            usual names are ``default_format`` and ``unknown_format``.
    """

    def _written(self, model: type[BaseModel]) -> str:
        return ''.join(f'{line}\n' for line in _shown(model, '', ()))

    def parse_response(self, data: str) -> BaseModel:
        """Read a reply.

        Args:
            data: the reply.

        Returns:
            An instance of the first model that the tags fit.

        Raises:
            ValueError: the tags fit no model.
        """
        text = _without_comments(split_reasoning(str(data)).said())
        problems: list[str] = []
        for name, model in self.models.items():
            values = _values(text, model)
            if not values:
                problems.append(f'{name}: none of its tags is there')
                continue
            try:
                return model.model_validate(values)
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                where = '.'.join(str(part) for part in first['loc'])
                problems.append(f'{name}: {where}: {first["msg"]}')
        raise ValueError(f'the reply fits none of the formats ({"; ".join(problems)})')

    def format_response(self, parsed: BaseModel) -> str:
        """Write an instance as the model should have written it.

        Args:
            parsed: what `parse_response` gave.

        Returns:
            Its tags.
        """
        return ''.join(f'{line}\n' for line in _written(parsed, ''))


def _shown(model: type[BaseModel], pad: str, outer: tuple[type, ...]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        if field.description:
            yield f'{pad}<!-- {field.description} -->'
        yield from _shown_field(field.alias or name, field.annotation, field, pad, (*outer, model))


def _shown_field(
    name: str, annotation: Any, field: FieldInfo | None, pad: str, outer: tuple[type, ...]
) -> Iterator[str]:
    begin, end = f'{pad}<{name} type="{escape(type_name(annotation))}">', f'</{name}>'
    model, item = model_in(annotation), item_of(annotation)
    if model and model not in outer:
        yield begin
        yield from _shown(model, pad + _INDENT, outer)
        yield pad + end
    elif item is not None and model_in(item) not in outer:
        yield begin
        yield from _shown_field(_ITEM, item, None, pad + _INDENT, outer)
        yield pad + end
    else:
        default = default_text(field) if field else None
        yield f'{begin}{escape(default) if default not in (None, "None") else ""}{end}'


def _written(model: BaseModel, pad: str) -> Iterator[str]:
    plain = model.model_dump(mode='json')
    for name, field in type(model).model_fields.items():
        yield from _written_field(field.alias or name, getattr(model, name), plain[name], pad)


def _written_field(name: str, value: Any, plain: Any, pad: str) -> Iterator[str]:
    if isinstance(value, BaseModel):
        yield f'{pad}<{name}>'
        yield from _written(value, pad + _INDENT)
        yield f'{pad}</{name}>'
    elif isinstance(plain, list):
        yield f'{pad}<{name}>'
        for item, plain_item in zip(value, plain, strict=True):
            yield from _written_field(_ITEM, item, plain_item, pad + _INDENT)
        yield f'{pad}</{name}>'
    else:
        text = json.dumps(plain, ensure_ascii=False) if isinstance(plain, dict) else str(plain)
        yield f'{pad}<{name}>{"" if plain is None else escape(text)}</{name}>'


def _values(text: str, model: type[BaseModel]) -> dict[str, Any]:
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    values: dict[str, Any] = {}
    for name, inner in _elements(text, list(fields)).items():
        field = fields[name]
        if any(part.strip() for part in inner) or field.is_required():
            values[name] = _value(inner, field.annotation)
    return values


def _value(inner: list[str], annotation: Any) -> Any:
    if model := model_in(annotation):
        return _values(inner[0], model)
    item = item_of(annotation)
    if item is not None:
        return [_value([one], item) for one in _items(inner)]
    text = unescape(inner[0].strip())
    for choice in choices(annotation):
        for constant in constants(choice) or ():
            if text == str(constant):
                return constant
    kinds = [choice for choice in choices(annotation) if getattr(choice, '__name__', '') == 'dict']
    if kinds:
        try:
            return loads(text)
        except ValueError:
            return text
    return text


def _items(inner: list[str]) -> list[str]:
    if len(inner) > 1:
        return inner
    items = _elements(inner[0], [_ITEM]).get(_ITEM)
    if items is not None:
        return items
    try:
        value = loads(inner[0])
    except ValueError:
        return [inner[0]] if inner[0].strip() else []
    return [str(item) for item in value] if isinstance(value, list) else [inner[0]]


def _elements(text: str, names: list[str]) -> dict[str, list[str]]:
    """What is in the tags of some names, those in other such tags left out."""
    found: dict[str, list[str]] = {}
    if not names:
        return found
    opening = re.compile(rf'<({"|".join(map(re.escape, names))})(?:\s[^<>]*+)?>')
    at = 0
    while begin := opening.search(text, at):
        end = _closing(text, begin[1], begin.end())
        if end is None:
            # Everything behind is inside of a tag that was cut off.
            break
        found.setdefault(begin[1], []).append(text[begin.end() : end.start()])
        at = end.end()
    return found


def _closing(text: str, name: str, at: int) -> re.Match[str] | None:
    depth = 1
    for tag in re.compile(rf'<(/?){re.escape(name)}(?:\s[^<>]*+)?>').finditer(text, at):
        depth += -1 if tag[1] else 1
        if not depth:
            return tag
    return None


def _without_comments(text: str) -> str:
    parts: list[str] = []
    at = 0
    while (start := text.find('<!--', at)) >= 0 and (end := text.find('-->', start)) >= 0:
        parts.append(text[at:start])
        at = end + 3
    return ''.join(parts) + text[at:]
