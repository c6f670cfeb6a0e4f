"""AnthropicAPI against servers that refuse or misbehave: each fault has its typed outcome."""

from typing import Any

import pytest

from lagent.llms import (
    AnthropicAPI,
    AuthenticationFailed,
    BadReply,
    BadRequest,
    ContextOverflow,
    EmptyReply,
    ModelUnavailable,
    QuotaExhausted,
    RateLimited,
    StreamCut,
)

from .anthropic_replies import (
    TEXT,
    Serve,
    ask,
    begin,
    block,
    both_faces,
    ends,
    failure,
    last,
    stream,
    text_block,
    whole,
)
from .conftest import Reply, document


def test_a_refusal_without_a_text(serve: Serve) -> None:
    details = {'type': 'refusal', 'category': 'bio', 'explanation': 'not that'}
    reply = ask(AnthropicAPI, serve(whole(stop_reason='refusal', stop_details=details)))
    assert (reply, reply.finish_reason) == ('not that', 'refusal')
    server = serve(whole(stop_reason='refusal'))
    with pytest.raises(EmptyReply, match=r"finish_reason='refusal'.*It refused: ask"):
        ask(AnthropicAPI, server)
    assert len(server.requests) == 1


@pytest.mark.parametrize('thought', ['Hm', ''])
def test_a_reply_that_only_thinks_is_told_as_that(thought: str, serve: Serve) -> None:
    thinking = {'type': 'thinking', 'thinking': thought, 'signature': 's'}
    usage = {'input_tokens': 1, 'output_tokens': 8192}
    server = serve(whole(thinking, stop_reason='max_tokens', usage=usage))
    with pytest.raises(EmptyReply, match=r'^The model only reasoned .*raise max_new_tokens'):
        ask(AnthropicAPI, server)
    assert len(server.requests) == 1
    opening = {'type': 'thinking', 'thinking': '', 'signature': ''}
    delta = {'type': 'thinking_delta', 'thinking': thought}
    streamed = serve(stream(begin(), *block(0, opening, delta), *ends('end_turn')))
    with pytest.raises(EmptyReply, match=r'^The model only reasoned .*or ask again'):
        last(streamed)


def test_a_filter_is_told_apart(serve: Serve) -> None:
    text = 'Output blocked by content filtering policy'
    server = serve(failure(400, 'invalid_request_error', text))
    with pytest.raises(EmptyReply) as caught:
        ask(AnthropicAPI, server)
    assert (caught.value.finish_reason, len(server.requests)) == ('content_filter', 1)


@both_faces
@pytest.mark.parametrize(
    ('status', 'kind', 'text', 'error', 'asked'),
    [
        (401, 'authentication_error', 'invalid x-api-key', AuthenticationFailed, 1),
        (403, 'permission_error', 'no', AuthenticationFailed, 1),
        (400, 'invalid_request_error', 'max_tokens: too many', BadRequest, 1),
        (400, 'invalid_request_error', 'prompt is too long: 9 > 8', ContextOverflow, 1),
        (400, 'invalid_request_error', 'input exceeds context limit', ContextOverflow, 1),
        (400, 'invalid_request_error', 'Your credit balance is too low', QuotaExhausted, 1),
        (402, 'billing_error', 'no', QuotaExhausted, 1),
        (404, 'not_found_error', 'model: x', BadRequest, 1),
        (413, 'request_too_large', 'no', BadRequest, 1),
        (429, 'rate_limit_error', 'slow down', RateLimited, 3),
        (500, 'api_error', 'no', ModelUnavailable, 3),
        (529, 'overloaded_error', 'Overloaded', ModelUnavailable, 3),
    ],
)
def test_errors_are_typed(
    face: type, status: int, kind: str, text: str, error: type, asked: int, serve: Serve
) -> None:
    server = serve(failure(status, kind, text))
    with pytest.raises(error) as caught:
        ask(face, server)
    assert type(caught.value) is error
    assert len(server.requests) == asked
    if error is not QuotaExhausted:
        assert caught.value.status == status
        assert text in str(caught.value)


def test_an_attempt_that_failed_is_made_again(serve: Serve) -> None:
    server = serve(failure(429, 'rate_limit_error', retry_after='0.01'), whole(TEXT))
    reply = ask(AnthropicAPI, server)
    assert (reply, reply.usage.attempts) == ('hello', 2)


@pytest.mark.parametrize(
    ('kind', 'error'),
    [
        ('overloaded_error', ModelUnavailable),
        ('rate_limit_error', RateLimited),
        ('invalid_request_error', BadRequest),
    ],
)
def test_errors_inside_a_stream(kind: str, error: type, serve: Serve) -> None:
    event = {'type': 'error', 'error': {'type': kind, 'message': 'broken'}}
    with pytest.raises(error, match='broken') as caught:
        last(serve(stream(begin(), *text_block('par', 'tial'), event)))
    assert caught.value.partial == 'partial'


@both_faces
def test_a_server_that_says_nothing_is_not_waited_for(face: type, serve: Serve) -> None:
    with pytest.raises(ModelUnavailable, match='ReadTimeout'):
        ask(face, serve(Reply(hang=True)), settings={'retry': 1, 'read_timeout': 0.2})


def test_a_stream_that_breaks_off_is_no_reply(serve: Serve) -> None:
    server = serve(stream(begin(), *text_block('par', 'tial')))
    with pytest.raises(StreamCut) as caught:
        last(server)
    assert caught.value.partial == 'partial'
    assert len(server.requests) == 1
    cut = serve(stream(begin(), *text_block('x'), cut=True), stream(begin(), *text_block('y')))
    with pytest.raises(StreamCut):
        last(cut)


@both_faces
@pytest.mark.parametrize('noise', [Reply(pieces=[b'<html>busy']), document([1])])
def test_what_is_not_the_protocol_is_a_bad_reply(face: type, noise: Reply, serve: Serve) -> None:
    with pytest.raises(BadReply):
        ask(face, serve(noise))


@pytest.mark.parametrize('noise', [Reply(pieces=[b'<html>busy']), document({'choices': []})])
def test_what_came_instead_of_a_stream_is_told(noise: Reply, serve: Serve) -> None:
    server = serve(noise)
    with pytest.raises(
        BadReply, match=rf'^{server.base}/messages sent no reply of a model, .*base URL'
    ):
        last(server)


def test_a_whole_reply_to_who_asked_for_a_stream_is_the_reply(serve: Serve) -> None:
    reply = last(serve(whole(TEXT)))
    assert (reply, reply.finish_reason, reply.usage.completion_tokens) == ('hello', 'stop', 7)


@pytest.mark.parametrize(
    'fields',
    [
        {'content': None},
        {'content': 'x'},
        {'content': [None, 3, {'type': 'text', 'text': None}]},
        {'usage': {'input_tokens': 'many'}, 'content': []},
    ],
)
def test_fields_of_any_type(fields: dict[str, Any], serve: Serve) -> None:
    with pytest.raises(EmptyReply):
        ask(AnthropicAPI, serve(whole(**fields)), settings={'retry': 1})
