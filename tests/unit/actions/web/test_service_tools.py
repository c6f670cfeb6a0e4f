"""Tools that ask one service: GoogleSearch, GoogleScholar, BINGMap and ArxivSearch."""

import asyncio
import json
import time

import pytest

from lagent.actions import (
    ArxivSearch,
    AsyncArxivSearch,
    AsyncBINGMap,
    AsyncGoogleScholar,
    AsyncGoogleSearch,
    BINGMap,
    GoogleScholar,
    GoogleSearch,
)
from lagent.actions.arxiv_search import _Pace
from lagent.actions.web.errors import WebTimeout
from lagent.context import run_context
from lagent.limits import RunLimits
from lagent.schema import ActionStatusCode

from .conftest import Answer, as_json

OK, HTTP, API = (
    ActionStatusCode.SUCCESS,
    ActionStatusCode.HTTP_ERROR,
    ActionStatusCode.API_ERROR,
)

SERPER = {
    'searchParameters': {'q': 'apple inc', 'gl': 'us', 'hl': 'en', 'num': 10, 'type': 'search'},
    'knowledgeGraph': {
        'title': 'Apple',
        'type': 'Technology company',
        'website': 'http://www.apple.com/',
        'description': 'Apple Inc. is an American technology company.',
        'descriptionSource': 'Wikipedia',
        'descriptionLink': 'https://en.wikipedia.org/wiki/Apple_Inc.',
        'attributes': {'Headquarters': 'Cupertino, CA', 'Founded': 'April 1, 1976'},
    },
    'organic': [
        {
            'title': 'Apple',
            'link': 'https://www.apple.com/',
            'snippet': 'Discover the innovative world of Apple.',
            'sitelinks': [{'title': 'Support', 'link': 'https://support.apple.com/'}],
            'position': 1,
        },
        {
            'title': 'Apple Inc. - Wikipedia',
            'link': 'https://en.wikipedia.org/wiki/Apple_Inc.',
            'snippet': 'Apple Inc. is a corporation.',
            'attributes': {'Products': 'iPhone', 'Founders': 'Steve Jobs'},
            'position': 2,
        },
        {'title': 'No words', 'link': 'https://example.com/', 'position': 3},
    ],
}


def at(tool, server):
    tool.base_url = server.url
    return tool


def called(tool, arguments, api='run'):
    """The result of a call, of either form of the tool."""
    result = tool(arguments, api)
    return asyncio.run(result) if asyncio.iscoroutine(result) else result


def content(result):
    assert result.state == OK, result.errmsg
    return json.loads(result.format_result())


both = pytest.mark.parametrize


