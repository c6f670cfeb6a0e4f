"""The egress proxy: HTTP, CONNECT and SOCKS 5 on one socket, for the hosts of an allow-list.

A host is looked up once, every address found is checked, and a checked address is connected to, so
a name that leads elsewhere a moment later changes nothing. A tunnel carries TLS to the host it was
asked for, and plain HTTP goes one request at a time to the host in its address: neither can be
used to talk to somebody else behind the same address.
"""

import asyncio
import contextlib
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

from sandbox.egress import address, hello
from sandbox.egress.allowlist import Allowlist, host_name
from sandbox.egress.request import MAX_HEAD, BadRequest, Request, parse_request

Resolver = Callable[[str, int], Awaitable[list[str]]]
Judge = Callable[[str], bool]

_CHUNK = 64 * 1024
_SOCKS, _NO_PASSWORD, _CONNECT, _DOMAIN = 5, 0, 1, 3
_ODD = re.compile('[^A-Za-z0-9._:-]')


@dataclass(frozen=True)
class Limits:
    """What one sandbox may take of its proxy.

    Attributes:
        connections: Connections at a time; one more is closed at once.
        request: Seconds in which a client has to say what it wants.
        connect: Seconds for the name service, and for each address.
        idle: Seconds in which some byte has to pass.
        total: Seconds that a connection may last.
    """

    connections: int = 64
    request: float = 10.0
    connect: float = 10.0
    idle: float = 120.0
    total: float = 3600.0


class Refusal(NamedTuple):
    """An attempt that was refused: where to, as the client wrote it, and why."""

    target: str
    why: str


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


class _Stream(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class EgressServer:
    """The proxy of one sandbox.

    Args:
        allow: What may be reached.
        report: Called with every attempt that is refused.
        resolve: Returns the addresses of a host.
        permits: Tells whether an address may be connected to.
        limits: How much the sandbox may take.
    """

    def __init__(
        self,
        allow: Allowlist,
        report: Callable[[Refusal], None],
        *,
        resolve: Resolver | None = None,
        permits: Judge = address.permits,
        limits: Limits = Limits(),
    ) -> None:
        self._allow, self._report, self._permits, self._limits = allow, report, permits, limits
        self._resolve = resolve or look_up
        self._open: set[asyncio.Task[None]] = set()

    async def serve(self, listener: socket.socket) -> None:
        """Serve until cancelled, and close what is open then.

        Args:
            listener: A listening unix socket; it is closed at the end.
        """
        server = await asyncio.start_server(self._accept, sock=listener, limit=MAX_HEAD)
        try:
            async with server:
                await server.serve_forever()
        finally:
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= self._limits.connections:
            self._report(Refusal('a connection', 'too many at once'))
            writer.close()
            return
        task = asyncio.ensure_future(self._handle(_Stream(reader, writer)))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _handle(self, client: _Stream) -> None:
        try:
            # What a broken connection or a slow one raises is no news to anybody.
            with contextlib.suppress(OSError, EOFError, TimeoutError):
                async with asyncio.timeout(self._limits.total):
                    await self._converse(client)
                    await _linger(client)
        finally:
            await _close(client)

    async def _converse(self, client: _Stream) -> None:
        async with asyncio.timeout(self._limits.request):
            first = await client.reader.readexactly(1)
            socks = first[0] == _SOCKS
            request = await (_read_socks(client) if socks else _read_http(client, first))
        answer = _answer_socks if socks else _answer_http
        if request is None:
            return
        try:
            upstream = await self._dial(request)
        except _Refused as refused:
            if refused.status is HTTPStatus.FORBIDDEN:
                self._report(Refusal(_target(request), refused.why))
            await answer(client, refused.status, refused.why)
            return
        try:
            await self._connect(client, upstream, request, answer)
        finally:
            await _close(upstream)

    # The way out

    async def _dial(self, request: Request) -> _Stream:
        if (name := host_name(request.host)) is None:
            raise _Refused(HTTPStatus.FORBIDDEN, 'not a host name')
        if not self._allow.permits(name, request.port):
            raise _Refused(HTTPStatus.FORBIDDEN, 'not on the allow-list')
        try:
            async with asyncio.timeout(self._limits.connect):
                found = await self._resolve(name, request.port)
        except (OSError, TimeoutError, UnicodeError):
            found = []
        if not found:
            raise _Refused(HTTPStatus.BAD_GATEWAY, 'The name has no address')
        if not all(map(self._permits, found)):
            raise _Refused(HTTPStatus.FORBIDDEN, 'leads to an address that is not public')
        for each in found:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._limits.connect):
                    return _Stream(*await _open(each, request.port))
        raise _Refused(HTTPStatus.BAD_GATEWAY, 'The host does not answer')

    async def _connect(
        self, client: _Stream, upstream: _Stream, request: Request, answer: '_Answer'
    ) -> None:
        if request.head is not None:
            upstream.writer.write(request.head)
            await self._relay(client, upstream, request.body)
            return
        await answer(client, HTTPStatus.OK, 'Connected')
        try:
            async with asyncio.timeout(self._limits.request):
                opening = await _read_hello(client, request)
        except hello.BadHello as error:
            self._report(Refusal(_target(request), str(error)))
            client.writer.write(hello.UNRECOGNIZED_NAME)
            return
        upstream.writer.write(opening)
        await self._relay(client, upstream, None)

    async def _relay(self, client: _Stream, upstream: _Stream, body: int | None) -> None:
        """Carry bytes both ways until the host has said all, or nothing passes any more.

        Args:
            client: Inside.
            upstream: Outside.
            body: Bytes to carry outwards, and what is more is dropped; all if None.
        """
        loop = asyncio.get_running_loop()
        passed = loop.time()

        async def pump(source: _Stream, target: _Stream, left: int | None) -> None:
            nonlocal passed
            while data := await source.reader.read(_CHUNK):
                if left is not None:
                    data, left = data[:left], max(0, left - len(data))
                target.writer.write(data)
                await target.writer.drain()
                passed = loop.time()
            target.writer.write_eof()

        outwards = asyncio.ensure_future(pump(client, upstream, body))
        inwards = asyncio.ensure_future(pump(upstream, client, None))
        try:
            while not inwards.done() and (idle := loop.time() - passed) < self._limits.idle:
                await asyncio.wait({inwards}, timeout=self._limits.idle - idle)
        finally:
            outwards.cancel()
            inwards.cancel()
            await asyncio.gather(outwards, inwards, return_exceptions=True)


