"""AnthropicAPI and AsyncAnthropicAPI against a server that replays the Messages protocol."""

import asyncio
import inspect
import json
from collections.abc import Callable
from contextlib import nullcontext
from typing import Annotated, Any

import pytest

from lagent.actions import ActionExecutor, BaseAction, tool_api
from lagent.agents import Agent
from lagent.agents.aggregator import ToolCallAggregator
from lagent.effects import Event, subscribe
from lagent.errors import ConfigError, ExtraMissing
from lagent.llms import (
    AnthropicAPI,
    AsyncAnthropicAPI,
    AsyncClaudeAPI,
    AuthenticationFailed,
    BadReply,
    BadRequest,
    ClaudeAPI,
    Completion,
    ContextOverflow,
    EmptyReply,
    ModelUnavailable,
    QuotaExhausted,
    RateLimited,
    RetryPolicy,
    StreamCut,
    ToolCall,
    Usage,
)
from lagent.prompts.parsers import ToolCallParser
from lagent.schema import ModelStatusCode

from .conftest import EVENTS, FakeServer, Reply, document

Serve = Callable[..., FakeServer]
ASK = [{'role': 'user', 'content': 'q'}]
FAST = RetryPolicy(attempts=3, base=0.001, cap=0.001)
MODEL = 'claude-test'
TEXT = {'type': 'text', 'text': ' hello\n'}
CALL = {'type': 'tool_use', 'id': 'c1', 'name': 'python', 'input': {'code': '1'}}

both_faces = pytest.mark.parametrize('face', [AnthropicAPI, AsyncAnthropicAPI])


def whole(*content: dict[str, Any], stop_reason: str = 'end_turn', **fields: Any) -> Reply:
    said = {
        'id': 'msg_1',
        'type': 'message',
        'role': 'assistant',
        'model': MODEL,
        'content': content,
        'stop_reason': stop_reason,
        'stop_sequence': None,
        'usage': {
            'input_tokens': 11,
            'output_tokens': 7,
            'cache_creation_input_tokens': 2,
            'cache_read_input_tokens': 5,
            'output_tokens_details': {'thinking_tokens': 3},
        },
    }
    return document({**said, **fields})


def failure(status: int, kind: str, text: str = 'no', **headers: str) -> Reply:
    return document({'type': 'error', 'error': {'type': kind, 'message': text}}, status, **headers)


def begin(**usage: int) -> dict[str, Any]:
    usage = {'input_tokens': 4, 'output_tokens': 1, **usage}
    said = {'id': 'msg_1', 'type': 'message', 'role': 'assistant', 'content': []}
    return {'type': 'message_start', 'message': {**said, 'stop_reason': None, 'usage': usage}}


def block(index: int, opening: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {'type': 'content_block_start', 'index': index, 'content_block': opening},
        *({'type': 'content_block_delta', 'index': index, 'delta': delta} for delta in deltas),
        {'type': 'content_block_stop', 'index': index},
    ]


def text_block(*pieces: str, index: int = 0) -> list[dict[str, Any]]:
    deltas = [{'type': 'text_delta', 'text': piece} for piece in pieces]
    return block(index, {'type': 'text', 'text': ''}, *deltas)


def ends(stop_reason: str = 'end_turn', stop_sequence: str | None = None) -> list[dict[str, Any]]:
    delta = {'stop_reason': stop_reason, 'stop_sequence': stop_sequence}
    return [
        {'type': 'message_delta', 'delta': delta, 'usage': {'output_tokens': 9}},
        {'type': 'message_stop'},
    ]


def stream(*events: dict[str, Any], **fields: Any) -> Reply:
    pieces = [f'event: {e["type"]}\ndata: {json.dumps(e)}\n\n'.encode() for e in events]
    return Reply(pieces=pieces, content_type=EVENTS, **fields)


def ask(face: type, server: FakeServer, *args: Any, **kwargs: Any) -> Any:
    settings = {'key': 'k', 'base_url': server.base, 'retry': FAST, **kwargs.pop('settings', {})}
    reply = face(MODEL, **settings).chat(*args or (ASK,), **kwargs)
    return asyncio.run(_await(reply)) if inspect.isawaitable(reply) else reply