@both('cls', [GoogleSearch, AsyncGoogleSearch])
class TestGoogleSearch:
    def test_snippets(self, cls, web):
        server = web({'/search': as_json(SERPER)})
        result = called(at(cls('explicit'), server), {'query': 'apple inc', 'k': 2})
        assert (result.state, result.type) == (OK, cls.__name__)
        assert result.args == {'query': 'apple inc', 'k': 2}
        assert result.result == [
            {
                'type': 'text',
                'content': str(
                    [
                        'Apple: Technology company.',
                        'Apple Inc. is an American technology company.',
                        'Apple Headquarters: Cupertino, CA.',
                        'Apple Founded: April 1, 1976.',
                        'Discover the innovative world of Apple.',
                        'Apple Inc. is a corporation.',
                        'Products: iPhone.',
                        'Founders: Steve Jobs.',
                    ]
                ),
            }
        ]
        [asked] = server.asked
        assert (asked.method, asked.headers['x-api-key']) == ('POST', 'explicit')
        assert asked.json == {'q': 'apple inc', 'num': 2}

    @pytest.mark.parametrize(
        ('box', 'text'),
        [
            ({'answer': '8,849 m', 'snippet': 'no'}, ['8,849 m']),
            ({'snippet': 'two\nlines'}, ['two lines']),
            ({'snippetHighlighted': ['8,849 m', 'tall']}, ['8,849 m', 'tall']),
        ],
    )
    def test_an_answer_beats_the_results(self, cls, web, box, text):
        server = web({'/search': as_json(SERPER | {'answerBox': box})})
        result = called(at(cls('k'), server), {'query': 'everest'})
        assert result.format_result() == str(text)

    def test_nothing_found(self, cls, web):
        server = web({'/search': as_json({'organic': []})})
        result = called(at(cls('k'), server), {'query': 'x'})
        assert result.format_result() == "['No good Google Search Result was found']"

    def test_news(self, cls, web):
        server = web({'/news': as_json({'news': [{'title': 'T', 'snippet': 'S'}]})})
        result = called(at(cls('k', search_type='news'), server), {'query': 'x'})
        assert result.format_result() == "['S']"

    def test_failures_are_results(self, cls, web):
        server = web({'/search': as_json({'message': 'Unauthorized.', 'statusCode': 403}, 403)})
        result = called(at(cls('secret'), server), {'query': 'x'})
        assert (result.state, result.type) == (HTTP, cls.__name__)
        assert '403' in result.errmsg
        assert 'Unauthorized.' in result.errmsg
        assert 'secret' not in result.errmsg

    def test_odd_answers_are_results(self, cls, web):
        for odd in ({'organic': 'x'}, {'organic': [1, None]}, {'answerBox': [], 'organic': None}):
            server = web({'/search': as_json(odd)})
            result = called(at(cls('k'), server), {'query': 'x'})
            assert 'No good' in result.format_result()
        server = web({'/search': Answer(b'<html>')})
        assert called(at(cls('k'), server), {'query': 'x'}).state == API

    def test_the_explicit_key_beats_the_environment(self, cls, monkeypatch):
        with pytest.raises(ValueError, match='`api_key` or set \\$SERPER_API_KEY'):
            cls()
        monkeypatch.setenv('SERPER_API_KEY', 'of the environment')
        assert cls().api_key == 'of the environment'
        assert cls('explicit').api_key == 'explicit'

    def test_the_type_of_search_is_checked(self, cls):
        with pytest.raises(ValueError, match='search_type'):
            cls('k', search_type='maps')

    def test_description(self, cls):
        described = cls('k').description
        assert described['name'] == cls.__name__
        assert described['description'].startswith('Search with Google.')
        assert [one['name'] for one in described['parameters']] == ['query', 'k']
        assert described['required'] == ['query']


ORGANIC = {
    'search_metadata': {'status': 'Success'},
    'organic_results': [
        {
            'position': n,
            'title': f'Paper {n}',
            'result_id': f'id{n}',
            'link': f'https://example.com/{n}',
            'snippet': f'Excerpt {n} …',
            'publication_info': {'summary': f'A Author - Journal, 200{n}'},
            'inline_links': {'cited_by': {'total': n * 10}} if n != 2 else {},
        }
        for n in range(1, 6)
    ],
}
AUTHOR = {
    'author': {
        'name': 'Ada Author',
        'affiliations': 'University of Somewhere',
        'website': 'https://ada.example/',
    },
    'articles': [{'title': f'Paper {n}', 'authors': 'A Author', 'year': '2020'} for n in range(5)],
}


