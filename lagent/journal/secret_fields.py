"""Secrets in texts that are named there: fields of JSON, headers, assignments, parameters of URLs.

A text that holds JSON is redacted to what the value in it would be redacted to, so that a program
that reads it goes on with the same as one that was given the value. Every step goes forward in the
text: what it takes grows with its length, whoever has written it.
"""

import re
import string
from typing import Any

from lagent.journal.errors import NotRecordable
from lagent.journal.secret_names import LONGEST, TAIL, is_plural, is_secret_name

REDACTED = '[redacted]'
COUNT = 1_000
"""Numbers below that count something, and are no secret."""
SCHEMA_TYPES = frozenset(('string', 'number', 'integer', 'boolean', 'array', 'object', 'null'))
"""``type`` of a JSON schema: under a secret's name, it says what a secret looks like."""

_DEEPEST = 100
_SIGNS = ('pass', 'pw', 'secret', 'token', 'credential', 'authorization', 'cookie', 'key')
_NAMED = re.compile(
    TAIL + r'(?:(\\{0,7})(["\'])\s{0,20}:\s{0,20}|(\s{0,3})(:|=)\s{0,3})', re.ASCII | re.IGNORECASE
)
_NAME = f'{string.ascii_letters}{string.digits}_-'
_QUOTE = re.compile(r'[bBrR]?(\\{0,7})(["\'])')
_NUMBER = re.compile(r'-?\d{1,400}(?:\.\d{1,400})?(?:[eE][+-]?\d{1,4})?(?![\w.])', re.ASCII)
# What stands for a value that comes from elsewhere, or for a piece of text: <name>, ${NAME}, %s.
_PLACEHOLDER = re.compile(r'[<$%{]')
_LEAST = 8  # characters of a value whose name is not quoted: shorter ones are code as often
_VARIABLE = re.compile(r'[A-Z][A-Z0-9_]*\Z')
_RUN = r'[^\s"\'`$(){}\[\],;&|<>\\]'
_BARE = re.compile(_RUN + r'{8,}+(?=[\s"\'\\]|\Z)')
_RUN_END = re.compile(_RUN + '*+')
_REFERENCE = re.compile(r'[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\Z', re.ASCII)
_PARAMETER = re.compile(r'[^\s&#"\'<>{}\\`]+')
_HEADER = re.compile(r'[^\s"\',;<>{}$\\`]{8,}')
_SCHEME = re.compile(
    r'(?:(?:Basic|Bearer|Digest|Token|Negotiate|ApiKey|AWS4-HMAC-SHA256)[ \t]{1,9})'
    r'([^\s"\'\\<>{}$]{4,})|([^\s"\'\\<>{}$]{16,})',
    re.IGNORECASE,
)
_COOKIE = re.compile(r'[^\s=;,"\'\\<>{}$]{1,200}=[^"\'\r\n\\]+')
_OPEN, _CLOSE = '[{(', ']})'
_ENDS = {quote: re.compile(f'[{quote}\n]') for quote in '"\''}
_TOKEN = re.compile(r'["\'\[\]{}()]|(?<![\w.+-])-?\d')


def redact_fields(text: str) -> str:
    """A text without the secrets that are named in it.

    Args:
        text: any text.

    Returns:
        The same text with each of them replaced by ``[redacted]``.
    """
    lowered = text.lower()
    if not any(sign in lowered for sign in _SIGNS):
        return text
    parts: list[str] = []
    done = position = 0
    runs = _Runs(text)
    while (named := _NAMED.search(text, position)) is not None:
        spans, position = _secrets(text, named, runs)
        for start, end, put in spans:
            parts += text[done:start], put
            done = end
    return ''.join([*parts, text[done:]]) if parts else text


def hidden(name: str, value: Any) -> Any:
    """What has the name of a secret: its shape, without its texts, bytes and numbers.

    Args:
        name: its name.
        value: a text, or whatever the secret is in.

    Returns:
        The same with ``[redacted]`` in their places. None, True, False, what is empty, numbers that
        count something and JSON schemas stay.
    """
    kind = type(value)
    if kind is dict and isinstance(said := value.get('type'), str) and said in SCHEMA_TYPES:
        return value
    return value if kind in (int, float) and is_plural(name) else _hidden(value, 0)


def _hidden(value: Any, depth: int) -> Any:
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind in (int, float):
        return value if abs(value) < COUNT else REDACTED
    if kind in (str, bytes):
        return value and (REDACTED if kind is str else REDACTED.encode())
    if kind not in (list, tuple, dict):
        return REDACTED
    if depth > _DEEPEST:
        raise NotRecordable(f'A value is nested more than {_DEEPEST} levels deep.')
    if kind is dict:
        return {key: _hidden(item, depth + 1) for key, item in value.items()}
    return kind(_hidden(item, depth + 1) for item in value)


Span = tuple[int, int, str]
"""Where a secret begins and ends, and what is put there."""


class _Runs:
    """Finds values of variables, and looks at each run of their characters once.

    Whether such a value ends as one does is the same wherever in the run it begins.
    """

    def __init__(self, text: str) -> None:
        self._text, self._barren = text, 0

    def value(self, start: int) -> re.Match[str] | None:
        """The value that begins at a place; places are asked for from left to right."""
        if start < self._barren:
            return None
        found = _BARE.match(self._text, start)
        if found is None and (end := _RUN_END.match(self._text, start)) is not None:
            self._barren = end.end()
        return found


