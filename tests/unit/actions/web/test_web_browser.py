"""WebBrowser: searching, selecting and opening pages, each session for itself."""

import asyncio
import inspect
import json

import pytest

from lagent.actions import ActionExecutor, AsyncActionExecutor, AsyncWebBrowser, WebBrowser
from lagent.actions.web.search import BaseSearch, Found
from lagent.actions.web_browser import GoogleSearch
from lagent.context import run_context
from lagent.schema import ActionStatusCode, AgentMessage

from .conftest import LOOPBACK, Answer, as_json, page

OK, HTTP, API, ARGS = (
    ActionStatusCode.SUCCESS,
    ActionStatusCode.HTTP_ERROR,
    ActionStatusCode.API_ERROR,
    ActionStatusCode.ARGS_ERROR,
)


def searx(**pages):
    return as_json(
        {
            'results': [
                {'url': url, 'title': title, 'content': f'About {title}'}
                for title, url in pages.items()
            ]
        }
    )


@pytest.fixture(params=[WebBrowser, AsyncWebBrowser])
def browser(request, web):
    """Makes a browser that finds pages of a server of its own, and may fetch from it."""

    def start(routes, allow=LOOPBACK, **options):
        server = web(routes)
        options = {'base_url': server.url} | options
        made = request.param('SearxngSearch', allow_networks=allow, **options)
        return made, server

    return start


def called(tool, api, **arguments):
    result = tool(arguments, api)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def content(result):
    assert result.state == OK, result.errmsg
    return json.loads(result.format_result())


def test_search(browser):
    tool, _ = browser({'/search': searx(One='https://one.example/', Two='https://two.example/')})
    result = called(tool, 'search', query='words')
    assert content(result) == {
        '0': {'url': 'https://one.example/', 'summ': 'About One', 'title': 'One'},
        '1': {'url': 'https://two.example/', 'summ': 'About Two', 'title': 'Two'},
    }
    assert (result.type, result.args) == (type(tool).__name__, {'query': 'words'})
    assert tool.search_results[1]['title'] == 'Two'


def test_several_searches_give_each_page_once_in_order(browser):
    def answer(asked):
        if asked.query['q'] == 'first':
            return searx(One='https://one.example/', Both='https://both.example/')
        return searx(Twice='https://both.example/', Two='https://two.example/')

    tool, server = browser({'/search': answer})
    found = content(called(tool, 'search', query=['first', 'second', 'first']))
    assert [one['title'] for one in found.values()] == ['One', 'Both', 'Two']
    assert found['1']['summ'] == 'About Both\nAbout Twice'
    assert len(server.asked) == 2
    # What was merged here is not in what the engine remembers.
    assert content(called(tool, 'search', query='first'))['1']['summ'] == 'About Both'


def test_searches_that_fail(browser):
    def answer(asked):
        good = asked.query['q'] == 'good'
        return searx(One='https://one.example/') if good else Answer(b'', 403)

    tool, _ = browser({'/search': answer})
    assert len(content(called(tool, 'search', query=['bad', 'good']))) == 1
    result = called(tool, 'search', query=['bad', 'worse'])
    assert (result.state, '403' in result.errmsg) == (HTTP, True)


@pytest.mark.parametrize('query', ['', [], ['  '], [1], ['x'] * 11])
def test_what_is_no_query(browser, query):
    tool, server = browser({})
    result = called(tool, 'search', query=query)
    assert (result.state, result.errmsg) == (API, 'query must be a list of 1 to 10 texts')
    assert server.asked == []


def test_results_of_the_black_list_are_left_out(browser):
    found = searx(
        A='https://www.youtube.com/x', B='https://b.example/', C='https://c.example/p.pdf'
    )
    tool, _ = browser({'/search': found})
    assert [one['title'] for one in content(called(tool, 'search', query='x')).values()] == ['B']
    tool, _ = browser({'/search': found}, black_list=None)
    assert [one['title'] for one in content(called(tool, 'search', query='x')).values()] == [
        'A',
        'B',
    ]
    tool, _ = browser({'/search': found}, black_list=['b.example'], topk=1)
    assert [one['title'] for one in content(called(tool, 'search', query='x')).values()] == ['A']


def three_pages(server):
    return searx(Long=f'{server}/long', Broken=f'{server}/broken', Short=f'{server}/short')


def routes(**more):
    def search(asked):
        return three_pages(f'http://{asked.headers["host"]}')

    return {
        '/search': search,
        '/long': Answer(b'x' * 20_000, content_type='text/plain'),
        '/short': page('<html><body><p>Short words.</p></body></html>'),
        **more,
    }


def test_select(browser):
    tool, server = browser(routes())
    called(tool, 'search', query='x')
    result = called(tool, 'select', select_ids=[2, '0', 2, 77])
    assert content(result) == {
        '2': {'url': f'{server.url}/short', 'title': 'Short', 'content': 'Short words.'},
        '0': {'url': f'{server.url}/long', 'title': 'Long', 'content': 'x' * 8192},
    }
    called(tool, 'select', select_ids=[2])
    assert sum(asked.path == '/short' for asked in server.asked) == 1, 'pages are remembered'


def test_select_says_which_pages_failed(browser):
    tool, server = browser(routes())
    called(tool, 'search', query='x')
    selected = content(called(tool, 'select', select_ids=[1, 2]))
    assert selected['2']['content'] == 'Short words.'
    assert selected['1']['url'] == f'{server.url}/broken'
    assert '404' in selected['1']['error']
    result = called(tool, 'select', select_ids=[1])
    assert (result.state, '404' in result.errmsg) == (HTTP, True)


