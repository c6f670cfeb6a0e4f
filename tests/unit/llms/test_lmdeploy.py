"""LMDeploy's wrappers: clients against a server on loopback, the rest on a stand-in."""

import asyncio
import dataclasses
import inspect
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lagent.effects import Event, subscribe
from lagent.errors import ConfigError, ExtraMissing
from lagent.llms import (
    INTERNLM2_META,
    AsyncLMDeployClient,
    AsyncLMDeployPipeline,
    AsyncLMDeployServer,
    Completion,
    ContextOverflow,
    LMDeployClient,
    LMDeployPipeline,
    LMDeployServer,
    ModelCallFailed,
    Usage,
)
from lagent.server_process import free_port

from .conftest import FakeServer, document, ends, events, message

Serve = Callable[..., FakeServer]
ASK = [{'role': 'user', 'content': 'q'}]
WRITTEN = '<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n'

both_clients = pytest.mark.parametrize('face', [LMDeployClient, AsyncLMDeployClient])


def now(value: Any) -> Any:
    async def wait() -> Any:
        return await value

    return asyncio.run(wait()) if inspect.isawaitable(value) else value


def continued(*texts: str) -> Any:
    choices = [{'index': n, 'text': text, 'finish_reason': 'stop'} for n, text in enumerate(texts)]
    return document({'choices': choices, 'usage': {'prompt_tokens': 3, 'completion_tokens': 2}})


@both_clients
def test_a_dialog_is_written_by_the_server(face: type, serve: Serve) -> None:
    server = serve(message('hi'))
    llm = face(server.base.removesuffix('/v1'), 'internlm', top_k=1, stop_words=['STOP'])
    assert now(llm.chat(ASK, 7, skip_special_tokens=True, min_p=0.1)) == 'hi'
    assert server.paths == ['/v1/chat/completions']
    assert server.requests[0] == {
        'model': 'internlm',
        'messages': ASK,
        'n': 1,
        'max_tokens': 512,
        'stream': False,
        'top_k': 1,
        'top_p': 0.8,
        'temperature': 0.8,
        'min_p': 0.1,
        'stop': ['STOP'],
        'repetition_penalty': 1.0,
        'skip_special_tokens': True,
    }


@both_clients
def test_many_texts_are_continued_some_at_a_time(face: type, serve: Serve) -> None:
    running, most, lock = 0, [0], threading.Lock()

    def reply(body: dict[str, Any]) -> Any:
        nonlocal running
        with lock:
            running += 1
            most.append(running)
        time.sleep(0.02)
        with lock:
            running -= 1
        return continued(f'{body["prompt"]}!')

    texts = [str(n) for n in range(100)]
    llm = face(serve(reply).base, 'm')
    assert now(llm.generate(texts)) == [f'{text}!' for text in texts]
    assert 2 <= max(most) <= 20


@both_clients
def test_with_internlms_meta_template_it_is_written_here(face: type, serve: Serve) -> None:
    server = serve(continued('hello STOP more'))
    llm = face(server.base, 'internlm', meta_template=INTERNLM2_META, stop_words=['STOP'])
    reply = now(llm.chat(ASK, sequence_start=True, sequence_end=True, timeout=30))
    assert type(reply) is Completion
    assert (reply, reply.stop_reason, reply.usage) == ('hello', 'STOP', Usage(3, 2))
    assert server.paths == ['/v1/completions']
    assert server.requests[0]['prompt'] == WRITTEN
    assert not {'messages', 'sequence_start', 'timeout'} & server.requests[0].keys()


@both_clients
def test_texts_are_continued(face: type, serve: Serve) -> None:
    server = serve(lambda body: continued(body['prompt'] + '!'))
    llm = face(server.base, 'm')
    assert now(llm.generate('a')) == 'a!'
    assert now(llm.generate(['a', 'b', 'c'])) == ['a!', 'b!', 'c!']


def test_streaming_without_stop_words(serve: Serve) -> None:
    llm = LMDeployClient(serve(events('a', 'b', ends())).base, 'm')
    assert [text for _, text, _ in llm.stream_chat(ASK, session_id=3)] == ['a', 'ab', 'ab']


def test_streaming_of_a_text(serve: Serve) -> None:
    chunks = [{'choices': [{'index': 0, 'text': piece}]} for piece in ('a', 'b')]
    llm = LMDeployClient(serve(events(*chunks)).base, 'm', meta_template=INTERNLM2_META)
    assert [text for _, text, _ in llm.stream_chat(ASK)] == ['a', 'ab', 'ab']


@dataclasses.dataclass
class EngineConfig:
    tp: int = 1
    session_len: int | None = None


@dataclasses.dataclass
class Response:
    text: str
    generate_token_len: int = 2
    input_token_len: int = 3
    finish_reason: str = 'stop'
    token_ids: list[int] = dataclasses.field(default_factory=lambda: [5, 6])
    logprobs: Any = None
    error_message: str | None = None


class Pipeline:
    def __init__(self, path: str, **settings: Any) -> None:
        self.path, self.settings = path, settings
        self.asked: list[Any] = []
        self.error: str | None = None

    def __call__(self, prompts: list[Any], **arguments: Any) -> list[Response]:
        self.asked.append((prompts, arguments))
        if self.error:
            return [Response('', finish_reason='error', error_message=self.error)]
        return [Response(f'{n} STOP drop', logprobs=[{5: -1.0}, {6: -2.0}]) for n in range(9)][
            : len(prompts)
        ]