async def look_up(host: str, port: int) -> list[str]:
    """Return the addresses of a host, from the system's resolver."""
    # With the dot it is the full name, and no search domain of this machine is tried.
    found = await asyncio.get_running_loop().getaddrinfo(f'{host}.', port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def _open(where: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    ipaddress.ip_address(where)  # a number, so nothing is looked up again
    return await asyncio.open_connection(where, port, limit=_CHUNK)


async def _read_hello(client: _Stream, request: Request) -> bytes:
    """Read up to the end of a ClientHello that names the host of the request."""
    data = b''
    while (name := hello.server_name(data)) is None:
        more = await client.reader.read(hello.MAX_HELLO - len(data))
        if not more:
            raise EOFError
        data += more
    if host_name(name) != host_name(request.host):
        raise hello.BadHello('its TLS hello names another host')
    return data


# Protocols

_Answer = Callable[[_Stream, HTTPStatus, str], Awaitable[None]]


async def _read_http(client: _Stream, first: bytes) -> Request | None:
    try:
        return parse_request(first + await client.reader.readuntil(b'\r\n\r\n'))
    except asyncio.LimitOverrunError:
        status, why = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, 'The request is too long'
    except BadRequest as error:
        status, why = error.status, error.why
    await _answer_http(client, status, why)
    return None


async def _answer_http(client: _Stream, status: HTTPStatus, why: str) -> None:
    lines = [f'HTTP/1.1 {status.value} {why}']
    text = b''
    if status is not HTTPStatus.OK:
        text = f'The network proxy of this sandbox: {why}.\n'.encode('ascii')
        lines += ['Content-Type: text/plain', f'Content-Length: {len(text)}', 'Connection: close']
    client.writer.write('\r\n'.join([*lines, '', '']).encode('ascii') + text)
    await client.writer.drain()


async def _read_socks(client: _Stream) -> Request | None:
    (count,) = await client.reader.readexactly(1)
    accepted = _NO_PASSWORD in await client.reader.readexactly(count)
    client.writer.write(bytes([_SOCKS, _NO_PASSWORD if accepted else 0xFF]))
    if not accepted:
        return None
    version, command, _, kind = await client.reader.readexactly(4)
    if version != _SOCKS or command != _CONNECT:
        client.writer.write(_socks_reply(7))
        return None
    if kind == _DOMAIN:
        (length,) = await client.reader.readexactly(1)
        host = (await client.reader.readexactly(length)).decode('latin-1')
    else:
        raw = await client.reader.readexactly(4 if kind == 1 else 16)
        host = str(ipaddress.ip_address(raw))
    return Request(host, int.from_bytes(await client.reader.readexactly(2), 'big'))


async def _answer_socks(client: _Stream, status: HTTPStatus, _: str) -> None:
    codes = {HTTPStatus.OK: 0, HTTPStatus.FORBIDDEN: 2}
    client.writer.write(_socks_reply(codes.get(status, 4)))
    await client.writer.drain()


def _socks_reply(code: int) -> bytes:
    return bytes([_SOCKS, code, 0, 1, *bytes(6)])


def _target(request: Request) -> str:
    # People and models read this: no room for words of the code's own.
    return f'{_ODD.sub("?", request.host[:80])}:{request.port}'


async def _linger(client: _Stream) -> None:
    """Let a client that is still sending read the answer: to close now would take it away."""
    client.writer.write_eof()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            while await client.reader.read(_CHUNK):
                pass


async def _close(stream: _Stream) -> None:
    stream.writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(1.0):
            await stream.writer.wait_closed()
