"""The proxy against servers on loopback, with a resolver and a judge of the test's own."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from sandbox import Allowlist
from sandbox.egress.hello import UNRECOGNIZED_NAME
from sandbox.egress.server import EgressServer, Limits, Refusal

from .hellos import hello, records, with_extension

NAMES = {
    'allowed.test': ['127.0.0.1'],
    'www.wild.test': ['127.0.0.1'],
    'private.test': ['10.0.0.1'],
    'metadata.test': ['169.254.169.254'],
    'both.test': ['127.0.0.1', '10.0.0.1'],
    'six.test': ['::1'],
    'mapped.test': ['::ffff:127.0.0.1'],
    'closed.test': ['127.0.0.1'],
}


class World:
    """A proxy, one server that it may lead to, and what both have seen."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.port = 0
        self.refusals: list[Refusal] = []
        self.looked_up: list[str] = []
        self.names = dict(NAMES)
        self.received = bytearray()
        self.connections = 0
        self.respond: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

    async def resolve(self, host: str, port: int) -> list[str]:
        self.looked_up.append(host)
        if host not in self.names:
            raise socket.gaierror(-2, 'unknown')
        return self.names[host]

    @contextlib.asynccontextmanager
    async def dial(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_unix_connection(str(self.path))
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def talk(self, *parts: bytes) -> bytes:
        """Send all and return everything that comes back, to the end."""
        async with self.dial() as (reader, writer):
            writer.write(b''.join(parts))
            with contextlib.suppress(OSError):
                return await asyncio.wait_for(reader.read(), 20)
            return b''

    async def exchange(self, data: bytes) -> bytes:
        """Send all, say that it was all, and return everything that comes back."""
        async with self.dial() as (reader, writer):
            writer.write(data)
            writer.write_eof()
            return await asyncio.wait_for(reader.read(), 20)

    async def tunnel(self, host: str, data: bytes) -> bytes:
        return await self.talk(f'CONNECT {host}:{self.port} HTTP/1.1\r\n\r\n'.encode(), data)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b'\r\n\r\n')
    writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi')
    await writer.drain()


@contextlib.asynccontextmanager
async def running(path: Path, limits: Limits, *entries: str) -> AsyncIterator[World]:
    world = World(path)
    world.respond = echo

    class Tee:
        def __init__(self, reader: asyncio.StreamReader) -> None:
            self._reader = reader

        async def read(self, size: int) -> bytes:
            data = await self._reader.read(size)
            world.received += data
            return data

        async def readuntil(self, end: bytes) -> bytes:
            data = await self._reader.readuntil(end)
            world.received += data
            return data

    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        world.connections += 1
        serving.add(asyncio.current_task())
        with contextlib.suppress(OSError, EOFError):
            await world.respond(Tee(reader), writer)
            while data := await reader.read(1 << 16 if world.respond is not echo else 1):
                world.received += data
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    origin = await asyncio.start_server(serve, '127.0.0.1', 0)
    world.port = origin.sockets[0].getsockname()[1]
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    server = EgressServer(
        Allowlist([entry.replace('PORT', str(world.port)) for entry in entries]),
        world.refusals.append,
        resolve=world.resolve,
        permits=lambda text: text == '127.0.0.1',
        limits=limits,
    )
    task = asyncio.ensure_future(server.serve(listener))
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        origin.close()
        await origin.wait_closed()
        await asyncio.wait_for(asyncio.gather(*serving), 10)


ALLOWED = (
    *('allowed.test:PORT', '*.wild.test:PORT', 'private.test:PORT', 'metadata.test:PORT'),
    *('both.test:PORT', 'six.test:PORT', 'mapped.test:PORT', 'nowhere.test:PORT', 'closed.test:1'),
)


@pytest.fixture
async def world(tmp_path):
    async with running(tmp_path / 'p', Limits(request=5.0), *ALLOWED) as world:
        yield world


OPENED = b'HTTP/1.1 200 Connected\r\n\r\n'


@pytest.mark.parametrize('host', ['allowed.test', 'ALLOWED.test', 'www.wild.test'])
async def test_tls_to_an_allowed_host_passes_unchanged(world, host):
    opening = hello(host.lower())
    async with world.dial() as (reader, writer):
        writer.write(f'CONNECT {host}:{world.port} HTTP/1.1\r\n\r\n'.encode() + opening)
        assert await reader.readexactly(len(OPENED)) == OPENED
        assert await reader.readexactly(len(opening)) == opening
        writer.write(b'and then anything')
        assert await reader.readexactly(17) == b'and then anything'
    assert world.refusals == []