async def _await(awaitable: Any) -> Any:
    return await awaitable


def key_of(server: FakeServer) -> str:
    """The key of the last request, wherever the SDK's version puts it."""
    headers = server.headers[-1]
    return headers.get('x-api-key') or headers['authorization'].removeprefix('Bearer ')


def last(server: FakeServer, **settings: Any) -> Completion:
    llm = AnthropicAPI(MODEL, key='k', base_url=server.base, retry=FAST, **settings)
    *_, (state, reply, extra) = llm.stream_chat(ASK, session_id=3)
    assert (state, extra) == (ModelStatusCode.END, None)
    assert type(reply) is Completion
    return reply


@both_faces
def test_a_reply_with_what_the_server_said_about_it(face: type, serve: Serve) -> None:
    thinking = {'type': 'thinking', 'thinking': 'hm', 'signature': 's'}
    server = serve(whole(thinking, TEXT))
    reply = ask(face, server)
    assert type(reply) is Completion
    assert (reply, reply.finish_reason, reply.reasoning) == ('hello', 'stop', 'hm')
    assert reply.usage == Usage(18, 7, cached_tokens=5, reasoning_tokens=3)
    assert reply.latency is not None
    assert server.paths == ['/v1/messages']
    assert key_of(server) == 'k'
    assert server.requests[0] == {
        'model': MODEL,
        'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': 'q'}]}],
        'max_tokens': 8192,
        'stream': False,
    }


@pytest.mark.parametrize(
    ('arguments', 'sent'),
    [
        ('[1]', {'arguments': [1]}),
        ('3', {'arguments': 3}),
        ('[' * 100_000, {'arguments': '[' * 100_000}),
        ('', {}),
    ],
    ids=['list', 'number', 'nested', 'none'],
)
def test_arguments_that_are_no_object_are_sent_in_one(
    arguments: str, sent: dict[str, Any], serve: Serve
) -> None:
    server = serve(whole(TEXT))
    call = {'id': 'c1', 'function': {'name': 'add', 'arguments': arguments}}
    dialog = [
        {'role': 'assistant', 'content': '', 'tool_calls': [call]},
        {'role': 'tool', 'tool_call_id': 'c1', 'content': '3'},
    ]
    ask(AnthropicAPI, server, [*ASK, *dialog])
    assert server.requests[0]['messages'][1]['content'][-1]['input'] == sent


@both_faces
def test_a_dialog_in_the_words_of_the_protocol(face: type, serve: Serve) -> None:
    server = serve(whole(TEXT))
    image = {'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,QUJD'}}
    remote = {'type': 'image_url', 'image_url': 'https://h/x.jpg'}
    call = {'id': 'c1', 'function': {'name': 'add', 'arguments': '{"a": 1}'}}
    broken = {'id': 'c2', 'function': {'name': 'add', 'arguments': '{"a"'}}
    dialog = [
        {'role': 'system', 'content': 'be brief'},
        {'role': 'user', 'content': [{'type': 'text', 'text': 'look'}, image, remote]},
        {'role': 'assistant', 'content': '', 'tool_calls': [call, broken]},
        {'role': 'tool', 'tool_call_id': 'c1', 'content': '3'},
        {'role': 'tool', 'tool_call_id': 'c2', 'content': ''},
        {'role': 'environment', 'content': {'rows': 2}, 'name': 'table'},
        {'role': 'assistant', 'content': 'So: \n'},
    ]
    ask(face, server, dialog, stop_words=['STOP', '\n'], temperature=0, session_id=3)
    request = server.requests[0]
    assert request['system'] == [{'type': 'text', 'text': 'be brief'}]
    assert request['stop_sequences'] == ['STOP']
    assert request['temperature'] == 0
    assert not {'session_id', 'repetition_penalty', 'skip_special_tokens'} & request.keys()
    source = {'type': 'base64', 'media_type': 'image/png', 'data': 'QUJD'}
    assert request['messages'] == [
        {
            'role': 'user',
            'content': [
                {'type': 'text', 'text': 'look'},
                {'type': 'image', 'source': source},
                {'type': 'image', 'source': {'type': 'url', 'url': 'https://h/x.jpg'}},
            ],
        },
        {
            'role': 'assistant',
            'content': [
                {'type': 'tool_use', 'id': 'c1', 'name': 'add', 'input': {'a': 1}},
                {'type': 'tool_use', 'id': 'c2', 'name': 'add', 'input': {'arguments': '{"a"'}},
            ],
        },
        {
            'role': 'user',
            'content': [
                {
                    'type': 'tool_result',
                    'tool_use_id': 'c1',
                    'content': [{'type': 'text', 'text': '3'}],
                },
                {'type': 'tool_result', 'tool_use_id': 'c2', 'content': []},
                {'type': 'text', 'text': '{"rows": 2}'},
            ],
        },
        {'role': 'assistant', 'content': [{'type': 'text', 'text': 'So:'}]},
    ]


