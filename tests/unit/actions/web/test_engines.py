"""The search engines: what they are asked, and how their answers are read."""

import json

import pytest

from lagent.actions.web.errors import BadReply, HttpFailed, WebTimeout
from lagent.actions.web_browser import (
    BingSearch,
    BraveSearch,
    DuckDuckGoSearch,
    GoogleSearch,
    SearxngSearch,
    TencentSearch,
)

from .conftest import Answer, as_json


def at(searcher, server):
    searcher.base_url = server.url
    return searcher


def found(url, summ, title):
    return {'url': url, 'summ': summ, 'title': title}


BING = {
    '_type': 'SearchResponse',
    'webPages': {
        'totalEstimatedMatches': 3,
        'value': [
            {
                'id': f'https://api.bing.microsoft.com/api/v7/#WebPages.{n}',
                'name': f'Page {n}',
                'url': f'https://example.com/{n}',
                'snippet': f'Words of {n}',
            }
            for n in range(3)
        ],
    },
    'news': {
        'id': 'https://api.bing.microsoft.com/api/v7/#News',
        'value': [{'name': 'News', 'url': 'https://news.example/', 'description': 'Just in'}],
    },
    'rankingResponse': {
        'mainline': {
            'items': [
                {
                    'answerType': 'WebPages',
                    'resultIndex': 1,
                    'value': {'id': 'https://api.bing.microsoft.com/api/v7/#WebPages.1'},
                },
                {
                    'answerType': 'News',
                    'value': {'id': 'https://api.bing.microsoft.com/api/v7/#News'},
                },
                {
                    'answerType': 'WebPages',
                    'resultIndex': 0,
                    'value': {'id': 'https://api.bing.microsoft.com/api/v7/#WebPages.0'},
                },
                {'answerType': 'Videos', 'value': {'id': 'x'}},
            ]
        }
    },
}


def test_bing_gives_results_in_the_order_of_its_ranking(web):
    server = web({'/search': as_json(BING)})
    results = at(BingSearch('key', region='en-US', topk=5), server).search('words')
    assert results == {
        0: found('https://example.com/1', 'Words of 1', 'Page 1'),
        1: found('https://news.example/', 'Just in', 'News'),
        2: found('https://example.com/0', 'Words of 0', 'Page 0'),
    }
    [asked] = server.asked
    assert asked.query == {'q': 'words', 'mkt': 'en-US', 'count': '10'}
    assert asked.headers['ocp-apim-subscription-key'] == 'key'


def test_bing_without_a_ranking(web):
    server = web({'/search': as_json({'webPages': BING['webPages']})})
    assert [one['title'] for one in at(BingSearch('k'), server).search('x').values()] == [
        'Page 0',
        'Page 1',
        'Page 2',
    ]


BRAVE = {
    'type': 'search',
    'query': {'original': 'x'},
    'web': {
        'type': 'search',
        'results': [
            {
                'title': 'One',
                'url': 'https://one.example/',
                'description': 'First.',
                'extra_snippets': ['Second.', 'Third.'],
            },
            {'title': 'Two', 'url': 'https://two.example/', 'description': 'Words.'},
        ],
    },
}


def test_brave(web):
    server = web({'/web/search': as_json(BRAVE)})
    searcher = at(BraveSearch('key', region='US', language='en', freshness='pd'), server)
    assert searcher.search('x') == {
        0: found('https://one.example/', 'First. Second. Third.', 'One'),
        1: found('https://two.example/', 'Words.', 'Two'),
    }
    [asked] = server.asked
    assert asked.query == {
        'q': 'x',
        'country': 'US',
        'search_lang': 'en',
        'extra_snippets': 'true',
        'count': '3',
        'freshness': 'pd',
    }
    assert asked.headers['x-subscription-token'] == 'key'


def test_brave_news(web):
    server = web({'/news/search': as_json({'results': BRAVE['web']['results'][1:]})})
    searcher = at(BraveSearch('key', search_type='news', topk=50), server)
    assert searcher.search('x') == {0: found('https://two.example/', 'Words.', 'Two')}
    assert server.asked[0].query['count'] == '20'


SERPER = {
    'answerBox': {'title': 'Everest', 'link': 'https://a.example/', 'answer': '8,849 m'},
    'knowledgeGraph': {
        'title': 'Mount Everest',
        'type': 'Mountain',
        'description': 'The highest mountain.',
        'descriptionLink': 'https://wiki.example/',
        'attributes': {'Elevation': '8,849 m', 'Listing': 'Seven Summits'},
    },
    'organic': [
        {
            'title': 'Height',
            'link': 'https://b.example/',
            'snippet': 'It is high.',
            'attributes': {'Date': '2020'},
            'position': 1,
        },
        {'title': 'Paper', 'link': 'https://c.example/x.pdf', 'snippet': 'x', 'position': 2},
        {'title': 'Video', 'link': 'https://www.youtube.com/x', 'snippet': 'x', 'position': 3},
        {'title': 'Last', 'link': 'https://d.example/', 'snippet': 'End', 'position': 4},
    ],
}


