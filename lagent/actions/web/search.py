"""What all search engines share: filtering, numbering, caching, retries."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lagent.actions.web.answers import words
from lagent.actions.web.cache import BoundedCache
from lagent.actions.web.client import HttpClient
from lagent.actions.web.tool import service_client
from lagent.portal import blocking

BLACK_LIST = ('enoN', 'youtube.com', 'bilibili.com', 'researchgate.net')

SearchResult = dict[str, str]
Proxy = str | Mapping[str, str] | None

_CACHED, _CACHE_SECONDS = 100, 600.0
_MAX_QUERY = 2_000  # characters


class Found(NamedTuple):
    """One result, as an engine gave it."""

    url: str
    summary: Any
    title: Any


class BaseSearch(ABC):
    """A search engine. Subclasses say in `find` how it is asked.

    What was found is kept for ten minutes, for each engine object on its own.

    Args:
        topk: results that are given.
        black_list: results with one of these texts in their URL are left out.
        timeout: seconds for one request.
        proxy: a proxy's URL, or a dict from ``'https'`` or ``'http'`` to one.
    """

    def __init__(
        self,
        topk: int = 3,
        black_list: Sequence[str] | None = BLACK_LIST,
        *,
        timeout: float = 30.0,
        proxy: Proxy = None,
    ) -> None:
        self.topk, self.black_list = topk, tuple(black_list or ())
        self.timeout, self.proxy = timeout, proxy
        self._cache: BoundedCache[str, tuple[SearchResult, ...]] = BoundedCache(
            _CACHED, _CACHE_SECONDS
        )

    async def asearch(self, query: str, max_retry: int = 3) -> dict[int, SearchResult]:
        """Search.

        Args:
            query: what for.
            max_retry: attempts in all.

        Returns:
            From 0, 1, ... to ``{'url': ..., 'summ': ..., 'title': ...}``, the best one first.

        Raises:
            WebError: the engine gave no answer.
        """
        query = query.strip()[:_MAX_QUERY]
        results = self._cache.get(query)
        if results is None:
            found = await self.find(
                query, service_client(self.timeout, self.proxy, max(max_retry, 1))
            )
            results = tuple(self._filtered(found))
            self._cache[query] = results
        return {number: dict(result) for number, result in enumerate(results)}

    search = blocking(asearch)

    @abstractmethod
    async def find(self, query: str, client: HttpClient) -> Iterable[Found]:
        """Ask the engine.

        Args:
            query: what for.
            client: asks within the limits.

        Returns:
            What it found, the best first.

        Raises:
            WebError: it gave no answer.
        """

    def _filtered(self, found: Iterable[Found]) -> Iterable[SearchResult]:
        left = self.topk
        for url, summary, title in found:
            if left <= 0:
                return
            if url.endswith('.pdf') or any(text in url for text in self.black_list):
                continue
            left -= 1
            yield {'url': url, 'summ': words(summary), 'title': words(title, 300)}
