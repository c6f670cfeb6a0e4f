"""SensenovaAPI against a server on loopback."""

import asyncio
from collections.abc import Callable

import pytest

from lagent.errors import ConfigError
from lagent.llms import AsyncSensenovaAPI, SensenovaAPI

from .conftest import FakeServer, ends, events, message

Serve = Callable[..., FakeServer]
ASK = [{'role': 'user', 'content': 'q'}]


def test_chat_and_streaming(serve: Serve) -> None:
    server = serve(message('hi'), events('a', 'b', ends()))
    llm = SensenovaAPI('SenseChat-5', key='k', sensenova_api_base=server.url)
    assert llm.chat(ASK) == 'hi'
    assert [text for _, text, _ in llm.stream_chat(ASK)] == ['a', 'ab', 'ab']
    assert server.headers[0]['authorization'] == 'Bearer k'
    assert server.requests[0]['model'] == 'SenseChat-5'
    assert 'frequency_penalty' not in server.requests[0]


def test_awaited(serve: Serve) -> None:
    llm = AsyncSensenovaAPI(key='k', sensenova_api_base=serve(message('hi')).base)
    assert asyncio.run(llm.chat(ASK, 7)) == 'hi'


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv('SENSENOVA_API_KEY', raising=False)
    monkeypatch.setenv('OPENAI_API_KEY', 'never sent to others')
    with pytest.raises(ConfigError, match='No API key'):
        SensenovaAPI()
    monkeypatch.setenv('SENSENOVA_API_KEY', 'from-env')
    assert SensenovaAPI().keys == ['from-env']
    with pytest.raises(ConfigError, match='compatible-mode'):
        SensenovaAPI(sensenova_api_base='https://api.sensenova.cn/v1/llm/chat-completions')
