"""The way to a server through the SDK of whoever made its protocol."""

import importlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import SplitResult, urlsplit

from lagent.errors import ConfigError
from lagent.llms.errors import ModelCallFailed
from lagent.llms.http_errors import shown_address, typed_error
from lagent.llms.transport import Connections, bounded


class SdkServer:
    """One server, and the connections to it. A subclass says how it is called.

    Args:
        base_url: where it is, as its SDK wants to be told.
        sdk: the SDK: openai, or another one made by the same generator.
        client: name of its class of clients.
        proxies: a proxy's URL, or a dict from ``'http'`` and ``'https'`` to URLs.
        connect_timeout: seconds to reach it.
        read_timeout: seconds without a byte from it.
    """

    def __init__(
        self,
        base_url: str,
        sdk: Any,
        client: str,
        *,
        proxies: str | dict[str, str] | None,
        connect_timeout: float,
        read_timeout: float,
    ) -> None:
        self.base_url = base_url
        scheme = urlsplit(base_url).scheme
        proxy = proxies.get(scheme) if isinstance(proxies, dict) else proxies
        self._settings = sdk.__name__, client, connect_timeout, read_timeout, proxy
        self._prepare()

    def _prepare(self) -> None:
        name, client, connecting, reading, proxy = self._settings
        self._sdk: Any = importlib.import_module(name)
        limits = self._sdk.Timeout(reading, connect=connecting)
        connect = partial(_connect, self._sdk, client, self.base_url, limits, proxy)
        self._connections = Connections(connect)

    def __getstate__(self) -> dict[str, Any]:
        mine = ('_sdk', '_connections')  # a copy opens its own
        return {name: value for name, value in self.__dict__.items() if name not in mine}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    @asynccontextmanager
    async def post(
        self, body: dict[str, Any], headers: dict[str, str], key: str, org: str | None
    ) -> AsyncIterator[AsyncGenerator[bytes]]:
        """Ask for a reply.

        Args:
            body: the request.
            headers: its headers, apart from the key.
            key: the API key.
            org: the organization, if any.

        Yields:
            The body of the reply, in pieces as they arrive.

        Raises:
            ModelCallFailed: there is no reply; the subclass says why.
        """
        client = await self._connections.client()
        try:
            async with self._call(client, body, headers, key, org) as response:
                yield bounded(response.iter_bytes())
        except self._sdk.APIError as error:
            raise self._typed(error) from error

    async def close(self) -> None:
        """Close the connections; a later request opens them again."""
        await self._connections.close()

    def _call(
        self, client: Any, body: dict[str, Any], headers: dict[str, str], key: str, org: str | None
    ) -> AbstractAsyncContextManager[Any]:
        """The SDK's call, which gives its response before the body was read."""
        raise NotImplementedError

    def _typed(self, error: Any) -> ModelCallFailed:
        return typed_error(error, self._sdk)


def split_url(url: str, example: str) -> SplitResult:
    """The parts of a server's URL.

    Args:
        url: the URL.
        example: one that would do.

    Returns:
        Its parts.

    Raises:
        ConfigError: it is none.
    """
    parts = urlsplit(url)
    if parts.scheme not in ('http', 'https') or not parts.netloc:
        raise ConfigError(f'{shown_address(url)!r} is not the URL of a server, such as {example}')
    return parts


def _connect(sdk: Any, client: str, base_url: str, limits: Any, proxy: str | None) -> Any:
    return getattr(sdk, client)(
        api_key='set for each request',
        base_url=base_url,
        max_retries=0,
        timeout=limits,
        http_client=sdk.DefaultAsyncHttpxClient(proxy=proxy) if proxy else None,
    )