@both_faces
def test_tools_of_both_formats(face: type, serve: Serve) -> None:
    server = serve(whole(TEXT, CALL, stop_reason='tool_use'))
    schema = {'type': 'object', 'properties': {'code': {'type': 'string'}}}
    function = {'name': 'python', 'description': 'run', 'parameters': schema}
    native = {'name': 'search', 'input_schema': {'type': 'object'}}
    reply = ask(
        face,
        server,
        ASK,
        tools=[{'type': 'function', 'function': function}, native],
        tool_choice='required',
    )
    assert server.requests[0]['tools'] == [
        {'name': 'python', 'description': 'run', 'input_schema': schema},
        native,
    ]
    assert server.requests[0]['tool_choice'] == {'type': 'any'}
    assert (reply, reply.finish_reason) == ('hello', 'tool_calls')
    assert reply.tool_calls == (ToolCall('c1', 'python', '{"code": "1"}'),)


def test_streaming(serve: Serve) -> None:
    thinks = {'type': 'thinking_delta', 'thinking': 'hm'}
    signed = {'type': 'signature_delta', 'signature': 's'}
    server = serve(
        stream(
            begin(cache_read_input_tokens=6),
            *block(0, {'type': 'thinking', 'thinking': ''}, thinks, signed),
            {'type': 'ping'},
            *text_block('Hel', 'lo', index=1),
            *ends(),
        )
    )
    llm = AnthropicAPI(MODEL, key='k', base_url=server.base)
    *chunks, (_, reply, _) = llm.stream_chat(ASK, session_id=5)
    assert chunks == [(ModelStatusCode.STREAM_ING, text, None) for text in ('Hel', 'Hello')]
    assert (reply, reply.finish_reason, reply.reasoning) == ('Hello', 'stop', 'hm')
    assert reply.usage == Usage(10, 9, cached_tokens=6)
    assert server.requests[0]['stream'] is True


def test_streamed_tool_calls(serve: Serve) -> None:
    pieces = [{'type': 'input_json_delta', 'partial_json': p} for p in ('', '{"co', 'de": "1"}')]
    none = {'type': 'input_json_delta', 'partial_json': ''}
    second = {**CALL, 'id': 'c2', 'name': 'now', 'input': {}}
    server = serve(
        stream(
            begin(),
            *block(0, {**CALL, 'input': {}}, *pieces),
            *block(1, second, none),
            *ends('tool_use'),
        )
    )
    reply = last(server)
    assert (reply, reply.finish_reason) == ('', 'tool_calls')
    assert reply.tool_calls == (
        ToolCall('c1', 'python', '{"code": "1"}'),
        ToolCall('c2', 'now', '{}'),
    )


THOUGHT = {'type': 'thinking', 'thinking': 'first add', 'signature': 'sig'}
HIDDEN = {'type': 'redacted_thinking', 'data': 'opaque'}


