"""GPTAPI and AsyncGPTAPI against servers that misbehave: each fault has its typed outcome."""

import asyncio
import inspect
import json
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from lagent.llms import (
    GPTAPI,
    AsyncGPTAPI,
    AuthenticationFailed,
    BadReply,
    BadRequest,
    ContextOverflow,
    EmptyReply,
    ModelCallFailed,
    ModelTimeout,
    ModelUnavailable,
    RateLimited,
    RetryPolicy,
    StreamCut,
    transport,
)

from .conftest import EVENTS, FakeServer, Reply, document, ends, events, failure, message

Serve = Callable[..., FakeServer]
ASK = [{'role': 'user', 'content': 'q'}]
QUICK = RetryPolicy(attempts=3, base=0.001, total=20)


def chat(face: type, url: str, retry: RetryPolicy | int = QUICK, **settings: Any) -> Any:
    reply = face('m', retry, key='k', api_base=url, **settings).chat(ASK)
    return asyncio.run(_await(reply)) if inspect.isawaitable(reply) else reply


async def _await(awaitable: Any) -> Any:
    return await awaitable


both_faces = pytest.mark.parametrize('face', [GPTAPI, AsyncGPTAPI])


@both_faces
def test_retry_after_is_waited_for(face: type, serve: Serve) -> None:
    server = serve(failure(429, retry_after='1'), message('ok'))
    started = time.monotonic()
    reply = chat(face, server.url, RetryPolicy(base=0.001))
    assert reply == 'ok'
    assert 1.0 <= time.monotonic() - started < 10
    assert len(server.requests) == 2
    assert reply.usage.attempts == 2


@both_faces
def test_a_long_retry_after_is_an_error_with_the_number(face: type, serve: Serve) -> None:
    server = serve(failure(429, retry_after='3600'))
    with pytest.raises(RateLimited) as caught:
        chat(face, server.url)
    assert caught.value.retry_after == 3600
    assert len(server.requests) == 1


@pytest.mark.parametrize('value', ['0', 'soon', ''])
def test_nonsense_in_retry_after_means_our_own_wait(value: str, serve: Serve) -> None:
    server = serve(failure(429, retry_after=value), message('ok'))
    assert chat(GPTAPI, server.url) == 'ok'


@both_faces
@pytest.mark.parametrize('status', [408, 429, 500, 502, 503])
def test_passing_trouble_is_retried_within_the_budget(
    face: type, status: int, serve: Serve
) -> None:
    server = serve(failure(status), failure(status), message('ok'))
    assert chat(face, server.url) == 'ok'
    server = serve(failure(status))
    with pytest.raises(ModelCallFailed) as caught:
        chat(face, server.url)
    assert (caught.value.status, caught.value.attempts) == (status, 3)
    assert len(server.requests) == 3


@both_faces
@pytest.mark.parametrize(
    'body',
    [
        {'error': 'no room here'},
        {'detail': 'no room here'},
        {'detail': [{'loc': ['body'], 'msg': 'no room here'}]},
        {'error': {'message': 'no room here'}},
    ],
)
def test_the_servers_reason_is_told(face: type, body: Any, serve: Serve) -> None:
    server = serve(document(body, status=422))
    with pytest.raises(BadRequest, match=r'HTTP 422: .*no room here'):
        chat(face, server.url)


@both_faces
def test_a_key_that_the_server_repeats_is_not_told(face: type, serve: Serve) -> None:
    key = 'sk-secret-0123456789'
    server = serve(failure(401, 'invalid_api_key', f'Incorrect API key provided: Bearer {key}'))
    llm = face('m', QUICK, key=key, api_base=server.url)
    with pytest.raises(AuthenticationFailed) as caught:
        reply = llm.chat(ASK)
        if inspect.isawaitable(reply):
            asyncio.run(_await(reply))
    assert 'Incorrect API key provided: Bearer [the key]' in str(caught.value)
    assert key not in str(caught.value)


@both_faces
@pytest.mark.parametrize(
    ('reply', 'kind'),
    [
        (failure(400, None, 'bad'), BadRequest),
        (failure(400, 'context_length_exceeded'), ContextOverflow),
        (document({'error': {'message': 'bad', 'code': 400}}), BadRequest),
    ],
)
def test_a_refused_request_is_not_repeated(
    face: type, reply: Reply, kind: type, serve: Serve
) -> None:
    server = serve(reply)
    with pytest.raises(kind):
        chat(face, server.url)
    assert len(server.requests) == 1


@both_faces
def test_connection_errors_use_up_the_attempts(face: type) -> None:
    with socket.socket() as closed:
        closed.bind(('127.0.0.1', 0))
        port = closed.getsockname()[1]
        with pytest.raises(ModelUnavailable, match='No connection') as caught:
            chat(face, f'http://127.0.0.1:{port}/v1')
    assert caught.value.attempts == 3
    assert caught.value.__cause__ is not None


