"""GPTAPI and AsyncGPTAPI against a server that behaves."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from lagent.context import run_context
from lagent.effects import Event, subscribe
from lagent.errors import ConfigError
from lagent.limits import Price, RunLimits
from lagent.llms import GPTAPI, AsyncGPTAPI, Completion, QuotaExhausted, ToolCall, Usage
from lagent.schema import ModelStatusCode

from .conftest import FakeServer, ends, events, failure, message

Serve = Callable[..., FakeServer]
ASK = [{'role': 'user', 'content': 'q'}]


def ask(face: type, server: FakeServer, *args: Any, **kwargs: Any) -> Any:
    """Ask through either face."""
    settings = {'key': 'k', 'api_base': server.url, **kwargs.pop('settings', {})}
    llm = face('any/model', **settings)
    reply = llm.chat(*args or (ASK,), **kwargs)
    return asyncio.run(_await(reply)) if inspect.isawaitable(reply) else reply


async def _await(awaitable: Any) -> Any:
    return await awaitable


both_faces = pytest.mark.parametrize('face', [GPTAPI, AsyncGPTAPI])


@both_faces
def test_a_reply_with_what_the_server_said_about_it(face: type, serve: Serve) -> None:
    server = serve(message(' hello\n', reasoning_content='hm'))
    reply = ask(face, server)
    assert type(reply) is Completion
    assert (reply, reply.finish_reason, reply.reasoning) == ('hello', 'stop', 'hm')
    assert reply.usage == Usage(11, 7)
    assert reply.latency is not None
    assert reply.latency > 0
    assert server.paths == ['/v1/chat/completions']
    assert server.headers[0]['authorization'] == 'Bearer k'
    assert server.requests[0] == {
        'model': 'any/model',
        'messages': ASK,
        'n': 1,
        'top_p': 0.8,
        'temperature': 0.8,
        'frequency_penalty': 0.0,
        'stream': False,
    }


@both_faces
def test_what_utf_8_cannot_hold_does_not_end_a_session(face: type, serve: Serve) -> None:
    server = serve(message('ok'))
    parts = [{'type': 'text', 'text': 'y \udfff'}]
    dialog = [{'role': 'user', 'content': 'x \ud800'}, {'role': 'user', 'content': parts}]
    assert ask(face, server, dialog) == 'ok'
    sent = server.requests[0]['messages']
    assert [sent[0]['content'], sent[1]['content'][0]['text']] == ['x \ufffd', 'y \ufffd']
    assert parts == [{'type': 'text', 'text': 'y \udfff'}]


@both_faces
def test_native_tool_calls(face: type, serve: Serve) -> None:
    calls = [
        {'id': f'c{n}', 'type': 'function', 'function': {'name': 'python', 'arguments': code}}
        for n, code in enumerate(('{"code": "1"}', '{"code": "1/0"}'))
    ]
    reply = ask(face, serve(message(None, 'tool_calls', tool_calls=calls)), ASK, tools=[{'a': 1}])
    assert (reply, reply.finish_reason) == ('', 'tool_calls')
    assert reply.tool_calls == (
        ToolCall('c0', 'python', '{"code": "1"}'),
        ToolCall('c1', 'python', '{"code": "1/0"}'),
    )


@both_faces
def test_a_batch_is_asked_at_once_and_answered_in_order(face: type, serve: Serve) -> None:
    server = serve(lambda body: message(body['messages'][0]['content'].upper()))
    dialogs = [[{'role': 'user', 'content': word}] for word in 'abcdef']
    assert ask(face, server, dialogs) == list('ABCDEF')


@both_faces
def test_parameters_of_a_call_come_before_the_models(face: type, serve: Serve) -> None:
    server = serve(message('one STOP two'))
    reply = ask(face, server, ASK, 7, stop_words=['STOP'], temperature=0, session_id=7)
    assert (reply, reply.stop_reason) == ('one', 'STOP')
    assert server.requests[0]['stop'] == ['STOP']
    assert server.requests[0]['temperature'] == 0
    assert not {'session_id', 'session_ids'} & server.requests[0].keys()


def test_the_list_of_stop_words_is_live(serve: Serve) -> None:
    server = serve(message('x'))
    llm = GPTAPI('m', key='k', api_base=server.base, stop_words=['a'])
    llm.gen_params['stop_words'].append('b')
    llm.chat(ASK)
    assert server.requests[0]['stop'] == ['a', 'b']


@both_faces
def test_max_tokens_is_called_max_new_tokens(face: type, serve: Serve) -> None:
    with pytest.raises(NotImplementedError, match='max_new_tokens'):
        ask(face, serve(message('x')), ASK, max_tokens=3)


def test_streaming(serve: Serve) -> None:
    usage = {'choices': [], 'usage': {'prompt_tokens': 3, 'completion_tokens': 2}}
    server = serve(events('Hel', 'lo', ends(), usage))
    *chunks, (state, reply, extra) = GPTAPI('m', key='k', api_base=server.url).stream_chat(
        ASK, session_id=5
    )
    assert chunks == [(ModelStatusCode.STREAM_ING, text, None) for text in ('Hel', 'Hello')]
    assert (state, reply, extra) == (ModelStatusCode.END, 'Hello', None)
    assert (reply.finish_reason, reply.usage) == ('stop', Usage(3, 2))
    assert server.requests[0]['stream'] is True
    assert server.requests[0]['stream_options'] == {'include_usage': True}


def test_images_reach_the_server_in_its_words(serve: Serve) -> None:
    server = serve(message('a cat'))
    image = {'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,QUJD'}}
    claudes = {
        'type': 'image',
        'source': {'type': 'base64', 'media_type': 'image/png', 'data': 'QUJD'},
    }
    text = {'type': 'text', 'text': 'What is this?'}
    dialog = [{'role': 'user', 'content': [text, image, claudes]}]
    assert GPTAPI('m', key='k', api_base=server.url).chat(dialog) == 'a cat'
    assert server.requests[0]['messages'] == [{'role': 'user', 'content': [text, image, image]}]


@both_faces
@pytest.mark.parametrize('name', ['reasoning_content', 'reasoning'])
def test_reasoning_is_the_same_streamed_and_whole(face: type, name: str, serve: Serve) -> None:
    thinks = [{'choices': [{'index': 0, 'delta': {name: piece}}]} for piece in ('Let me ', 'see.')]
    usage = {
        'prompt_tokens': 3,
        'completion_tokens': 9,
        'completion_tokens_details': {'reasoning_tokens': 7},
    }
    whole = message('Yes', **{name: 'Let me see.'})
    heard: list[Event] = []
    with subscribe(heard.append):
        streamed = ask(
            face, serve(events(*thinks, 'Y', 'es', ends(), {'choices': [], 'usage': usage}))
        )
    assert [event.data for event in heard if event.type == 'delta'] == ['Y', 'es']
    for reply in (streamed, ask(face, serve(whole))):
        assert (reply, reply.reasoning, reply.finish_reason) == ('Yes', 'Let me see.', 'stop')
    assert streamed.usage == Usage(3, 9, reasoning_tokens=7)


async def test_streaming_awaited(serve: Serve) -> None:
    server = serve(events('a', 'b', ends('length')))
    llm = AsyncGPTAPI('m', key='k', api_base=server.url)
    chunks = [chunk async for chunk in llm.stream_chat(ASK)]
    assert [text for _, text, _ in chunks] == ['a', 'ab', 'ab']
    assert chunks[-1][1].finish_reason == 'length'


def test_a_stop_word_that_the_server_ignores_ends_the_stream(serve: Serve) -> None:
    server = serve(events('x = 1\n`', '``', 'never shown', hang=True, done=False))
    llm = GPTAPI('m', key='k', api_base=server.url, stop_words=['```'])
    *_, (_, reply, _) = llm.stream_chat(ASK)
    assert (reply, reply.stop_reason) == ('x = 1', '```')


def test_characters_survive_any_cut(serve: Serve) -> None:
    reply = events('grüße 😀', ends())
    reply.pieces = [bytes([byte]) for byte in b''.join(reply.pieces)]
    *_, (_, text, _) = GPTAPI('m', key='k', api_base=serve(reply).url).stream_chat(ASK)
    assert text == 'grüße 😀'


@both_faces
def test_a_listener_gets_the_reply_as_it_arrives(face: type, serve: Serve) -> None:
    heard: list[Event] = []
    with subscribe(heard.append):
        reply = ask(face, serve(events('Hel', 'lo', ends())))
    assert reply == 'Hello'
    assert [(e.type, e.data) for e in heard] == [
        ('begin', None),
        ('delta', 'Hel'),
        ('delta', 'lo'),
        ('end', 'Hello'),
    ]
    assert {(e.effect.kind, e.effect.name) for e in heard} == {('model', 'any/model')}


@both_faces
def test_keys_take_turns_and_those_without_quota_go(face: type, serve: Serve) -> None:
    def answer(body: dict[str, Any]) -> Any:
        broke = server.headers[-1]['authorization'] == 'Bearer broke'
        return failure(429, 'insufficient_quota') if broke else message('x')

    server = serve(answer)
    dialogs = [ASK, ASK, ASK]
    # A dropped key costs no attempt of the call that finds it out.
    settings = {'key': ['broke', 'rich'], 'retry': 1, 'org': 'acme'}
    assert ask(face, server, dialogs, settings=settings) == ['x', 'x', 'x']
    assert {h['openai-organization'] for h in server.headers} == {'acme'}


def test_when_no_key_is_left_the_error_says_so(serve: Serve) -> None:
    llm = GPTAPI('m', key=['a', 'b'], api_base=serve(failure(429, 'insufficient_quota')).url)
    with pytest.raises(QuotaExhausted, match=r'None of the 2.* HTTP 429: insufficient_quota'):
        llm.chat(ASK)


def test_a_key_that_was_given_new_quota_is_used_again(serve: Serve) -> None:
    server = serve(failure(429, 'insufficient_quota'), message('x'))
    llm = GPTAPI('m', key='k', api_base=server.url)
    with pytest.raises(QuotaExhausted):
        llm.chat(ASK)
    assert llm.chat(ASK) == 'x'


def test_a_key_that_runs_out_inside_a_stream_shows_no_text_twice(serve: Serve) -> None:
    out = {'error': {'message': 'pay', 'code': 'insufficient_quota'}}
    server = serve(events('Hello wor', out, done=False), events('Hello world', ends()))
    llm = GPTAPI('m', key=['a', 'b'], api_base=server.url)
    chunks = llm.stream_chat(ASK)
    assert next(chunks)[1] == 'Hello wor'
    with pytest.raises(QuotaExhausted, match='pay') as caught:
        next(chunks)
    assert caught.value.partial == 'Hello wor'
    assert [*llm.stream_chat(ASK)][-1][1] == 'Hello world'
    assert [h['authorization'] for h in server.headers] == ['Bearer a', 'Bearer b']


@both_faces
def test_a_model_has_one_name_for_prices_whoever_asks_it(face: type, serve: Serve) -> None:
    llm = face('served', key='k', api_base=serve(message('x')).url)
    llm.path = '/a/checkpoint'  # as the models have whose server is started here
    prices = {'served': Price(input=1, output=1)}
    with run_context(limits=RunLimits(cost=1, prices=prices)) as run:
        reply = llm.chat(ASK)
        assert (asyncio.run(_await(reply)) if inspect.isawaitable(reply) else reply) == 'x'
    assert run.usage.cost == 18e-6


def test_headers_of_a_subclass_are_sent(serve: Serve) -> None:
    class Traced(GPTAPI):
        def generate_request_data(self, *args: Any, **kwargs: Any) -> Any:
            headers, body = super().generate_request_data(*args, **kwargs)
            return headers | {'X-Trace': '7'}, body

    server = serve(message('x'), events('x', ends()))
    llm = Traced('m', key='k', api_base=server.url)
    llm.chat(ASK)
    list(llm.stream_chat(ASK))
    assert [(h['x-trace'], h['authorization']) for h in server.headers] == [('7', 'Bearer k')] * 2


def test_connections_are_used_again(serve: Serve) -> None:
    server = serve(message('x'), events('y', ends()), message('z'))
    llm = GPTAPI('m', key='k', api_base=server.url)
    assert [llm.chat(ASK), [*llm.stream_chat(ASK)][-1][1], llm.chat(ASK)] == ['x', 'y', 'z']
    assert len(server.connections) == 1


async def test_many_sessions_at_once_share_their_connections(serve: Serve) -> None:
    server = serve(lambda body: message(body['messages'][0]['content']))
    llm = AsyncGPTAPI('m', key='k', api_base=server.url)
    for _ in range(3):
        asked = [llm.chat([{'role': 'user', 'content': f'{n}!'}], n) for n in range(8)]
        assert await asyncio.gather(*asked) == [f'{n}!' for n in range(8)]
    assert len(server.connections) <= 8


def test_one_model_serves_several_event_loops(serve: Serve) -> None:
    llm = AsyncGPTAPI('m', key='k', api_base=serve(message('x')).url)
    assert [asyncio.run(_await(llm.chat(ASK))) for _ in range(2)] == ['x', 'x']


async def test_it_works_inside_a_running_loop(serve: Serve) -> None:
    assert GPTAPI('m', key='k', api_base=serve(message('x')).url).chat(ASK) == 'x'


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match='OPENAI_API_KEY'):
        GPTAPI('gpt-4o')
    assert GPTAPI('m', base_url='http://h/v1').keys == ['EMPTY']
    monkeypatch.setenv('OPENAI_API_KEY', 'from-env')
    assert GPTAPI('gpt-4o').url == 'https://api.openai.com/v1/chat/completions'
    monkeypatch.setenv('OPENAI_BASE_URL', 'http://h:1/v1')
    llm = GPTAPI('gpt-4o', key=['a', 'b'])
    assert (llm.url, llm.keys) == ('http://h:1/v1/chat/completions', ['a', 'b'])
    assert GPTAPI('m').keys == ['from-env']


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(TypeError):
        GPTAPI('m', key='k', modle='x')


def test_both_faces_have_the_same_methods() -> None:
    for name in ('chat', 'stream_chat', 'generate_request_data', 'tokenize', '__init__'):
        faces = [inspect.signature(getattr(face, name)) for face in (GPTAPI, AsyncGPTAPI)]
        assert list(faces[0].parameters.values()) == list(faces[1].parameters.values())
