"""The network policy, attacked from inside live kernels."""

import ast
import asyncio
import contextlib
import http.server
import json
import os
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from sandbox import Allowlist, AsyncSandbox, ImageMissing, PolicyNotEnforced, Sandbox, SandboxPolicy
from sandbox.egress.process import EgressProxy

pytestmark = pytest.mark.docker

HERE = Path(__file__).parent
LOOPBACK = [['127.0.0.1']]
NAMES = {
    'allowed.test': LOOPBACK,
    'other.test': LOOPBACK,
    'rebind.test': [['127.0.0.1'], ['10.0.0.1']],
    'private.test': [['192.168.0.1']],
    'metadata.test': [['169.254.169.254']],
    'gateway.test': [['172.17.0.1']],
    'six.test': [['::1']],
    'six-metadata.test': [['fd00:ec2::254']],
}


class Origin(http.server.BaseHTTPRequestHandler):
    """Says which host it was asked for."""

    def do_GET(self) -> None:
        body = f'{self.headers["Host"]} {self.path}'.encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        size = int(self.headers['Content-Length'])
        body = str(sum(self.rfile.read(size))).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[int]:
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Origin) as server:
        if context is not None:
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


class Servers(NamedTuple):
    plain: int
    tls: int
    certificate: bytes


@pytest.fixture(scope='module')
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Two servers on the host's loopback."""
    folder = tmp_path_factory.mktemp('tls')
    subprocess.run(
        [
            *('openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2'),
            *('-subj', '/CN=allowed.test', '-addext'),
            'subjectAltName=DNS:allowed.test,DNS:other.test',
            *('-keyout', folder / 'key.pem', '-out', folder / 'cert.pem'),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / 'cert.pem', folder / 'key.pem')
    with serving() as plain, serving(context) as tls:
        yield Servers(plain, tls, (folder / 'cert.pem').read_bytes())


LAUNCH = EgressProxy.launch
Started = tuple[Sandbox, list[EgressProxy]]


@contextlib.contextmanager
def starting(servers: Servers, *hosts: str) -> Iterator[Started]:
    proxies = []

    def launch(folder: Path, allow: Allowlist) -> EgressProxy:
        command = [sys.executable, str(HERE / 'egress_program.py'), json.dumps(NAMES)]
        proxies.append(LAUNCH(folder, allow, command=command))
        return proxies[-1]

    entries = [f'{host}:{port}' for host in hosts for port in servers[:2]]
    policy = SandboxPolicy(
        network=Allowlist(entries), env={'SSL_CERT_FILE': '/workspace/ca.pem'}, timeout=60
    )
    with contextlib.closing(Sandbox(policy)) as box:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EgressProxy, 'launch', launch)
            box.start()
        box.upload(servers.certificate, name='ca.pem')
        yield box, proxies


@pytest.fixture(scope='module')
def started(servers: Servers) -> Iterator[Started]:
    hosts = [name for name in NAMES if name != 'other.test']
    with starting(servers, *hosts) as started:
        yield started


@pytest.fixture
def box(started: Started) -> Sandbox:
    return started[0]


PRELUDE = """
import errno, os, socket, ssl, urllib.error, urllib.request

def get(url, data=None):
    try:
        with urllib.request.urlopen(url, data, timeout=20) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return f'{error.code} {error.reason}'
    except urllib.error.URLError as error:
        return str(error.reason)
    except OSError as error:
        return type(error).__name__

def connect(path, request):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(20)
        s.connect(path)
        s.sendall(request)
        return s.recv(4096).decode('latin-1')
"""


def run(box: Sandbox, code: str) -> object:
    result = box.execute(f'{PRELUDE}\n{code}')
    assert result.ok, result.text
    return ast.literal_eval(result.result or 'None')


def test_http_to_an_allowed_host(box, servers):
    assert run(box, f'get("http://allowed.test:{servers.plain}/a?b")') == (
        f'allowed.test:{servers.plain} /a?b'
    )
    size = 3_000_000
    assert run(box, f'get("http://allowed.test:{servers.plain}/", b"a" * {size})') == str(97 * size)


def test_https_to_an_allowed_host(box, servers):
    result = box.execute(f'{PRELUDE}\nget("https://allowed.test:{servers.tls}/x")')
    assert result.result == repr(f'allowed.test:{servers.tls} /x')
    assert result.notices == ()


@pytest.mark.parametrize('scheme', ['http', 'https'])
@pytest.mark.parametrize(
    ('host', 'why'),
    [
        ('evil.test', 'not on the allow-list'),
        ('127.0.0.1', 'not a host name'),
        ('169.254.169.254', 'not a host name'),
        ('172.17.0.1', 'not a host name'),
        ('2130706433', 'not a host name'),
        ('private.test', 'leads to an address that is not public'),
        ('metadata.test', 'leads to an address that is not public'),
        ('gateway.test', 'leads to an address that is not public'),
        ('six.test', 'leads to an address that is not public'),
        ('six-metadata.test', 'leads to an address that is not public'),
    ],
)
def test_everything_else_is_refused_and_told(box, servers, scheme, host, why):
    # urllib's no_proxy knows 127.0.0.1, which is nobody in the container.
    code = f'os.environ["no_proxy"] = ""\nget("{scheme}://{host}:{servers.tls}/")'
    result = box.execute(f'{PRELUDE}\n{code}')
    assert f'403 {why}' in result.result
    assert result.notices == (
        f'the network policy refused {host.strip("[]")}:{servers.tls} ({why})',
    )
    assert 'the network policy refused' in result.text


