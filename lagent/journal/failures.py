"""Exceptions as values: what an effect raised, so that a resumed run sees it again.

An exception is written as its class, its arguments, its attributes, what it is a group of, and what
it was raised from. It comes back as an object of that class, so that the code that has caught it
catches it again: made without running anything of the class, and only if that is loaded, is an
exception, and none by which a test or a program is ended: what a file says must not do that.
Otherwise the run gets a `RecordedFailure` with the same words.
"""

from collections.abc import Iterator
from contextlib import suppress
from types import MemberDescriptorType
from typing import Any

from lagent.journal.codec import Decoder, Encoder
from lagent.journal.errors import NotReadable, RecordedFailure
from lagent.utils.loaded import loaded

_DEEPEST = 10  # exceptions that one was raised from, or is in a group of
_MOST = 100  # exceptions that are written of one
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that is not one of C's own
# Frameworks in which some exceptions end or skip a test, or end the program, as if all was well.
_ENDING = frozenset(('_pytest', 'pytest', 'unittest', 'click', 'typer', 'bdb', 'doctest'))


def encode_error(error: BaseException, encoder: Encoder) -> dict[str, Any]:
    """Write an exception.

    Args:
        error: the exception.
        encoder: writes what it is made of.

    Returns:
        Its class, its words, and of what it is made all that can be written. An argument that
        can't be written is its text.
    """
    return _written(error, encoder, _DEEPEST, iter(range(_MOST)))


def _written(
    error: BaseException, encoder: Encoder, depth: int, places: Iterator[int]
) -> dict[str, Any]:
    kind = type(error)
    tree: dict[str, Any] = {
        'type': f'{kind.__module__}:{kind.__qualname__}',
        'words': encoder.encode(_text(error)),
    }
    if depth == 0 or next(places, None) is None:
        return tree
    made: Any = _foundation(kind).__reduce__(error)
    args, state = made[1], dict(made[2] if len(made) > 2 else {})
    if isinstance(error, BaseExceptionGroup):
        args = (error.message,)
        tree['parts'] = [_written(part, encoder, depth - 1, places) for part in error.exceptions]
    state.pop('args', None)
    state.update(_slots(error))
    tree['args'] = [encoder.encode(arg if _can_write(arg, encoder) else _text(arg)) for arg in args]
    tree['state'] = encoder.encode(
        {name: value for name, value in state.items() if _can_write(value, encoder)}
    )
    if error.__cause__ is not None:
        tree['cause'] = _written(error.__cause__, encoder, depth - 1, places)
    return tree


def decode_error(tree: dict[str, Any], decoder: Decoder) -> Exception:
    """Read an exception.

    Args:
        tree: what `encode_error` gave.
        decoder: reads what it is made of.

    Returns:
        The exception, or a `RecordedFailure` in its place.
    """
    return _read(tree, decoder, _DEEPEST)


def _read(tree: dict[str, Any], decoder: Decoder, depth: int) -> Exception:
    name, words = tree['type'], decoder.decode(tree['words'])
    kind = loaded(name)
    error: Exception = RecordedFailure(name, words)
    known = isinstance(kind, type) and issubclass(kind, Exception) and not _ends(kind)
    if kind is None or not known or 'args' not in tree or depth == 0:
        return error
    try:
        args = decoder.decode(tree['args'])
        if issubclass(kind, BaseExceptionGroup):
            args.append([_read(part, decoder, depth - 1) for part in tree['parts']])
        made = _made(kind, args, decoder.decode(tree.get('state')) or {})
        if 'cause' in tree:
            vars(BaseException)['__cause__'].__set__(made, _read(tree['cause'], decoder, depth - 1))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, NotReadable):
        return error
    return made


def _ends(kind: type[Exception]) -> bool:
    """Whether it, or what it is a kind of, ends more than what it is raised in."""
    return issubclass(kind, StopIteration | StopAsyncIteration) or any(
        base.__module__.partition('.')[0] in _ENDING for base in kind.__mro__
    )


def _made(kind: type[Exception], args: list[Any], state: dict[str, Any]) -> Exception:
    """An exception of a class of which nothing is run, no method and no property."""
    error: Exception = _foundation(kind).__new__(kind, *args)
    # What `super().__init__()` comes to in the end.
    last: Any = next(base for base in kind.__mro__ if not base.__flags__ & _HEAP_TYPE)
    last.__init__(error, *args)
    own = vars(BaseException)['__dict__'].__get__(error)
    for name, value in state.items():
        if (member := _member(kind, name)) is not None:
            member.__set__(error, value)
        else:
            own[name] = value
    return error


def _foundation(kind: type) -> Any:
    """The class of C's own that an exception is laid out as, such as `OSError`."""
    while kind.__flags__ & _HEAP_TYPE:
        kind = kind.__base__  # type: ignore[assignment]
    return kind


def _slots(error: BaseException) -> Iterator[tuple[str, Any]]:
    """What an exception has in ``__slots__`` of its classes."""
    for base in type(error).__mro__:
        if base.__flags__ & _HEAP_TYPE:
            for name, member in vars(base).items():
                if isinstance(member, MemberDescriptorType):
                    with suppress(AttributeError):  # it was never set
                        yield name, member.__get__(error)


def _member(kind: type, name: str) -> MemberDescriptorType | None:
    for base in kind.__mro__:
        if isinstance(found := vars(base).get(name), MemberDescriptorType):
            return found
    return None


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - the program's own, which must not hide the failure
        return f'<{type(value).__name__}, whose text fails: {type(error).__name__}>'


def _can_write(value: Any, encoder: Encoder) -> bool:
    blobs = dict(encoder.blobs)
    try:
        encoder.encode(value)
    except Exception:  # noqa: BLE001 - codecs are the program's own and may raise anything
        return False
    finally:
        encoder.blobs = blobs
    return True