@pytest.fixture
def lmdeploy(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType('lmdeploy')
    module.TurbomindEngineConfig, module.GenerationConfig = EngineConfig, dict
    module.ChatTemplateConfig, module.pipeline = dict, Pipeline
    monkeypatch.setitem(sys.modules, 'lmdeploy', module)


pipelines = pytest.mark.parametrize('face', [LMDeployPipeline, AsyncLMDeployPipeline])


@pipelines
def test_a_pipeline(face: type, lmdeploy: None) -> None:
    llm = face('a/model', 'internlm2', tp=2, pipeline_cfg={'session_len': 8}, stop_words=['STOP'])
    assert llm.model.settings['backend_config'] == EngineConfig(2, 8)
    assert llm.model.settings['chat_template_config'] == {'model_name': 'internlm2'}
    heard: list[Event] = []
    with subscribe(heard.append):
        reply = now(llm.chat(ASK, temperature=0.5))
    assert type(reply) is Completion
    assert (reply, reply.finish_reason, reply.stop_reason) == ('0 ', 'stop', 'STOP')
    assert (reply.usage, reply.token_ids, reply.logprobs) == (Usage(3, 2), (5, 6), (-1.0, -2.0))
    assert [event.data for event in heard if event.type == 'delta'] == ['0 ']
    [(prompts, arguments)] = llm.model.asked
    assert prompts == [ASK]
    assert arguments == {
        'do_preprocess': True,
        'gen_config': {
            'skip_special_tokens': False,
            'do_sample': True,
            'max_new_tokens': 512,
            'top_p': 0.8,
            'top_k': 40,
            'temperature': 0.5,
            'repetition_penalty': 1.0,
            'stop_words': ['STOP'],
        },
    }


@pipelines
def test_a_pipeline_with_a_meta_template(face: type, lmdeploy: None) -> None:
    llm = face('m', meta_template=INTERNLM2_META)
    assert now(llm.chat([ASK, ASK], [1, 2], temperature=0)) == ['0 STOP drop', '1 STOP drop']
    [(prompts, arguments)] = llm.model.asked
    assert prompts == [WRITTEN, WRITTEN]
    assert arguments['do_preprocess'] is False
    assert arguments['gen_config']['do_sample'] is False


def test_dicts_and_the_calls_stop_words(lmdeploy: None) -> None:
    reply = LMDeployPipeline('m').generate('text', return_dict=True, stop_words=[' STOP'])
    assert (reply['text'], reply['token_ids'], reply['input_token_len']) == ('0', [5, 6], 3)


def test_errors_of_a_pipeline(lmdeploy: None) -> None:
    llm = LMDeployPipeline('m')
    llm.model.error = 'the prompt exceeds the context length'
    with pytest.raises(ContextOverflow):
        llm.chat(ASK)
    llm.model.error = 'out of memory'
    with pytest.raises(ModelCallFailed, match='out of memory'):
        llm.chat(ASK)
    with pytest.raises(ConfigError, match='sesion_len'):
        LMDeployPipeline('m', pipeline_cfg={'sesion_len': 8})


@pytest.mark.parametrize('face', [LMDeployPipeline, LMDeployServer])
def test_without_lmdeploy(face: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'lmdeploy', None)
    with pytest.raises(ExtraMissing, match=r'lagent-sandbox\[lmdeploy\]'):
        face('m')


# What `python -m lmdeploy` runs: it answers with its own command line.
MAIN = """
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args): pass
    def answer(self, body):
        self.send_response(200)
        self.send_header('content-length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.answer(b'')
    def do_POST(self):
        self.rfile.read(int(self.headers['content-length']))
        said = {'role': 'assistant', 'content': ' '.join(sys.argv[1:])}
        self.answer(json.dumps({'choices': [{'message': said, 'finish_reason': 'stop'}]}).encode())
port = int(sys.argv[sys.argv.index('--server-port') + 1])
http.server.HTTPServer(('127.0.0.1', port), Handler).serve_forever()
"""


@pytest.fixture
def runnable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lmdeploy: None) -> None:
    (tmp_path / 'lmdeploy').mkdir()
    (tmp_path / 'lmdeploy' / '__main__.py').write_text(MAIN)
    monkeypatch.setenv('PYTHONPATH', str(tmp_path))


def test_a_server(runnable: None) -> None:
    port = free_port()
    settings = {'session_len': 8, 'enable_prefix_caching': True}
    with LMDeployServer('a/model', 'name', server_port=port, serve_cfg=settings) as llm:
        assert llm.chat(ASK) == (
            f'serve api_server a/model --server-name 127.0.0.1 --server-port {port} '
            '--model-name name --tp 1 --log-level WARNING --session-len 8 --enable-prefix-caching'
        )
        assert llm.process is not None
    assert not llm.process.running
    with pytest.raises(ModelCallFailed, match='was stopped'):
        llm.chat(ASK)


async def test_a_server_awaited_without_a_block(runnable: None) -> None:
    llm = AsyncLMDeployServer('a/model', server_port=free_port())
    assert 'serve api_server a/model' in await llm.chat(ASK, 7)
    await llm.close()
    assert llm.process is not None
    assert not llm.process.running


def test_the_classes_are_related_as_internlms() -> None:
    assert issubclass(LMDeployClient, LMDeployServer)
    assert issubclass(AsyncLMDeployClient, AsyncLMDeployServer)
    for name in ('chat', 'stream_chat', 'generate', '__init__'):
        faces = [inspect.signature(getattr(f, name)) for f in (LMDeployServer, AsyncLMDeployServer)]
        assert list(faces[0].parameters.values()) == list(faces[1].parameters.values())
