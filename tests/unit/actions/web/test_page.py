"""From bytes to what a person would read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagent.actions.web.cache import BoundedCache
from lagent.actions.web.charset import decode
from lagent.actions.web.client import Reply
from lagent.actions.web.errors import BadReply
from lagent.actions.web.page import html_text, page_text

CHINESE = '大模型能够调用工具，并根据结果继续推理。'

ARTICLE = """<!doctype html><html><head><title>Tools</title><style>p{}</style>
<script>var secret = 1</script></head><body>
<nav><a href="/">Home</a> <a href="/about">About us</a></nav>
<article><h1>How agents use tools</h1>
<p>An agent asks a model what to do, and the model may answer with a call of a tool. The agent
runs the tool and shows the model what came back.</p>
<p>The second paragraph says that this goes on until the model answers in words alone.</p>
<table><tr><th>Tool</th><th>Use</th></tr><tr><td>search</td><td>finding pages</td></tr></table>
</article><footer>Copyright nobody</footer></body></html>"""


def reply(body, content_type='text/html'):
    return Reply('http://example.com/', content_type, body)


@pytest.mark.parametrize(
    ('body', 'content_type', 'text'),
    [
        ('é'.encode(), 'text/html; charset=utf-8', 'é'),
        ('é'.encode('latin-1'), 'text/html; charset=ISO-8859-1', 'é'),
        ('“é”'.encode('cp1252'), 'text/html; charset=iso-8859-1', '“é”'),
        (CHINESE.encode('gb18030'), 'text/html; charset="gb2312"', CHINESE),
        (
            b'<meta charset=gbk>' + CHINESE.encode('gbk'),
            'text/html',
            f'<meta charset=gbk>{CHINESE}',
        ),
        (
            '<meta http-equiv="x" content="text/html; charset=shift_jis">日本'.encode('cp932'),
            '',
            None,
        ),
        ('<?xml version="1.0" encoding="euc-kr"?>한국'.encode('euc-kr'), 'text/xml', None),
        ('<meta charset="utf-16">é'.encode(), '', '<meta charset="utf-16">é'),
        ('é'.encode('utf-8-sig'), 'text/html; charset=latin-1', 'é'),
        ('é'.encode('utf-16'), 'text/html; charset=latin-1', 'é'),
        ('é'.encode(), 'text/html; charset=no-such', 'é'),
        ('é'.encode(), 'text/html; charset=zlib', 'é'),
        (b'\\u0041', 'text/html; charset=unicode_escape', '\\u0041'),
        (b'ok \xff', 'text/html; charset=utf-8', 'ok \ufffd'),
        ((CHINESE * 20).encode('gb18030'), 'text/html', CHINESE * 20),
        (b'', '', ''),
    ],
)
def test_decoding(body, content_type, text):
    decoded = decode(body, content_type)
    if text is None:
        assert decoded.endswith(('日本', '한국'))
    else:
        assert decoded == text


@given(st.binary(max_size=500), st.text(max_size=60))
def test_no_page_makes_decoding_fail(body, content_type):
    assert isinstance(decode(body, content_type), str)


def test_the_main_text_of_an_article():
    text = html_text(ARTICLE)
    assert 'How agents use tools' in text
    assert 'The second paragraph says that this goes on' in text
    assert 'finding pages' in text
    assert 'secret' not in text
    assert 'About us' not in text
    assert '<' not in text


def test_a_page_without_an_article():
    html = (
        '<html><head><title>T</title><style>x</style></head><body><a>One</a><br><a>Two</a></body>'
    )
    assert [line.strip() for line in html_text(html).splitlines()] == ['One', 'Two']


def test_a_page_with_too_many_tags_is_read_the_plain_way():
    html = '<html><body><script>no</script>' + '<p>a</p>' * 30_000 + '<!-- no --></body></html>'
    assert html_text(html) == '\n'.join(['a'] * 30_000)


@pytest.mark.parametrize('html', ['', '   ', '<!-- -->', '<div>' * 50_000, '<', '<html'])
def test_pages_with_nothing_in_them(html):
    assert html_text(html).strip('<') == ''


@given(st.text(max_size=300))
def test_no_page_makes_reading_fail(html):
    assert isinstance(html_text(html), str)


@pytest.mark.parametrize(
    ('body', 'kind', 'text'),
    [
        (b'a\n <b>', 'text/plain', 'a\n <b>'),
        (b'{"a": 1}', 'application/json', '{"a": 1}'),
        (b'{"a": 1}', 'application/ld+json; charset=utf-8', '{"a": 1}'),
        (b'plain', '', 'plain'),
        (b'<html><body><p>Hello there</p></body></html>', '', 'Hello there'),
        (b'x' * 200_000, 'text/plain', 'x' * 100_000),
    ],
)
def test_texts_of_other_kinds(body, kind, text):
    assert page_text(reply(body, kind)) == text


@pytest.mark.parametrize('kind', ['application/pdf', 'image/png', 'application/octet-stream'])
def test_what_is_no_text(kind):
    with pytest.raises(BadReply, match=kind):
        page_text(reply(b'%PDF', kind))


def test_what_looks_like_no_text():
    with pytest.raises(BadReply, match='not a text'):
        page_text(reply(b'MZ\0\0', ''))


def test_a_cache_forgets_what_is_old_and_what_does_not_fit():
    now = [0.0]
    cache = BoundedCache(2, 10.0, clock=lambda: now[0])
    cache['a'], cache['b'] = 1, 2
    assert cache.get('a') == 1
    cache['c'] = 3
    assert (cache.get('b'), cache.get('a'), cache.get('c'), len(cache)) == (None, 1, 3, 2)
    now[0] = 9.9
    cache['c'] = 4
    now[0] = 10.0
    assert (cache.get('a'), cache.get('c'), len(cache)) == (None, 4, 1)
    cache.pop('c')
    cache.pop('c')
    assert len(cache) == 0
