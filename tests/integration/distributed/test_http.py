"""Agents behind HTTP in processes of their own."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from lagent.distributed import (
    AsyncHTTPAgentClient,
    AsyncHTTPAgentServer,
    HTTPAgentClient,
    HTTPAgentServer,
)
from lagent.errors import ServerFailed
from lagent.schema import AgentMessage

pytest.importorskip('fastapi')
pytest.importorskip('uvicorn')

HERE = str(Path(__file__).parents[2] / 'unit' / 'distributed')


def config(name, **arguments):
    return {'type': f'served_agents.{name}', 'python_path': HERE, **arguments}


@pytest.fixture
def port():
    with socket.socket() as one:
        one.bind(('127.0.0.1', 0))
        return one.getsockname()[1]


def test_a_server_is_an_agent(port, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('http_proxy', 'http://127.0.0.1:9')
    given = config('Served', greeting='hi')
    with HTTPAgentServer('', given, port=port, start_timeout=60) as server:
        assert server.is_alive
        answer = server('a', AgentMessage(content='b', sender='other'), session_id=3, mood='x')
        assert isinstance(answer, AgentMessage)
        assert (answer.content, answer.extra_info['options']) == ('hi a+b', {'mood': 'x'})
        memory = HTTPAgentClient(port=port).state_dict(3)['memory']
        assert [m['sender'] for m in memory] == ['user', 'other', 'Served']
        assert server('crash') == {'detail': 'Internal Server Error'}
        with pytest.raises(ServerFailed, match='Something else'):
            HTTPAgentServer('', given, port=port)
    assert not server.is_alive
    assert not server.process.running
    server.shutdown()
    assert given == config('Served', greeting='hi')


async def test_what_is_no_server_of_an_agent_says_so(port):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b'\r\n\r\n')
        page = b'<html>Please log in</html>'
        head = f'HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\nContent-Length: {len(page)}'
        writer.write(f'{head}\r\n\r\n'.encode() + page)
        writer.close()

    async with await asyncio.start_server(serve, '127.0.0.1', port):
        client = HTTPAgentClient(port=port)
        for ask in (lambda: client('hello'), client.state_dict):
            with pytest.raises(ServerFailed, match=r'no server of an agent: .*log in.*502'):
                await asyncio.to_thread(ask)
        with pytest.raises(ServerFailed, match='Check host'):
            await AsyncHTTPAgentClient(port=port)('hello')


async def test_an_awaited_server(port):
    server = AsyncHTTPAgentServer('', config('AsyncServed'), port=port, start_timeout=60)
    try:
        assert (await server('q')).content == 'hello q'
        client = AsyncHTTPAgentClient(port=port, timeout=30)
        assert (await client('q', session_id=1)).extra_info['session'] == 1
    finally:
        server.shutdown()


def test_a_process_that_dies_is_noticed(port):
    with pytest.raises(ServerFailed, match=r'(?s)ended by itself.*code 3'):
        HTTPAgentServer('', config('Unbuildable'), port=port)


def test_it_goes_when_its_owner_is_killed_and_says_nothing_there(port):
    code = f"""
import time
from lagent.distributed import HTTPAgentServer
server = HTTPAgentServer('', {config('Served')!r}, port={port}, start_timeout=60)
print(server('a').content, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE) as owner:
        assert owner.stdout.readline() == b'hello a\n'
        owner.kill()
        client, deadline = HTTPAgentClient(port=port), time.monotonic() + 30
        while client.is_alive:
            assert time.monotonic() < deadline, 'the agent is still served'
            time.sleep(0.1)
        assert owner.stdout.read() == b''


def test_a_configuration_that_is_no_json_starts_nothing(port):
    with pytest.raises(TypeError, match='must be JSON'):
        HTTPAgentServer('', config('Served', greeting=object()), port=port)
    assert not HTTPAgentClient(port=port).is_alive


def test_a_client_without_a_server(port):
    client = HTTPAgentClient(port=port)
    assert client.is_alive is False
    with pytest.raises(httpx.ConnectError):
        client('q')


def test_the_command_takes_its_configuration_from_the_line(port):
    command = [sys.executable, '-m', 'lagent.distributed.http_serve.app']
    arguments = ['--port', str(port), '--config', json.dumps(config('Unbuildable'))]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, timeout=60, env=dict(os.environ), check=False
    )
    assert done.returncode == 3
