"""What happens in a run, as JSON objects: one schema for whoever listens, live or afterwards.

Each line has ``v`` (the schema's version, 1) and ``event``. Lines about an effect also have
``effect`` (its number, the same in all of its lines), ``of`` (its kind), ``name``, ``run``,
``session`` and ``seconds`` since it began; ``replayed`` is true where nothing was done, because the
result is known from before. What they add:

==========  ====================================================================================
request     a model is asked
delta       ``text``: the next piece of its reply
reply       ``text``; where known ``finish_reason``, ``usage``, ``reasoning``, ``tool_calls``
call        ``arguments`` of a tool, and the provider's ``call_id``
return      ``result`` of the tool
code        ``code`` that is going to be run
output      ``output``: what it printed or showed
result      how it ended: see `sandbox.ExecutionResult.to_dict`; ``outputs`` is how many there were
error       ``type`` and ``message`` of what the effect raised
==========  ====================================================================================

`lagent run --json` adds a line ``answer``.
"""

import base64
import dataclasses
import enum
import json
import math
import threading
from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import BaseModel

from lagent.effects import Event

VERSION = 1

_NAMES = {
    ('model', 'begin'): 'request',
    ('model', 'delta'): 'delta',
    ('model', 'end'): 'reply',
    ('tool', 'begin'): 'call',
    ('tool', 'delta'): 'output',
    ('tool', 'end'): 'return',
    ('kernel', 'begin'): 'code',
    ('kernel', 'delta'): 'output',
    ('kernel', 'end'): 'result',
}


class TextStream(Protocol):
    """Where lines can be written."""

    def write(self, text: str, /) -> Any:
        """Write a text."""

    def flush(self) -> None:
        """Pass on what was written."""


class JsonLines:
    """A subscriber of `lagent.effects` that writes each event as a line of JSON.

    Lines are whole, also when several threads run effects.

    Args:
        stream: where to write.
        deltas: whether pieces of a model's reply are written, too.
    """

    def __init__(self, stream: TextStream, *, deltas: bool = True) -> None:
        self._stream, self._deltas = stream, deltas
        self._lock = threading.Lock()
        # Only the object itself tells two equal effects apart; each ends, and is forgotten.
        self._running: dict[int, int] = {}
        self._count = 0

    def __call__(self, event: Event) -> None:
        """Write an event.

        Args:
            event: what happened.
        """
        number = self._number(event)
        if self._deltas or (event.effect.kind, event.type) != ('model', 'delta'):
            self.write(**as_dict(event, number))

    def write(self, **values: Any) -> None:
        """Write a line of one's own.

        Args:
            values: its members; ``v`` is added.
        """
        line = as_line(values)
        with self._lock:
            self._stream.write(f'{line}\n')
            self._stream.flush()

    def _number(self, event: Event) -> int:
        key = id(event.effect)
        with self._lock:
            if event.type == 'begin':
                self._count += 1
                self._running[key] = self._count
            if event.type in ('end', 'error'):
                return self._running.pop(key, 0)
            return self._running.get(key, 0)


def as_line(values: Mapping[str, Any]) -> str:
    """The line of JSON that an event or something like it becomes.

    Args:
        values: its members; ``v`` is added.

    Returns:
        The line, without its end.
    """
    # In ASCII, since what a model or a kernel wrote may hold halves of surrogate pairs.
    return json.dumps({'v': VERSION} | json_value(values))


def as_dict(event: Event, number: int = 0) -> dict[str, Any]:
    """An event as JSON values, by the schema of this module.

    Args:
        event: what happened.
        number: the number of its effect.

    Returns:
        The members of the line, without ``v``.
    """
    effect, context = event.effect, event.run
    name = 'error' if event.type == 'error' else _NAMES[effect.kind, event.type]
    line = {
        'event': name,
        'effect': number,
        'of': effect.kind,
        'name': effect.name,
        'run': context.run_id,
        'session': json_value(context.session_id),
        'seconds': round(event.elapsed, 4),
    }
    if event.replayed:
        line['replayed'] = True
    return line | _details(name, event)


def _details(name: str, event: Event) -> dict[str, Any]:
    data = event.data
    match name:
        case 'delta':
            return {'text': str(data)}
        case 'reply':
            return _reply(data)
        case 'call':
            call_id = event.effect.call_id
            named = {} if call_id is None else {'call_id': call_id}
            return {'arguments': json_value(event.effect.payload), **named}
        case 'code':
            return {'code': str(event.effect.payload)}
        case 'output':
            return {'output': json_value(data)}
        case 'result':
            result = json_value(data)
            return {**result, 'outputs': len(result['outputs'])}
        case 'return':
            return {'result': json_value(data)}
        case 'error':
            return {'type': type(data).__name__, 'message': str(data)}
        case _:
            return {}


def _reply(reply: Any) -> dict[str, Any]:
    if isinstance(reply, list):
        return {'text': [str(each) for each in reply]}
    known = {
        name: json_value(value)
        for name in ('finish_reason', 'usage', 'reasoning', 'tool_calls')
        if (value := getattr(reply, name, None))
    }
    return {'text': str(reply), **known}


def json_value(value: Any) -> Any:
    """A value of any kind in JSON's values; what has no form in them becomes its `str`.

    Args:
        value: the value.

    Returns:
        Dicts, lists, texts, numbers, truth values and None.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, enum.Enum):
        return json_value(value.value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else repr(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode('ascii')
    if isinstance(value, Mapping):
        return {str(key): json_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_value(each) for each in value]
    if callable(to_dict := getattr(value, 'to_dict', None)):
        return json_value(to_dict())
    if isinstance(value, BaseModel):
        return json_value(value.model_dump())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: json_value(getattr(value, field.name)) for field in fields}
    return str(value)
