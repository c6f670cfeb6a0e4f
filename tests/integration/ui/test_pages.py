"""The page over HTTP: who is let in, what every answer says, and what is bounded."""

import threading
from email.message import Message

import httpx
import nbformat
import pytest

from lagent.llms import ScriptedModel
from lagent.llms.scripted import Stall
from lagent.ui import app as application
from lagent.ui import live, sessions
from lagent.ui.security import COOKIE, FRAMED, POLICY

from .conftest import wait_until

pytestmark = pytest.mark.server

ROUTES = [
    ('GET', '/'),
    ('GET', '/live'),
    ('POST', '/sessions'),
    ('POST', '/s/1/ask'),
    ('POST', '/s/1/stop'),
    ('POST', '/s/1/undo'),
    ('POST', '/s/1/reset'),
    ('POST', '/s/1/close'),
    ('POST', '/s/1/files?name=a.csv'),
    ('GET', '/s/1/files?name=a.csv'),
    ('GET', '/s/1/notebook'),
    ('GET', '/s/1/media/0'),
    ('GET', '/nowhere'),
]
MAKES = """```python
from IPython.display import HTML, SVG, display
display(HTML('<script>1</script><b>bold</b>'))
display(SVG('<svg xmlns="http://www.w3.org/2000/svg"/>'))
open('page.html', 'w').write('<script>1</script>')
open('fake.png', 'w').write('<script>1</script>')
open('a "q" 名.csv', 'w').write('a\\n')
```"""


def events(client, seconds=60, **options):
    """The events of the stream, as pairs of id and data."""
    with client.stream('GET', '/live', timeout=seconds, **options) as stream:
        assert stream.status_code == 200
        number, data = '', []
        for line in stream.iter_lines():
            if line.startswith('id: '):
                number = line[4:]
            elif line.startswith('data: '):
                data.append(line[6:])
            elif not line and data:
                yield int(number), '\n'.join(data)
                data = []


@pytest.mark.parametrize(('method', 'path'), ROUTES)
def test_a_stranger_is_let_in_nowhere(served, method, path):
    page = served([])
    for cookies in ({}, {COOKIE: 'wrong'}):
        with httpx.Client(cookies=cookies, headers={'x-lagent': '1'}) as stranger:
            answer = stranger.request(method, page.url + path)
        assert answer.status_code == 403
        assert answer.headers['content-security-policy'] == POLICY


def test_a_path_that_others_do_not_know_is_part_of_every_address(served):
    page = served([])
    with httpx.Client(cookies={COOKIE: page.keys.cookie}, headers={'x-lagent': '1'}) as client:
        assert client.get(page.origin).status_code == 404
        assert client.post(f'{page.origin}/sessions').status_code == 404


@pytest.mark.parametrize(
    'host', ['evil.example', 'evil.example:80', '10.0.0.1', 'localhost.evil.example', '[', '']
)
def test_a_name_of_a_stranger_that_leads_here_is_refused(served, host):
    page = served([])
    with page.client() as client:
        assert client.get('/').status_code == 200
        for path in ('/', '/static/app.js', f'/enter?token={page.keys.token}'):
            assert client.get(path, headers={'host': host}).status_code in (400, 403)
    assert not page.keys.use('used')


@pytest.mark.parametrize(
    'headers',
    [
        {'origin': 'http://evil.example'},
        {'origin': 'null'},
        {'origin': 'http://127.0.0.1:1'},
        {'sec-fetch-site': 'cross-site'},
        {'sec-fetch-site': 'same-site'},
    ],
)
def test_another_page_can_not_make_a_browser_do_anything(served, headers):
    page = served(['Hi.'])
    with page.client() as client:
        answer = client.post('/s/1/ask', json={'question': 'Hello?'}, headers=headers)
        assert answer.status_code == 403
        del client.headers['x-lagent']  # what a form of another page can't send
        assert client.post('/s/1/ask', json={'question': 'Hello?'}).status_code == 403
    assert page.sessions.get(1).since(0) == []


