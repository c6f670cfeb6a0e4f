"""Papers, authors and citations from Google Scholar, by the API of serpapi.com."""

from typing import Any

from lagent.actions.base_action import AsyncActionMixin, BaseAction, tool_api
from lagent.actions.parser import BaseParser, JsonParser
from lagent.actions.web.answers import objects, pick, words
from lagent.actions.web.errors import BadReply
from lagent.actions.web.tool import required_key, service_client, web_api
from lagent.portal import blocking

_TIMEOUT = 20.0  # seconds for one request: the service asks Google first
_SHOWN = 3  # papers of an answer


class _GoogleScholar(BaseAction):
    idempotent = True
    network = True
    base_url = 'https://serpapi.com'

    def __init__(
        self,
        api_key: str | None = None,
        description: dict[str, Any] | None = None,
        parser: type[BaseParser] = JsonParser,
    ) -> None:
        super().__init__(description, parser)
        self.api_key = required_key(api_key, 'SERPAPI_API_KEY', 'SERPER_API_KEY')

    async def _ask(self, engine: str, **params: Any) -> dict[str, Any]:
        asked = {
            key: str(value).lower() if isinstance(value, bool) else value
            for key, value in params.items()
        }
        reply = await service_client(_TIMEOUT).get(
            f'{self.base_url}/search.json', asked | {'engine': engine, 'api_key': self.api_key}
        )
        answer = reply.json()
        if 'error' in answer:
            raise BadReply(f'Google Scholar gave no result: {words(answer["error"], 300)}')
        return answer


