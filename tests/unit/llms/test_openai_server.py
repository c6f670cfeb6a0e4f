"""Addresses, keys, and what a server's errors mean."""

from typing import Any

import pytest

from lagent.errors import ConfigError
from lagent.llms import (
    AuthenticationFailed,
    BadRequest,
    ContextOverflow,
    EmptyReply,
    ModelUnavailable,
    QuotaExhausted,
    RateLimited,
    keys,
)
from lagent.llms.http_errors import error_of_status, shown_address
from lagent.llms.keys import KeyRing
from lagent.llms.openai_server import OpenAIServer


@pytest.mark.parametrize(
    ('given', 'url'),
    [
        ('http://h:1/v1', 'http://h:1/v1/chat/completions'),
        ('http://h:1/v1/', 'http://h:1/v1/chat/completions'),
        ('http://h:1/v1/chat/completions', 'http://h:1/v1/chat/completions'),
        ('https://h/chat/completions?api-version=2', 'https://h/chat/completions?api-version=2'),
    ],
)
def test_urls(given: str, url: str) -> None:
    assert OpenAIServer(given, proxies=None, connect_timeout=1, read_timeout=1).url == url


@pytest.mark.parametrize('given', ['', 'localhost:8000', 'ftp://h', 'h/v1'])
def test_what_is_no_url_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match='not the URL'):
        OpenAIServer(given, proxies=None, connect_timeout=1, read_timeout=1)


def free(key: str) -> float:
    """No key is held back."""
    return 0


NO_QUOTA = QuotaExhausted('no credit, see billing.example', status=402)


def test_keys_take_turns_and_those_without_quota_come_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ring = KeyRing(['a', 'b', 'c'], ['o'])
    turns = [ring.next(free, {}) for _ in range(4)]
    assert turns == [('a', 'o'), ('b', 'o'), ('c', 'o'), ('a', 'o')]
    ring.pass_over('a')
    assert sorted(ring.next(free, {})[0] for _ in range(4)) == ['b', 'b', 'c', 'c']
    ring.pass_over('b')
    assert [ring.next(free, {})[0] for _ in range(2)] == ['c', 'c']
    # Where all others were refused, it is asked again; its owner may have paid meanwhile.
    assert {ring.next(free, {'c': NO_QUOTA})[0] for _ in range(4)} == {'a', 'b'}
    monkeypatch.setattr(keys, '_PASSED_OVER', 0)
    ring.pass_over('a')
    assert {ring.next(free, {})[0] for _ in range(4)} == {'a', 'c'}


def test_without_any_quota_the_providers_words_are_told() -> None:
    for names, said in (
        (['a', 'b'], 'None of the 2 API keys has any quota left. no credit, see billing.example'),
        (['a'], 'The API key has no quota left. no credit, see billing.example'),
    ):
        with pytest.raises(QuotaExhausted) as caught:
            KeyRing(names).next(free, dict.fromkeys(names, NO_QUOTA))
        assert str(caught.value) == said
        assert (caught.value.status, caught.value.__cause__) == (402, NO_QUOTA)


def test_a_key_keeps_its_organization_when_another_one_goes_first() -> None:
    ring = KeyRing(['a', 'b'], ['x', 'y'])
    holds = {'a': 5.0, 'b': 0.0}
    assert [ring.next(holds.__getitem__, {}) for _ in range(2)] == [('b', 'y')] * 2
    ring.pass_over('b')
    assert ring.next(holds.__getitem__, {}) == ('a', 'x')


def test_a_key_that_is_held_back_comes_last() -> None:
    ring = KeyRing(['a', 'b', 'c'])
    waits = {'a': 5, 'b': 0, 'c': 2}
    assert [ring.next(waits.__getitem__, {})[0] for _ in range(3)] == ['b', 'b', 'b']
    waits['b'] = 9
    assert ring.next(waits.__getitem__, {})[0] == 'c'


@pytest.mark.parametrize(
    ('status', 'body', 'kind', 'retryable'),
    [
        (400, {'message': 'bad value'}, BadRequest, False),
        (404, {'message': 'no such model'}, BadRequest, False),
        (400, {'code': 'context_length_exceeded'}, ContextOverflow, False),
        (400, {'message': 'the maximum context length is 2048 tokens'}, ContextOverflow, False),
        (401, {}, AuthenticationFailed, False),
        (403, None, AuthenticationFailed, False),
        (408, {}, ModelUnavailable, True),
        (429, {}, RateLimited, True),
        (429, {'code': 'insufficient_quota'}, QuotaExhausted, False),
        (429, {'type': 'insufficient_quota'}, QuotaExhausted, False),
        (500, 'text', ModelUnavailable, True),
        (529, {}, ModelUnavailable, True),
        (None, {'message': 'worker died'}, ModelUnavailable, True),
        (None, {'code': 400, 'message': 'bad'}, BadRequest, False),
        (None, {'code': 429}, RateLimited, True),
    ],
)
def test_errors_are_typed(status: int | None, body: Any, kind: type, retryable: bool) -> None:
    error = error_of_status(status, body, 'words')
    assert type(error) is kind
    assert isinstance(error, RuntimeError)
    assert error.retryable is retryable


@pytest.mark.parametrize(
    'body',
    [
        {'code': 'content_filter', 'message': 'The prompt triggered the policy.'},
        {'code': 'content_policy_violation', 'message': 'no'},
        {'type': 'invalid_request_error', 'message': 'Output blocked by content filtering policy'},
    ],
)
def test_a_filter_that_refuses_a_request_is_told_apart(body: Any) -> None:
    error = error_of_status(400, body, 'text')
    assert isinstance(error, EmptyReply)
    assert (error.finish_reason, error.status, error.retryable) == ('content_filter', 400, False)


@pytest.mark.parametrize(
    ('status', 'code'), [(404, None), (404, 'model_not_found'), (400, 'model_not_found')]
)
def test_a_model_that_a_server_does_not_have_is_told_where_to_look_for(
    status: int, code: str | None
) -> None:
    error = error_of_status(status, {'message': 'no model `x`', 'code': code}, '')
    assert str(error).startswith(f'HTTP {status}: ')
    assert 'no model `x` Check' in str(error)
    assert '`lagent models --base-url URL`' in str(error)
    assert '`lagent models' not in str(error_of_status(400, {'message': 'bad'}, ''))


@pytest.mark.parametrize(
    ('url', 'shown'),
    [
        ('http://host:80/v1', 'http://host:80/v1'),
        ('https://me:w%40rd@host/v1?key=secret#part', 'https://host/v1'),
        ('http://me@you@host', 'http://host'),
        ('http://host/at@home', 'http://host/at@home'),
        ('me:word@host/v1', 'host/v1'),
        ('', ''),
    ],
)
def test_an_address_is_shown_without_secrets(url: str, shown: str) -> None:
    assert shown_address(url) == shown


def test_a_servers_words_are_shown_but_not_without_end() -> None:
    error = error_of_status(400, {'message': 'x' * 10_000}, '')
    assert 'x' * 100 in str(error)
    assert len(str(error)) < 1_000


@pytest.mark.parametrize('code', [404, '404', None])
def test_a_status_is_not_told_twice(code: Any) -> None:
    assert str(error_of_status(404, {'message': 'no', 'code': code}, '')).startswith('HTTP 404: no')


def test_a_wait_is_kept_as_a_number() -> None:
    error = error_of_status(429, {}, 'slow', {'retry-after': '3600'})
    assert error.retry_after == 3600
    assert '3600 s' in str(error)