@both_faces
@pytest.mark.parametrize('finish_reason', ['stop', None])
def test_an_empty_reply_is_repeated_once(
    face: type, finish_reason: str | None, serve: Serve
) -> None:
    server = serve(message(None, finish_reason))
    with pytest.raises(EmptyReply) as caught:
        chat(face, server.url)
    assert len(server.requests) == 2
    assert caught.value.finish_reason == finish_reason
    assert caught.value.usage.prompt_tokens == 22  # both attempts are paid for


def test_a_filtered_reply_is_not_repeated(serve: Serve) -> None:
    server = serve(message(None, 'content_filter'))
    with pytest.raises(EmptyReply, match='filter'):
        chat(GPTAPI, server.url)
    assert len(server.requests) == 1


@both_faces
@pytest.mark.parametrize(
    'noise',
    [
        Reply(pieces=[b'{"choices": [']),
        Reply(pieces=[b'[' * 100_000]),
        Reply(pieces=[b'<html>busy</html>'], content_type='text/html'),
        Reply(pieces=[]),
        document([1, 2]),
        document('text'),
    ],
)
def test_what_is_not_the_protocol_is_a_bad_reply(face: type, noise: Reply, serve: Serve) -> None:
    server = serve(noise)
    with pytest.raises(BadReply):
        chat(face, server.url)
    assert len(server.requests) == 3


def test_the_content_type_may_be_wrong(serve: Serve) -> None:
    reply = message('x')
    reply.content_type = 'text/plain'
    assert chat(GPTAPI, serve(reply).url) == 'x'


def test_a_reply_cannot_grow_without_end(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, '_MAX_REPLY', 100_000)
    with pytest.raises(BadReply, match='larger than 100000 bytes'):
        chat(GPTAPI, serve(message('x' * 200_000)).url, retry=1)
    endless = Reply(pieces=[b'data: '] + [b'x' * 50_000] * 4, content_type=EVENTS)
    with pytest.raises(BadReply, match='larger than'):
        list(GPTAPI('m', 1, key='k', api_base=serve(endless).url).stream_chat(ASK))


@both_faces
def test_a_body_that_breaks_off_is_retried(face: type, serve: Serve) -> None:
    server = serve(Reply(pieces=[b'{"choices":'], cut=True), message('ok'))
    assert chat(face, server.url) == 'ok'


@both_faces
def test_a_server_that_hangs_costs_the_read_timeout(face: type, serve: Serve) -> None:
    server = serve(Reply(pieces=[b'{'], hang=True))
    with pytest.raises(ModelUnavailable, match=r'ReadTimeout.*`read_timeout`'):
        chat(face, server.url, retry=1, read_timeout=0.1)


@both_faces
def test_a_server_that_never_answers_is_named_with_the_setting_that_ended_it(face: type) -> None:
    with socket.create_server(('127.0.0.1', 0)) as silent:
        url = f'http://127.0.0.1:{silent.getsockname()[1]}/v1'
        with pytest.raises(ModelTimeout, match=rf'{url}.* not answer in time.*`read_timeout`'):
            chat(face, url, retry=1, read_timeout=0.2)


@both_faces
def test_the_whole_call_has_a_deadline(face: type, serve: Serve) -> None:
    server = serve(Reply(pieces=[b'{'], hang=True))
    with pytest.raises(ModelTimeout, match='2 s') as caught:
        chat(face, server.url, RetryPolicy(attempts=5, total=2))
    assert isinstance(caught.value, TimeoutError)
    assert len(server.requests) == 1


@both_faces
def test_a_slow_drip_cannot_outlast_the_deadline(face: type, serve: Serve) -> None:
    # Each byte is in time for the read timeout; only the whole call is not.
    drip = {'pieces': [b' '] * 1000, 'pause': 0.02}
    for content_type in ('application/json', EVENTS):
        server = serve(Reply(content_type=content_type, **drip))
        with pytest.raises(ModelTimeout, match='2 s'):
            chat(face, server.url, RetryPolicy(attempts=5, total=2), read_timeout=10)
        assert len(server.requests) == 1


@both_faces
def test_a_reply_of_thirty_megabytes_is_not_read_to_its_end(face: type, serve: Serve) -> None:
    huge = message('x' * 30 * 2**20)
    [whole] = huge.pieces
    huge.pieces = [whole[at : at + 2**20] for at in range(0, len(whole), 2**20)]
    with pytest.raises(BadReply, match='larger than 16777216 bytes'):
        chat(face, serve(huge).url, retry=1)


CODE = ["```python\nimport os\nos.remove('a.txt')\n```\n", 'But first ']


@pytest.mark.parametrize('cut', [True, False])
def test_a_cut_stream_is_an_error_with_the_partial_text(cut: bool, serve: Serve) -> None:
    server = serve(events(*CODE, done=False, cut=cut))
    seen = []
    with pytest.raises(StreamCut) as caught:
        for _, text, _ in GPTAPI('m', QUICK, key='k', api_base=server.url).stream_chat(ASK):
            seen.append(text)
    assert caught.value.partial == ''.join(CODE)
    assert seen == [CODE[0], ''.join(CODE)]
    assert len(server.requests) == 1, 'nothing is repeated once text was handed out'