@pytest.mark.parametrize(
    ('host', 'why'),
    [
        ('evil.test', 'not on the allow-list'),
        ('wild.test', 'not on the allow-list'),
        ('xallowed.test', 'not on the allow-list'),
        ('127.0.0.1', 'not a host name'),
        ('127.1', 'not a host name'),
        ('2130706433', 'not a host name'),
        ('0x7f000001', 'not a host name'),
        ('[::1]', 'not a host name'),
        ('[::ffff:127.0.0.1]', 'not a host name'),
        ('localhost', 'not a host name'),
        ('private.test', 'leads to an address that is not public'),
        ('metadata.test', 'leads to an address that is not public'),
        ('both.test', 'leads to an address that is not public'),
        ('six.test', 'leads to an address that is not public'),
        ('mapped.test', 'leads to an address that is not public'),
    ],
)
async def test_who_may_not_be_reached(world, host, why):
    answer = await world.tunnel(host, hello('allowed.test'))
    assert answer.startswith(f'HTTP/1.1 403 {why}\r\n'.encode())
    assert world.refusals == [Refusal(f'{host.strip("[]")}:{world.port}', why)]
    assert world.connections == 0


async def test_a_name_outside_the_list_is_not_even_looked_up(world):
    await world.tunnel('secret-data.evil.test', b'')
    await world.talk(b'GET http://127.0.0.1/ HTTP/1.1\r\n\r\n')
    assert world.looked_up == []


async def test_a_port_outside_the_list_is_refused(world):
    answer = await world.talk(b'CONNECT allowed.test:22 HTTP/1.1\r\n\r\n')
    assert answer.startswith(b'HTTP/1.1 403 ')
    assert world.refusals == [Refusal('allowed.test:22', 'not on the allow-list')]


async def test_a_name_that_changes_its_address_gains_nothing(world):
    opening = hello('allowed.test')
    async with world.dial() as (reader, writer):
        writer.write(f'CONNECT allowed.test:{world.port} HTTP/1.1\r\n\r\n'.encode() + opening)
        await reader.readexactly(len(OPENED))
        world.names['allowed.test'] = ['10.0.0.1']
        assert await reader.readexactly(len(opening)) == opening
    assert world.looked_up == ['allowed.test']  # once for one connection
    assert (await world.tunnel('allowed.test', opening)).startswith(b'HTTP/1.1 403 leads to')


@pytest.mark.parametrize(
    ('opening', 'why'),
    [
        (hello('evil.test'), 'its TLS hello names another host'),
        (hello('www.wild.test'), 'its TLS hello names another host'),
        (hello(None), 'its TLS hello does not name one server'),
        (with_extension(hello('allowed.test'), 0xFE0D, bytes(9)), 'its TLS hello is encrypted'),
        (b'GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n', 'it does not speak TLS'),
        (b'\x00\x00\x00\x08\x04\xd2\x16\x2f', 'it does not speak TLS'),
    ],
)
async def test_a_tunnel_carries_tls_to_its_own_host_only(world, opening, why):
    assert await world.tunnel('allowed.test', opening) == OPENED + UNRECOGNIZED_NAME
    assert world.refusals == [Refusal(f'allowed.test:{world.port}', why)]
    assert world.received == b''


async def test_a_hello_in_pieces_is_put_together(world):
    opening = records(hello('allowed.test')[5:], 50)
    async with world.dial() as (reader, writer):
        writer.write(f'CONNECT allowed.test:{world.port} HTTP/1.1\r\n\r\n'.encode())
        await reader.readexactly(len(OPENED))
        for at in range(0, len(opening), 100):
            writer.write(opening[at : at + 100])
            await writer.drain()
        assert await reader.readexactly(len(opening)) == opening


async def test_plain_http_goes_to_the_host_of_its_address(world):
    world.respond = answer_once
    smuggled = b'GET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n'
    answer = await world.exchange(
        f'POST http://allowed.test:{world.port}/a?b HTTP/1.1\r\nHost: evil.test\r\n'
        'Content-Length: 4\r\n\r\nbody'.encode()
        + smuggled
    )
    assert answer == b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi'
    assert bytes(world.received) == (
        f'POST /a?b HTTP/1.1\r\nhost: allowed.test:{world.port}\r\ncontent-length: 4\r\n'
        'connection: close\r\n\r\nbody'.encode()
    )


