"""Exceptions as values: what an effect raised, so that a resumed run sees it again.

An exception is written as its class and the arguments it says it can be made of, which is what
copying uses. It is rebuilt only if that class is loaded and is an exception; else the run gets a
`RecordedFailure` with the same words.
"""

from typing import Any

from lagent.journal.codec import Decoder, Encoder
from lagent.journal.errors import NotReadable, NotRecordable, RecordedFailure
from lagent.utils.loaded import loaded


def causes_of(error: BaseException) -> list[BaseException]:
    """An exception, those that it is said to be raised from, and those that it is a group of."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and not any(one is other for other in found):
            found.append(one)
            waiting.append(one.__cause__)
            waiting.extend(one.exceptions if isinstance(one, BaseExceptionGroup) else ())
    return found


def encode_error(error: BaseException, encoder: Encoder) -> dict[str, Any]:
    """Write an exception.

    Args:
        error: the exception.
        encoder: writes its arguments.

    Returns:
        Its class, its words, and its arguments where they can be written.
    """
    kind = type(error)
    tree: dict[str, Any] = {
        'type': f'{kind.__module__}:{kind.__qualname__}',
        'words': encoder.encode(str(error)),
    }
    try:
        made = error.__reduce__()
        if isinstance(made, tuple) and made[0] is kind:
            tree['args'] = encoder.encode(list(made[1]))
            tree['state'] = encoder.encode(made[2] if len(made) > 2 else None)
    except (NotRecordable, TypeError):
        tree.pop('args', None)
    return tree


def decode_error(tree: dict[str, Any], decoder: Decoder) -> Exception:
    """Read an exception.

    Args:
        tree: what `encode_error` gave.
        decoder: reads its arguments.

    Returns:
        The exception, or a `RecordedFailure` in its place.
    """
    name, words = tree['type'], decoder.decode(tree['words'])
    kind = loaded(name)
    known = isinstance(kind, type) and issubclass(kind, Exception)
    if kind is None or not known or 'args' not in tree:
        return RecordedFailure(name, words)
    try:
        error: Exception = kind(*decoder.decode(tree['args']))
        state = decoder.decode(tree.get('state'))
        if isinstance(state, dict):
            vars(error).update(state)
    except (TypeError, ValueError, NotReadable):
        return RecordedFailure(name, words)
    return error
