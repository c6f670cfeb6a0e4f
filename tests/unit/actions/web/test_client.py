"""The HTTP client: its limits, its guard, and what it makes of failures."""

import gzip
import pickle
import socket
import time
import zlib

import pytest

from lagent.actions.web.address import AddressGuard
from lagent.actions.web.client import HttpClient, HttpLimits
from lagent.actions.web.errors import (
    BadAddress,
    BadReply,
    HttpFailed,
    TooLarge,
    Unreachable,
    WebTimeout,
)
from lagent.context import run_context
from lagent.errors import LimitExceeded
from lagent.limits import RunLimits

from .conftest import LOOPBACK, Answer, as_json, page


def client(guarded=True, allow=LOOPBACK, proxy=None, **limits):
    guard = AddressGuard(allow) if guarded else None
    return HttpClient(HttpLimits(**limits), guard=guard, proxy=proxy)


@pytest.fixture(params=[True, False], ids=['guarded', 'plain'])
def guarded(request):
    return request.param


async def test_an_answer(web, guarded):
    server = web({'/a': page('hello')})
    reply = await client(guarded).get(f'{server.url}/a', {'q': 'ä b', 'none': None}, {'X-Key': 'k'})
    assert (reply.body, reply.content_type) == (b'hello', 'text/html; charset=utf-8')
    [asked] = server.asked
    assert (asked.query, asked.headers['x-key']) == ({'q': 'ä b'}, 'k')
    assert asked.headers['user-agent'].startswith('Mozilla/5.0 (compatible; lagent/')
    assert asked.headers['accept-encoding'] == 'gzip, deflate'


async def test_a_question_in_json(web, guarded):
    server = web({'/a': as_json({'x': [1]})})
    reply = await client(guarded).post(f'{server.url}/a', {'q': 'ä'})
    assert reply.json() == {'x': [1]}
    assert server.asked[0].json == {'q': 'ä'}


@pytest.mark.parametrize('body', [b'[1]', b'oops', b'', b'[' * 100_000, b'"x"'])
async def test_what_is_no_json_object(web, body):
    server = web({'/a': Answer(body)})
    with pytest.raises(BadReply, match=r'127\.0\.0\.1 did not answer with'):
        (await client().get(f'{server.url}/a')).json()


def deflated(body, bits):
    packer = zlib.compressobj(wbits=bits)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize(
    ('encoding', 'packed'),
    [
        ('gzip', gzip.compress(b'hello' * 9, mtime=0)),
        ('deflate', deflated(b'hello' * 9, 15)),
        ('deflate', deflated(b'hello' * 9, -15)),
        ('identity', b'hello' * 9),
    ],
)
async def test_packed_answers(web, guarded, encoding, packed):
    server = web({'/a': Answer(packed, headers={'content-encoding': encoding})})
    assert (await client(guarded).get(f'{server.url}/a')).body == b'hello' * 9


@pytest.mark.parametrize('encoding', ['gzip', 'deflate', 'br'])
async def test_damaged_or_unknown_packing(web, encoding):
    server = web({'/a': Answer(b'\xff\xfe oops', headers={'content-encoding': encoding})})
    with pytest.raises(BadReply, match=r'damaged|not asked for'):
        await client().get(f'{server.url}/a')


async def test_a_body_may_be_as_large_as_allowed_and_no_larger(web, guarded):
    server = web({'/a': Answer(b'x' * 1000), '/b': Answer(b'x' * 1001)})
    asking = client(guarded, max_bytes=1000)
    assert len((await asking.get(f'{server.url}/a')).body) == 1000
    with pytest.raises(TooLarge, match='more than 1000 bytes'):
        await asking.get(f'{server.url}/b')


async def test_an_endless_body_is_left(web, guarded):
    server = web({'/a': Answer(b'x' * 65_536, endless=True)})
    with pytest.raises(TooLarge):
        await client(guarded, max_bytes=1_000_000).get(f'{server.url}/a')


async def test_a_small_packed_body_may_not_become_a_large_one(web):
    bomb = gzip.compress(b'\0' * 50_000_000)
    server = web({'/a': Answer(bomb, headers={'content-encoding': 'gzip'})})
    with pytest.raises(TooLarge):
        await client(max_bytes=1_000_000).get(f'{server.url}/a')