@pytest.mark.parametrize('address', ['::1', 'fd00:ec2::254', '::ffff:127.0.0.1', '64:ff9b::a00:1'])
def test_ipv6_addresses_are_refused(box, servers, address):
    assert run(box, f'get("http://[{address}]:{servers.plain}/")') == '403 not a host name'
    tunnel = f'CONNECT [{address}]:{servers.tls} HTTP/1.1\r\n\r\n'.encode()
    answer = run(box, f'connect("/run/egress/proxy", {tunnel!r})')
    assert answer.startswith('HTTP/1.1 403 not a host name\r\n')


def test_a_name_that_comes_to_lead_elsewhere_is_refused(box, servers):
    url = f'"http://rebind.test:{servers.plain}/"'
    first, second = run(box, f'get({url}), get({url})')
    assert first == f'rebind.test:{servers.plain} /'
    assert second == '403 leads to an address that is not public'


@pytest.mark.parametrize('way', ['connect', 'socks'])
@pytest.mark.parametrize(
    ('name', 'outcome'),
    [('allowed.test', 'connected'), ('other.test', 'SSLError'), (None, 'SSLError')],
)
def test_a_tunnel_leads_to_the_host_it_was_asked_for(box, servers, way, name, outcome):
    request = {
        'connect': f'CONNECT allowed.test:{servers.tls} HTTP/1.1\r\n\r\n'.encode(),
        'socks': b'\5\1\0\5\1\0\3\x0callowed.test' + servers.tls.to_bytes(2, 'big'),
    }[way]
    answer = {'connect': b'HTTP/1.1 200 Connected\r\n\r\n', 'socks': b'\5\0\5\0\0\1' + bytes(6)}
    result = run(
        box,
        f"""
context = ssl.create_default_context()
context.check_hostname = False
with socket.create_connection(('127.0.0.1', 3128), 20) as raw:
    raw.sendall({request!r})
    answer = b''
    while len(answer) < {len(answer[way])}:
        answer += raw.recv({len(answer[way])} - len(answer))
    try:
        with context.wrap_socket(raw, server_hostname={name!r}) as tls:
            outcome = 'connected'
    except ssl.SSLError as error:
        outcome = 'SSLError'
answer, outcome""",
    )
    assert result == (answer[way], outcome)


@pytest.mark.parametrize(
    ('host', 'port'),
    [('169.254.169.254', 80), ('172.17.0.1', 22), ('1.1.1.1', 53), ('10.0.0.1', 80)],
)
def test_there_is_no_way_but_the_proxy(box, host, port):
    code = f"""
failures = []
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    with socket.socket(socket.AF_INET, kind) as s:
        s.settimeout(5)
        failures.append(errno.errorcode[s.connect_ex(({host!r}, {port}))])
with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as s:
    failures.append(s.connect_ex(('2606:4700::1111', 443)) != 0)
failures"""
    assert run(box, code) == ['ENETUNREACH', 'ENETUNREACH', True]


def test_there_is_only_loopback_and_no_name_service(box):
    code = """
try:
    found = socket.getaddrinfo('allowed.test', 80)
except socket.gaierror:
    found = None
[name for _, name in socket.if_nameindex()], found"""
    assert run(box, code) == (['lo'], None)


@pytest.mark.parametrize(
    'deed',
    [
        *('open("/run/egress/x", "w")', 'os.unlink("/run/egress/proxy")'),
        *('os.chmod("/run/egress", 0o777)', 'os.chmod("/run/egress/proxy", 0)'),
        'socket.socket(socket.AF_UNIX).bind("/run/egress/x")',
    ],
)
def test_the_folder_of_the_proxy_cannot_be_changed(box, deed):
    code = f"""
try:
    {deed}
    failure = None
except OSError as error:
    failure = errno.errorcode[error.errno]
failure, os.listdir('/run/egress')"""
    failure, names = run(box, code)
    assert failure in ('EROFS', 'EACCES', 'EPERM')
    assert names == ['proxy']


def test_sessions_do_not_share_their_ways_out(box, servers):
    with starting(servers, 'other.test') as (second, _):
        ours, theirs = (
            f'get("http://{host}.test:{servers.plain}/")' for host in ('allowed', 'other')
        )
        assert run(box, f'{ours}, {theirs}') == (
            f'allowed.test:{servers.plain} /',
            '403 not on the allow-list',
        )
        assert run(second, f'{ours}, {theirs}') == (
            '403 not on the allow-list',
            f'other.test:{servers.plain} /',
        )
        # A session sees one socket of a proxy, and it is its own.
        look = 'sorted(os.listdir("/run")), open("/proc/net/unix").read().count("@")'
        assert run(second, look) == run(box, look)


