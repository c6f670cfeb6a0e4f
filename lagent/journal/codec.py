"""Values as JSON, and back as what they were; never a pickle.

JSON's own values stay as they are. Everything else is an object whose member ``$`` says what it is.
No dict of a user's can be taken for one: where it has such a key, it is written another way.
Dataclasses, pydantic models, enums and subclasses of dict that a module defines by name are written
by their fields, and read only if their module is loaded already: reading a journal imports nothing
and runs nothing. Other types need a codec, see `register`.
"""

import base64
import hashlib
import json
import math
from collections.abc import Callable, Container
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from lagent.errors import JournalError
from lagent.journal.errors import NotReadable, NotRecordable
from lagent.journal.parts import form_of, make
from lagent.journal.redact import Redactor
from lagent.journal.secret_fields import hidden
from lagent.llms.completion import Completion
from lagent.utils.loaded import loaded

TAG = '$'
BLOB_SIZE = 2_048
"""Characters or bytes from which on a text or bytes are kept beside the record, by their digest."""

_DEPTH = 100
_LARGE = 1 << 4_096  # beyond, Python reads and writes integers in hexadecimal only
_STR = {str}


@dataclass(frozen=True, slots=True)
class Codec:
    """How one type is written and read.

    Attributes:
        type: the type itself; subclasses need their own codec.
        name: what it is called in records; never to be changed.
        encode: makes of a value something that can be written.
        decode: makes the value again.
    """

    type: type
    name: str
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


_by_type: dict[type, Codec] = {}
_by_name: dict[str, Codec] = {}


def register(
    type_: type, name: str, encode: Callable[[Any], Any], decode: Callable[[Any], Any]
) -> None:
    """Say how values of a type are written to journals and cassettes.

    Args:
        type_: the type; registering it again replaces its codec.
        name: what it is called in records: choose one that you will never change.
        encode: makes of a value something that can be written: plain values, or values of types
            that can be written themselves.
        decode: makes the value again.
    """
    codec = Codec(type_, name, encode, decode)
    _by_type[type_] = _by_name[name] = codec


def written(tree: Any) -> str:
    """The JSON text of an encoded value, in ASCII; dicts keep their order."""
    return json.dumps(tree, separators=(',', ':'), allow_nan=False)


def canonical(tree: Any) -> str:
    """The JSON text of an encoded value that is the same for equal values."""
    return json.dumps(tree, sort_keys=True, separators=(',', ':'), allow_nan=False)


