"""Short answers from Google, by the API of serper.dev."""

from typing import Any

from lagent.actions.base_action import AsyncActionMixin, BaseAction, tool_api
from lagent.actions.parser import BaseParser, JsonParser
from lagent.actions.web.answers import objects, pick, words
from lagent.actions.web.engines import SERPER_RESULTS
from lagent.actions.web.tool import required_key, service_client, web_api
from lagent.portal import blocking
from lagent.schema import ActionReturn

_MAX_RESULTS = 100


class _GoogleSearch(BaseAction):
    idempotent = True
    network = True
    base_url = 'https://google.serper.dev'

    def __init__(
        self,
        api_key: str | None = None,
        timeout: float = 5,
        search_type: str = 'search',
        description: dict[str, Any] | None = None,
        parser: type[BaseParser] = JsonParser,
    ) -> None:
        super().__init__(description, parser)
        if search_type not in SERPER_RESULTS:
            raise ValueError(f'search_type is one of {[*SERPER_RESULTS]}, not {search_type!r}')
        self.api_key = required_key(api_key, 'SERPER_API_KEY')
        self.timeout, self.search_type = timeout, search_type

    def _snippets(self, answer: dict[str, Any], k: int) -> list[str]:
        box = answer.get('answerBox')
        for key in ('answer', 'snippet', 'snippetHighlighted'):
            said = pick(box, key)
            if said:
                return [words(one) for one in said] if isinstance(said, list) else [words(said)]
        snippets = []
        graph = answer.get('knowledgeGraph')
        if isinstance(graph, dict):
            title = words(graph.get('title'))
            if graph.get('type'):
                snippets.append(f'{title}: {words(graph["type"])}.')
            if graph.get('description'):
                snippets.append(words(graph['description']))
            snippets += [f'{title} {line}' for line in _attributes(graph)]
        for result in objects(answer, SERPER_RESULTS[self.search_type])[:k]:
            # Places and images have no snippet.
            said = result.get('snippet') or result.get('address') or result.get('title')
            snippets += [words(said), *_attributes(result)]
        return [*filter(None, snippets)] or ['No good Google Search Result was found']


class AsyncGoogleSearch(AsyncActionMixin, _GoogleSearch):
    """Search with Google.

    Note:
        The awaited form of `GoogleSearch`, with the same arguments.
    """

    @tool_api
    @web_api
    async def run(self, query: str, k: int = 10) -> ActionReturn:
        """Search with Google. Good for short and exact answers to a question about facts.

        Args:
            query (str): the search content
            k (int): how many results to use
        """
        k = min(max(int(k), 1), _MAX_RESULTS)
        reply = await service_client(self.timeout).post(
            f'{self.base_url}/{self.search_type}',
            {'q': query, 'num': k},
            {'X-API-KEY': self.api_key},
        )
        snippets = self._snippets(reply.json(), k)
        return ActionReturn(type=self.name, result=[{'type': 'text', 'content': str(snippets)}])


class GoogleSearch(_GoogleSearch):
    """Search with Google.

    Args:
        api_key: key of serper.dev; without one, ``$SERPER_API_KEY``.
        timeout: seconds for one request.
        search_type: ``'search'``, ``'news'``, ``'images'`` or ``'places'``.
        description: replaces what models are told.
        parser: class that reads the inputs.

    Raises:
        ValueError: there is no key, or no such type of search.
    """

    run = blocking(AsyncGoogleSearch.run)


def _attributes(one: dict[str, Any]) -> list[str]:
    attributes = one.get('attributes')
    if not isinstance(attributes, dict):
        return []
    return [f'{key}: {words(value)}.' for key, value in attributes.items()]
