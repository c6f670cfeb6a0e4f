"""Reading a web page: fetched within limits, and reduced to what a person would read."""

import asyncio
import logging
import re
from typing import Any

from lagent._extras import require
from lagent.actions.web.cache import BoundedCache
from lagent.actions.web.charset import decode
from lagent.actions.web.client import HttpClient, Reply
from lagent.actions.web.errors import BadReply

_MAX_HTML = 2_000_000  # characters that the text is looked for in
_MAX_TAGS = 40_000  # in a page whose main text is looked for, which takes seconds then
_MAX_TEXT = 100_000  # characters that are kept of it
_CACHED, _CACHE_SECONDS = 100, 600.0
_TEXTS = ('application/json', 'application/xml', 'application/javascript', 'application/x-ndjson')
_LINES = re.compile(r'\s*\n\s*')
_SPACES = re.compile(r'[^\S\n]+')
_BLOCKS = (
    *('address', 'article', 'blockquote', 'br', 'dd', 'div', 'dl', 'dt', 'figure', 'footer'),
    *('form', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'header', 'hr', 'li', 'main', 'nav', 'ol', 'p'),
    *('pre', 'section', 'table', 'td', 'th', 'title', 'tr', 'ul'),
)
# What it says about odd pages is for those who set up logging, not for the terminal.
_QUIET = logging.NullHandler()
_UNSEEN = ('script', 'style', 'noscript', 'template', 'svg', 'iframe', 'head')


class PageReader:
    """Fetches pages and gives their text. What was read is kept for ten minutes.

    Args:
        client: fetches them; it has to check addresses, as the URLs are a model's.
    """

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._cache: BoundedCache[str, str] = BoundedCache(_CACHED, _CACHE_SECONDS)

    async def read(self, url: str) -> str:
        """Read a page.

        Args:
            url: its URL.

        Returns:
            Its text, at most 100,000 characters of it.

        Raises:
            WebError: it could not be read; the subclass says why.
        """
        known = self._cache.get(url)
        if known is not None:
            return known
        reply = await self._client.get(url)
        # Finding the text is work for the processor, and takes seconds for a large page.
        text = await asyncio.to_thread(page_text, reply)
        self._cache[url] = text
        return text


def page_text(reply: Reply) -> str:
    """The text of what was fetched.

    Args:
        reply: an HTML page, or any other text.

    Returns:
        The main text of a page (all of it, where there is no main text), or the text as it is.

    Raises:
        BadReply: it is no text.
    """
    kind = reply.content_type.partition(';')[0].strip().lower()
    is_html = kind in ('text/html', 'application/xhtml+xml')
    is_text = kind.startswith('text/') or kind.endswith(('+json', '+xml')) or kind in _TEXTS
    if kind and not is_html and not is_text:
        raise BadReply(f'This is not a text but {kind[:80]!r}, which cannot be read here.')
    if not kind and b'\0' in reply.body[:1024]:
        raise BadReply('This is not a text, and cannot be read here.')
    text = decode(reply.body, reply.content_type)
    if is_html or (not kind and '<html' in text[:2048].lower()):
        text = html_text(text[:_MAX_HTML], reply.url)
    return text[:_MAX_TEXT]


def html_text(html: str, url: str | None = None) -> str:
    """What a person would read of a page.

    Args:
        html: the page.
        url: where it comes from.

    Returns:
        The main text; where none is found, all that is shown.
    """
    trafilatura = require('trafilatura', 'web')
    logging.getLogger('trafilatura').addHandler(_QUIET)
    if html.count('<') > _MAX_TAGS:
        return _all_text(html)
    try:
        main: Any = trafilatura.extract(html, url=url, favor_recall=True, include_comments=False)
    except Exception:  # noqa: BLE001 - written by whoever wrote the page; there is a plain way
        main = None
    return main or _all_text(html)


def _all_text(html: str) -> str:
    lxml_html = require('lxml.html', 'web')
    etree = require('lxml.etree', 'web')
    try:
        root = lxml_html.document_fromstring(html)
    except (etree.ParserError, ValueError):
        return ''
    etree.strip_elements(root, *_UNSEEN, etree.Comment, with_tail=False)
    for element in root.iter(*_BLOCKS):
        element.tail = f'\n{element.tail or ""}'
        element.text = f'\n{element.text or ""}'
    return _LINES.sub('\n', _SPACES.sub(' ', root.text_content())).strip()