def test_what_cannot_be_selected(browser):
    tool, _ = browser(routes())
    result = called(tool, 'select', select_ids=[0])
    assert (result.state, result.errmsg) == (API, 'No search results to select from.')
    called(tool, 'search', query='x')
    result = called(tool, 'select', select_ids=[3, -1])
    assert (result.state, result.errmsg) == (
        ARGS,
        'There are results 0 to 2, but not [3, -1].',
    )
    for odd in ([None], ['x'], [True], 5, None):
        assert called(tool, 'select', select_ids=odd).state == API
    # None of them is left out in silence.
    assert 'at most 10' in called(tool, 'select', select_ids=[*range(11)]).errmsg
    assert called(tool, 'select', select_ids=[0] * 11).state != API


def test_open_url(browser):
    tool, server = browser(routes())
    assert content(called(tool, 'open_url', url=f'{server.url}/short')) == {
        'type': 'text',
        'content': 'Short words.',
    }
    failed = called(tool, 'open_url', url=f'{server.url}/no-such-page')
    assert (failed.state, '404' in failed.errmsg) == (HTTP, True)
    assert called(tool, 'open_url', url='file:///etc/passwd').state == ARGS


def test_a_long_page_is_cut_with_a_count(browser):
    tool, server = browser({'/': Answer(b'x' * 40_000, content_type='text/plain')})
    text = content(called(tool, 'open_url', url=f'{server.url}/'))['content']
    assert text == 'x' * 32_768 + '\n... (7,232 characters left out)'


def test_pages_of_the_own_network_are_not_opened(browser):
    inside = 'http://127.0.0.1:1/'
    tool, server = browser({'/search': searx(Inside=inside)}, allow=())
    for url in (f'{server.url}/', 'http://localhost/', 'http://169.254.169.254/latest/meta-data'):
        result = called(tool, 'open_url', url=url)
        assert (result.state, 'not on the public internet' in result.errmsg) == (ARGS, True)
    called(tool, 'search', query='x')
    assert called(tool, 'select', select_ids=[0]).state == ARGS
    assert [asked.path for asked in server.asked] == ['/search']


def call_of(api, **arguments):
    return AgentMessage(content={'name': f'WebBrowser.{api}', 'parameters': arguments})


def test_sessions_do_not_see_one_another(web):
    def answer(asked):
        return searx(**{asked.query['q']: 'https://e.example/'})

    tool = WebBrowser('SearxngSearch', base_url=web({'/search': answer}).url)
    executor = ActionExecutor([tool])
    executor(call_of('search', query='Ada'), session_id='ada')
    executor(call_of('search', query='Bob'), session_id='bob')
    with run_context('ada'):
        assert tool.search_results[0]['title'] == 'Ada'
    with run_context('bob'):
        assert tool.search_results[0]['title'] == 'Bob'
    assert tool.search_results is None
    result = executor(call_of('select', select_ids=[0]), session_id='carol').content
    assert result.errmsg == 'No search results to select from.'
    result = executor(call_of('search', query='x', session_id='bob'), session_id='eve').content
    assert (result.state, 'session_id' in result.errmsg) == (ARGS, True)


async def test_many_sessions_at_once(web):
    def answer(asked):
        return searx(**{asked.query['q']: 'https://e.example/'})

    tool = AsyncWebBrowser('SearxngSearch', base_url=web({'/search': answer}).url)
    executor = AsyncActionExecutor([tool])

    async def search(number):
        message = AgentMessage(
            content={'name': 'AsyncWebBrowser.search', 'parameters': {'query': f'q{number}'}}
        )
        await executor(message, session_id=number)
        with run_context(number):
            return tool.search_results[0]['title']

    assert await asyncio.gather(*map(search, range(20))) == [f'q{n}' for n in range(20)]


class Constant(BaseSearch):
    async def find(self, query, client):
        return [Found('https://e.example/', query, 'Constant')]


def test_an_engine_of_ones_own():
    tool = WebBrowser(Constant, topk=1)
    assert content(tool({'query': 'x'}, 'search'))['0']['title'] == 'Constant'


@pytest.mark.parametrize('cls', [WebBrowser, AsyncWebBrowser])
class TestConstruction:
    def test_an_engine_that_does_not_exist(self, cls):
        for odd in ('NoSearch', '__import__("os").abort()', dict, Constant(), None):
            with pytest.raises(ValueError, match='searcher_type is one of'):
                cls(odd)

    def test_arguments_of_the_engine(self, cls):
        searcher = cls('GoogleSearch', topk=7, api_key='k', gl='us', timeout=2).searcher
        assert isinstance(searcher, GoogleSearch)
        assert (searcher.topk, searcher.api_key, searcher.params) == (7, 'k', {'gl': 'us'})
        with pytest.raises(ValueError, match='A key is needed'):
            cls('BingSearch')

    def test_description(self, cls):
        described = cls(Constant).description
        assert described['description'] == 'Search the web, and read pages of it.'
        assert [api['name'] for api in described['api_list']] == ['search', 'select', 'open_url']
        names = [[one['name'] for one in api['parameters']] for api in described['api_list']]
        assert names == [['query'], ['select_ids'], ['url']]
