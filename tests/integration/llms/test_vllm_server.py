"""GPTAPI against a real OpenAI-compatible server: vLLM's, with the small real model."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from lagent.effects import Event, subscribe
from lagent.llms import GPTAPI, AsyncGPTAPI, BadRequest, ContextOverflow

from .conftest import VLLM_ENV, VLLM_MARKS

pytestmark = VLLM_MARKS

FRANCE = [{'role': 'user', 'content': 'What is the capital of France?'}]
START = 300  # seconds


@pytest.fixture(scope='module')
def url(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp('vllm') / 'log'
    command = [
        *(sys.executable, '-m', 'vllm.entrypoints.openai.api_server', '--model', str(model_path)),
        *('--host', '127.0.0.1', '--port', str(port), '--served-model-name', 'small'),
        *('--dtype', 'bfloat16', '--max-model-len', '512', '--max-num-seqs', '8'),
        *('--kv-cache-memory-bytes', str(256 * 1024**2), '--enforce-eager'),
    ]
    with log.open('wb') as output:
        # A session of its own: its engine is a child of its own, and has to go with it.
        server = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            env={**os.environ, **VLLM_ENV},
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START
        while not healthy(port):
            assert server.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.5)
        yield f'http://127.0.0.1:{port}/v1'
    finally:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f'http://127.0.0.1:{port}/health', timeout=5) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def test_a_reply(url: str) -> None:
    llm = GPTAPI('small', base_url=url, temperature=0, max_new_tokens=30)
    reply = llm.chat(FRANCE)
    assert 'Paris' in reply
    assert reply.finish_reason == 'stop'
    assert reply.usage.prompt_tokens > 30
    assert 5 < reply.usage.completion_tokens < 30
    cut = llm.chat(FRANCE, max_new_tokens=3, logprobs=True)
    assert (cut.finish_reason, cut.usage.completion_tokens) == ('length', 3)
    assert len(cut.logprobs) == 3


def test_streaming(url: str) -> None:
    llm = GPTAPI('small', base_url=url, temperature=0, max_new_tokens=30)
    *chunks, (_, reply, _) = llm.stream_chat(FRANCE)
    assert len(chunks) > 3
    assert reply == llm.chat(FRANCE)
    assert reply.usage == llm.chat(FRANCE).usage
    heard: list[Event] = []
    with subscribe(heard.append):
        llm.chat(FRANCE)
    assert ''.join(event.data for event in heard if event.type == 'delta') == reply


def test_stop_words(url: str) -> None:
    llm = GPTAPI('small', base_url=url, temperature=0, max_new_tokens=30, stop_words=['Paris'])
    reply = llm.chat(FRANCE)
    assert 'Paris' not in reply
    assert (reply.finish_reason, reply.stop_reason) == ('stop', 'Paris')


async def test_many_sessions_at_once(url: str) -> None:
    llm = AsyncGPTAPI('small', base_url=url, temperature=0, max_new_tokens=20)
    replies = await asyncio.gather(*(llm.chat(FRANCE, session) for session in range(8)))
    assert all('Paris' in reply for reply in replies)


def test_refusals_are_typed(url: str) -> None:
    llm = GPTAPI('small', base_url=url)
    with pytest.raises(ContextOverflow):
        llm.chat([{'role': 'user', 'content': 'many rows ' * 600}])
    with pytest.raises(BadRequest, match='404'):
        GPTAPI('no such model', base_url=url).chat(FRANCE)
    with pytest.raises(BadRequest):
        llm.chat(FRANCE, temperature=-3)
