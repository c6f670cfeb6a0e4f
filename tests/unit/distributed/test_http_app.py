"""The web application of an agent, spoken to without a network."""

import sys
from pathlib import Path

import httpx
import pytest

from lagent.distributed.config import read_config
from lagent.distributed.http_serve.app import create_app
from lagent.errors import ConfigError
from lagent.utils import load_class_from_string

pytest.importorskip('fastapi')

HERE = str(Path(__file__).parent)
BOTH = pytest.mark.parametrize('name', ['Served', 'AsyncServed'])


def served(name):
    return load_class_from_string(f'served_agents.{name}', HERE)


def http(agent):
    return httpx.AsyncClient(transport=httpx.ASGITransport(create_app(agent)), base_url='http://it')


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


async def test_health_and_pages_of_other_origins():
    async with http(served('Served')()) as client:
        health = await client.get('/health_check', headers={'origin': 'http://page'})
        assert health.json()['status'] == 'success'
        assert set(health.json()) == {'status', 'timestamp'}
        assert health.headers['access-control-allow-origin'] == '*'
        assert 'access-control-allow-credentials' not in health.headers


async def test_the_memory_of_an_unknown_session_is_empty():
    async with http(served('Served')()) as client:
        with pytest.warns(UserWarning, match='No session id'):
            assert (await client.get('/memory/7')).json() == {'memory': []}
        assert (await client.get('/memory/x')).status_code == 422


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