def test_google(web):
    server = web({'/search': as_json(SERPER)})
    assert at(GoogleSearch('key', topk=9, gl='us'), server).search('everest') == {
        0: found('https://a.example/', '8,849 m', 'Everest'),
        1: found(
            'https://wiki.example/',
            'The highest mountain. Elevation: 8,849 m. Listing: Seven Summits',
            'Mount Everest: Mountain.',
        ),
        2: found('https://b.example/', 'It is high. Date: 2020', 'Height'),
        3: found('https://d.example/', 'End', 'Last'),
    }
    [asked] = server.asked
    assert (asked.method, asked.json) == ('POST', {'q': 'everest', 'num': 9, 'gl': 'us'})
    assert asked.headers['x-api-key'] == 'key'


def test_searxng(web):
    answer = {
        'query': 'x',
        'number_of_results': 0,
        'results': [
            {
                'url': 'https://one.example/',
                'title': 'One',
                'content': 'First\n words',
                'engine': 'bing',
                'engines': ['bing', 'brave'],
                'score': 2.0,
            },
            {'url': 'https://two.example/', 'title': 'Two', 'content': None},
        ],
        'unresponsive_engines': [['google', 'timeout']],
    }
    server = web({'/search': as_json(answer)})
    assert SearxngSearch(f'{server.url}/', language='en').search('x') == {
        0: found('https://one.example/', 'First words', 'One'),
        1: found('https://two.example/', '', 'Two'),
    }
    assert server.asked[0].query == {'q': 'x', 'format': 'json', 'language': 'en'}
    refusing = web({'/search': Answer(b'<html>Forbidden', 403)})
    with pytest.raises(HttpFailed):
        SearxngSearch(refusing.url).search('x')
    with pytest.raises(BadReply, match='without results'):
        SearxngSearch(web({'/search': as_json({'error': 'x'})}).url).search('x')


def shown(**fields):
    return json.dumps(fields, ensure_ascii=False)


def test_tencent(web):
    pages = [
        {'Display': shown(url='https://a.example/', title='甲', content='内容', abstract_info='x')},
        {'Display': shown(url='https://b.example/', title='乙', content='', abstract_info='摘要')},
        {'Display': shown(url='', title='no page')},
        {'Display': 'not json'},
        {},
        shown(url='https://c.example/', title='丙', passage='段落'),
    ]
    answer = {'Response': {'Pages': pages, 'RequestId': 'r'}}
    server = web({'/': as_json(answer)})
    searcher = at(TencentSearch('id', 'key', 'token', tsn=2, insite='zhihu.com', topk=5), server)
    assert searcher.search('问题') == {
        0: found('https://a.example/', '内容', '甲'),
        1: found('https://b.example/', '摘要', '乙'),
        2: found('https://c.example/', '段落', '丙'),
    }
    [asked] = server.asked
    assert asked.json == {'Query': '问题', 'Tsn': 2, 'Insite': 'zhihu.com'}
    assert asked.headers['host'] == 'tms.tencentcloudapi.com'
    assert asked.headers['x-tc-action'] == 'SearchCommon'
    assert asked.headers['x-tc-version'] == '2020-12-29'
    assert asked.headers['x-tc-token'] == 'token'
    assert asked.headers['content-type'] == 'application/json; charset=utf-8'


def test_the_signature_of_tencents_documentation():
    """The worked example of the signature method TC3-HMAC-SHA256, its key as it is printed."""
    searcher = TencentSearch(
        'AKID' + '*' * 32,
        '*' * 32,
        action='DescribeInstances',
        service='cvm',
        host='cvm.tencentcloudapi.com',
    )
    body = (
        b'{"Limit": 1, "Filters": [{"Values": ["\\u672a\\u547d\\u540d"], "Name": "instance-name"}]}'
    )
    assert searcher._authorization(body, 1551113065) == (
        'TC3-HMAC-SHA256 Credential=AKID********************************/2019-02-25/cvm/tc3_request'
        ', SignedHeaders=content-type;host;x-tc-action, '
        'Signature=10b1a37a7301a02ca19a647ad722d5e43b4b3cff309d421d85b46093f6ab6c4f'
    )