@pytest.mark.parametrize('form', ['openai', 'anthropic'])
@pytest.mark.parametrize('streamed', [True, False])
def test_signed_thoughts_go_back_with_the_calls(form: Any, streamed: bool, serve: Serve) -> None:
    asked = {**CALL, 'name': 'Sums-add', 'input': {'a': 41}}
    pieces = [
        {'type': 'thinking_delta', 'thinking': 'first '},
        {'type': 'thinking_delta', 'thinking': 'add'},
        {'type': 'signature_delta', 'signature': 'sig'},
    ]
    events = stream(
        begin(),
        *block(0, {'type': 'thinking', 'thinking': '', 'signature': ''}, *pieces),
        *block(1, HIDDEN),
        *block(
            2, {**asked, 'input': {}}, {'type': 'input_json_delta', 'partial_json': '{"a": 41}'}
        ),
        *ends('tool_use'),
    )
    first = events if streamed else whole(THOUGHT, HIDDEN, asked, stop_reason='tool_use')
    last_one = stream(begin(), *text_block('42'), *ends()) if streamed else whole(TEXT)
    server = serve(first, last_one)
    agent = Agent(
        AnthropicAPI(MODEL, key='k', base_url=server.base),
        output_format=ToolCallParser(),
        aggregator=ToolCallAggregator(form),
    )
    executor = ActionExecutor(Sums())
    with subscribe(lambda event: None) if streamed else nullcontext():
        reply = agent('41 + 1?', thinking={'type': 'enabled', 'budget_tokens': 1024})
        assert reply.content.reasoning == 'first add'
        assert reply.content.thinking_blocks == (THOUGHT, HIDDEN)
        saved = json.loads(json.dumps(agent.state_dict()))
        agent.load_state_dict(saved)
        agent(executor(reply), thinking={'type': 'enabled', 'budget_tokens': 1024})
    assert server.requests[1]['messages'][1]['content'] == [THOUGHT, HIDDEN, asked]
    assert server.requests[1]['thinking'] == {'type': 'enabled', 'budget_tokens': 1024}


def test_a_thought_without_its_signature_stays_here(serve: Serve) -> None:
    thinks = {'type': 'thinking_delta', 'thinking': 'hm'}
    opening = {'type': 'thinking', 'thinking': ''}
    reply = last(serve(stream(begin(), *block(0, opening, thinks), *text_block('x'), *ends())))
    assert (reply.reasoning, reply.thinking_blocks) == ('hm', ())


def test_a_stop_word_that_the_server_does_not_take_ends_the_stream(serve: Serve) -> None:
    server = serve(stream(begin(), *text_block('one\n', 'two'), hang=True))
    reply = last(server, stop_words=['\n'])
    assert (reply, reply.finish_reason, reply.stop_reason) == ('one', 'stop', '\n')
    assert 'stop_sequences' not in server.requests[0]


@pytest.mark.parametrize(
    ('reason', 'finish_reason'),
    [
        ('max_tokens', 'length'),
        ('model_context_window_exceeded', 'length'),
        ('stop_sequence', 'stop'),
        ('refusal', 'refusal'),
        ('pause_turn', 'pause_turn'),
    ],
)
def test_why_a_reply_ended(reason: str, finish_reason: str, serve: Serve) -> None:
    assert ask(AnthropicAPI, serve(whole(TEXT, stop_reason=reason))).finish_reason == finish_reason
    assert last(serve(stream(begin(), *text_block('x'), *ends(reason)))).finish_reason == (
        finish_reason
    )


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
def test_a_listener_gets_the_reply_as_it_arrives(face: type, serve: Serve) -> None:
    heard: list[Event] = []
    with subscribe(heard.append):
        reply = ask(face, serve(stream(begin(), *text_block('Hel', 'lo'), *ends())))
    assert reply == 'Hello'
    assert [e.data for e in heard if e.type == 'delta'] == ['Hel', 'lo']
    assert {(e.effect.kind, e.effect.name) for e in heard} == {('model', MODEL)}


@both_faces
def test_a_batch_comes_back_in_order(face: type, serve: Serve) -> None:
    server = serve(lambda body: whole({**TEXT, **body['messages'][0]['content'][0]}))
    dialogs = [[{'role': 'user', 'content': word}] for word in 'abcdef']
    assert ask(face, server, dialogs) == list('abcdef')


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


def test_keys_take_turns_and_those_without_credit_go(serve: Serve) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        broke = key_of(server) == 'broke'
        return failure(402, 'billing_error') if broke else whole(TEXT)

    server = serve(answer)
    settings = {'key': ['broke', 'rich'], 'retry': 1}
    assert ask(AnthropicAPI, server, [ASK, ASK, ASK], settings=settings) == ['hello'] * 3


