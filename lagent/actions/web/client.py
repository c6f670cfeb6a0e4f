"""One HTTP client for all tools: everything it does is bounded, and its errors are typed."""

import asyncio
import json
import logging
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpcore
import httpx

from lagent.actions.web.address import AddressGuard
from lagent.actions.web.body import ENCODINGS, read_body
from lagent.actions.web.errors import (
    BadAddress,
    BadReply,
    HttpFailed,
    TooLarge,
    Unreachable,
    WebError,
    WebTimeout,
)
from lagent.actions.web.transport import GuardedTransport, tls_context
from lagent.context import current_context
from lagent.utils.retry_after import parse_retry_after
from lagent.version import __version__

logger = logging.getLogger(__name__)

USER_AGENT = f'Mozilla/5.0 (compatible; lagent/{__version__})'

_CAP = 15.0  # seconds that a wait of our own choice may have
_MAX_RETRY_AFTER = 20.0  # seconds that a server may ask for; a longer wait is an error at once
_MAX_URL = 8_000  # characters
_TOO_MANY = 'it leads elsewhere more often than is followed'
_ERROR_BYTES, _SAID_CHARS = 65_536, 300  # of an error page: read, and shown


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpLimits:
    """What one request may use.

    Attributes:
        timeout: seconds of one attempt, redirects and body included.
        attempts: attempts in all; only failures that may pass are tried again.
        max_bytes: size of a body, packed and unpacked.
        max_redirects: redirects that are followed.
        backoff: seconds before the second attempt, about; doubled for each one after it.
    """

    timeout: float = 10.0
    attempts: int = 2
    max_bytes: int = 4 * 1024 * 1024
    max_redirects: int = 0
    backoff: float = 0.5

    def __post_init__(self) -> None:
        if self.timeout <= 0 or self.attempts < 1 or self.max_bytes < 1 or self.max_redirects < 0:
            raise ValueError(f'a request needs time, an attempt and some bytes, got {self}')


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with a status of success.

    Attributes:
        url: where it came from, after redirects.
        content_type: the header ``Content-Type``; may be empty.
        body: the unpacked body.
    """

    url: str
    content_type: str
    body: bytes

    def json(self) -> dict[str, Any]:
        """The body as a JSON object.

        Raises:
            BadReply: it is none.
        """
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise BadReply(f'{_place(self.url)} did not answer with JSON.') from error
        if not isinstance(value, dict):
            raise BadReply(f'{_place(self.url)} did not answer with a JSON object.')
        return value


class HttpClient:
    """Asks a server, within limits.

    With a guard it is for URLs that a model wrote: only public addresses are connected to, each
    redirect is checked like the first URL, and proxies of the environment are not used. Without
    one it is for the endpoints of services, which whoever runs the program has chosen.

    Args:
        limits: what one request may use.
        guard: says which addresses may be connected to.
        proxy: URL of a proxy, or a dict from ``'https'`` or ``'http'`` to one. A guard then
            checks the hosts before the proxy is asked, as far as they can be resolved here.
    """

    def __init__(
        self,
        limits: HttpLimits,
        *,
        guard: AddressGuard | None = None,
        proxy: str | Mapping[str, str] | None = None,
    ) -> None:
        self.limits, self.guard = limits, guard
        self._proxy = _proxy_url(proxy)

    async def get(
        self,
        url: str,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Fetch a URL.

        Args:
            url: the URL.
            params: its query; entries that are None are left out.
            headers: headers of the request.

        Returns:
            The answer.

        Raises:
            WebError: there is none; the subclass says why.
            LimitExceeded: the run's time is over.
        """
        params = {key: value for key, value in (params or {}).items() if value is not None}
        return await self._request('GET', url, params=params or None, headers=headers)

    async def post(self, url: str, content: Any, headers: Mapping[str, str] | None = None) -> Reply:
        """Ask with a JSON document. The request may be made more than once.

        Args:
            url: the URL.
            content: bytes of a document, or a value to be written as one.
            headers: headers of the request.

        Returns:
            The answer.

        Raises:
            WebError: there is none; the subclass says why.
            LimitExceeded: the run's time is over.
        """
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        headers = {'Content-Type': 'application/json'} | dict(headers or {})
        return await self._request('POST', url, content=body, headers=headers)

    async def _request(self, method: str, url: str, **request: Any) -> Reply:
        attempt = 0
        while True:
            attempt += 1
            try:
                async with self._within_time(url):
                    return await self._attempt(method, url, request)
            except WebError as error:
                wait = self._wait_after(error, attempt)
                if wait is None:
                    raise
                logger.info('attempt %d failed (%s); the next one in %.1f s', attempt, error, wait)
            await asyncio.sleep(wait)

    def _wait_after(self, error: WebError, attempt: int) -> float | None:
        if not error.retryable or attempt >= self.limits.attempts:
            return None
        if isinstance(error, HttpFailed) and error.retry_after is not None:
            return None if error.retry_after > _MAX_RETRY_AFTER else error.retry_after
        wait = min(_CAP, self.limits.backoff * 2.0 ** min(attempt - 1, 10))
        # Not all who failed together come back together.
        return wait * (0.5 + random.random() / 2)  # noqa: S311

    @asynccontextmanager
    async def _within_time(self, url: str) -> AsyncIterator[None]:
        run, left = current_context(), self.limits.timeout
        if run is not None:
            run.check()
            if run.deadline is not None:
                left = min(left, run.deadline - time.monotonic())
        try:
            async with asyncio.timeout(max(left, 0)):
                yield
        except TimeoutError as error:
            if run is not None:
                run.check()
            raise WebTimeout(
                f'{_place(url)} did not answer within {self.limits.timeout:g} s.'
            ) from error

    async def _attempt(self, method: str, url: str, request: dict[str, Any]) -> Reply:
        try:
            async with self._connections() as client:
                asked = client.build_request(method, url, **request)
                hops = 0
                while True:
                    await self._check(asked.url)
                    response = await client.send(asked, stream=True)
                    try:
                        if response.next_request is None:
                            return await self._read(response)
                        hops += 1
                        if hops > self.limits.max_redirects:
                            raise HttpFailed(response.status_code, _place(url), _TOO_MANY)
                    finally:
                        await response.aclose()
                    asked = response.next_request
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpcore.UnsupportedProtocol) as error:
            raise BadAddress(f'This is not the URL of a page: {error}') from error
        except (httpx.TimeoutException, httpcore.TimeoutException) as error:
            raise WebTimeout(f'{_place(url)} did not answer in time.') from error
        except (httpx.HTTPError, *_CONNECTION_ERRORS) as error:
            name = type(error).__name__
            raise Unreachable(f'{_place(url)} could not be asked ({name}).') from error

    def _connections(self) -> httpx.AsyncClient:
        # A client for each attempt: connections belong to the loop that opened them, and tools
        # are called from any loop. The context of TLS, which is what costs time, is shared.
        headers = {'User-Agent': USER_AGENT, 'Accept-Encoding': ENCODINGS}
        timeout = self.limits.timeout
        if self.guard is not None and self._proxy is None:
            transport = GuardedTransport(self.guard)
            return httpx.AsyncClient(
                transport=transport, trust_env=False, headers=headers, timeout=timeout
            )
        return httpx.AsyncClient(
            proxy=self._proxy, verify=tls_context(), headers=headers, timeout=timeout
        )

    async def _check(self, url: httpx.URL) -> None:
        if url.scheme not in ('http', 'https') or not url.host or not 0 < (url.port or 80) < 65_536:
            raise BadAddress(
                'Only URLs of the form http://host/... or https://host/... can be fetched.'
            )
        if len(str(url)) > _MAX_URL:
            raise BadAddress(f'A URL may have {_MAX_URL} characters.')
        if self.guard is None:
            return
        if url.userinfo:
            raise BadAddress('A URL with a user name or password in it is not fetched.')
        if self._proxy is not None:
            try:
                await self.guard.resolve(url.host, url.port or 443)
            except Unreachable:
                logger.debug('%s is resolved by the proxy alone', url.host)

    async def _read(self, response: httpx.Response) -> Reply:
        place = _place(str(response.url))
        encoding = response.headers.get('content-encoding', '')
        if response.is_success:
            body = await read_body(response.aiter_raw(), encoding, self.limits.max_bytes)
            kind = response.headers.get('content-type', '')
            return Reply(str(response.url), kind, body)
        try:
            said = await read_body(response.aiter_raw(), encoding, _ERROR_BYTES)
        except (TooLarge, BadReply):
            said = b''
        raise HttpFailed(
            response.status_code,
            place,
            _said(said, response.headers.get('content-type', '')),
            parse_retry_after(response.headers.get('retry-after')),
        )


_CONNECTION_ERRORS = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    OSError,
)


def _proxy_url(proxy: str | Mapping[str, str] | None) -> str | None:
    if isinstance(proxy, Mapping):
        return proxy.get('https') or proxy.get('http')
    return proxy


def _place(url: str) -> str:
    """The host of a URL: the rest may hold keys."""
    try:
        return httpx.URL(url).host or 'The server'
    except httpx.InvalidURL:
        return 'The server'


def _said(body: bytes, content_type: str) -> str:
    # An error page in HTML says nothing that the status doesn't.
    if 'html' in content_type:
        return ''
    text = ' '.join(body.decode('utf-8', 'replace').split())
    return text if len(text) <= _SAID_CHARS else f'{text[:_SAID_CHARS]}...'
