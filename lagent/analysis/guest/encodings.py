"""Which characters the bytes of a text file are."""

import codecs
import re

_MARKS = (
    (codecs.BOM_UTF8, 'utf-8-sig'),
    (codecs.BOM_UTF32_LE, 'utf-32'),
    (codecs.BOM_UTF32_BE, 'utf-32'),
    (codecs.BOM_UTF16_LE, 'utf-16'),
    (codecs.BOM_UTF16_BE, 'utf-16'),
)
_HIGH = re.compile(rb'[\x80-\xff]+')
_GB2312 = re.compile(rb'(?:[\xa1-\xa3\xb0-\xf7][\xa1-\xfe])+\Z')
_KANA = re.compile('[\u3040-\u30ff]')
_CONTROL = re.compile('[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]')
_MOST_CONTROLS = 0.01  # share of a text's characters
_LEAST_PAIRS = 0.9  # share of the high bytes that are pairs of GB 2312
_LEAST_KANA = 0.1  # share of the characters that are not ASCII


def decode(data: bytes, *, whole: bool) -> tuple[str, str, bool] | None:
    """Return the text of a file's first bytes, its encoding, and whether that was guessed.

    Args:
        data: The bytes.
        whole: Whether they are all of the file; otherwise its last character may be cut.

    Returns:
        None for bytes that are no text.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            text = _decoded(data, encoding, whole)
            return None if text is None else (text, encoding, False)
    if b'\x00' in data:
        encoding = _utf16_order(data)
        text = encoding and _decoded(data, encoding, whole)
        return (text, encoding, True) if text and _is_text(text) else None
    text = _decoded(data, 'utf-8', whole)
    if text is not None:
        return (text, 'utf-8', False) if _is_text(text) else None
    for encoding in _guesses(data):
        text = _decoded(data, encoding, whole)
        if text is not None:
            return (text, encoding, True) if _is_text(text) else None
    return None


def _decoded(data: bytes, encoding: str, whole: bool) -> str | None:
    try:
        return codecs.getincrementaldecoder(encoding)('strict').decode(data, whole)
    except UnicodeError:
        return None


def _is_text(text: str) -> bool:
    return len(_CONTROL.findall(text)) <= _MOST_CONTROLS * len(text)


def _utf16_order(data: bytes) -> str:
    """Return the order whose high bytes are mostly zero, as in Western text; '' for neither."""
    sample = data[: len(data) // 2 * 2][:4096]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    half = len(sample) // 2
    if odd > 0.3 * half and even < 0.05 * half:
        return 'utf-16-le'
    if even > 0.3 * half and odd < 0.05 * half:
        return 'utf-16-be'
    return ''


def _guesses(data: bytes) -> list[str]:
    """Return encodings of one or two bytes a character, the likeliest first."""
    runs = _HIGH.findall(data)
    total = sum(map(len, runs))
    pairs = sum(len(run) for run in runs if _GB2312.match(run))
    # In a European text high bytes stand alone between letters; in a Chinese one they are pairs.
    likely = ['gb18030'] if pairs >= _LEAST_PAIRS * total else []
    japanese = _decoded(data, 'cp932', False)
    if japanese is not None:
        foreign = sum(character > '\x7f' for character in japanese)
        if len(_KANA.findall(japanese)) >= _LEAST_KANA * max(foreign, 1):
            likely.append('cp932')
    return [*likely, 'cp1252', 'latin-1']
