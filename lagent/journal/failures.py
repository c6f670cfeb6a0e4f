"""Exceptions as values: what an effect raised, so that a resumed run sees it again.

An exception is written as its class and the arguments it says it can be made of, which is what
copying uses. It is rebuilt only if that class is loaded, is an exception, and none by which a test
or a program is ended: what a file says must not do that. Else the run gets a `RecordedFailure` with
the same words.
"""

from typing import Any

from lagent.journal.codec import Decoder, Encoder
from lagent.journal.errors import NotReadable, NotRecordable, RecordedFailure
from lagent.utils.loaded import loaded

# Frameworks in which some exceptions end or skip a test, or end the program, as if all was well.
_ENDING = frozenset(('_pytest', 'pytest', 'unittest', 'click', 'typer', 'bdb', 'doctest'))


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
    known = isinstance(kind, type) and issubclass(kind, Exception) and not _ends(kind)
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


def _ends(kind: type[Exception]) -> bool:
    """Whether it, or what it is a kind of, ends more than what it is raised in."""
    return issubclass(kind, StopIteration | StopAsyncIteration) or any(
        base.__module__.partition('.')[0] in _ENDING for base in kind.__mro__
    )
