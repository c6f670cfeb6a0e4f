"""From the bytes of a page to its text, whatever it says its encoding is."""

import codecs
import re
from importlib.util import find_spec

_BOMS = (
    (codecs.BOM_UTF8, 'utf-8'),
    (codecs.BOM_UTF16_LE, 'utf-16-le'),
    (codecs.BOM_UTF16_BE, 'utf-16-be'),
)
_HEADER = re.compile(r'charset\s*=\s*["\']?([\w.:-]{1,40})', re.ASCII | re.IGNORECASE)
_META = re.compile(
    rb'<(?:meta\b[^>]{0,400}?\bcharset|\?xml\b[^>]{0,200}?\bencoding)\s*=\s*["\']?\s*([\w.:-]{1,40})',
    re.IGNORECASE,
)
_HEAD_BYTES, _SAMPLE_BYTES = 4096, 65_536

# As browsers do it: a label stands for the encoding that contains all that is sent under it.
_WIDER = {
    'ascii': 'cp1252',
    'iso8859-1': 'cp1252',
    'iso8859-9': 'cp1254',
    'gb2312': 'gb18030',
    'gbk': 'gb18030',
    'shift_jis': 'cp932',
    'euc_kr': 'cp949',
    'big5': 'big5hkscs',
    'tis-620': 'cp874',
}
# Python knows other codecs under names that a page could ask for; these are those of the web.
_KNOWN = {
    *('utf-8', 'utf-16-le', 'utf-16-be', 'utf-16', 'koi8-r', 'koi8-u', 'mac-roman', 'mac-cyrillic'),
    *(f'iso8859-{number}' for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 15, 16)),
    *('cp866', 'cp874', *(f'cp125{number}' for number in range(9))),
    *('ascii', 'gb2312', 'gbk', 'gb18030', 'hz', 'big5', 'big5hkscs', 'tis-620'),
    *('shift_jis', 'cp932', 'euc_jp', 'iso2022_jp', 'euc_kr', 'cp949'),
}


def decode(body: bytes, content_type: str = '') -> str:
    """Decode a page.

    What counts is, in this order: a byte order mark, the header, what the page says in its first
    bytes, and what its bytes look like. No byte makes it fail.

    Args:
        body: the page.
        content_type: the header ``Content-Type``.

    Returns:
        Its text; bytes that don't fit are replaced by U+FFFD.
    """
    for mark, marked in _BOMS:
        if body.startswith(mark):
            return body[len(mark) :].decode(marked, 'replace')
    header = _HEADER.search(content_type)
    encoding = _known(header[1]) if header else None
    if encoding is None:
        meta = _META.search(body[:_HEAD_BYTES])
        encoding = _known(meta[1].decode('ascii', 'replace')) if meta else None
        if encoding is not None and encoding.startswith('utf-16'):
            encoding = 'utf-8'  # that it could be read shows that it isn't true
    return body.decode(encoding or _guessed(body), 'replace')


def _known(label: str) -> str | None:
    try:
        name = codecs.lookup(label).name
    except (LookupError, ValueError):
        return None
    return _WIDER.get(name, name) if name in _KNOWN else None


def _guessed(body: bytes) -> str:
    sample = body[:_SAMPLE_BYTES]
    try:
        codecs.getincrementaldecoder('utf-8')().decode(sample)
    except UnicodeDecodeError:
        pass
    else:
        return 'utf-8'
    if find_spec('charset_normalizer') is not None:
        import charset_normalizer

        best = charset_normalizer.from_bytes(sample).best()
        found = _known(best.encoding) if best is not None else None
        if found is not None:
            return found
    return 'cp1252'