async def test_redirects_are_followed_as_far_as_allowed(web):
    routes = {f'/{n}': Answer(status=302, headers={'location': f'/{n + 1}'}) for n in range(4)}
    server = web(routes | {'/4': page('arrived')})
    reply = await client(max_redirects=4).get(f'{server.url}/0')
    assert (reply.body, reply.url) == (b'arrived', f'{server.url}/4')
    with pytest.raises(HttpFailed, match='status 302: it leads elsewhere'):
        await client(max_redirects=3).get(f'{server.url}/0')


async def test_a_service_is_not_followed_elsewhere(web):
    other = web({'/': page('give me the key')})
    server = web({'/a': Answer(status=307, headers={'location': other.url})})
    with pytest.raises(HttpFailed, match='307'):
        await client(guarded=False).post(f'{server.url}/a', {}, {'X-API-KEY': 'secret'})
    assert other.asked == []


@pytest.mark.parametrize(
    'location',
    ['file:///etc/passwd', 'gopher://127.0.0.1/', 'http://', '//', 'http://[::1', 'javascript:1'],
)
async def test_redirects_to_what_is_no_page(web, location):
    server = web({'/a': Answer(status=302, headers={'location': location})})
    with pytest.raises((BadAddress, HttpFailed, Unreachable)):
        await client(max_redirects=1, attempts=1).get(f'{server.url}/a')


async def test_a_redirect_without_a_target(web):
    server = web({'/a': Answer(status=302)})
    with pytest.raises(HttpFailed, match='302'):
        await client(max_redirects=3).get(f'{server.url}/a')


@pytest.mark.parametrize(
    'url',
    [
        *('file:///etc/passwd', 'ftp://example.com/x', 'example.com', '', '/x', 'http:///x'),
        *('http://user:secret@example.com/', 'http://x:99999/', 'http://e.com/\0'),
        'http://example.com/' + 'x' * 9_000,
    ],
)
async def test_what_is_no_url_to_fetch(url):
    with pytest.raises(BadAddress) as caught:
        await client().get(url)
    assert 'secret' not in str(caught.value)


@pytest.mark.parametrize('host', ['127.0.0.1', 'localhost', '2130706433', '[::ffff:127.0.0.1]'])
async def test_private_addresses_are_not_asked(web, host):
    server = web({'/': page('secret')})
    port = server.url.rpartition(':')[2]
    with pytest.raises(BadAddress, match='not on the public internet'):
        await client(allow=()).get(f'http://{host}:{port}/')
    assert server.asked == []


async def test_each_redirect_is_checked(web):
    inside = web({'/': page('secret')})
    port = inside.url.rpartition(':')[2]
    outside = web({'/a': Answer(status=302, headers={'location': f'http://127.0.0.2:{port}/'})})
    with pytest.raises(BadAddress):
        await client(allow=['127.0.0.1/32'], max_redirects=5).get(f'{outside.url}/a')
    assert inside.asked == []


async def test_what_was_checked_is_what_is_connected_to(web, monkeypatch):
    """A name whose address changes after the check (DNS rebinding) gains nothing."""
    server = web({'/': page('hello')})
    port = int(server.url.rpartition(':')[2])
    real, answers = socket.getaddrinfo, ['127.0.0.1', '127.9.9.9', '127.9.9.9']

    def getaddrinfo(host, *args, **kwargs):
        return real(answers.pop(0) if host == 'changing.example' else host, *args, **kwargs)

    monkeypatch.setattr(socket, 'getaddrinfo', getaddrinfo)
    reply = await client(allow=['127.0.0.1/32']).get(f'http://changing.example:{port}/')
    assert reply.body == b'hello'
    assert answers == ['127.9.9.9', '127.9.9.9'], 'the name was resolved once'
    assert server.asked[0].headers['host'] == f'changing.example:{port}'


async def test_the_next_address_is_tried(web, monkeypatch):
    server = web({'/': page('hello')})
    port = int(server.url.rpartition(':')[2])
    real = socket.getaddrinfo

    def getaddrinfo(host, port, *args, **kwargs):
        if host != 'several.example':
            return real(host, port, *args, **kwargs)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, '', (one, port))
            for one in ('127.0.0.9', '127.0.0.1')
        ]

    monkeypatch.setattr(socket, 'getaddrinfo', getaddrinfo)
    assert (await client().get(f'http://several.example:{port}/')).body == b'hello'