def test_the_link_is_good_once_and_gives_a_cookie_for_this_page_alone(served):
    page = served([])
    link = page.keys.link(page.origin)
    assert httpx.head(link).status_code == 503  # what looks ahead does not use it up
    assert httpx.get(link, headers={'sec-purpose': 'prefetch;prerender'}).status_code == 503
    first = httpx.get(link)
    assert first.status_code == 200
    cookie = first.headers['set-cookie']
    for words in ('HttpOnly', 'SameSite=strict', f'Path={page.keys.base}'):
        assert words in cookie
    assert page.keys.token not in first.text
    assert 'set-cookie' not in httpx.get(link).headers
    used = httpx.get(link)
    assert used.status_code == 403
    assert f'{page.keys.base}/static/vendor/pico.min.css' in used.text  # it has no sheet of its own
    assert page.keys.link(page.origin) != link  # there is another one
    with httpx.Client(cookies=dict(first.cookies)) as client:
        assert client.get(f'{page.url}/').status_code == 200


def test_every_answer_carries_the_policy(served):
    page = served([MAKES, 'Made.'])
    with page.client() as client:
        client.post('/s/1/ask', json={'question': 'Make it'})
        page.idle()
        framed = [f'/s/1/media/{name}' for name in page.sessions.get(1).media._kept]
        assert len(framed) == 2
        paths = ['/', '/nowhere', '/static/app.js', '/static/code.css', '/s/9/notebook', *framed]
        for path in [*paths, '/static/vendor/pico.min.css', '/s/1/files?name=page.html']:
            headers = client.get(path).headers
            ours = POLICY if path not in [*framed, '/s/1/files?name=page.html'] else FRAMED
            assert headers['content-security-policy'] == ours
            assert headers['x-content-type-options'] == 'nosniff'
            assert headers['referrer-policy'] == 'no-referrer'
            assert headers['cross-origin-resource-policy'] == 'same-origin'
            assert 'access-control-allow-origin' not in headers


def test_what_came_from_a_sandbox_is_a_download_or_a_picture(served):
    page = served([MAKES, 'Made.'])
    with page.client() as client:
        client.post('/s/1/ask', json={'question': 'Make it'})
        page.idle()
        for name in ('page.html', 'fake.png', 'a%20%22q%22%20%E5%90%8D.csv'):
            answer = client.get(f'/s/1/files?name={name}')
            assert answer.status_code == 200
            assert answer.headers['content-type'] == 'application/octet-stream'
            about = Message()
            about['content-disposition'] = answer.headers['content-disposition']
            assert about.get_content_disposition() == 'attachment'
        assert about.get_filename() == 'a "q" 名.csv'
        assert client.get('/s/1/files?name=fake.png&show=1').status_code == 415
        for name in ('nowhere.csv', '../../etc/passwd', '/etc/passwd', '', '..'):
            answer = client.get(f'/s/1/files?name={name}')
            assert answer.status_code == 422
            assert 'root:' not in answer.text


def test_the_notebook_is_valid(served):
    page = served([MAKES, 'Made.'])
    with page.client() as client:
        client.post('/s/1/ask', json={'question': 'Make it'})
        page.idle()
        answer = client.get('/s/1/notebook')
    assert 'session-1.ipynb' in answer.headers['content-disposition']
    notebook = nbformat.reads(answer.text, 4)
    nbformat.validate(notebook)
    assert any('page.html' in cell.source for cell in notebook.cells if cell.cell_type == 'code')


def test_files_arrive_whole_and_odd_names_are_told(served, monkeypatch, tmp_path):
    monkeypatch.setattr(application, 'MAX_UPLOAD', 100_000)
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    page = served([])
    data = bytes(range(256)) * 300
    with page.client() as client:
        put = lambda name, body: client.post('/s/1/files', params={'name': name}, content=body)  # noqa: E731
        assert put('données 名.bin', data).status_code == 202
        page.idle()
        assert client.get('/s/1/files?name=données 名.bin').content == data
        assert put('large.bin', bytes(100_001)).status_code == 413
        assert put('', b'').status_code == 422
        assert put('a' * 256, b'').status_code == 422
        for name in ('../../escaped.txt', '/etc/escaped.txt', 'a\0b', '..'):
            assert put(name, b'x').status_code == 202
            page.idle()
        notes = [block for block in page.sessions.get(1).since(0) if block['kind'] == 'note']
        assert [note['tone'] for note in notes] == ['error'] * 4
    names = [info.path for info, _ in page.sessions.get(1).files]
    assert names == ['données 名.bin']
    assert [path for path in tmp_path.rglob('*') if 'lagent-ui' in path.name] == []


