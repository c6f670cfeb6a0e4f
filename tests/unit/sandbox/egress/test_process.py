"""The proxy's process: it starts, it tells, and it ends with whoever started it."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandbox import Allowlist, StartFailed
from sandbox.egress.process import SOCKET, EgressProxy

ALLOW = Allowlist(['a.test'])


def ask(folder: Path, target: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(folder / SOCKET))
        client.sendall(f'CONNECT {target} HTTP/1.1\r\n\r\n'.encode())
        return client.recv(4096)


@pytest.fixture
def proxy(tmp_path):
    proxy = EgressProxy.launch(tmp_path / 'e', ALLOW)
    try:
        yield proxy
    finally:
        proxy.stop()


def test_what_is_refused_is_told_once(proxy, tmp_path):
    for target in ('b.test:443', 'b.test:443', *(f'c{n}.test:1' for n in range(6))):
        assert ask(tmp_path / 'e', target).startswith(b'HTTP/1.1 403 ')
    (notice,) = proxy.notices()
    assert notice.startswith('the network policy refused b.test:443 (not on the allow-list), 2 t')
    assert notice.endswith('; and 2 more')
    assert proxy.notices() == []


def test_a_flood_of_refusals_blocks_nobody(proxy, tmp_path):
    for n in range(1_500):  # more than a pipe holds
        assert ask(tmp_path / 'e', f'{"x" * 60}.{n}.test:1').startswith(b'HTTP/1.1 403 ')
    assert len(proxy.notices()) == 1


def test_its_folder_holds_one_socket(proxy, tmp_path):
    assert [entry.name for entry in (tmp_path / 'e').iterdir()] == [SOCKET]
    assert (tmp_path / 'e').stat().st_mode & 0o777 == 0o755


def test_its_end_is_told_once_and_refuses_connections(proxy, tmp_path):
    os.kill(proxy.pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while not (notices := proxy.notices()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert notices == ['the network proxy has ended: nothing outside can be reached any more']
    assert proxy.notices() == []
    with pytest.raises(ConnectionRefusedError):
        ask(tmp_path / 'e', 'a.test:443')


def test_stop_may_be_repeated(proxy):
    proxy.stop()
    proxy.stop()
    assert proxy.notices() == []  # its end is no news
    with pytest.raises(ProcessLookupError):
        os.kill(proxy.pid, 0)


@pytest.mark.parametrize(
    'command',
    [
        [sys.executable, '-c', 'pass'],
        [sys.executable, '-c', 'print("other")'],
        [sys.executable, '-c', 'import time; time.sleep(60)'],
        ['/does/not/exist'],
    ],
)
def test_one_that_does_not_start_is_an_error(tmp_path, command):
    with pytest.raises(StartFailed, match='network proxy'):
        EgressProxy.launch(tmp_path / 'e', ALLOW, command=command, timeout=1.0)


def test_it_ends_when_its_owner_is_killed(tmp_path):
    program = (
        'import sys, time\nfrom pathlib import Path\n'
        'from sandbox import Allowlist\nfrom sandbox.egress.process import EgressProxy\n'
        'proxy = EgressProxy.launch(Path(sys.argv[1]), Allowlist(["a.test"]))\n'
        'print(proxy.pid, flush=True)\ntime.sleep(60)\n'
    )
    command = [sys.executable, '-c', program, str(tmp_path / 'e')]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        owner.kill()
    deadline = time.monotonic() + 20
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        # Its new parent may not collect it at once: dead is enough.
        while Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] != 'Z':
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_news_that_make_no_sense_are_left_out(tmp_path):
    lines = ['x', '[]', '{}', json.dumps({'target': 'b.test:1', 'why': 'reason'}), '{"tar']
    program = (
        'input(); print("ready", flush=True); input()\n'
        f'print({chr(10).join(lines)!r}, end="", flush=True); input()'
    )
    proxy = EgressProxy.launch(tmp_path / 'e', ALLOW, command=[sys.executable, '-c', program])
    try:
        assert proxy._process.stdin is not None
        proxy._process.stdin.write(b'\n')
        proxy._process.stdin.flush()
        deadline = time.monotonic() + 20
        while not (notices := proxy.notices()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert notices == ['the network policy refused b.test:1 (reason)']
    finally:
        proxy.stop()