async def test_proxies_of_the_environment_are_for_services_only(web, monkeypatch):
    proxy, server = web({'/a': page('by proxy')}), web({'/a': page('direct')})
    monkeypatch.setenv('http_proxy', proxy.url)
    assert (await client(guarded=True).get(f'{server.url}/a')).body == b'direct'
    assert (await client(guarded=False).get(f'{server.url}/a')).body == b'by proxy'


@pytest.mark.parametrize('given', ['text', 'dict'])
async def test_a_proxy_is_not_asked_for_private_addresses(web, given):
    proxy = web({'/': page('by proxy')})
    asking = client(allow=(), proxy=proxy.url if given == 'text' else {'http': proxy.url})
    with pytest.raises(BadAddress):
        await asking.get('http://127.0.0.1:1/')
    assert (await asking.get('http://1.1.1.1/')).body == b'by proxy'


@pytest.mark.parametrize('status', [408, 429, 500, 502, 503, 504])
async def test_failures_that_may_pass_are_tried_again(web, guarded, status):
    server = web({'/a': [Answer(b'busy', status, 'text/plain'), page('fine')]})
    assert (await client(guarded).get(f'{server.url}/a')).body == b'fine'


async def test_attempts_are_counted(web):
    server = web({'/a': as_json({'message': 'slow  down'}, 429)})
    with pytest.raises(HttpFailed, match=r'status 429: \{"message": "slow down"\}') as caught:
        await client(attempts=3).get(f'{server.url}/a')
    assert (caught.value.status, len(server.asked)) == (429, 3)


async def test_other_failures_are_not_tried_again(web):
    server = web({'/a': Answer(b'<h1>Forbidden</h1>', 403)})
    with pytest.raises(HttpFailed, match=r'^127\.0\.0\.1 answered with HTTP status 403$'):
        await client(attempts=3).get(f'{server.url}/a?key=secret')
    assert len(server.asked) == 1


async def test_a_server_that_asks_for_a_long_wait_is_left(web):
    server = web({'/a': as_json({}, 503, retry_after='3600')})
    with pytest.raises(HttpFailed) as caught:
        await client(attempts=3).get(f'{server.url}/a')
    assert (caught.value.retry_after, len(server.asked)) == (3600.0, 1)


@pytest.mark.parametrize('asked', ['0', 'Wed, 21 Oct 2015 07:28:00 GMT', 'soon', 'nan', '-5'])
async def test_waits_that_a_server_may_ask_for(web, asked):
    server = web({'/a': [as_json({}, 503, retry_after=asked), page('fine')]})
    assert (await client().get(f'{server.url}/a')).body == b'fine'


async def test_a_closed_port():
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        url = f'http://127.0.0.1:{free.getsockname()[1]}/?key=secret'
    for guarded in (True, False):
        with pytest.raises(Unreachable, match=r'^127\.0\.0\.1 could not be'):
            await client(guarded).get(url)


async def test_what_does_not_speak_tls(web, guarded):
    server = web({'/': page('x')})
    with pytest.raises(Unreachable):
        await client(guarded, attempts=1).get(server.url.replace('http:', 'https:'))


async def test_a_server_that_never_ends_its_answer(web, guarded):
    server = web({'/a': Answer(b'x', hang=True)})
    begun = time.monotonic()
    with pytest.raises(WebTimeout, match=r'127\.0\.0\.1 did not answer'):
        await client(guarded, timeout=0.2, attempts=1).get(f'{server.url}/a?key=secret')
    assert time.monotonic() - begun < 10


async def test_the_time_of_a_run_counts_too(web):
    server = web({'/a': Answer(b'x', hang=True)})
    with run_context(limits=RunLimits(seconds=0.2)), pytest.raises(LimitExceeded):
        await client(timeout=60).get(f'{server.url}/a')


@pytest.mark.parametrize('limits', [{'timeout': 0}, {'attempts': 0}, {'max_redirects': -1}])
def test_impossible_limits(limits):
    with pytest.raises(ValueError, match='a request needs'):
        HttpLimits(**limits)


def test_errors_can_be_pickled():
    error = pickle.loads(pickle.dumps(HttpFailed(429, 'x.example', 'slow', 3.0)))
    assert (str(error), error.retry_after, error.retryable) == (
        'x.example answered with HTTP status 429: slow',
        3.0,
        True,
    )