class AsyncGoogleScholar(AsyncActionMixin, _GoogleScholar):
    """Search Google Scholar for papers, authors and citations.

    Note:
        The awaited form of `GoogleScholar`, with the same arguments.
    """

    @tool_api(explode_return=True)
    @web_api
    async def search_google_scholar(
        self,
        query: str,
        cites: str | None = None,
        as_ylo: int | None = None,
        as_yhi: int | None = None,
        scisbd: int | None = None,
        cluster: str | None = None,
        hl: str | None = None,
        lr: str | None = None,
        start: int | None = None,
        num: int | None = None,
        as_sdt: str | None = None,
        safe: str | None = None,
        filter: str | None = None,  # noqa: A002 - the parameter's name in the service
        as_vis: str | None = None,
    ) -> dict[str, list[Any]]:
        """Search for scholarly articles.

        Args:
            query (str): The query to search for.
            cites (Optional[str]): ID of an article, to search in those that cite it.
            as_ylo (Optional[int]): Only articles of this year and later.
            as_yhi (Optional[int]): Only articles of this year and before.
            scisbd (Optional[int]): Articles of the last year by date: 1 abstracts, 2 everything.
            cluster (Optional[str]): ID of an article, to get all its versions.
            hl (Optional[str]): Language of the search, such as en.
            lr (Optional[str]): Languages of the articles, such as lang_fr|lang_de.
            start (Optional[int]): Results to skip: 10 for the second page.
            num (Optional[int]): Most results to ask for, at most 20.
            as_sdt (Optional[str]): Type of search, or a filter.
            safe (Optional[str]): Filter for adult content: active or off.
            filter (Optional[str]): 0 to show similar and omitted results too.
            as_vis (Optional[str]): 1 to leave out citations.

        Returns:
            :class:`dict`: article information
                - title: titles of the first three papers
                - cited_by: how often each is cited
                - organic_id: their ids, for get_citation_format
                - pub_info: where each was published
                - snippets: an excerpt of each
        """
        answer = await self._ask(
            'google_scholar',
            q=query,
            cites=cites,
            as_ylo=as_ylo,
            as_yhi=as_yhi,
            scisbd=scisbd,
            cluster=cluster,
            hl=hl,
            lr=lr,
            start=start,
            num=num,
            as_sdt=as_sdt,
            safe=safe,
            filter=filter,
            as_vis=as_vis,
        )
        papers = objects(answer, 'organic_results')[:_SHOWN]
        return {
            'title': [words(paper.get('title')) for paper in papers],
            'cited_by': [pick(paper, 'inline_links', 'cited_by', 'total') or 0 for paper in papers],
            'organic_id': [words(paper.get('result_id')) for paper in papers],
            'pub_info': [words(pick(paper, 'publication_info', 'summary')) for paper in papers],
            'snippets': [words(paper.get('snippet')) for paper in papers],
        }

    @tool_api(explode_return=True)
    @web_api
    async def get_author_information(
        self,
        author_id: str,
        hl: str | None = None,
        view_op: str | None = None,
        sort: str | None = None,
        citation_id: str | None = None,
        start: int | None = None,
        num: int | None = None,
        no_cache: bool | None = None,
        async_req: bool | None = None,
        output: str | None = None,
    ) -> dict[str, Any]:
        """Get information about an author, by the id that get_author_id gives.

        Args:
            author_id (str): The ID of an author.
            hl (Optional[str]): Language of the search, such as en.
            view_op (Optional[str]): Which part of the author's page.
            sort (Optional[str]): Order of the articles: title or pubdate.
            citation_id (Optional[str]): ID of a single article of the author.
            start (Optional[int]): Articles to skip.
            num (Optional[int]): Most articles to ask for.
            no_cache (Optional[bool]): Ask Google again, whatever the service remembers.
            async_req (Optional[bool]): Only submit the search.
            output (Optional[str]): Form of the service's answer; json is the one that can be read.

        Returns:
            :class:`dict`: author information
                * name: author's name
                * affiliations: where the author works
                * website: the author's homepage url
                * articles: at most 3 articles by the author
        """
        answer = await self._ask(
            'google_scholar_author',
            author_id=author_id,
            hl=hl,
            view_op=view_op,
            sort=sort,
            citation_id=citation_id,
            start=start,
            num=num,
            no_cache=no_cache,
            output=output,
            **{'async': async_req},
        )
        author = answer.get('author')
        if not isinstance(author, dict):
            raise BadReply(f'Google Scholar knows no author {author_id!r:.80}.')
        articles = objects(answer, 'articles')[:_SHOWN]
        return {
            'name': words(author.get('name')),
            'affiliations': words(author.get('affiliations')),
            'website': words(author.get('website')),
            'articles': [
                {'title': words(one.get('title')), 'authors': words(one.get('authors'))}
                for one in articles
            ],
        }

    @tool_api
    @web_api
    async def get_citation_format(
        self,
        q: str,
        no_cache: bool | None = None,
        async_: bool | None = None,
        output: str | None = 'json',
    ) -> str:
        """Get how to cite an article, in the format MLA.

        Args:
            q (str): The organic_id of the article, from search_google_scholar.
            no_cache (Optional[bool]): Ask Google again, whatever the service remembers.
            async_ (Optional[bool]): Only submit the search.
            output (Optional[str]): Form of the service's answer; json is the one that can be read.
        """
        answer = await self._ask(
            'google_scholar_cite', q=q, no_cache=no_cache, output=output, **{'async': async_}
        )
        citation = words(pick(answer, 'citations', 0, 'snippet'))
        if not citation:
            raise BadReply(f'Google Scholar has no citation of {q!r:.80}.')
        return citation

    @tool_api(explode_return=True)
    @web_api
    async def get_author_id(
        self,
        mauthors: str,
        hl: str | None = 'en',
        after_author: str | None = None,
        before_author: str | None = None,
        no_cache: bool | None = False,
        _async: bool | None = False,
        output: str | None = 'json',
    ) -> dict[str, str]:
        """Get the id of an author by name.

        Args:
            mauthors (str): The author's name.
            hl (Optional[str]): Language of the search, such as en.
            after_author (Optional[str]): Token of the next page.
            before_author (Optional[str]): Token of the page before.
            no_cache (Optional[bool]): Ask Google again, whatever the service remembers.
            _async (Optional[bool]): Only submit the search.
            output (Optional[str]): Form of the service's answer; json is the one that can be read.

        Returns:
            :class:`dict`: author id
                * author_id: the id of the author
        """
        answer = await self._ask(
            'google_scholar_profiles',
            mauthors=mauthors,
            hl=hl,
            after_author=after_author,
            before_author=before_author,
            no_cache=no_cache,
            output=output,
            **{'async': _async},
        )
        author_id = words(pick(answer, 'profiles', 0, 'author_id'))
        if not author_id:
            raise BadReply(f'Google Scholar knows no author named {mauthors!r:.80}.')
        return {'author_id': author_id}


class GoogleScholar(_GoogleScholar):
    """Search Google Scholar for papers, authors and citations.

    Args:
        api_key: key of serpapi.com; without one, ``$SERPAPI_API_KEY``, else ``$SERPER_API_KEY``,
            which is where InternLM's looks for it.
        description: replaces what models are told.
        parser: class that reads the inputs.

    Raises:
        ValueError: there is no key.
    """

    search_google_scholar = blocking(AsyncGoogleScholar.search_google_scholar)
    get_author_information = blocking(AsyncGoogleScholar.get_author_information)
    get_citation_format = blocking(AsyncGoogleScholar.get_citation_format)
    get_author_id = blocking(AsyncGoogleScholar.get_author_id)
