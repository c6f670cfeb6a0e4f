"""How two effects differ, in words and lines that fit on a screen."""

import difflib
import json
from collections.abc import Callable, Mapping
from typing import Any

from lagent.journal.codec import Decoder
from lagent.journal.contract import Record
from lagent.journal.errors import Diverged
from lagent.utils.counts import many

_LINES = 24
_WIDTH = 160


def diverged(
    position: str,
    recorded: Record | None,
    asked: Record | None,
    text: Callable[[Any], str],
    *,
    done: bool = False,
) -> Diverged:
    """The error that says where a run took another way.

    Args:
        position: the effect.
        recorded: what the journal says was asked; None for nothing.
        asked: what is asked now; None for nothing.
        text: makes a text of the body of a record.
        done: whether something new was done in this attempt.

    Returns:
        The error, not raised.
    """
    difference = ''
    if recorded is not None and asked is not None and recorded.kind == asked.kind:
        difference = ''.join(
            f'  {line}\n' for line in differing(_payload(recorded, text), _payload(asked, text))
        )
    return Diverged(position, summary(recorded, text), summary(asked, text), difference, done)


def summary(record: Record | None, text: Callable[[Any], str]) -> str | None:
    """An effect in one line.

    Args:
        record: its intent, or the request for a decision about it.
        text: makes a text of the body of a record.

    Returns:
        Kind, name and the beginning of the payload; None for no effect.
    """
    if record is None:
        return None
    start = ' '.join(_payload(record, text).split())
    start = start if len(start) <= 60 else f'{start[:59]}…'
    return f'{record.kind} {record.name!r} {start}'


def differing(before: str, after: str) -> list[str]:
    """The lines that differ, with a few around them.

    Args:
        before: the recorded text.
        after: the text of now.

    Returns:
        Lines of a unified diff, without its head.
    """
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm='', n=1))[
        2:
    ]
    cut = [line if len(line) <= _WIDTH else f'{line[: _WIDTH - 1]}…' for line in lines[:_LINES]]
    return cut + ([f'… {many(len(lines) - _LINES, "more line")}'] if len(lines) > _LINES else [])


def pretty(value: Any) -> str:
    """A value as text: a text itself, all else as JSON, with what JSON does not know as `repr`.

    Args:
        value: a decoded value.

    Returns:
        Lines; those of texts inside are lines of their own.
    """
    if isinstance(value, str):
        return value
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, default=repr)
    return text.replace('\\n', '\n')


def text_of(body: Any, blobs: Mapping[str, bytes], stored: Callable[[str], bytes]) -> str:
    """An encoded value as text.

    Args:
        body: the value.
        blobs: bytes that are not stored, by their digest.
        stored: gives the bytes of a digest that are.

    Returns:
        See `pretty`.
    """

    def blob(digest: str) -> bytes:
        return blobs[digest] if digest in blobs else stored(digest)

    return pretty(Decoder(blob).decode(body))


def _payload(record: Record, text: Callable[[Any], str]) -> str:
    return text(record.body['payload'] if record.type == 'request' else record.body)
