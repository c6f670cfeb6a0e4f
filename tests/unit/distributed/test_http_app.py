"""The web application of an agent, spoken to without a network."""

import asyncio
import json
import sys
import weakref
from pathlib import Path
from typing import ClassVar

import httpx
import pytest

from lagent.distributed.config import read_config
from lagent.distributed.http_serve import app
from lagent.distributed.http_serve.client import AsyncHTTPAgentClient
from lagent.errors import ConfigError
from lagent.schema import AgentMessage
from lagent.utils import load_class_from_string

pytest.importorskip('fastapi')

HERE = str(Path(__file__).parent)
BOTH = pytest.mark.parametrize('name', ['Served', 'AsyncServed'])


def served(name):
    return load_class_from_string(f'served_agents.{name}', HERE)


def http(agent):
    return http_of(app.create_app(agent))


def http_of(application):
    return httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url='http://it')


@BOTH
async def test_an_answer_and_the_memory_of_it(name):
    async with http(served(name)(greeting='hi')) as client:
        body = {'message': ['a', {'content': 'b', 'sender': 'other'}], 'session_id': 4, 'mood': 'x'}
        answer = await client.post('/chat_completion', json=body)
        assert answer.status_code == 200
        assert answer.json()['content'] == 'hi a+b'
        assert answer.json()['extra_info'] == {'session': 4, 'options': {'mood': 'x'}}
        memory = (await client.get('/memory/4')).json()['memory']
        assert [m['content'] for m in memory] == ['a', 'b', 'hi a+b']
        assert [m['sender'] for m in memory][:2] == ['user', 'other']


@BOTH
async def test_text_that_utf_8_cannot_hold(name):
    application = app.create_app(served(name)(greeting='\ud8ff'))

    class Client(AsyncHTTPAgentClient):
        def _http(self, timeout):
            return http_of(application)

    answer = await Client()('a \udcff', AgentMessage(content='b \udcff'))
    assert answer.content == '\ufffd a \ufffd+b \ufffd'
    state = await Client()._state_dict(0)
    assert [message['content'] for message in state['memory'][:2]] == ['a \udcff', 'b \udcff']


@pytest.mark.parametrize('name', ['Streamed', 'AsyncStreamed'])
async def test_a_stream_is_read_to_its_end(name):
    async with http(served(name)()) as client:
        answer = await client.post('/chat_completion', json={'message': ['q']})
        assert answer.json()['content'] == 'hello'


@BOTH
async def test_what_went_wrong_stays_in_the_log(name, caplog):
    async with http(served(name)()) as client:
        answer = await client.post('/chat_completion', json={'message': ['crash']})
    assert (answer.status_code, answer.json()) == (500, {'detail': 'Internal Server Error'})
    assert 'secret detail' in caplog.text


@pytest.mark.parametrize(
    'body',
    [b'', b'no json', b'[1]', b'{}', b'{"message": "q"}', b'{"message":[], "session_id":[]}'],
)
async def test_malformed_requests_are_refused(body):
    async with http(served('Served')()) as client:
        assert (await client.post('/chat_completion', content=body)).status_code == 422


async def test_health():
    async with http(served('Served')()) as client:
        health = (await client.get('/health_check')).json()
    assert health['status'] == 'success'
    assert set(health) == {'status', 'timestamp'}


async def test_pages_are_turned_away_unless_all_are_let_in():
    page = {'origin': 'http://page'}
    async with http(served('Served')()) as client:
        refused = await client.get('/health_check', headers=page)
        assert refused.status_code == 403
        assert 'access-control-allow-origin' not in refused.headers
        ask = {**page, 'access-control-request-method': 'POST'}
        assert (await client.options('/chat_completion', headers=ask)).status_code != 200
    async with http_of(app.create_app(served('Served')(), ['*'])) as client:
        health = await client.get('/health_check', headers=page)
        assert health.status_code == 200
        assert health.headers['access-control-allow-origin'] == '*'
        assert 'access-control-allow-credentials' not in health.headers


async def test_the_memory_of_an_unknown_session_is_empty():
    async with http(served('Served')()) as client:
        with pytest.warns(UserWarning, match='No session id'):
            assert (await client.get('/memory/7')).json() == {'memory': []}


