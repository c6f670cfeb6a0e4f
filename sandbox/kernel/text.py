"""Text from a kernel: terminal codes removed, carriage returns applied, length bounded.

No function here raises, whatever the text; all of them are free of input and output.
"""

import re

from sandbox.counts import many

MAX_LINE = 8_192
"""Characters of an unfinished line that a carriage return can still overwrite."""

_ESCAPE = re.compile(
    r'\x1b\[[0-?]*[ -/]*[@-~]|\x9b[0-?]*[ -/]*[@-~]'  # CSI: colours, cursor, erase
    r'|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)'  # OSC, DCS, SOS, PM, APC: titles, links
    r'|\x1b[ -/]*[0-~]'  # two-character sequences
)
_PARTIAL_ESCAPE = re.compile(
    r'(?:\x1b|\x1b\[[0-?]*[ -/]*|\x9b[0-?]*[ -/]*|\x1b[\]PX^_][^\x07\x1b\x9c]*\x1b?|\x1b[ -/]+)\Z'
)
_CUT_OFF = re.compile(r'(?:\x1b\[|\x9b)[0-?]*[ -/]*\Z')
_ERASE_LINE = re.compile(r'(?:\x1b\[|\x9b)[02]?K')
_COLOUR = re.compile(r'\x1b\[[0-9;]{0,32}m')
_STRAY = re.compile(r'\x1b(?!\[[0-9;]{0,32}m)|\x9b')
_SURROGATE = re.compile('[\ud800-\udfff]')
_MAX_ESCAPE = 4_096
_ERASE = '\ud800'  # "erase to the end of the line"; cleaned text holds no surrogate
_MOVES_OR_NEWLINE = re.compile(f'([\n\r\b{_ERASE}])')


def clean(text: str) -> str:
    """Replace what UTF-8 cannot encode."""
    if text.isascii():
        return text
    return _SURROGATE.sub('\ufffd', text)


def plain(text: str) -> str:
    """Remove terminal codes and what UTF-8 cannot encode."""
    return clean(_strip_escapes(_without_end(text)))


def coloured(text: str) -> str:
    """Remove terminal codes other than colours and styles, and what UTF-8 cannot encode.

    Returns:
        The text, or `''` where it has no colours.
    """
    if '\x1b' not in text:
        return ''
    text = clean(_without_end(text))
    kept = _ESCAPE.sub(lambda code: code[0] if _COLOUR.fullmatch(code[0]) else '', text)
    kept = _STRAY.sub('', kept)  # what was taken out may have stood inside of another code
    return kept if '\x1b' in kept else ''


def split_unfinished(text: str, most: int = _MAX_ESCAPE) -> tuple[str, str]:
    """Cut a text where a terminal code begins that may go on in the next piece.

    Args:
        text: The text.
        most: Characters of such a code; what is longer is taken for text.

    Returns:
        The text before it, and the code so far, `''` for none.
    """
    if _has_escape(text):
        found = _PARTIAL_ESCAPE.search(text, max(0, len(text) - most))
        if found:
            return text[: found.start()], found.group()
    return text, ''


def _has_escape(text: str) -> bool:
    return '\x1b' in text or '\x9b' in text


def _without_end(text: str) -> str:
    return _CUT_OFF.sub('', text) if _has_escape(text) else text


def _strip_escapes(text: str) -> str:
    if not _has_escape(text):
        return text
    return _ESCAPE.sub('', text).replace('\x1b', '').replace('\x9b', '')


def left_out(count: int) -> str:
    """Return the line that stands where text was cut."""
    return f'\n[... {many(count, "character")} left out ...]\n'


class Terminal:
    r"""Text as a terminal would show it: `\r` goes back to the start of the line.

    Text comes out as soon as no carriage return can change it any more; what is held back is at
    most `MAX_LINE` characters of a line and one unfinished escape sequence.
    """

    def __init__(self) -> None:
        self._partial = ''
        self._line: list[str] = []  # characters: a move must not cost a copy of them all
        self._column = 0

    def feed(self, text: str) -> str:
        """Take the next piece and return what is final by now."""
        text, self._partial = split_unfinished(self._partial + text)
        if _has_escape(text):
            text = _strip_escapes(_ERASE_LINE.sub(_ERASE, clean(text)))
        else:
            text = clean(text)
        # Searches for a character are ten times faster than one for a pattern.
        if '\r' in text or '\b' in text or _ERASE in text or self._column < len(self._line):
            return self._feed_moves(text)
        if self._line:
            text = ''.join(self._line) + text
        start = max(text.rfind('\n') + 1, len(text) - MAX_LINE)
        self._line = list(text[start:])
        self._column = len(self._line)
        return text[:start]

    def flush(self) -> str:
        """Return what was held back, and start anew."""
        text = ''.join(self._line) + plain(self._partial)
        self._partial = ''
        self._line = []
        self._column = 0
        return text

    def _feed_moves(self, text: str) -> str:
        final = []
        for part in _MOVES_OR_NEWLINE.split(text):
            if part == '\n':
                final.append(''.join(self._line) + '\n')
                self._line = []
                self._column = 0
            elif part == '\r':
                self._column = 0
            elif part == '\b':
                self._column = max(0, self._column - 1)
            elif part == _ERASE:
                del self._line[self._column :]
            elif part:
                end = self._column + len(part)
                self._line[self._column : end] = part
                self._column = end
                final.append(self._overflow())
        return ''.join(final)

    def _overflow(self) -> str:
        # A line only grows at its end, so the column is there whenever it is too long.
        excess = len(self._line) - MAX_LINE
        if excess <= 0:
            return ''
        final = ''.join(self._line[:excess])
        del self._line[:excess]
        self._column = len(self._line)
        return final