def _secrets(text: str, named: re.Match[str], runs: _Runs) -> tuple[list[Span], int]:
    """The secrets that belong to a name, and where to go on."""
    is_quoted = named[2] is not None
    name = _name(text, named.start(), named[2]) + text[named.start() : _end_of_name(named)]
    if not is_secret_name(name):
        return [], named.end()
    if is_quoted:
        return _value(text, named.end(), named[1] + named[2], name)
    if (literal := _literal(text, named.end())) is not None:
        start, end, _ = literal
        if end - start < _LEAST or _PLACEHOLDER.match(text, start):
            return [], end
        return [(start, end, REDACTED)], end
    span = _bare(text, named, name, runs)
    return ([], named.end()) if span is None else ([(*span, REDACTED)], span[1])


def _end_of_name(named: re.Match[str]) -> int:
    return named.start(1) if named[2] is not None else named.start(3)


def _name(text: str, end: int, quote: str | None) -> str:
    """The beginning of a name, whose end is known; all that is quoted, or a word."""
    lowest = max(0, end - LONGEST)
    if quote is not None and (start := text.rfind(quote, lowest, end)) >= 0:
        return text[start + 1 : end]
    before = text[lowest:end]
    return before[len(before.rstrip(_NAME)) :]


def _bare(text: str, named: re.Match[str], name: str, runs: _Runs) -> tuple[int, int] | None:
    """A secret without quotes, where one may be: in a URL, a header, a file of variables."""
    start, sign = named.end(), named[4]
    if named[3]:  # blanks before the sign
        return None
    if sign == '=' and start == named.end(4):
        first = _end_of_name(named) - len(name) - 1
        if first >= 0 and text[first] in '?&':
            found = _PARAMETER.match(text, start)
        else:
            found = runs.value(start) if _VARIABLE.match(name) else None
            found = None if found is None or _REFERENCE.match(found[0]) else found
        return None if found is None else found.span()
    lowered = name.lower()
    if lowered.endswith('authorization'):
        found = _SCHEME.match(text, start)
        return None if found is None else found.span(1 if found[1] else 2)
    if sign == '=':
        return None
    if lowered.endswith('cookie'):
        found = _COOKIE.match(text, start)
    else:
        found = _HEADER.match(text, start) if '-' in name else None
    return None if found is None else found.span()


def _literal(text: str, start: int) -> tuple[int, int, str] | None:
    """The content of the quoted text that begins at a place, and what closes it.

    It ends with the line at the latest. Within a text that is itself quoted, once or more often,
    a quote has backslashes before it, and one that belongs to the content has more.
    """
    opening = _QUOTE.match(text, start)
    if opening is None:
        return None
    escape, quote = opening[1], opening[2]
    if not escape and text.startswith(quote * 2, opening.end()):
        return None  # three of them begin a text of many lines: that is code
    every, place = 2 * (len(escape) + 1), opening.end()
    while (found := _ENDS[quote].search(text, place)) is not None:
        first = place = found.start()
        if found[0] == '\n':
            return opening.end(), place, ''
        while first > opening.end() and text[first - 1] == '\\':
            first -= 1
        if (place - first) % every == len(escape):
            return opening.end(), place - len(escape), escape + quote
        place += 1
    return opening.end(), len(text), ''


def _value(text: str, start: int, quote: str, name: str) -> tuple[list[Span], int]:
    """The secrets in a value of JSON or of Python that has a quoted name, and its end."""
    if (literal := _literal(text, start)) is not None:
        first, end, close = literal
        return ([(first, end, REDACTED)] if end > first else []), end + len(close)
    if (number := _NUMBER.match(text, start)) is not None:
        is_counted = is_plural(name) or abs(float(number[0])) < COUNT
        put = f'{quote}{REDACTED}{quote}'
        return ([] if is_counted else [(*number.span(), put)]), number.end()
    if start < len(text) and text[start] in _OPEN:
        return _parts(text, start, quote)
    return [], start


def _parts(text: str, start: int, quote: str) -> tuple[list[Span], int]:
    """The texts and numbers of a list or dict, and its end; names stay, and so do schemas."""
    spans: list[Span] = []
    depth, place, name = 0, start, ''
    while (token := _TOKEN.search(text, place)) is not None:
        place, sign = token.end(), token[0]
        if sign in _OPEN:
            depth += 1
        elif sign in _CLOSE:
            depth -= 1
            if depth <= 0:
                return spans, place
        elif sign in '"\'':
            literal = _literal(text, max(start, token.start() - len(quote) + 1))
            if literal is None:
                continue
            first, end, close = literal
            place = end + len(close)
            if text[place : place + 21].lstrip().startswith(':'):
                name = text[first:end] if depth == 1 else name
            elif depth == 1 and name == 'type' and text[first:end] in SCHEMA_TYPES:
                return [], place
            elif end > first:
                spans.append((first, end, REDACTED))
        else:
            number = _NUMBER.match(text, token.start())
            if number is not None:
                place = number.end()
                if abs(float(number[0])) >= COUNT:
                    spans.append((*number.span(), f'{quote}{REDACTED}{quote}'))
    return spans, len(text)