async def test_numbers_and_texts_are_different_sessions_everywhere():
    sessions = [4, '4', 'alice', 'a/b', '"4"', '[1]', 'ü ?#%2F']
    served_app = app.create_app(served('Served')())
    async with http_of(served_app) as client:
        for number, session in enumerate(sessions):
            body = {'message': [f'm{number}'], 'session_id': session}
            assert (await client.post('/chat_completion', json=body)).status_code == 200

    class Client(AsyncHTTPAgentClient):
        def _http(self, timeout):
            return http_of(served_app)

    for number, session in enumerate(sessions):
        memory = (await Client()._state_dict(session))['memory']
        assert memory[0]['content'] == f'm{number}'
    async with http_of(served_app) as client:
        for path, number in [('4', 0), ('"4"', 1), ('alice', 2), ('a/b', 3)]:
            memory = (await client.get(f'/memory/{path}')).json()['memory']
            assert memory[0]['content'] == f'm{number}'


async def test_only_allowed_pages_drive_the_agent():
    agent = served('Served')()
    async with http_of(app.create_app(agent, ['https://chat.example'])) as client:
        body = b'{"message": ["q"]}'
        # What a page may send to any address, without asking first.
        sent = {'origin': 'https://evil.example', 'content-type': 'text/plain'}
        refused = await client.post('/chat_completion', content=body, headers=sent)
        assert refused.status_code == 403
        assert 'access-control-allow-origin' not in refused.headers
        assert agent.memory.memory_map == {}
        own = {'origin': 'https://chat.example'}
        answer = await client.post('/chat_completion', content=body, headers=own)
        assert answer.status_code == 200
        assert answer.headers['access-control-allow-origin'] == 'https://chat.example'
        assert (await client.post('/chat_completion', content=body)).status_code == 200


@pytest.mark.parametrize(
    ('given', 'host', 'status'),
    [
        (['--allow-origin', '*'], 'rebound.example:8090', 200),
        ([], 'rebound.example:8090', 400),
        (['--allow-origin', 'https://chat.example'], 'rebound.example:8090', 400),
        ([], '127.0.0.1:8090', 200),
        ([], 'localhost', 200),
        (['--host', '0.0.0.0'], 'my.example', 200),
    ],
)
def test_a_closed_server_answers_to_its_own_names(given, host, status, started):
    assert asked(started(*given), {'host': host}) == status


@pytest.mark.parametrize(
    ('given', 'origin', 'status'),
    [
        ([], 'http://127.0.0.1:8090', 200),  # its own page of documentation
        ([], 'http://localhost:8090', 200),
        ([], 'http://localhost:8091', 403),
        ([], 'null', 403),
        (['--port', '9000'], 'http://localhost:9000', 200),
        (['--allow-origin', 'https://chat.example'], 'https://chat.example', 200),
        (['--host', '0.0.0.0'], 'http://localhost:8090', 403),
    ],
)
def test_a_closed_server_serves_its_own_page(given, origin, status, started):
    assert asked(started(*given), {'origin': origin, 'host': 'localhost'}) == status


@pytest.fixture
def started(monkeypatch):
    """Start the command with arguments, and get the application that it would serve."""

    def start(*given):
        served_with = []
        monkeypatch.setattr('uvicorn.run', lambda served_app, **_: served_with.append(served_app))
        config = json.dumps({'type': 'served_agents.Served', 'python_path': HERE})
        monkeypatch.setattr('sys.argv', ['app', '--config', config, *given])
        app.main()
        return served_with[0]

    return start


def asked(application, headers):
    async def ask():
        async with http_of(application) as client:
            return (await client.get('/health_check', headers=headers)).status_code

    return asyncio.run(ask())


class Piece:
    alive: ClassVar = weakref.WeakSet()

    def __init__(self):
        self.alive.add(self)


class Streaming:
    most = 0

    def pieces(self):
        for _ in range(50):
            yield Piece()
            self.most = max(self.most, len(Piece.alive))
        yield 'the end'

    def __call__(self, *message, session_id=0):
        yield from self.pieces()


class AsyncStreaming(Streaming):
    async def __call__(self, *message, session_id=0):
        async def pieces():
            for piece in self.pieces():
                yield piece

        return pieces()


@pytest.mark.parametrize('kind', [Streaming, AsyncStreaming])
async def test_of_a_stream_only_the_last_item_is_kept(kind):
    agent = kind()
    async with http(agent) as client:
        answer = await client.post('/chat_completion', json={'message': ['q']})
    assert answer.json()['content'] == 'the end'
    assert agent.most <= 3


def test_a_configuration_is_read_and_left_alone():
    config = {'type': 'served_agents.Served', 'python_path': HERE, 'greeting': 'hi'}
    before = dict(config)
    agent_class, arguments = read_config(config)
    assert (agent_class.__name__, arguments) == ('Served', {'greeting': 'hi'})
    assert config == before
    assert HERE not in sys.path
    assert read_config({'type': dict, 'a': 1}) == (dict, {'a': 1})
    with pytest.raises(ConfigError, match='needs a "type"'):
        read_config({'greeting': 'hi'})
