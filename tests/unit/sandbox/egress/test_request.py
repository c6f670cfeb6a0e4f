import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.egress.request import BadRequest, Request, parse_request


def parse(*lines: str) -> Request:
    return parse_request('\r\n'.join([*lines, '', '']).encode('latin-1'))


def test_a_tunnel():
    assert parse('CONNECT PyPI.org:443 HTTP/1.1', 'Host: other.org') == Request('pypi.org', 443)
    assert parse('CONNECT [::1]:80 HTTP/1.0').host == '::1'


def test_a_request_is_written_anew():
    request = parse(
        'POST http://Example.org:8080?q=1#part HTTP/1.1',
        'Host: evil.test',
        'Proxy-Authorization: Basic eA==',
        'Connection: keep-alive, X-Hop, Content-Length',
        'X-Hop: 1',
        'TE: trailers',
        'Upgrade: h2c',
        'X-Kept:  two words ',
        'Content-Length: 3',
    )
    assert (request.host, request.port, request.body) == ('example.org', 8080, 3)
    assert request.head == (
        b'POST /?q=1 HTTP/1.1\r\nhost: example.org:8080\r\nx-kept: two words\r\n'
        b'content-length: 3\r\nconnection: close\r\n\r\n'
    )


def test_a_request_without_a_body():
    request = parse('GET http://a.org HTTP/1.0')
    assert request.head == b'GET / HTTP/1.0\r\nhost: a.org\r\nconnection: close\r\n\r\n'
    assert (request.port, request.body) == (80, 0)


@pytest.mark.parametrize(
    ('lines', 'status'),
    [
        (['GET / HTTP/1.1', 'Host: a.org'], 400),
        (['GET https://a.org/ HTTP/1.1'], 400),
        (['GET ftp://a.org/ HTTP/1.1'], 400),
        (['GET http:///path HTTP/1.1'], 400),
        (['GET http://user@a.org/ HTTP/1.1'], 400),
        (['GET http://a.org:0/ HTTP/1.1'], 400),
        (['GET http://a.org:99999/ HTTP/1.1'], 400),
        (['GET http://a.org\\@evil.test/ HTTP/1.1'], 400),
        (['GET http://ä.org/ HTTP/1.1'], 400),
        (['CONNECT a.org HTTP/1.1'], 400),
        (['CONNECT a.org:443/x HTTP/1.1'], 400),
        (['CONNECT http://a.org:443 HTTP/1.1'], 400),
        (['GET http://a.org/ HTTP/2'], 400),
        (['GET http://a.org/'], 400),
        (['GET  http://a.org/ HTTP/1.1'], 400),
        (['G(T http://a.org/ HTTP/1.1'], 400),
        (['GET http://a.org/\tx HTTP/1.1'], 400),
        (['GET http://a.org/ HTTP/1.1', 'no colon'], 400),
        (['GET http://a.org/ HTTP/1.1', 'A : b'], 400),
        (['GET http://a.org/ HTTP/1.1', 'A: b', ' folded: c'], 400),
        (['GET http://a.org/ HTTP/1.1', 'A: b\nHost: evil.test'], 400),
        (['GET http://a.org/ HTTP/1.1', 'A: b\rHost: evil.test'], 400),
        (['GET http://a.org/ HTTP/1.1', 'A: b\0'], 400),
        (['POST http://a.org/ HTTP/1.1', 'Content-Length: 3', 'Content-Length: 4'], 400),
        (['POST http://a.org/ HTTP/1.1', 'Content-Length: +3'], 400),
        (['POST http://a.org/ HTTP/1.1', 'Content-Length: 3, 3'], 400),
        (['POST http://a.org/ HTTP/1.1', 'Content-Length: 0x3'], 400),
        (['POST http://a.org/ HTTP/1.1', 'Transfer-Encoding: chunked'], 411),
        (['POST http://a.org/ HTTP/1.1', 'Transfer-Encoding: x', 'Content-Length: 3'], 411),
    ],
)
def test_what_breaks_the_rules_is_refused(lines, status):
    with pytest.raises(BadRequest) as caught:
        parse(*lines)
    assert caught.value.status == status


TEXT = st.text(st.characters(max_codepoint=255), max_size=40)


@given(TEXT, st.lists(TEXT, max_size=3))
def test_a_host_sees_one_request_and_its_own_name(path, headers):
    try:
        request = parse(f'GET http://a.org/{path} HTTP/1.1', *headers)
    except BadRequest:
        return
    assert request.head is not None
    assert request.head.count(b'\r\n\r\n') == 1
    assert request.head.endswith(b'\r\n\r\n')
    names = [line.partition(b':')[0] for line in request.head.split(b'\r\n')[1:-2]]
    assert names.count(b'host') == 1
    assert b'\nhost: a.org\r' in request.head
