"""The search engines that WebBrowser can ask."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from lagent._extras import require
from lagent.actions.web.answers import objects, pick, words
from lagent.actions.web.client import HttpClient
from lagent.actions.web.errors import BadReply, Unreachable, WebTimeout
from lagent.actions.web.search import BLACK_LIST, BaseSearch, Found, Proxy
from lagent.actions.web.tool import required_key

SERPER_RESULTS = {'search': 'organic', 'news': 'news', 'images': 'images', 'places': 'places'}
_BRAVE_COUNT = 20  # the most that Brave gives


class DuckDuckGoSearch(BaseSearch):
    """DuckDuckGo, which needs no key; asked with the library `ddgs`.

    Args:
        topk: results that are given.
        black_list: results with one of these texts in their URL are left out.
        timeout: seconds for one request.
        proxy: a proxy's URL, or a dict from ``'https'`` or ``'http'`` to one.
    """

    async def find(self, query: str, client: HttpClient) -> Iterable[Found]:
        """See `BaseSearch.find`."""
        ddgs = require('ddgs', 'web')
        errors = require('ddgs.exceptions', 'web')
        proxy = self.proxy if isinstance(self.proxy, str | None) else self.proxy.get('https')
        engine = ddgs.DDGS(proxy=proxy, timeout=max(1, round(self.timeout)))
        asked = partial(engine.text, max_results=self.topk * 2, backend='duckduckgo')
        attempt = 1
        while True:
            try:
                results = await asyncio.to_thread(asked, query.strip("'"))
            except errors.DDGSException as error:
                if 'no results' in str(error).lower():
                    return []
                if attempt >= client.limits.attempts:
                    late = isinstance(error, errors.TimeoutException)
                    failed = WebTimeout if late else Unreachable
                    raise failed(f'DuckDuckGo gave no answer: {error!s:.200}') from error
                await asyncio.sleep(2.0 ** min(attempt - 1, 4))
                attempt += 1
            else:
                return [
                    Found(words(one.get('href')), one.get('body'), one.get('title'))
                    for one in results
                ]


class BingSearch(BaseSearch):
    """The Bing Web Search API, version 7.

    Microsoft closed it to the public in August 2025; `base_url` leads to services that still
    speak its protocol.

    Args:
        api_key: the key.
        region: market, such as ``'en-US'``.
        topk: results that are given.
        black_list: results with one of these texts in their URL are left out.
        timeout: seconds for one request.
        proxy: a proxy's URL, or a dict from ``'https'`` or ``'http'`` to one.

    Raises:
        ValueError: there is no key.
    """

    base_url = 'https://api.bing.microsoft.com/v7.0'

    def __init__(
        self,
        api_key: str | None = None,
        region: str = 'zh-CN',
        topk: int = 3,
        black_list: Sequence[str] | None = BLACK_LIST,
        *,
        timeout: float = 30.0,
        proxy: Proxy = None,
    ) -> None:
        super().__init__(topk, black_list, timeout=timeout, proxy=proxy)
        self.api_key, self.market = required_key(api_key), region

    async def find(self, query: str, client: HttpClient) -> Iterable[Found]:
        """See `BaseSearch.find`."""
        reply = await client.get(
            f'{self.base_url}/search',
            {'q': query, 'mkt': self.market, 'count': min(self.topk * 2, 50)},
            {'Ocp-Apim-Subscription-Key': self.api_key},
        )
        return self._results(reply.json())

    def _results(self, answer: dict[str, Any]) -> Iterator[Found]:
        pages = objects(answer, 'webPages', 'value')
        ranking = objects(answer, 'rankingResponse', 'mainline', 'items')
        if not ranking:
            yield from map(_bing_page, pages)
        by_id = {words(page.get('id')): page for page in pages}
        for item in ranking:
            wanted = pick(item, 'value', 'id')
            if item.get('answerType') == 'WebPages' and wanted in by_id:
                yield _bing_page(by_id[wanted])
            elif item.get('answerType') == 'News' and wanted == pick(answer, 'news', 'id'):
                for news in objects(answer, 'news', 'value'):
                    yield Found(words(news.get('url')), news.get('description'), news.get('name'))


def _bing_page(page: dict[str, Any]) -> Found:
    return Found(words(page.get('url')), page.get('snippet'), page.get('name'))


class BraveSearch(BaseSearch):
    """The Brave Search API.

    Args:
        api_key: the key.
        region: country code of the results.
        language: language code of the results.
        extra_snippests: ask for more excerpts of each page (the name is InternLM's).
        topk: results that are given.
        black_list: results with one of these texts in their URL are left out.
        search_type: ``'web'`` or ``'news'``.
        timeout: seconds for one request.
        proxy: a proxy's URL, or a dict from ``'https'`` or ``'http'`` to one.
        params: more parameters of the API.

    Raises:
        ValueError: there is no key, or no such type of search.
    """

    base_url = 'https://api.search.brave.com/res/v1'

    def __init__(
        self,
        api_key: str | None = None,
        region: str = 'ALL',
        language: str = 'zh-hans',
        extra_snippests: bool = True,
        topk: int = 3,
        black_list: Sequence[str] | None = BLACK_LIST,
        *,
        search_type: str = 'web',
        timeout: float = 30.0,
        proxy: Proxy = None,
        **params: Any,
    ) -> None:
        super().__init__(topk, black_list, timeout=timeout, proxy=proxy)
        if search_type not in ('web', 'news'):
            raise ValueError(f"search_type is 'web' or 'news', not {search_type!r}")
        self.api_key, self.market, self.language = required_key(api_key), region, language
        self.extra_snippests, self.search_type, self.params = extra_snippests, search_type, params

    async def find(self, query: str, client: HttpClient) -> Iterable[Found]:
        """See `BaseSearch.find`."""
        asked = {
            'q': query,
            'country': self.market,
            'search_lang': self.language,
            'extra_snippets': self.extra_snippests,
            'count': min(self.topk, _BRAVE_COUNT),
        }
        reply = await client.get(
            f'{self.base_url}/{self.search_type}/search',
            asked | self.params,
            {'X-Subscription-Token': self.api_key, 'Accept': 'application/json'},
        )
        path = ('web', 'results') if self.search_type == 'web' else ('results',)
        return [
            Found(
                words(one.get('url')),
                [one.get('description'), *(pick(one, 'extra_snippets') or [])],
                one.get('title'),
            )
            for one in objects(reply.json(), *path)
        ]


class GoogleSearch(BaseSearch):
    """Google, by the API of serper.dev.

    Args:
        api_key: the key; without one, ``$SERPER_API_KEY``.
        topk: results that are given.
        black_list: results with one of these texts in their URL are left out.
        search_type: ``'search'``, ``'news'``, ``'images'`` or ``'places'``.
        timeout: seconds for one request.
        proxy: a proxy's URL, or a dict from ``'https'`` or ``'http'`` to one.
        params: more parameters of the API, such as ``gl='us'``.

    Raises:
        ValueError: there is no key, or no such type of search.
    """

    base_url = 'https://google.serper.dev'

    def __init__(
        self,
        api_key: str | None = None,
        topk: int = 3,
        black_list: Sequence[str] | None = BLACK_LIST,
        *,
        search_type: str = 'search',
        timeout: float = 30.0,
        proxy: Proxy = None,
        **params: Any,
    ) -> None:
        super().__init__(topk, black_list, timeout=timeout, proxy=proxy)
        if search_type not in SERPER_RESULTS:
            raise ValueError(f'search_type is one of {[*SERPER_RESULTS]}, not {search_type!r}')
        self.api_key = required_key(api_key, 'SERPER_API_KEY')
        self.search_type, self.params = search_type, params

    async def find(self, query: str, client: HttpClient) -> Iterable[Found]:
        """See `BaseSearch.find`."""
        reply = await client.post(
            f'{self.base_url}/{self.search_type}',
            {'q': query, 'num': self.topk} | self.params,
            {'X-API-KEY': self.api_key},
        )
        return self._results(reply.json())

    def _results(self, answer: dict[str, Any]) -> Iterator[Found]:
        box = answer.get('answerBox')
        for key in ('answer', 'snippet', 'snippetHighlighted'):
            said = pick(box, key)
            if said:
                yield Found(words(pick(box, 'link')), said, pick(box, 'title'))
                break
        graph = answer.get('knowledgeGraph')
        if isinstance(graph, dict):
            heading = f'{words(graph.get("title"))}: {words(graph.get("type"))}.'
            yield Found(words(graph.get('descriptionLink')), _described(graph), heading)
        for one in objects(answer, SERPER_RESULTS[self.search_type]):
            yield Found(words(one.get('link')), _described(one), one.get('title'))


def _described(one: dict[str, Any]) -> str:
    """What Serper says of a result, with its attributes."""
    attributes = one.get('attributes')
    named = attributes.items() if isinstance(attributes, dict) else ()
    said = [words(one.get('snippet') or one.get('description')).rstrip('.')]
    return '. '.join(filter(None, [*said, *(f'{key}: {words(value)}' for key, value in named)]))


class SearxngSearch(BaseSearch):
    """A SearXNG instance, such as one of your own; its settings must permit the format JSON.

    Args:
        base_url: where the instance is, such as ``'http://localhost:8080'``.
        topk: results that are given.
        black_list: results with one of these texts in their URL are left out.
        timeout: seconds for one request.
        proxy: a proxy's URL, or a dict from ``'https'`` or ``'http'`` to one.
        params: more parameters of the API, such as ``language='en'``.

    Raises:
        ValueError: there is no URL.
    """

    def __init__(
        self,
        base_url: str | None = None,
        topk: int = 3,
        black_list: Sequence[str] | None = BLACK_LIST,
        *,
        timeout: float = 30.0,
        proxy: Proxy = None,
        **params: Any,
    ) -> None:
        super().__init__(topk, black_list, timeout=timeout, proxy=proxy)
        if not base_url:
            raise ValueError('The URL of a SearXNG instance is needed: pass `base_url`.')
        self.base_url, self.params = base_url.rstrip('/').removesuffix('/search'), params

    async def find(self, query: str, client: HttpClient) -> Iterable[Found]:
        """See `BaseSearch.find`."""
        asked = {'q': query, 'format': 'json'} | self.params
        answer = (await client.get(f'{self.base_url}/search', asked)).json()
        if not isinstance(answer.get('results'), list):
            raise BadReply('The SearXNG instance answered without results.')
        return [
            Found(words(one.get('url')), one.get('content'), one.get('title'))
            for one in objects(answer, 'results')
        ]
