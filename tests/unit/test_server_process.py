"""Servers as processes: waiting, dying, and stopping for sure."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lagent.errors import ConfigError, ServerFailed
from lagent.llms import ModelCallFailed
from lagent.llms.engine_client import AsyncEngineClient
from lagent.server_process import ServerProcess, check_port, free_port, local_url, options

# A server that starts a process of its own, as engines do, and writes its id down.
SERVER = """
import http.server, pathlib, subprocess, sys
port, file = int(sys.argv[1]), pathlib.Path(sys.argv[2])
print('loading', flush=True)
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
file.write_text(str(child.pid))
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args): pass
    def do_GET(self):
        self.send_response(200); self.end_headers()
http.server.HTTPServer(('127.0.0.1', port), Handler).serve_forever()
"""


def pid_in(file: Path) -> int:
    return int(file.read_text())


def gone(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        state = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0]
        return state == 'Z'  # whoever inherited it has not looked yet
    return True


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline, 'the process is still there'
        time.sleep(0.02)


def wait_until_gone(pid: int) -> None:
    wait_until(lambda: gone(pid))


def serve(file: Path, **kwargs: object) -> ServerProcess:
    port = free_port()
    command = [sys.executable, '-c', SERVER, str(port), str(file)]
    return ServerProcess(command, f'http://127.0.0.1:{port}/health', **kwargs)  # type: ignore[arg-type]


@pytest.fixture
def pid_file(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / 'pid'
    # Whatever failed: leave nothing behind.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
        os.kill(int((tmp_path / 'pid').read_text()), signal.SIGKILL)


async def test_it_comes_up_and_is_stopped_with_its_children(pid_file: Path) -> None:
    lines: list[str] = []
    server = serve(pid_file, progress=lines.append)
    await server.until_ready()
    assert (lines, server.running, server.output) == (['loading'], True, 'loading')
    child = pid_in(pid_file)
    assert not gone(child)
    await asyncio.to_thread(server.close)
    server.close()
    assert not server.running
    wait_until_gone(child)
    with pytest.raises(ServerFailed, match='was stopped'):
        await server.until_ready()


async def test_one_that_dies_is_noticed_with_its_last_words() -> None:
    command = [sys.executable, '-c', 'import sys; print("no memory"); sys.exit(3)']
    server = ServerProcess(command, f'http://127.0.0.1:{free_port()}/health')
    with pytest.raises(ServerFailed, match=r'(?s)ended by itself.*no memory.*code 3'):
        await server.until_ready()
    server.close()


async def test_to_a_model_it_is_an_error_of_the_model_as_well() -> None:
    client = AsyncEngineClient('http://127.0.0.1:1/v1', 'm')
    client.process = ServerProcess([sys.executable, '-c', ''], 'http://127.0.0.1:1/health')
    with pytest.raises(ModelCallFailed, match='ended by itself') as caught:
        await client.start()
    assert isinstance(caught.value, ServerFailed)
    assert caught.value.code == 'server_failed'
    await client.close()


async def test_one_that_dies_later_is_noticed_too(pid_file: Path) -> None:
    server = serve(pid_file)
    await server.until_ready()
    os.killpg(server.pid, signal.SIGKILL)
    await asyncio.to_thread(wait_until, lambda: not server.running)
    with pytest.raises(ServerFailed, match='ended by itself'):
        await server.until_ready()
    server.close()


async def test_one_that_does_not_come_up_is_stopped() -> None:
    command = [sys.executable, '-c', 'import time; print("slow", flush=True); time.sleep(600)']
    server = ServerProcess(command, f'http://127.0.0.1:{free_port()}/health', timeout=0.5)
    with pytest.raises(ServerFailed, match=r'(?s)within 0.5 s.*slow'):
        await server.until_ready()
    assert not server.running


async def test_a_flood_of_output_is_read_and_bounded() -> None:
    code = 'import sys\nfor n in range(200000): print("line", n)\nsys.exit(1)'
    server = ServerProcess([sys.executable, '-c', code], f'http://127.0.0.1:{free_port()}/')
    with pytest.raises(ServerFailed, match='line 199999') as caught:
        await server.until_ready()
    assert len(str(caught.value)) < 4000
    server.close()


async def test_a_callback_that_fails_does_not_stop_the_server(
    pid_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(line: str) -> None:
        raise ZeroDivisionError

    server = serve(pid_file, progress=fail)
    await server.until_ready()
    assert 'progress' in caplog.text
    server.close()


def test_it_goes_when_it_is_forgotten(pid_file: Path) -> None:
    server = serve(pid_file)
    asyncio.run(server.until_ready())
    group = server.pid
    del server
    wait_until_gone(group)
    wait_until_gone(pid_in(pid_file))


def test_it_goes_when_its_owner_is_killed(pid_file: Path) -> None:
    port = free_port()
    code = (
        'import asyncio, sys\n'
        'from lagent.server_process import ServerProcess\n'
        'server = ServerProcess([sys.executable, "-c", *sys.argv[1:]],'
        ' f"http://127.0.0.1:{sys.argv[2]}/")\n'
        'asyncio.run(server.until_ready())\n'
        'print("ready", flush=True)\n'
        'import time; time.sleep(600)\n'
    )
    command = [sys.executable, '-c', code, SERVER, str(port), str(pid_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b'ready\n'
        owner.kill()
    wait_until_gone(pid_in(pid_file))


async def test_it_is_given_its_standard_input(tmp_path: Path) -> None:
    given, file = b'0123456789abcdef' * 50_000, tmp_path / 'given'
    code = 'import pathlib, sys; pathlib.Path(sys.argv[1]).write_bytes(sys.stdin.buffer.read())'
    health = f'http://127.0.0.1:{free_port()}/'
    server = ServerProcess([sys.executable, '-c', code, str(file)], health, stdin=given)
    with pytest.raises(ServerFailed, match='code 0'):
        await server.until_ready()
    assert file.read_bytes() == given


async def test_one_that_does_not_read_its_standard_input_is_none_the_worse() -> None:
    command = [sys.executable, '-c', 'import sys; print("no"); sys.exit(3)']
    health = f'http://127.0.0.1:{free_port()}/'
    server = ServerProcess(command, health, stdin=bytes(1_000_000))
    with pytest.raises(ServerFailed, match=r'(?s)no.*code 3'):
        await server.until_ready()


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        with pytest.raises(ConfigError, match='Choose another'):
            check_port('127.0.0.1', taken.getsockname()[1])
    check_port('127.0.0.1', free_port())


def test_options_and_addresses() -> None:
    settings = {'max_model_len': 8, 'enforce_eager': True, 'dtype': None, 'lora_modules': ['a', 1]}
    assert options({**settings, 'off': False}) == [
        *('--max-model-len', '8', '--enforce-eager', '--lora-modules', 'a', '1')
    ]
    assert local_url('0.0.0.0', 1) == 'http://127.0.0.1:1'
    assert local_url('h', 1) == 'http://h:1'
