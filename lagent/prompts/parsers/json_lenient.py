r"""JSON as models write it.

Strict JSON is tried first. What fails is read once more with the slips of syntax that leave the
meaning plain: comments, trailing commas, single and triple quotes, raw newlines and unknown
escapes in strings, Python's ``True``, ``False`` and ``None``, a Markdown fence around it, stray
quotes behind it. A closing bracket or quote is never invented: a text that ends early was cut off,
and what it would have said is not known.
"""

import json
import re
from typing import Any

from lagent.schema import without_surrogates

MAX_DEPTH = 100
"""Nesting that is followed in a text that is not strict JSON."""

_SPACE = re.compile(r'(?:\s++|//[^\n]*+|#[^\n]*+)*+')
_NUMBER = re.compile(r'-?(?:0|[1-9]\d*+)(?:\.\d++)?+(?:[eE][+-]?\d++)?+')
_WORD = re.compile(r'[A-Za-z_]\w*+')
_FENCED = re.compile(r'\s*+(`{3,}+|~{3,}+)[^\n`]*+\n(.*)\n[ \t]*+\1\s*+', re.DOTALL)
_SURROGATE = re.compile('[\ud800-\udfff]')
_TRAILING = re.compile(r'[\s"\'`;]*+')
_STRING_STOPS = {quote: re.compile(rf'\\|{quote}') for quote in ('"', "'", '"""', "'''")}
_WORDS = {'true': True, 'false': False, 'null': None, 'True': True, 'False': False, 'None': None}
_ESCAPES = {'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', '/': '/', '\\': '\\'}
_ESCAPES |= {'"': '"', "'": "'", '\n': ''}


def loads(text: str) -> Any:
    """Read a text that is one JSON value.

    Args:
        text: the text; a Markdown fence may surround it.

    Returns:
        The value. Lone surrogates in its strings, which no file can hold, become U+FFFD.

    Raises:
        ValueError: it is no JSON even with its slips repaired; the message says where.
    """
    value = _strict(text)
    if value is _FAILED and (fenced := _FENCED.fullmatch(text)):
        text = fenced[2]
        value = _strict(text)
    return _repaired(text) if value is _FAILED else value


def loads_object(text: str) -> dict[str, Any]:
    """Read a text that is one JSON object.

    Args:
        text: see `loads`.

    Returns:
        The object.

    Raises:
        ValueError: see `loads`; also for a value of another kind.
    """
    value = loads(text)
    if isinstance(value, dict):
        return value
    raise ValueError(f'a JSON object is needed, not {type(value).__name__}')


def find_object(text: str) -> dict[str, Any]:
    """Read the first JSON object that stands in a text.

    Args:
        text: any text, such as an answer that explains the object.

    Returns:
        The object.

    Raises:
        ValueError: there is none, or the first one is not complete.
    """
    at = text.find('{')
    while at >= 0:
        reader = _Reader(text, at)
        try:
            value = reader.value(0)
        except _Unfinished:
            # What stands inside an object that was cut off is a part of it and not the object.
            raise
        except ValueError:
            # Going on behind what was read keeps the whole search linear.
            at = text.find('{', max(reader.at, at + 1))
            continue
        if isinstance(value, dict):
            return value
        at = text.find('{', reader.at)
    raise ValueError('no JSON object found')


_FAILED = object()


class _Unfinished(ValueError):
    """The text ended inside a value."""


def _strict(text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=_no_constant)
        return _mended(value) if '\\u' in text or _SURROGATE.search(text) else value
    except (ValueError, RecursionError):
        return _FAILED


def _repaired(text: str) -> Any:
    reader = _Reader(text)
    value = reader.value(0)
    if _TRAILING.fullmatch(text, reader.at) is None:
        raise reader.error('more text after the value')
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f'{name} is no JSON number')


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub('\ufffd', value)
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    return value


class _Reader:
    """Reads one value from a position on; `at` is behind what was read."""

    def __init__(self, text: str, at: int = 0) -> None:
        self.text = text
        self.at = at

    def error(self, what: str) -> ValueError:
        kind = _Unfinished if self.at >= len(self.text) else ValueError
        return kind(f'{what} at character {self.at}')

    def value(self, depth: int) -> Any:
        char = self.peek()
        if depth > MAX_DEPTH:
            raise self.error('too deeply nested')
        if char == '{':
            return self.object(depth)
        if char == '[':
            return self.array(depth)
        if char in ('"', "'"):
            return self.string(char)
        if number := _NUMBER.match(self.text, self.at):
            self.at = number.end()
            return json.loads(number[0])
        if (word := _WORD.match(self.text, self.at)) and word[0] in _WORDS:
            self.at = word.end()
            return _WORDS[word[0]]
        raise self.error('a value is missing')

    def peek(self) -> str:
        """Skip white space and comments; give the next character, or ``''`` at the end."""
        while True:
            space = _SPACE.match(self.text, self.at)
            self.at = space.end() if space else self.at
            if not self.text.startswith('/*', self.at):
                return self.text[self.at : self.at + 1]
            end = self.text.find('*/', self.at + 2)
            self.at = len(self.text) if end < 0 else end + 2

    def object(self, depth: int) -> dict[str, Any]:
        self.at += 1
        result: dict[str, Any] = {}
        while self.peek() != '}':
            key = self.key()
            if self.peek() != ':':
                raise self.error("':' is missing")
            self.at += 1
            result[key] = self.value(depth + 1)
            self.separator('}')
        self.at += 1
        return result

    def key(self) -> str:
        char = self.peek()
        if char in ('"', "'"):
            return self.string(char)
        if word := _WORD.match(self.text, self.at):
            self.at = word.end()
            return word[0]
        raise self.error('a key is missing')

    def array(self, depth: int) -> list[Any]:
        self.at += 1
        result: list[Any] = []
        while self.peek() != ']':
            result.append(self.value(depth + 1))
            self.separator(']')
        self.at += 1
        return result

    def separator(self, closer: str) -> None:
        char = self.peek()
        if char == ',':
            self.at += 1
        elif char != closer:
            raise self.error(f"',' or '{closer}' is missing")

    def string(self, quote: str) -> str:
        if self.text.startswith(quote * 3, self.at):
            quote *= 3
        self.at += len(quote)
        parts: list[str] = []
        while found := _STRING_STOPS[quote].search(self.text, self.at):
            parts.append(self.text[self.at : found.start()])
            if found[0] == quote:
                self.at = found.end()
                return without_surrogates(''.join(parts))
            parts.append(self.escape(found.start()))
        self.at = len(self.text)
        raise self.error('the string does not end')

    def escape(self, at: int) -> str:
        char = self.text[at + 1 : at + 2]
        self.at = at + 2
        if char == 'u' and re.fullmatch('[0-9a-fA-F]{4}', digits := self.text[at + 2 : at + 6]):
            self.at = at + 6
            return chr(int(digits, 16))
        # Regular expressions and Windows paths: a backslash that escapes nothing stands for itself.
        return _ESCAPES.get(char, '\\' + char)
