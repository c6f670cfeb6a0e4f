"""Searching the web and reading its pages."""

import asyncio
import inspect
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from lagent.actions.base_action import AsyncActionMixin, BaseAction, tool_api
from lagent.actions.description import SESSION_PARAMETER
from lagent.actions.parser import BaseParser, JsonParser
from lagent.actions.web.address import AddressGuard
from lagent.actions.web.cache import BoundedCache
from lagent.actions.web.client import HttpClient, HttpLimits
from lagent.actions.web.engines import (
    BingSearch,
    BraveSearch,
    DuckDuckGoSearch,
    GoogleSearch,
    SearxngSearch,
)
from lagent.actions.web.errors import BadAddress, WebError
from lagent.actions.web.page import PageReader
from lagent.actions.web.search import BLACK_LIST, BaseSearch, SearchResult
from lagent.actions.web.tencent import TencentSearch
from lagent.actions.web.tool import web_api
from lagent.context import DEFAULT_SESSION, resolve_session
from lagent.portal import blocking
from lagent.utils.counts import many

__all__ = [
    'AsyncWebBrowser',
    'BaseSearch',
    'BingSearch',
    'BraveSearch',
    'DuckDuckGoSearch',
    'GoogleSearch',
    'SearxngSearch',
    'TencentSearch',
    'WebBrowser',
]

SEARCHERS: dict[str, type[BaseSearch]] = {
    searcher.__name__: searcher
    for searcher in (
        DuckDuckGoSearch,
        BingSearch,
        SearxngSearch,
        BraveSearch,
        GoogleSearch,
        TencentSearch,
    )
}

_MAX_QUERIES, _MAX_PAGES = 10, 10  # of one call
_SELECTED_CHARS, _OPENED_CHARS = 8_192, 32_768
_MAX_REDIRECTS = 5
_SESSIONS = 1_000  # sessions whose results are remembered


class _WebBrowser(BaseAction):
    """Search the web, and read pages of it."""

    idempotent = True
    network = True

    def __init__(
        self,
        searcher_type: str | type[BaseSearch] = 'DuckDuckGoSearch',
        timeout: float = 5,
        black_list: Sequence[str] | None = BLACK_LIST,
        topk: int = 20,
        description: dict[str, Any] | None = None,
        parser: type[BaseParser] = JsonParser,
        *,
        allow_networks: Iterable[str] = (),
        **searcher_kwargs: Any,
    ) -> None:
        super().__init__(description, parser)
        searcher = SEARCHERS.get(searcher_type) if isinstance(searcher_type, str) else searcher_type
        if not (inspect.isclass(searcher) and issubclass(searcher, BaseSearch)):
            raise ValueError(f'searcher_type is one of {[*SEARCHERS]}, not {searcher_type!r}')
        self.searcher = searcher(black_list=black_list, topk=topk, **searcher_kwargs)
        limits = HttpLimits(timeout=timeout, max_redirects=_MAX_REDIRECTS)
        self.fetcher = PageReader(HttpClient(limits, guard=AddressGuard(allow_networks)))
        self._results: BoundedCache[Hashable, dict[int, SearchResult]] = BoundedCache(_SESSIONS)

    @property
    def search_results(self) -> dict[int, SearchResult] | None:
        """What the current session's last search found; None before the first one."""
        return self._results.get(resolve_session(None))

    async def _search_all(self, queries: list[str]) -> dict[int, SearchResult]:
        """What several searches found, each page once, in the order of the queries."""
        answers = await asyncio.gather(
            *(self.searcher.asearch(query) for query in queries), return_exceptions=True
        )
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        for failure in failures:
            if len(failures) == len(answers) or not isinstance(failure, WebError):
                raise failure
        merged: dict[str, SearchResult] = {}
        for answer in answers:
            if isinstance(answer, BaseException):
                continue
            for result in answer.values():
                known = merged.setdefault(result['url'], result)
                if known is not result and result['summ'] not in known['summ']:
                    known['summ'] += f'\n{result["summ"]}'
        return dict(enumerate(merged.values()))

    async def _read_selected(self, result: SearchResult) -> SearchResult | WebError:
        page = {key: value for key, value in result.items() if key != 'summ'}
        try:
            return page | {'content': (await self.fetcher.read(result['url']))[:_SELECTED_CHARS]}
        except WebError as error:
            return error