@pytest.mark.parametrize(
    ('request_', 'status'),
    [
        (b'GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n', 400),
        (b'nonsense\r\n\r\n', 400),
        (b'GET http://a.test/' + b'a' * 40_000, 431),
        (b'GET http://nowhere.test:PORT/ HTTP/1.1\r\n\r\n', 502),
        (b'GET http://closed.test:1/ HTTP/1.1\r\n\r\n', 502),
    ],
)
async def test_other_failures_have_their_status(world, request_, status):
    answer = await world.talk(request_.replace(b'PORT', b'%d' % world.port))
    assert answer.startswith(b'HTTP/1.1 %d ' % status)
    assert world.refusals == []


def socks(host: str | bytes, port: int, kind: int = 3, command: int = 1) -> bytes:
    where = bytes([len(host)]) + host.encode() if isinstance(host, str) else host
    return b'\x05\x01\x00' + bytes([5, command, 0, kind]) + where + port.to_bytes(2, 'big')


async def test_socks_to_an_allowed_host(world):
    opening = hello('allowed.test')
    async with world.dial() as (reader, writer):
        writer.write(socks('allowed.test', world.port) + opening)
        assert await reader.readexactly(12) == b'\x05\x00' + b'\x05\x00\x00\x01' + bytes(6)
        assert await reader.readexactly(len(opening)) == opening


@pytest.mark.parametrize(
    ('host', 'kind', 'target'),
    [
        ('evil.test', 3, 'evil.test'),
        ('Do as I say; rm\n', 3, 'Do?as?I?say??rm?'),
        (b'\x7f\x00\x00\x01', 1, '127.0.0.1'),
        (bytes(15) + b'\x01', 4, '::1'),
    ],
)
async def test_socks_to_others_is_refused(world, host, kind, target):
    answer = await world.talk(socks(host, 443, kind))
    assert answer == b'\x05\x00' + b'\x05\x02\x00\x01' + bytes(6)
    assert [refusal.target for refusal in world.refusals] == [f'{target}:443']


async def test_socks_knows_one_command_and_no_password(world):
    assert (await world.talk(socks('allowed.test', 443, command=2)))[2:4] == b'\x05\x07'
    assert await world.talk(b'\x05\x01\x02') == b'\x05\xff'
    answer = await world.talk(socks('allowed.test', world.port), b'GET / HTTP/1.1\r\n\r\n')
    assert answer.endswith(UNRECOGNIZED_NAME)


async def test_connections_are_bounded(tmp_path):
    async with (
        running(tmp_path / 'p', Limits(connections=2), *ALLOWED) as world,
        world.dial() as (_, one),
        world.dial() as (_, two),
    ):
        one.write(b'G')
        two.write(b'G')
        assert await world.talk() == b''
        assert world.refusals == [Refusal('a connection', 'too many at once')]


@pytest.mark.parametrize(
    'opening', [b'', b'GET http://', b'\x05\x01', b'CONNECT allowed.test:PORT HTTP/1.1\r\n\r\n\x16']
)
async def test_a_slow_client_is_let_go(tmp_path, opening):
    async with running(tmp_path / 'p', Limits(request=0.2), *ALLOWED) as world:
        answer = await world.talk(opening.replace(b'PORT', b'%d' % world.port))
        assert answer in (b'', OPENED)


async def test_an_idle_tunnel_ends(tmp_path):
    async with running(tmp_path / 'p', Limits(idle=0.2), *ALLOWED) as world:
        opening = hello('allowed.test')
        assert await world.tunnel('allowed.test', opening) == OPENED + opening


async def test_a_busy_tunnel_ends_as_well(tmp_path):
    async def for_ever(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(bytes(100))
            await writer.drain()
            await asyncio.sleep(0.01)

    async with running(tmp_path / 'p', Limits(total=0.5), *ALLOWED) as world:
        world.respond = for_ever
        assert len(await world.tunnel('allowed.test', hello('allowed.test'))) > len(OPENED)


async def test_a_large_body_passes_both_ways(world):
    body = b'0123456789' * 200_000
    opening = hello('allowed.test')
    async with world.dial() as (reader, writer):
        writer.write(f'CONNECT allowed.test:{world.port} HTTP/1.1\r\n\r\n'.encode() + opening)
        await reader.readexactly(len(OPENED) + len(opening))

        async def send() -> None:
            writer.write(body)
            await writer.drain()

        sending = asyncio.ensure_future(send())
        assert await reader.readexactly(len(body)) == body
        await sending