@both('cls', [GoogleScholar, AsyncGoogleScholar])
class TestGoogleScholar:
    def test_papers(self, cls, web):
        server = web({'/search.json': as_json(ORGANIC)})
        result = called(
            at(cls('explicit'), server),
            {'query': 'plants', 'as_ylo': 2000},
            'search_google_scholar',
        )
        assert content(result) == {
            'title': ['Paper 1', 'Paper 2', 'Paper 3'],
            'cited_by': [10, 0, 30],
            'organic_id': ['id1', 'id2', 'id3'],
            'pub_info': [f'A Author - Journal, 200{n}' for n in (1, 2, 3)],
            'snippets': [f'Excerpt {n} …' for n in (1, 2, 3)],
        }
        assert server.asked[0].query == {
            'engine': 'google_scholar',
            'q': 'plants',
            'as_ylo': '2000',
            'api_key': 'explicit',
        }

    def test_an_author(self, cls, web):
        server = web({'/search.json': as_json(AUTHOR)})
        result = called(
            at(cls('k'), server), {'author_id': 'x', 'no_cache': True}, 'get_author_information'
        )
        assert content(result) == {
            'name': 'Ada Author',
            'affiliations': 'University of Somewhere',
            'website': 'https://ada.example/',
            'articles': [{'title': f'Paper {n}', 'authors': 'A Author'} for n in range(3)],
        }
        assert server.asked[0].query['engine'] == 'google_scholar_author'
        assert server.asked[0].query['no_cache'] == 'true'

    def test_a_citation(self, cls, web):
        citations = [{'title': 'MLA', 'snippet': 'Author, Ada. "Paper."'}, {'title': 'APA'}]
        server = web({'/search.json': as_json({'citations': citations})})
        result = called(at(cls('k'), server), {'q': 'id1'}, 'get_citation_format')
        assert result.format_result() == 'Author, Ada. "Paper."'
        assert server.asked[0].query['engine'] == 'google_scholar_cite'

    def test_an_id(self, cls, web):
        server = web({'/search.json': as_json({'profiles': [{'author_id': 'a1'}]})})
        result = called(at(cls('k'), server), {'mauthors': 'Ada'}, 'get_author_id')
        assert content(result) == {'author_id': 'a1'}

    @pytest.mark.parametrize(
        ('api', 'arguments'),
        [
            ('get_author_information', {'author_id': 'x'}),
            ('get_citation_format', {'q': 'x'}),
            ('get_author_id', {'mauthors': 'x'}),
        ],
    )
    def test_nothing_found(self, cls, web, api, arguments):
        server = web({'/search.json': as_json({'search_metadata': {}})})
        result = called(at(cls('k'), server), arguments, api)
        assert (result.state, result.errmsg[:14]) == (API, 'Google Scholar')

    def test_what_the_service_says(self, cls, web):
        server = web({'/search.json': as_json({'error': 'Invalid API key.'}, 401)})
        result = called(at(cls('secret'), server), {'query': 'x'}, 'search_google_scholar')
        assert result.state == HTTP
        assert 'Invalid API key.' in result.errmsg
        assert 'secret' not in result.errmsg
        server = web({'/search.json': as_json({'error': 'Google has no results'})})
        result = called(at(cls('k'), server), {'query': 'x'}, 'search_google_scholar')
        assert (result.state, result.errmsg[-21:]) == (API, 'Google has no results')

    def test_keys(self, cls, monkeypatch):
        with pytest.raises(ValueError, match='SERPAPI_API_KEY or \\$SERPER_API_KEY'):
            cls()
        monkeypatch.setenv('SERPER_API_KEY', 'one')
        assert cls().api_key == 'one'
        monkeypatch.setenv('SERPAPI_API_KEY', 'two')
        assert (cls().api_key, cls('three').api_key) == ('two', 'three')


def bing(*resources):
    sets = [{'estimatedTotal': len(resources), 'resources': list(resources)}]
    return as_json({'resourceSets': sets, 'statusCode': 200, 'statusDescription': 'OK'})


ROUTE = {
    'distanceUnit': 'Kilometer',
    'travelDistance': 12.345,
    'routeLegs': [
        {
            'itineraryItems': [
                {'instruction': {'maneuverType': 'DepartStart', 'text': 'Depart A St'}},
                {'details': []},
                {'instruction': {'text': 'Turn left onto B Ave'}},
            ]
        },
        {'itineraryItems': [{'instruction': {'text': 'Arrive at C'}}]},
    ],
}
POINT = {'name': 'Rome', 'point': {'type': 'Point', 'coordinates': [41.9, 12.5]}}


