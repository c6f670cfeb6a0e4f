"""The way to an OpenAI-compatible server: addresses, connections and typed errors."""

import email.utils
import importlib
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from lagent.errors import ConfigError
from lagent.llms.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextOverflow,
    EmptyReply,
    ModelCallFailed,
    ModelTimeout,
    ModelUnavailable,
    QuotaExhausted,
    RateLimited,
    is_overflow,
)
from lagent.llms.transport import Connections, bounded

if TYPE_CHECKING:
    import openai

_ENDPOINT = '/chat/completions'
_FILTERED = ('content_filter', 'content_policy_violation')  # codes, as of 2026, of two providers
_MAX_SHOWN = 500  # characters of a server's error that go into ours


class Server:
    """One server, and the connections to it.

    Args:
        url: where requests go; with or without ``/chat/completions``. A query is kept.
        proxies: a proxy's URL, or a dict from ``'http'`` and ``'https'`` to URLs.
        connect_timeout: seconds to reach it.
        read_timeout: seconds without a byte from it.
    """

    def __init__(
        self,
        url: str,
        *,
        proxies: str | dict[str, str] | None,
        connect_timeout: float,
        read_timeout: float,
    ) -> None:
        parts = urlsplit(url)
        base = parts.path.rstrip('/').removesuffix(_ENDPOINT)
        if parts.scheme not in ('http', 'https') or not parts.netloc:
            raise ConfigError(f'{url!r} is not the URL of a server, such as http://localhost/v1')
        self.base_url = urlunsplit((parts.scheme, parts.netloc, base, '', ''))
        self.url = urlunsplit((parts.scheme, parts.netloc, base + _ENDPOINT, parts.query, ''))
        self._query = dict(parse_qsl(parts.query))
        proxy = proxies.get(parts.scheme) if isinstance(proxies, dict) else proxies
        # Imported here, and not in a call: it takes a second, for which the loop would stand still.
        self._openai = importlib.import_module('openai')
        limits = self._openai.Timeout(read_timeout, connect=connect_timeout)
        self._connections = Connections(
            partial(_connect, self._openai, self.base_url, limits, proxy)
        )

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
        access = {'Authorization': f'Bearer {key}'}
        if org:
            access['OpenAI-Organization'] = org
        client = await self._connections.client()
        # A prompt is continued, messages are answered.
        kind, api = (
            ('prompt', client.completions)
            if 'prompt' in body
            else ('messages', client.chat.completions)
        )
        try:
            async with api.with_streaming_response.create(
                model=body['model'],
                **{kind: body[kind]},
                stream=body.get('stream', False),
                extra_body=body,
                extra_headers=access | headers,
                extra_query=self._query,
            ) as response:
                yield bounded(response.iter_bytes())
        except self._openai.APIError as error:
            raise typed_error(error, self._openai) from error


def _connect(sdk: Any, base_url: str, limits: Any, proxy: str | None) -> 'openai.AsyncOpenAI':
    client: openai.AsyncOpenAI = sdk.AsyncOpenAI(
        api_key='set for each request',
        base_url=base_url,
        max_retries=0,
        timeout=limits,
        http_client=sdk.DefaultAsyncHttpxClient(proxy=proxy) if proxy else None,
    )
    return client


def typed_error(error: Any, sdk: Any) -> ModelCallFailed:
    """What an error of an SDK means to a caller.

    Args:
        error: the SDK's error.
        sdk: the SDK: openai, or another one made by the same generator.

    Returns:
        One of ours; the SDK's error becomes its cause.
    """
    if isinstance(error, sdk.APITimeoutError):
        connecting = 'Connect' in type(error.__cause__).__name__
        setting = 'connect_timeout' if connecting else 'read_timeout'
        return ModelTimeout(
            f'{_address(error.request)} did not answer in time. Raise `{setting}` of the model.'
        )
    if isinstance(error, sdk.APIConnectionError):
        return ModelUnavailable(
            f'No connection to {_address(error.request)} ({error.__cause__ or error}).'
        )
    if isinstance(error, sdk.APIStatusError):
        headers = error.response.headers
        body = error.body
        if isinstance(body, dict) and isinstance(body.get('error'), dict):
            body = body['error']
        return error_of_status(error.status_code, body, str(error), headers)
    return ModelUnavailable(f'The call of the model failed: {error}')


def error_of_status(
    status: int | None, body: Any, text: str, headers: Mapping[str, str] | None = None
) -> ModelCallFailed:
    """What an error that a server reports means to a caller.

    Args:
        status: the HTTP status; None for an error inside a stream.
        body: the decoded error, as far as it could be decoded.
        text: the error in words.
        headers: the reply's headers.

    Returns:
        The typed error.
    """
    retry_after = parse_retry_after((headers or {}).get('retry-after'))
    fields = body if isinstance(body, dict) else {}
    code = fields.get('code')
    if status is None and isinstance(code, int):
        status = code
    words = f'{code or ""} {fields.get("message") or text}'.strip()[:_MAX_SHOWN]
    prefix = f'HTTP {status}: ' if status else 'The server broke off with an error: '
    if 'insufficient_quota' in (code, fields.get('type')):
        return QuotaExhausted(f'{prefix}{words}', status=status)
    if code in _FILTERED or 'content filtering policy' in words:
        return EmptyReply(
            f"{prefix}{words} The provider's filter took it: ask differently.",
            finish_reason='content_filter',
            status=status,
        )
    if status in (401, 403):
        return AuthenticationFailed(
            f'{prefix}{words} Check the API key, and that it belongs to this server.', status=status
        )
    if status == 429:
        asked = '' if retry_after is None else f' The server asks to wait {retry_after:g} s.'
        return RateLimited(f'{prefix}{words}{asked}', status=status, retry_after=retry_after)
    if is_overflow(words) and (status is None or status < 500):
        return ContextOverflow(
            f'{prefix}{words} Shorten the conversation, or lower max_new_tokens.', status=status
        )
    if status is None or status == 408 or status >= 500:
        return ModelUnavailable(f'{prefix}{words}', status=status, retry_after=retry_after)
    return BadRequest(f'{prefix}{words}', status=status)


def parse_retry_after(value: str | None, now: float | None = None) -> float | None:
    """Read a ``Retry-After`` header.

    Args:
        value: seconds, or an HTTP date.
        now: seconds since the epoch; the present when not given.

    Returns:
        Seconds to wait; None when there is nothing to wait for, or the value is nonsense.
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            until = email.utils.parsedate_to_datetime(value).timestamp()
        except (ValueError, OverflowError):
            return None
        seconds = until - (time.time() if now is None else now)
    return seconds if math.isfinite(seconds) and seconds > 0 else None


def _address(request: Any) -> str:
    """Where a request went, without the user and password that an address may hold."""
    return str(request.url.copy_with(userinfo=b''))