def test_connections_are_used_again(serve: Serve) -> None:
    server = serve(whole(TEXT), stream(begin(), *text_block('y'), *ends()), whole(TEXT))
    llm = AnthropicAPI(MODEL, key='k', base_url=server.base)
    assert [llm.chat(ASK), [*llm.stream_chat(ASK)][-1][1], llm.chat(ASK)] == ['hello', 'y', 'hello']
    assert len(server.connections) == 1


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match='ANTHROPIC_API_KEY'):
        AnthropicAPI()
    monkeypatch.setenv('Claude_API_KEY', 'old')
    assert ClaudeAPI().keys == ['old']
    monkeypatch.setenv('ANTHROPIC_API_KEY', 'new')
    monkeypatch.setenv('ANTHROPIC_AUTH_TOKEN', 'never sent')
    llm = AnthropicAPI()
    assert (llm.keys, llm.url) == (['new'], 'https://api.anthropic.com/v1/messages')
    monkeypatch.setenv('ANTHROPIC_BASE_URL', 'http://h:1/v1/')
    assert AnthropicAPI(key=['a', 'b']).url == 'http://h:1/v1/messages'
    with pytest.raises(ConfigError, match='not the URL'):
        AnthropicAPI(base_url='localhost')


def test_the_token_of_the_environment_is_not_sent(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('ANTHROPIC_AUTH_TOKEN', 'never sent')
    server = serve(whole(TEXT))
    ask(AnthropicAPI, server)
    assert key_of(server) == 'k'
    assert not any('never sent' in value for value in server.headers[0].values())


def test_without_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__('sys').modules, 'anthropic', None)
    with pytest.raises(ExtraMissing, match=r'lagent-sandbox\[anthropic\]'):
        AnthropicAPI(key='k')


def test_both_faces_have_the_same_methods() -> None:
    assert (ClaudeAPI, AsyncClaudeAPI) == (AnthropicAPI, AsyncAnthropicAPI)
    for name in ('chat', 'stream_chat', 'generate_request_data', '__init__'):
        faces = [inspect.signature(getattr(f, name)) for f in (AnthropicAPI, AsyncAnthropicAPI)]
        assert list(faces[0].parameters.values()) == list(faces[1].parameters.values())


class Sums(BaseAction):
    """Adds."""

    @tool_api
    def add(self, a: Annotated[int, 'first'], b: int = 1):  # type: ignore[no-untyped-def]
        """Add two numbers."""
        return a + b


@pytest.mark.parametrize('form', ['openai', 'anthropic'])
def test_a_round_of_native_calls(form: Any, serve: Serve) -> None:
    asked = {**CALL, 'name': 'Sums-add', 'input': {'a': 41}}
    server = serve(whole(TEXT, asked, stop_reason='tool_use'), whole(TEXT))
    agent = Agent(
        AnthropicAPI(MODEL, key='k', base_url=server.base),
        output_format=ToolCallParser(),
        aggregator=ToolCallAggregator(form),
    )
    executor = ActionExecutor(Sums())
    tools = executor.openai_tools() if form == 'openai' else executor.anthropic_tools()
    reply = agent('41 + 1?', tools=tools)
    reply = agent(executor(reply), tools=tools)
    assert reply.content == 'hello'
    first, second = server.requests
    assert first['tools'][0]['name'] == 'Sums-add'
    assert first['tools'][0]['input_schema']['required'] == ['a']
    _, said, answered = second['messages']
    assert said['content'] == [{'type': 'text', 'text': 'hello'}, asked]
    [result] = answered['content']
    assert (result['type'], result['tool_use_id']) == ('tool_result', 'c1')
    assert result['content'] in ('42', [{'type': 'text', 'text': '42'}])


def test_max_tokens_is_called_max_new_tokens(serve: Serve) -> None:
    with pytest.raises(NotImplementedError, match='max_new_tokens'):
        ask(AnthropicAPI, serve(whole(TEXT)), ASK, max_tokens=3)