def test_too_many_connections_are_closed_and_the_rest_goes_on(servers):
    code = """
import select, time
held = [socket.socket(socket.AF_UNIX) for _ in range(80)]
for s in held:
    s.connect('/run/egress/proxy')
deadline = time.monotonic() + 5
while len(select.select(held, [], [], 0.2)[0]) < 16 and time.monotonic() < deadline:
    time.sleep(0.02)
time.sleep(0.2)
closed = select.select(held, [], [], 0)[0]
said = {s.recv(1) for s in closed}
for s in held:
    s.close()
len(closed), said"""
    # Its own session: what other tests asked for may still be on its way to its end.
    with starting(servers, 'allowed.test') as (box, _):
        assert run(box, code) == (16, {b''})  # of 80, with room for 64
        deadline = time.monotonic() + 20
        url = f'get("http://allowed.test:{servers.plain}/")'
        while run(box, url) != f'allowed.test:{servers.plain} /':
            assert time.monotonic() < deadline


def test_a_new_kernel_has_its_way_out_again(box, servers):
    url = f'get("http://allowed.test:{servers.plain}/")'
    killing = """
import signal
for pid in filter(str.isdigit, os.listdir('/proc')):
    if int(pid) not in (1, os.getpid(), os.getppid()):
        try:
            os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass
"""
    assert 'Connection refused' in run(box, f'{killing}\nimport time; time.sleep(0.5)\n{url}')
    box.restart()
    assert run(box, url) == f'allowed.test:{servers.plain} /'


def test_without_its_proxy_a_session_reaches_nothing(servers):
    with starting(servers, 'allowed.test') as (box, [proxy]):
        os.kill(proxy.pid, 9)
        proxy._process.wait(10)
        url = f'get("http://allowed.test:{servers.plain}/")'
        result = box.execute(f'{PRELUDE}\n{url}, socket.socket().connect_ex(("1.1.1.1", 80))')
        assert str(servers.plain) not in result.result
        assert result.result.endswith(', 101)')  # ENETUNREACH
        assert result.notices == (
            'the network proxy has ended: nothing outside can be reached any more',
        )
        assert box.execute('1').notices == ()


def test_the_proxy_ends_with_its_session(servers):
    with starting(servers, 'allowed.test') as (box, [proxy]):
        folder = Path(f'/proc/{proxy.pid}')
        status = (folder / 'status').read_text()
        if os.geteuid() == 0:
            assert 'Uid:\t65534\t65534\t65534\t65534' in status
        names = {part.partition(b'=')[0] for part in (folder / 'environ').read_bytes().split(b'\0')}
        assert names <= {b'', b'PATH', b'LANG', b'LC_CTYPE'}
        box.close()
        assert not folder.exists()


def is_running(proxy: EgressProxy) -> bool:
    return Path(f'/proc/{proxy.pid}').exists()


def test_a_start_that_fails_leaves_no_proxy(monkeypatch):
    proxies: list[EgressProxy] = []

    def launch(folder: Path, allow: Allowlist) -> EgressProxy:
        proxies.append(LAUNCH(folder, allow))
        return proxies[-1]

    monkeypatch.setattr(EgressProxy, 'launch', launch)
    box = Sandbox(SandboxPolicy(network=Allowlist(['a.org'])), image='no-such-image:1')
    with pytest.raises(ImageMissing):
        box.start()
    box.close()
    assert list(map(is_running, proxies)) == [False]


async def test_a_start_that_is_cancelled_leaves_no_proxy(monkeypatch):
    proxies: list[EgressProxy] = []
    policy = SandboxPolicy(network=Allowlist(['a.org']))
    launched, loop = asyncio.Event(), asyncio.get_running_loop()

    def launch(folder: Path, allow: Allowlist) -> EgressProxy:
        proxies.append(LAUNCH(folder, allow))
        loop.call_soon_threadsafe(launched.set)
        return proxies[-1]

    monkeypatch.setattr(EgressProxy, 'launch', launch)
    box = AsyncSandbox(policy)
    starting = asyncio.ensure_future(box.start())
    await asyncio.wait_for(launched.wait(), 30)  # the container is being made
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await box.close()
    assert list(map(is_running, proxies)) == [False]


def test_the_real_resolver_and_judge_are_in_place():
    policy = SandboxPolicy(network=Allowlist(['nowhere.invalid', 'localhost.localdomain']))
    with Sandbox(policy) as box:
        assert run(box, 'get("http://nowhere.invalid/")') == '502 The name has no address'
        assert run(box, 'get("http://localhost.localdomain/")').startswith(('502 The', '403 leads'))
        assert run(box, 'get("http://example.org/")') == '403 not on the allow-list'


def test_local_refuses_what_it_cannot_enforce():
    for wish in ({'network': Allowlist(['a.org'])}, {'runtime': 'runsc'}):
        box = Sandbox(SandboxPolicy(**wish), 'local', unsafe=True)
        with pytest.raises(PolicyNotEnforced, match='Allowlist'):
            box.start()
        box.close()