def test_what_tencent_refuses(web):
    error = {'Code': 'AuthFailure.SignatureFailure', 'Message': 'The signature is wrong.'}
    server = web({'/': as_json({'Response': {'Error': error, 'RequestId': 'r'}})})
    with pytest.raises(BadReply, match=r'AuthFailure\.SignatureFailure: The signature is wrong'):
        at(TencentSearch('id', 'key'), server).search('x')


DUCK = """<html><body><div class="results">
<div class="result results_links result--ad"><div class="links_main result__body">
<h2 class="result__title"><a href="https://duckduckgo.com/y.js?ad_domain=x">Ad</a></h2>
<a class="result__snippet" href="https://duckduckgo.com/y.js?ad_domain=x">Buy</a></div></div>
<div class="result results_links"><div class="links_main links_deep result__body">
<h2 class="result__title"><a class="result__a" href="https://one.example/">Title <b>one</b></a></h2>
<a class="result__snippet" href="https://one.example/">Words about <b>agents</b> one</a></div></div>
<div class="result results_links"><div class="links_main links_deep result__body">
<h2 class="result__title"><a class="result__a" href="https://www.youtube.com/x">Video</a></h2>
<a class="result__snippet" href="https://www.youtube.com/x">agents</a></div></div>
</div></body></html>"""


@pytest.fixture
def duck(web, monkeypatch):
    """Let the library ask a server of ours."""
    engine = pytest.importorskip('ddgs.engines.duckduckgo').Duckduckgo

    def start(answer):
        server = web({'/html/': answer})
        monkeypatch.setattr(engine, 'search_url', f'{server.url}/html/')
        return server

    return start


def test_duckduckgo(duck):
    server = duck(Answer(DUCK.encode()))
    results = DuckDuckGoSearch().search("'agents'")
    [(number, result)] = results.items()
    assert number == 0
    assert result['title'].split() == ['Title', 'one']
    assert result['summ'].split() == ['Words', 'about', 'agents', 'one']
    assert b'q=agents' in server.asked[0].body


def test_duckduckgo_without_results(duck):
    duck(Answer(b'<html><body>No results.</body></html>'))
    assert DuckDuckGoSearch().search('x') == {}


def test_duckduckgo_that_gives_no_answer(duck):
    server = duck(Answer(b'x', hang=True))
    searcher = DuckDuckGoSearch(timeout=1)
    with pytest.raises(WebTimeout, match='DuckDuckGo gave no answer'):
        searcher.search('x', max_retry=1)
    server.over.set()


@pytest.mark.parametrize('searcher', [BingSearch, BraveSearch, GoogleSearch, TencentSearch])
def test_a_missing_key(searcher):
    with pytest.raises(ValueError, match='A key is needed: pass `'):
        searcher()


def test_a_missing_url_of_searxng():
    with pytest.raises(ValueError, match='base_url'):
        SearxngSearch()


def test_google_takes_its_key_from_the_environment(monkeypatch):
    monkeypatch.setenv('SERPER_API_KEY', 'of the environment')
    assert GoogleSearch().api_key == 'of the environment'
    assert GoogleSearch('explicit').api_key == 'explicit'


@pytest.mark.parametrize('searcher', [BraveSearch, GoogleSearch])
def test_a_type_of_search_that_does_not_exist(searcher):
    with pytest.raises(ValueError, match='search_type'):
        searcher('key', search_type='videos')


def many(count):
    return as_json(
        {
            'results': [
                {'url': f'https://e.example/{n}', 'title': 't' * 9_000, 'content': 'c' * 9_000}
                for n in range(count)
            ]
        }
    )


def test_results_are_bounded(web):
    searcher = SearxngSearch(web({'/search': many(50)}).url, topk=4)
    results = searcher.search('x')
    assert [*results] == [0, 1, 2, 3]
    assert (len(results[0]['title']), len(results[0]['summ'])) == (303, 2_003)


def test_results_are_kept_for_each_engine_and_nobody_can_change_them(web):
    server = web({'/search': many(1)})
    one, other = SearxngSearch(server.url), SearxngSearch(server.url)
    first = one.search('x')
    first[0]['summ'] = first[5] = 'changed'
    assert one.search(' x ') == other.search('x')
    assert len(server.asked) == 2
    one.search('y')
    assert len(server.asked) == 3


def test_failures_are_not_kept(web):
    server = web({'/search': [Answer(status=400), many(1)]})
    searcher = SearxngSearch(server.url)
    with pytest.raises(HttpFailed):
        searcher.search('x')
    assert len(searcher.search('x')) == 1


async def test_the_awaited_form(web):
    searcher = SearxngSearch(web({'/search': [as_json({}, 503), many(1)]}).url)
    assert len(await searcher.asearch('x', max_retry=2)) == 1
