"""What of outputs and texts may be shown where a browser would execute it."""

import base64
import re
from collections.abc import Mapping
from typing import Any

from lagent._extras import require

_TAGS = {
    *('table', 'caption', 'colgroup', 'col', 'thead', 'tbody', 'tfoot', 'tr', 'th', 'td'),
    *('p', 'br', 'hr', 'div', 'span', 'pre', 'code', 'blockquote', 'ul', 'ol', 'li', 'dl', 'dt'),
    *('dd', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'b', 'strong', 'i', 'em', 'u', 's', 'small'),
    *('sub', 'sup'),
}
_ATTRIBUTES = {
    'table': {'border'},
    'td': {'colspan', 'rowspan'},
    'th': {'colspan', 'rowspan', 'scope'},
}
_IMAGES = ('image/png', 'image/jpeg', 'image/gif', 'image/webp')

_TAG = re.compile(r'<(?=[A-Za-z/!?])')
_ENTITY = re.compile(r'&(?=#|[A-Za-z][A-Za-z0-9]*;)')
_SCHEME = re.compile(r'(?i)\b(javascript|vbscript|data)(?=\\?:(?!\s))')

_MOST_HTML = 50_000  # characters
_MOST_TAGS = 5_000
_MOST_COPIED = 4_000_000  # tags times characters
# What a parser opens again in each paragraph, with all its attributes, until it is closed. Those
# without attributes it opens three times at most, and a link ends the link before it.
_REOPENED = re.compile(r'(?i)<(?:b|big|code|em|font|i|s|small|strike|strong|tt|u)[\s/]')


def is_simple(html: str) -> bool:
    """Whether HTML is cleaned within a second, and is not many times as large then.

    The time of a parser grows with the square of the depth, and what it makes of elements that are
    not closed with the square of their number.

    Args:
        html: any HTML.

    Returns:
        Whether it may be given to `safe_html` and `styled_html`.
    """
    tags = html.count('<')
    if len(html) > _MOST_HTML or tags > _MOST_TAGS:
        return False
    return tags * len(html) <= _MOST_COPIED or _REOPENED.search(html) is None


def safe_html(html: str) -> str:
    """HTML in which nothing can be executed or loaded: text, its structure, and tables.

    Args:
        html: any HTML.

    Returns:
        What is left of it.

    Raises:
        ExtraMissing: nh3 is not installed.
    """
    nh3 = require('nh3', 'notebook')
    cleaned: str = nh3.clean(html, tags=_TAGS, attributes=_ATTRIBUTES, link_rel=None)
    return cleaned


def styled_html(html: str) -> str:
    """HTML with its own styles, for a frame with a policy that loads nothing and runs nothing.

    The policy alone is not enough: a browser looks up, and speaks with, the host of a frame or a
    link before it is asked whether it may, and a name can carry what is to be kept secret.

    Args:
        html: any HTML.

    Returns:
        What is left of it: text, structure, tables, styles, and images that are in it.

    Raises:
        ExtraMissing: nh3 is not installed.
    """
    nh3 = require('nh3', 'notebook')
    cleaned: str = nh3.clean(
        html,
        tags={*_TAGS, 'style', 'img'},
        clean_content_tags={'script'},
        attributes={**_ATTRIBUTES, '*': {'class', 'id', 'style'}, 'img': {'src', 'alt', 'width'}},
        url_schemes={'data'},
        url_relative='deny',
        link_rel=None,
    )
    return cleaned


def safe_markdown(text: str) -> str:
    """Markdown in which HTML is text, and no link executes anything.

    Args:
        text: any Markdown.

    Returns:
        The same text to the reader.
    """
    text = _TAG.sub('&lt;', _ENTITY.sub('&amp;', text))
    # A character of no width inside of the scheme: it reads the same, and is none.
    return _SCHEME.sub(lambda match: f'{match[0]}\u200b', text)


def safe_bundle(data: Mapping[str, Any]) -> dict[str, Any]:
    """The representations of an output that are images, or HTML after it was cleaned.

    SVG, scripts, Markdown, LaTeX and what applications define can be executed, or load something,
    in one viewer or another; an output has a plain text for readers besides. HTML that is not
    `is_simple` is left out.

    Args:
        data: MIME type to representation.

    Returns:
        The same for JSON, images in base64.
    """
    safe: dict[str, Any] = {
        mime: base64.b64encode(data[mime]).decode()
        for mime in _IMAGES
        if isinstance(data.get(mime), bytes)
    }
    html = data.get('text/html')
    if isinstance(html, str) and is_simple(html) and (cleaned := safe_html(html).strip()):
        safe['text/html'] = cleaned
    return safe