def test_questions_and_sessions_are_bounded(served, monkeypatch):
    monkeypatch.setattr(sessions, 'MOST_SESSIONS', 3)
    page = served([Stall(1.0, 'Hi.')])
    with page.client() as client:
        assert (
            client.post('/s/1/ask', content=b'{"question": "' + b'a' * 500_000).status_code == 413
        )
        for body in (b'', b'[]', b'{}', b'{"question": 1}', b'{"question": " "}', b'\xff'):
            assert client.post('/s/1/ask', content=body).status_code == 422
        assert client.post('/s/1/ask', json={'question': 'One?'}).status_code == 202
        assert client.post('/s/1/ask', json={'question': 'Two?'}).status_code == 409
        assert client.post('/s/1/undo').status_code == 409
        assert client.get('/s/1/notebook').status_code == 409
        assert [client.post('/sessions').status_code for _ in range(3)] == [201, 201, 409]
        assert client.post('/s/3/close').status_code == 202
        assert client.post('/s/3/ask', json={'question': 'There?'}).status_code == 404
        assert client.post('/sessions').status_code == 201


def test_as_many_pages_may_be_open_as_there_may(served, monkeypatch):
    monkeypatch.setattr(live, 'MOST_READERS', 2)
    page = served([])
    with page.client() as client:
        with client.stream('GET', '/live') as one, client.stream('GET', '/live') as two:
            lines = [one.iter_lines(), two.iter_lines()]  # dropped, they would end the streams
            assert [next(each) for each in lines] == ['retry: 1000'] * 2
            assert client.get('/live').status_code == 503
        wait_until(lambda: page.pages.live._readers == 0)


def test_a_reader_that_comes_back_is_given_what_has_changed(served):
    page = served(['**One.**', 'Two.'])
    with page.client() as client:
        client.post('/s/1/ask', json={'question': 'first'})
        page.idle()
        number, data = next(events(client, params={'s': 1}))
        assert '<strong>One.</strong>' in data
        assert data.count('<article') == 2
        client.post('/s/1/ask', json={'question': 'second'})
        page.idle()
        last = {'last-event-id': str(number)}
        later, data = next(events(client, params={'s': 1, 'seen': 0}, headers=last))
        assert later > number
        assert 'Two.' in data
        assert 'One.' not in data
        client.post('/s/1/undo')
        page.idle()
        last = {'last-event-id': str(later)}
        _, data = next(events(client, params={'s': 1}, headers=last))
        assert 'id="log-1"' in data  # something was taken away: the whole log comes
        assert 'One.' in data
        assert 'Two.' not in data


def test_a_growing_reply_is_seen_while_it_grows(served):
    go = threading.Event()

    class Slow(ScriptedModel):
        def chat(self, inputs, *args, **params):
            from lagent.effects import emit

            emit('Begun')
            assert go.wait(60)
            emit(', ended.')
            return 'Begun, ended.'

    page = served(Slow([]))
    with page.client() as client:
        stream = events(client, params={'s': 1, 'seen': page.sessions.changes.count})
        client.post('/s/1/ask', json={'question': 'Go'})
        seen = ''
        while 'Begun' not in seen:
            seen = next(stream)[1]
        assert 'growing' in seen
        go.set()
        while 'ended.' not in seen:
            seen = next(stream)[1]
        stream.close()


def test_a_session_that_is_closed_says_so(served):
    page = served(['Hi.'])
    with page.client() as client:
        client.post('/sessions')
        seen = page.sessions.changes.count
        client.post('/s/1/close')
        _, data = next(events(client, params={'s': 2, 'seen': seen}))
        assert 'href="' + page.keys.base + '/?s=1"' not in data
        client.post('/s/2/close')
        assert [session.number for session in page.sessions.all()] == [3]  # there is always one
