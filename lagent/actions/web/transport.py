"""Connections to addresses that were checked: what was checked is what is connected to."""

import contextlib
import ssl
from collections.abc import AsyncIterator, Iterable
from functools import cache

import httpcore
import httpx

from lagent.actions.web.address import AddressGuard
from lagent.actions.web.errors import Unreachable

_PATIENCE = 3.0  # seconds for an address when there is another one to try


@cache
def tls_context() -> ssl.SSLContext:
    """The context of all connections; making one reads all certificates."""
    return httpx.create_ssl_context()


class GuardedTransport(httpx.AsyncBaseTransport):
    """Connects only where a guard permits.

    Every connection is made here, those for redirects too. TLS still checks the host's name.

    Args:
        guard: says which addresses may be connected to.
    """

    def __init__(self, guard: AddressGuard) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls_context(), network_backend=_GuardedBackend(guard)
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request.

        Args:
            request: the request.

        Returns:
            The response, its body not read yet.
        """
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        response = await self._pool.handle_async_request(
            httpcore.Request(
                request.method,
                url,
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(response.status, headers=response.headers, stream=_Body(response))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


class _Body(httpx.AsyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._response.aiter_stream()

    async def aclose(self) -> None:
        await self._response.aclose()


class _GuardedBackend(httpcore.AsyncNetworkBackend):
    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self._network = httpcore.AnyIOBackend()
        self._connect = self._network.connect_tcp

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the interface's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        *others, last = await self._guard.resolve(host, port)
        for address in others:
            with contextlib.suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                patience = min(timeout or _PATIENCE, _PATIENCE)
                return await self._connect(address, port, patience, local_address, socket_options)
        try:
            return await self._connect(last, port, timeout, local_address, socket_options)
        except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            raise Unreachable(f'{host} could not be connected to.') from error

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - the interface's
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        raise NotImplementedError('only hosts on a network are connected to')

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)
