"""AnthropicAPI and AsyncAnthropicAPI against a server that replays the Messages protocol."""

import inspect
import json
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
    ClaudeAPI,
    Completion,
    ToolCall,
    Usage,
)
from lagent.prompts.parsers import ToolCallParser
from lagent.schema import ModelStatusCode

from .anthropic_replies import (
    ASK,
    CALL,
    MODEL,
    TEXT,
    Serve,
    ask,
    begin,
    block,
    both_faces,
    ends,
    failure,
    key_of,
    last,
    stream,
    text_block,
    whole,
)
from .conftest import Reply


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