def digest_of(data: bytes) -> str:
    """The SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


class Encoder:
    """Writes values, without secrets.

    Args:
        redactor: takes the secrets out.
        plain: write a `Completion` as its text, as in what a model is asked.

    Attributes:
        blobs: large texts and bytes by digest, collected while values are encoded.
    """

    def __init__(self, redactor: Redactor, *, plain: bool = False) -> None:
        self.blobs: dict[str, bytes] = {}
        self._redactor = redactor
        self._plain = plain

    def encode(self, value: Any, _depth: int = 0) -> Any:
        """Write a value.

        Args:
            value: the value.

        Returns:
            Of JSON's values only.

        Raises:
            NotRecordable: it holds a value whose type no codec is registered for.
        """
        kind = type(value)
        if value is None or kind is bool or (kind is int and -_LARGE < value < _LARGE):
            return value
        if kind is str:
            return self._text(value)
        if _depth > _DEPTH:
            raise NotRecordable(
                f'A value is nested more than {_DEPTH} levels deep, or contains itself: '
                f'{kind.__name__}. Return something flatter.'
            )
        _depth += 1
        if kind is list:
            return [self.encode(item, _depth) for item in value]
        if kind is dict:
            return self._dict(value, _depth)
        return self._tagged(kind, value, _depth)

    def _text(self, text: str) -> Any:
        text = self._redactor.text(text)
        if len(text) < BLOB_SIZE:
            return text
        return {TAG: 'text', 'blob': self.blob(text.encode('utf-8', 'surrogatepass'))}

    def blob(self, data: bytes) -> str:
        """Keep bytes, which have no secrets in them, beside the record; return their digest."""
        digest = digest_of(data)
        self.blobs[digest] = data
        return digest

    def _dict(self, value: dict[Any, Any], depth: int) -> Any:
        if TAG not in value and {*map(type, value)} <= _STR:
            text, is_secret = self._redactor.text, self._redactor.is_secret_name
            tree: dict[str, Any] = {}
            numbers: dict[str, int] = {}
            for key, item in value.items():
                name = text(key)
                if name in tree:
                    name = _another(name, tree, numbers)
                if is_secret(key):
                    tree[name] = self.encode(hidden(key, item), depth)
                elif type(item) is str:  # nearly all that there is: the messages of a model
                    tree[name] = self._text(item)
                else:
                    tree[name] = self.encode(item, depth)
            return tree
        pairs: list[list[Any]] = []
        seen: set[str] = set()
        numbers = {}
        for key, item in value.items():
            name, named = self.encode(key, depth), type(key) is str
            if named and type(name) is str:
                name = _another(name, seen, numbers) if name in seen else name
                seen.add(name)
            is_hidden = named and self._redactor.is_secret_name(key)
            pairs.append([name, self.encode(hidden(key, item) if is_hidden else item, depth)])
        return {TAG: 'dict', 'v': pairs}

    def _tagged(self, kind: type, value: Any, depth: int) -> Any:
        if kind is float:
            return value if math.isfinite(value) else {TAG: 'float', 'v': repr(value)}
        if kind is tuple:
            return {TAG: 'tuple', 'v': [self.encode(item, depth) for item in value]}
        if kind is int:
            return {TAG: 'int', 'v': f'{value:x}'}
        if kind is bytes:
            data = self._redactor.data(value)
            if len(data) >= BLOB_SIZE:
                return {TAG: 'bytes', 'blob': self.blob(data)}
            return {TAG: 'bytes', 'v': base64.b64encode(data).decode('ascii')}
        if kind in (set, frozenset):
            items = sorted((self.encode(item, depth) for item in value), key=canonical)
            return {TAG: kind.__name__, 'v': _unlike(items)}
        if self._plain and kind is Completion:
            return self._text(str(value))
        if (codec := _by_type.get(kind)) is not None:
            return {TAG: codec.name, 'v': self.encode(codec.encode(value), depth)}
        if (form := form_of(kind)) is not None and loaded(_name_of(kind)) is kind:
            parts = {key: self._dict(part, depth) for key, part in form(value).items()}
            return {TAG: 'object', 't': _name_of(kind), **parts}
        raise NotRecordable(
            f'A value of the type {_name_of(kind)} cannot be recorded. Say how it is written with '
            'lagent.journal.register(TYPE, name, encode, decode), or use plain values, a dataclass '
            'or a pydantic model that is defined at the top of a module.'
        )


class Decoder:
    """Reads what an `Encoder` wrote.

    Args:
        blob: gives the bytes of a digest.
    """

    def __init__(self, blob: Callable[[str], bytes]) -> None:
        self._blob = blob

    def decode(self, tree: Any) -> Any:
        """Read a value.

        Args:
            tree: what `Encoder.encode` gave, also after a trip through JSON.

        Returns:
            The value.

        Raises:
            NotReadable: a type is not known to this program.
        """
        if type(tree) is list:
            return [self.decode(item) for item in tree]
        if type(tree) is not dict:
            return tree
        tag = tree.get(TAG)
        if tag is None:
            return {key: self.decode(value) for key, value in tree.items()}
        try:
            if (read := _READ.get(tag)) is not None:
                return read(self, tree)
            if (codec := _by_name.get(tag)) is not None:
                return codec.decode(self.decode(tree['v']))
        except JournalError:
            raise
        except Exception as error:
            raise NotReadable(
                f'A record holds a value of the kind {str(tag)!r} that is damaged, or that its '
                f'codec does not accept: {type(error).__name__}: {error}'
            ) from error
        raise NotReadable(
            f'A record holds a value of the kind {tag!r}, which nothing in this program can read. '
            'Import the module that registers it, then try again.'
        )

    def _bytes(self, tree: dict[str, Any]) -> bytes:
        return self._blob(tree['blob']) if 'blob' in tree else base64.b64decode(tree['v'])

    def _text(self, tree: dict[str, Any]) -> str:
        return self._blob(tree['blob']).decode('utf-8', 'surrogatepass')

    def _pieces(self, tree: dict[str, Any]) -> list[Any]:
        pieces = [item for digest in tree['blobs'] for item in json.loads(self._blob(digest))]
        return [self.decode(item) for item in [*pieces, *tree['v']]]

    def _pairs(self, tree: dict[str, Any]) -> dict[Any, Any]:
        return {self.decode(key): self.decode(value) for key, value in tree['v']}

    def _object(self, tree: dict[str, Any]) -> Any:
        name = tree['t']
        kind = loaded(name)
        if kind is None or form_of(kind) is None:
            raise NotReadable(
                f'A record holds an object of {name}, which is not loaded in this program. Import '
                f'{name.partition(":")[0]}, then try again.'
            )
        parts = {key: self.decode(part) for key, part in tree.items() if key not in (TAG, 't')}
        try:
            return make(kind, **parts)
        except (TypeError, ValueError) as error:
            raise NotReadable(
                f'A record holds an object of {name} that this version of the class does not '
                f'accept: {error}'
            ) from error


_READ: dict[str, Callable[[Decoder, dict[str, Any]], Any]] = {
    'float': lambda _, tree: float(tree['v']),
    'int': lambda _, tree: int(tree['v'], 16),
    'tuple': lambda self, tree: tuple(self.decode(tree['v'])),
    'set': lambda self, tree: set(self.decode(tree['v'])),
    'frozenset': lambda self, tree: frozenset(self.decode(tree['v'])),
    'bytes': Decoder._bytes,
    'text': Decoder._text,
    'pieces': Decoder._pieces,
    'dict': Decoder._pairs,
    'object': Decoder._object,
}


def _another(name: str, taken: Container[str], numbers: dict[str, int]) -> str:
    """A name for what has the same one as something else, since both were redacted.

    Args:
        name: the name that both have.
        taken: all names that there are.
        numbers: the last one that was given to each name; all below are taken.
    """
    number = numbers.get(name, 1) + 1
    while f'{name} {number}' in taken:
        number += 1
    numbers[name] = number
    return f'{name} {number}'


def _unlike(items: list[Any]) -> list[Any]:
    """Members of a set, of which some texts may be the same, since they were redacted."""
    texts = [item for item in items if type(item) is str]
    if len(taken := set(texts)) == len(texts):
        return items
    unlike: list[Any] = [item for item in items if type(item) is not str]
    seen: set[str] = set()
    numbers: dict[str, int] = {}
    for text in texts:
        name = _another(text, taken, numbers) if text in seen else text
        seen.add(text)
        taken.add(name)
        unlike.append(name)
    return unlike


def _name_of(kind: type) -> str:
    return f'{kind.__module__}:{kind.__qualname__}'


def _moment(value: datetime) -> Any:
    # An offset would do for the moment, but not for what is reckoned from it.
    if isinstance(zone := value.tzinfo, ZoneInfo) and zone.key is not None:
        return [value.replace(tzinfo=None).isoformat(), zone.key, value.fold]
    return value.isoformat()


def _moment_of(written_as: Any) -> datetime:
    if isinstance(written_as, str):
        return datetime.fromisoformat(written_as)
    text, zone, fold = written_as
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)


register(
    Completion,
    'completion',
    lambda reply: {'text': str(reply), **reply.said()},
    lambda fields: Completion(**fields),
)
register(datetime, 'datetime', _moment, _moment_of)
register(date, 'date', date.isoformat, date.fromisoformat)
register(time, 'time', time.isoformat, time.fromisoformat)
register(bytearray, 'bytearray', bytes, bytearray)
register(complex, 'complex', lambda value: [value.real, value.imag], lambda parts: complex(*parts))
register(
    timedelta,
    'timedelta',
    lambda value: [value.days, value.seconds, value.microseconds],
    lambda parts: timedelta(*parts),
)
register(Decimal, 'decimal', str, Decimal)
register(UUID, 'uuid', str, UUID)
register(type(Path()), 'path', str, Path)
register(PurePosixPath, 'purepath', str, PurePosixPath)