class AsyncWebBrowser(AsyncActionMixin, _WebBrowser):
    """Search the web, and read pages of it.

    Note:
        The awaited form of `WebBrowser`, with the same arguments.
    """

    @tool_api(exclude_arguments=[SESSION_PARAMETER])
    @web_api
    async def search(
        self, query: str | list[str], session_id: Hashable = DEFAULT_SESSION
    ) -> dict[int, SearchResult]:
        """Search the web. Each result has a number, for `select`.

        Args:
            query (List[str]): list of search query strings
            session_id: whose search.
        """
        queries = [query] if isinstance(query, str) else query
        if not queries or len(queries) > _MAX_QUERIES or not all(map(_is_query, queries)):
            raise ValueError(f'query must be a list of 1 to {_MAX_QUERIES} texts')
        results = await self._search_all(list(dict.fromkeys(queries)))
        self._results[session_id] = results
        return {number: dict(result) for number, result in results.items()}

    @tool_api(exclude_arguments=[SESSION_PARAMETER])
    @web_api
    async def select(
        self, select_ids: list[int], session_id: Hashable = DEFAULT_SESSION
    ) -> dict[int, dict[str, str]]:
        """Get the detailed content of pages that the last search found.

        Args:
            select_ids (List[int]): numbers of the results to read, at most 10 at once
            session_id: whose search.
        """
        results = self._results.get(session_id)
        if not results:
            raise ValueError('No search results to select from.')
        numbers = list(dict.fromkeys(map(_number, select_ids)))
        if len(numbers) > _MAX_PAGES:
            raise ValueError(f'select_ids must be a list of at most {_MAX_PAGES} numbers')
        chosen = [number for number in numbers if number in results]
        if not chosen:
            raise BadAddress(f'There are results 0 to {len(results) - 1}, but not {numbers}.')
        pages = await asyncio.gather(*(self._read_selected(results[one]) for one in chosen))
        failures = [page for page in pages if isinstance(page, WebError)]
        if len(failures) == len(pages):
            raise failures[0]
        selected: dict[int, dict[str, str]] = {}
        for number, page in zip(chosen, pages, strict=True):
            if isinstance(page, WebError):
                selected[number] = {'url': results[number]['url'], 'error': str(page)}
            else:
                selected[number] = page
        return selected

    @tool_api
    @web_api
    async def open_url(self, url: str) -> dict[str, str]:
        """Read a web page.

        Args:
            url (str): the URL of the page
        """
        text = await self.fetcher.read(url)
        if len(text) > _OPENED_CHARS:
            left_out = many(len(text) - _OPENED_CHARS, 'character')
            text = f'{text[:_OPENED_CHARS]}\n... ({left_out} left out)'
        return {'type': 'text', 'content': text}


class WebBrowser(_WebBrowser):
    """Search the web, and read pages of it.

    Note:
        Pages are fetched from public addresses only: what a model opens may have been written by
        someone who wants to see your network. Proxies of the environment are not used for them.

    Args:
        searcher_type: name or class of the search engine: ``'DuckDuckGoSearch'``, ``'BingSearch'``,
            ``'SearxngSearch'``, ``'BraveSearch'``, ``'GoogleSearch'`` or ``'TencentSearch'``.
        timeout: seconds to fetch a page.
        black_list: search results with one of these texts in their URL are left out.
        topk: results of a search.
        description: replaces what models are told.
        parser: class that reads the inputs.
        allow_networks: networks beside the public internet that pages may be fetched from, such
            as ``'10.1.0.0/16'``.
        searcher_kwargs: more arguments of the search engine, such as its `api_key`.

    Raises:
        ValueError: there is no such engine, or it lacks its key.

    Attributes:
        searcher: the search engine.
        fetcher: reads the pages.
    """

    search = blocking(AsyncWebBrowser.search)
    select = blocking(AsyncWebBrowser.select)
    open_url = blocking(AsyncWebBrowser.open_url)


def _is_query(query: Any) -> bool:
    return isinstance(query, str) and bool(query.strip())


def _number(value: Any) -> int:
    # Models write numbers as texts now and then.
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError('select_ids must be a list of numbers')  # noqa: TRY004 - a model's input
    return int(value)