PAGE = '<!doctype html>\n<title>Sign in</title>' + '<p>word</p>' * 1000
INSTEAD = [
    (Reply(pieces=[PAGE.encode()], content_type='text/html'), r"a web page: '<!doctype html>"),
    (Reply(pieces=[PAGE.encode()], content_type=EVENTS), r"a web page: '<!doctype html>"),
    (Reply(pieces=[b'It works\n'], content_type='text/plain'), "but 'It works'"),
    (document({'detail': 'sk-secret-key'}), r"""but '{"detail": "\[the key\]"}'"""),
    (document([1, 2]), r"but '\[1, 2\]'"),
    (Reply(pieces=[b' \n']), 'but nothing'),
]


@pytest.mark.parametrize('streamed', [True, False])
@pytest.mark.parametrize(('reply', 'told'), INSTEAD)
def test_what_came_instead_of_a_reply_is_told(
    reply: Reply, told: str, streamed: bool, serve: Serve
) -> None:
    server = serve(reply)
    llm = GPTAPI('m', 1, key='sk-secret-key', api_base=server.url.replace('//', '//me:word@'))
    with pytest.raises(BadReply, match=rf'^{server.url} sent no reply of a model, .*{told}') as no:
        list(llm.stream_chat(ASK)) if streamed else llm.chat(ASK)
    assert 'Check that the base URL' in str(no.value)
    assert len(str(no.value)) < 600


def test_a_whole_reply_to_who_asked_for_a_stream_is_the_reply(serve: Serve) -> None:
    whole = message('said at once')
    whole.pieces = [json.dumps(json.loads(whole.pieces[0]), indent=2).encode()]
    server = serve(whole)
    *_, (_, reply, _) = GPTAPI('m', 1, key='k', api_base=server.url).stream_chat(ASK)
    assert server.requests[0]['stream'] is True
    assert (reply, reply.finish_reason, reply.usage.completion_tokens) == (
        'said at once',
        'stop',
        7,
    )


def test_a_stream_to_who_asked_for_a_whole_reply_is_the_reply(serve: Serve) -> None:
    assert chat(GPTAPI, serve(events('in ', 'pieces', ends())).url) == 'in pieces'
    with pytest.raises(StreamCut) as caught:
        chat(GPTAPI, serve(events(*CODE, done=False)).url, retry=1)
    assert caught.value.partial == ''.join(CODE)


def test_an_error_to_who_asked_for_a_stream_is_told(serve: Serve) -> None:
    server = serve(document({'error': {'message': 'worker died', 'code': 500}}))
    with pytest.raises(ModelUnavailable, match='worker died'):
        list(GPTAPI('m', 1, key='k', api_base=server.url).stream_chat(ASK))


def test_a_stream_cut_before_its_first_token_is_repeated(serve: Serve) -> None:
    server = serve(events(done=False, cut=True), events('x', ends()))
    *_, (_, text, _) = GPTAPI('m', QUICK, key='k', api_base=server.url).stream_chat(ASK)
    assert text == 'x'


def test_a_stream_is_begun_again_when_asked_for(serve: Serve) -> None:
    server = serve(events('wrong', done=False, cut=True), events('right', ends()))
    policy = RetryPolicy(attempts=2, base=0.001, after_first_token=True)
    chunks = list(GPTAPI('m', policy, key='k', api_base=server.url).stream_chat(ASK))
    assert [text for _, text, _ in chunks] == ['wrong', 'right', 'right']


def test_what_follows_the_end_mark_does_not_matter(serve: Serve) -> None:
    reply = events('x', ends())
    reply.pieces.append(b'data: {"choices": "noise"')
    reply.cut = True
    *_, (_, text, _) = GPTAPI('m', 1, key='k', api_base=serve(reply).url).stream_chat(ASK)
    assert text == 'x'


def test_an_error_inside_a_stream(serve: Serve) -> None:
    broken = events('x', {'error': {'message': 'worker died', 'code': 500}}, done=False)
    with pytest.raises(ModelUnavailable, match='worker died') as caught:
        list(GPTAPI('m', 1, key='k', api_base=serve(broken).url).stream_chat(ASK))
    assert caught.value.partial == 'x'


def test_invalid_json_inside_a_stream(serve: Serve) -> None:
    broken = Reply(pieces=[b'data: {"choices": [\n\n'], content_type=EVENTS)
    with pytest.raises(BadReply, match='not JSON'):
        list(GPTAPI('m', 1, key='k', api_base=serve(broken).url).stream_chat(ASK))


async def test_a_cancelled_call_leaves_nothing_behind(serve: Serve) -> None:
    server = serve(events('x', hang=True, done=False))
    llm = AsyncGPTAPI('m', key='k', api_base=server.url)
    stream = llm.stream_chat(ASK)
    assert (await anext(stream))[1] == 'x'
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


def test_one_failed_dialog_fails_the_batch_with_its_own_error(serve: Serve) -> None:
    server = serve(lambda body: failure(400, None, body['messages'][0]['content']))
    with pytest.raises(BadRequest, match='q'):
        GPTAPI('m', key='k', api_base=server.url).chat([ASK, ASK])
