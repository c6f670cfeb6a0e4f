"""Papers from arXiv, by its public API."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from lagent._extras import require
from lagent.actions.base_action import AsyncActionMixin, BaseAction, tool_api
from lagent.actions.parser import BaseParser, JsonParser
from lagent.actions.web.answers import words
from lagent.actions.web.errors import BadReply, WebTimeout
from lagent.actions.web.tool import service_client, web_api
from lagent.context import current_context
from lagent.portal import blocking

_TIMEOUT = 20.0  # seconds for one request
_INTERVAL = 3.0  # seconds between requests, as arXiv asks of those who use its API
_LONGEST = 60.0  # seconds that a request waits for its turn
_MAX_RESULTS, _MAX_AUTHORS = 100, 50
_ATOM = '{http://www.w3.org/2005/Atom}'


class Article(NamedTuple):
    """An article, as arXiv describes it."""

    url: str
    updated: str
    title: str
    authors: tuple[str, ...]
    summary: str


class _Pace:
    """Turns that are some seconds apart, for all threads and loops of the process."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self._next = 0.0
        self._lock = threading.Lock()

    async def turn(self, longest: float) -> None:
        """Wait for a turn, for so many seconds at most; one that is too far away is not taken."""
        with self._lock:
            now = time.monotonic()
            begins = max(now, self._next)
            if begins - now > longest:
                raise WebTimeout(
                    f'Too many others wait for this service: the next turn is in '
                    f'{begins - now:.0f} s. Ask again later, and for one thing at a time.'
                )
            self._next = begins + self.interval
        try:
            await asyncio.sleep(begins - now)
        except asyncio.CancelledError:
            with self._lock:
                if self._next == begins + self.interval:  # nobody stands behind it
                    self._next = begins
            raise


class _ArxivSearch(BaseAction):
    idempotent = True
    network = True
    base_url = 'https://export.arxiv.org'
    pace = _Pace(_INTERVAL)

    def __init__(
        self,
        top_k_results: int = 3,
        max_query_len: int = 300,
        doc_content_chars_max: int = 1500,
        description: dict[str, Any] | None = None,
        parser: type[BaseParser] = JsonParser,
    ) -> None:
        super().__init__(description, parser)
        if not 1 <= top_k_results <= _MAX_RESULTS:
            raise ValueError(f'top_k_results is from 1 to {_MAX_RESULTS}, not {top_k_results}')
        self.top_k_results = top_k_results
        self.max_query_len = max_query_len
        self.doc_content_chars_max = doc_content_chars_max

    def _shown(self, article: Article) -> str:
        return (
            f'Published: {article.updated}\nTitle: {article.title}\n'
            f'Authors: {", ".join(article.authors)}\nURL: {article.url}\n'
            f'Summary: {article.summary[: self.doc_content_chars_max]}'
        )


class AsyncArxivSearch(AsyncActionMixin, _ArxivSearch):
    """Search arXiv.org for scientific articles.

    Useful for questions about physics, mathematics, computer science, quantitative biology,
    quantitative finance, statistics, electrical engineering and economics.

    Note:
        The awaited form of `ArxivSearch`, with the same arguments.
    """

    @tool_api(explode_return=True)
    @web_api
    async def get_arxiv_article_information(self, query: str) -> dict[str, str]:
        """Search arXiv and get what it says about the articles it finds.

        Args:
            query (:class:`str`): the content of search query

        Returns:
            :class:`dict`: article information
                * content (str): date, title, authors, URL and summary of some articles
        """
        run = current_context()
        left = None if run is None else run.seconds_left
        await self.pace.turn(_LONGEST if left is None else min(left, _LONGEST))
        asked = {
            'search_query': query[: self.max_query_len],
            'max_results': self.top_k_results,
            'sortBy': 'relevance',
            'sortOrder': 'descending',
        }
        client = service_client(_TIMEOUT, backoff=2 * self.pace.interval)
        reply = await client.get(f'{self.base_url}/api/query', asked)
        articles = [*read_feed(reply.body)][: self.top_k_results]
        shown = '\n\n'.join(map(self._shown, articles))
        return {'content': shown or 'No good Arxiv Result was found'}


class ArxivSearch(_ArxivSearch):
    """Search arXiv.org for scientific articles.

    Useful for questions about physics, mathematics, computer science, quantitative biology,
    quantitative finance, statistics, electrical engineering and economics.

    Args:
        top_k_results: articles of an answer, from 1 to 100.
        max_query_len: characters of a query that are used.
        doc_content_chars_max: characters of each summary that are shown.
        description: replaces what models are told.
        parser: class that reads the inputs.

    Raises:
        ValueError: there can't be so many articles.
    """

    get_arxiv_article_information = blocking(AsyncArxivSearch.get_arxiv_article_information)


def read_feed(feed: bytes) -> Iterator[Article]:
    """Read the Atom feed that arXiv answers with.

    Args:
        feed: the feed.

    Yields:
        Its articles.

    Raises:
        BadReply: it is no feed, or it tells of an error.
    """
    etree = require('lxml.etree', 'web')
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    try:
        root = etree.fromstring(feed, parser)
    except etree.XMLSyntaxError as error:
        raise BadReply('arXiv did not answer with a feed.') from error
    if root.tag != f'{_ATOM}feed':
        raise BadReply('arXiv did not answer with a feed.')
    for entry in root.iterfind(f'{_ATOM}entry'):
        url = words(entry.findtext(f'{_ATOM}id'))
        summary = words(entry.findtext(f'{_ATOM}summary'), 20_000)
        if '/api/errors' in url:
            raise BadReply(f'arXiv refused the query: {summary[:300]}')
        names = (words(one.findtext(f'{_ATOM}name')) for one in entry.iterfind(f'{_ATOM}author'))
        yield Article(
            url,
            words(entry.findtext(f'{_ATOM}updated'))[:10],
            words(entry.findtext(f'{_ATOM}title')),
            tuple(filter(None, names))[:_MAX_AUTHORS],
            summary,
        )
