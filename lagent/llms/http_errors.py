"""What an error of an SDK, or one that a server reports, means to a caller."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

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
from lagent.utils.retry_after import parse_retry_after

_FILTERED = ('content_filter', 'content_policy_violation')  # codes, as of 2026, of two providers
_KEY_HEADERS = ('authorization', 'api-key', 'x-api-key')
_SHORTEST_KEY = 8  # characters; what is shorter is a word such as `EMPTY`, for servers without keys
_USER = re.compile(r'^([\w+.-]+://)?[^/?#]*@')
_MAX_SHOWN = 500  # characters of a server's error that go into ours


def typed_error(error: Any, sdk: Any) -> ModelCallFailed:
    """What an error of an SDK means to a caller.

    Args:
        error: the SDK's error.
        sdk: the SDK: openai, or another one made by the same generator.

    Returns:
        One of ours; the SDK's error becomes its cause.
    """
    where = shown_address(str(error.request.url))
    if isinstance(error, sdk.APITimeoutError):
        connecting = 'Connect' in type(error.__cause__).__name__
        setting = 'connect_timeout' if connecting else 'read_timeout'
        return ModelTimeout(f'{where} did not answer in time. Raise `{setting}` of the model.')
    if isinstance(error, sdk.APIConnectionError):
        return ModelUnavailable(f'No connection to {where} ({error.__cause__ or error}).')
    if isinstance(error, sdk.APIStatusError):
        headers = error.response.headers
        body = error.body
        if isinstance(body, dict) and isinstance(body.get('error'), dict | str):
            body = body['error']
        sent = error.request.headers
        return error_of_status(error.status_code, body, str(error), headers, sent)
    return ModelUnavailable(f'The call of the model failed: {error}')


def error_of_status(
    status: int | None,
    body: Any,
    text: str,
    headers: Mapping[str, str] | None = None,
    sent: Mapping[str, str] | None = None,
) -> ModelCallFailed:
    """What an error that a server reports means to a caller.

    Args:
        status: the HTTP status; None for an error inside a stream.
        body: the decoded error, as far as it could be decoded.
        text: the error in words.
        headers: the reply's headers.
        sent: the request's headers: a key in them is not told.

    Returns:
        The typed error.
    """
    retry_after = parse_retry_after((headers or {}).get('retry-after'))
    fields = body if isinstance(body, dict) else {}
    code = fields.get('code')
    if status is None and isinstance(code, int):
        status = code
    said = fields.get('message') or fields.get('detail') or (isinstance(body, str) and body) or text
    keys = [(sent or {}).get(name, '').removeprefix('Bearer ') for name in _KEY_HEADERS]
    told = '' if code in (None, status, str(status)) else code  # some repeat the status in it
    words = without_keys(f'{told} {said}'.strip(), keys)[:_MAX_SHOWN]
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
    if status == 404 or code == 'model_not_found':
        words += (
            " Check the model's name and the base URL: `lagent models --base-url URL` lists the "
            'models of an OpenAI-compatible server.'
        )
    return BadRequest(f'{prefix}{words}', status=status)


def without_keys(words: str, keys: Iterable[str]) -> str:
    """What a server says, without a key that it was sent and has repeated.

    Args:
        words: what it says.
        keys: what it was sent.

    Returns:
        The same, or with a mark in a key's place.
    """
    for key in keys:
        if len(key) >= _SHORTEST_KEY:
            words = words.replace(key, '[the key]')
    return words


def shown_address(url: str) -> str:
    """An address without what may be secret in it: the user, the password and the query.

    Args:
        url: the address.

    Returns:
        What can be told.
    """
    return _USER.sub(r'\1', url).partition('?')[0].partition('#')[0]