@both('cls', [BINGMap, AsyncBINGMap])
class TestBingMap:
    def test_distance_and_route(self, cls, web):
        server = web({'/Routes/Driving': bing(ROUTE)})
        tool, ends = at(cls('explicit'), server), {'start': 'A & B', 'end': 'C?'}
        assert content(called(tool, ends, 'get_distance')) == {'distance': 12.345}
        assert content(called(tool, ends, 'get_route')) == {
            'route': ['Depart A St', 'Turn left onto B Ave', 'Arrive at C']
        }
        assert server.asked[0].query == {
            'wp.0': 'A & B',
            'wp.1': 'C?',
            'o': 'json',
            'key': 'explicit',
        }

    def test_coordinates(self, cls, web):
        server = web({'/Locations': bing(POINT)})
        result = called(at(cls('k'), server), {'location': 'Rome'}, 'get_coordinates')
        assert content(result) == {'latitude': 41.9, 'longitude': 12.5}

    def test_places_nearby(self, cls, web):
        found = [
            {'name': f'Cafe {n}', 'Address': {'formattedAddress': f'{n} Via Roma'}}
            for n in range(7)
        ]
        server = web({'/Locations': bing(POINT), '/LocalSearch': bing(*found)})
        tool = at(cls('k'), server)
        result = called(tool, {'search_term': 'cafe', 'places': 'Rome'}, 'search_nearby')
        places = content(result)['place']
        assert places[0] == {'name': 'Cafe 0', 'address': '0 Via Roma'}
        assert len(places) == 5
        assert server.asked[1].query['userCircularMapView'] == '41.9,12.5,5000'
        called(
            tool,
            {'search_term': 'cafe', 'latitude': 1, 'longitude': 2, 'radius': 9},
            'search_nearby',
        )
        assert server.asked[2].query['userCircularMapView'] == '1,2,9'

    def test_nothing_found(self, cls, web):
        server = web({'/Locations': bing(), '/Routes/Driving': bing(), '/LocalSearch': bing()})
        tool = at(cls('k'), server)
        result = called(tool, {'location': 'Nowhere'}, 'get_coordinates')
        assert (result.state, result.errmsg) == (API, "Bing Maps knows no place 'Nowhere'.")
        result = called(tool, {'start': 'X', 'end': 'Y'}, 'get_distance')
        assert (result.state, "route from 'X' to 'Y'" in result.errmsg) == (API, True)
        assert content(called(tool, {'search_term': 'x'}, 'search_nearby')) == {'place': []}

    def test_a_refused_key(self, cls, web):
        server = web({'/Locations': as_json({'statusDescription': 'Unauthorized'}, 401)})
        result = called(at(cls('secret'), server), {'location': 'Rome'}, 'get_coordinates')
        assert (result.state, 'secret' in result.errmsg) == (HTTP, False)

    def test_keys_and_https(self, cls, monkeypatch):
        with pytest.raises(ValueError, match='`key` or set \\$BING_MAP_KEY'):
            cls()
        monkeypatch.setenv('BING_MAP_KEY', 'of the environment')
        assert (cls().key, cls('explicit').key) == ('of the environment', 'explicit')
        assert cls.base_url.startswith('https://')

    def test_description(self, cls):
        described = cls('k').description
        assert described['description'].startswith('Look up distances, routes and places')
        assert 'awaited' not in described['description']
        names = [api['name'] for api in described['api_list']]
        assert names == ['get_distance', 'get_route', 'get_coordinates', 'search_nearby']
        assert described['api_list'][3]['required'] == ['search_term']


FEED = """<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns="http://www.w3.org/2005/Atom">
  <link href="http://arxiv.org/api/query?search_query=x" rel="self" type="application/atom+xml"/>
  <title type="html">ArXiv Query: search_query=all:x</title>
  <id>http://arxiv.org/api/x</id>
  <updated>2024-01-01T00:00:00-05:00</updated>
  <opensearch:totalResults xmlns:opensearch="http://a9.com/-/spec/opensearch/1.1/"
    >2</opensearch:totalResults>
  {entries}
</feed>"""
ENTRY = """<entry>
    <id>http://arxiv.org/abs/2401.0000{n}v1</id>
    <updated>2024-01-0{n}T17:59:46Z</updated>
    <published>2023-12-01T00:00:00Z</published>
    <title>Tools &amp; agents
  number {n}</title>
    <summary>  We show that 1 &lt; 2.
</summary>
    <author><name>Ada Author</name>
      <arxiv:affiliation xmlns:arxiv="http://arxiv.org/schemas/atom">X</arxiv:affiliation></author>
    <author><name>José Writer</name></author>
    <link href="http://arxiv.org/abs/2401.0000{n}v1" rel="alternate" type="text/html"/>
    <category term="cs.CL" scheme="http://arxiv.org/schemas/atom"/>
  </entry>"""
ERROR = """<entry><id>http://arxiv.org/api/errors#incorrect_id_format</id><title>Error</title>
<summary>incorrect id format for x</summary></entry>"""


def feed(*entries):
    text = FEED.format(entries='\n'.join(entries))
    return Answer(text.encode(), content_type='application/atom+xml; charset=UTF-8')


def asked_arxiv(cls, server, **arguments):
    return called(
        at(cls(**arguments), server), {'query': 'agents ' * 100}, 'get_arxiv_article_information'
    )


@both('cls', [ArxivSearch, AsyncArxivSearch])
class TestArxiv:
    def test_articles(self, cls, web):
        server = web({'/api/query': feed(ENTRY.format(n=1), ENTRY.format(n=2))})
        result = asked_arxiv(cls, server, top_k_results=2, doc_content_chars_max=12)
        assert content(result)['content'] == '\n\n'.join(
            f'Published: 2024-01-0{n}\nTitle: Tools & agents number {n}\n'
            f'Authors: Ada Author, José Writer\nURL: http://arxiv.org/abs/2401.0000{n}v1\n'
            'Summary: We show that'
            for n in (1, 2)
        )
        query = server.asked[0].query
        assert (len(query['search_query']), query['max_results']) == (300, '2')

    def test_no_articles(self, cls, web):
        result = asked_arxiv(cls, web({'/api/query': feed()}))
        assert content(result) == {'content': 'No good Arxiv Result was found'}

    def test_an_error_feed(self, cls, web):
        result = asked_arxiv(cls, web({'/api/query': feed(ERROR)}))
        assert (result.state, 'incorrect id format' in result.errmsg) == (API, True)

    @pytest.mark.parametrize('body', [b'', b'<html></html>', b'{}', b'<feed>', b'\0'])
    def test_what_is_no_feed(self, cls, web, body):
        result = asked_arxiv(cls, web({'/api/query': Answer(body)}))
        assert (result.state, result.errmsg) == (API, 'arXiv did not answer with a feed.')

    def test_entities_are_not_resolved(self, cls, web, tmp_path):
        (tmp_path / 'secret').write_text('secret')
        attack = (
            f'<!DOCTYPE feed [<!ENTITY x SYSTEM "file://{tmp_path}/secret">]>'
            '<feed xmlns="http://www.w3.org/2005/Atom"><entry><id>i</id><title>&x;</title>'
            '<summary>s</summary></entry></feed>'
        )
        result = asked_arxiv(cls, web({'/api/query': Answer(attack.encode())}))
        assert 'secret' not in f'{result.result}{result.errmsg}'

    def test_a_failing_server(self, cls, web):
        result = asked_arxiv(cls, web({'/api/query': Answer(b'busy', 503, 'text/plain')}))
        assert (result.state, '503' in result.errmsg) == (HTTP, True)

    @pytest.mark.parametrize('number', [0, 101])
    def test_a_number_of_articles_that_cannot_be(self, cls, number):
        with pytest.raises(ValueError, match='top_k_results'):
            cls(top_k_results=number)


async def test_requests_to_arxiv_keep_their_distance(monkeypatch):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr('lagent.actions.arxiv_search.time.monotonic', lambda: 100.0)
    monkeypatch.setattr('lagent.actions.arxiv_search.asyncio.sleep', sleep)
    pace = _Pace(3.0)
    for _ in range(3):
        await pace.turn(6.0)
    assert slept == [0.0, 3.0, 6.0]
    with pytest.raises(WebTimeout, match='the next turn is in 9 s'):
        await pace.turn(6.0)
    await pace.turn(9.0)
    assert slept[3:] == [9.0]


async def test_a_turn_that_is_given_up_is_the_next_ones():
    pace = _Pace(60.0)
    await pace.turn(0.0)
    waiting = asyncio.create_task(pace.turn(60.0))
    await asyncio.sleep(0.01)
    with pytest.raises(WebTimeout):
        await pace.turn(60.0)
    waiting.cancel()
    await asyncio.wait([waiting])
    waiting = asyncio.create_task(pace.turn(60.0))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    waiting.cancel()


@both('cls', [ArxivSearch, AsyncArxivSearch])
def test_nobody_waits_for_arxiv_beyond_the_end_of_the_run(cls, web, monkeypatch):
    monkeypatch.setattr('lagent.actions.arxiv_search._ArxivSearch.pace', _Pace(30.0))
    server = web({})
    tool = at(cls(), server)
    with run_context(limits=RunLimits(seconds=20)):
        tool.pace._next = time.monotonic() + 30
        result = called(tool, {'query': 'x'}, 'get_arxiv_article_information')
    assert 'Too many others wait' in result.errmsg
    assert server.asked == []
