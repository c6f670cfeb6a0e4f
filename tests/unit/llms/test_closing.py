"""Every model can be closed, also those that hold nothing."""

import asyncio
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from lagent import llms
from lagent.llms import (
    GPTAPI,
    AnthropicAPI,
    AsyncAnthropicAPI,
    AsyncBaseLLM,
    AsyncGPTAPI,
    AsyncScriptedModel,
    BaseLLM,
    ScriptedModel,
)

from .conftest import FakeServer, message

Serve = Callable[..., FakeServer]
ASK = [{'role': 'user', 'content': 'q'}]
MODELS = [
    value
    for name in llms.__all__
    if inspect.isclass(value := getattr(llms, name)) and issubclass(value, BaseLLM)
]


@pytest.mark.parametrize('model', MODELS)
def test_closing_is_awaited_where_asking_is(model: type[BaseLLM]) -> None:
    is_async = issubclass(model, AsyncBaseLLM)
    assert inspect.iscoroutinefunction(model.chat) is is_async
    assert inspect.iscoroutinefunction(model.close) is is_async


def test_a_block_closes_a_model() -> None:
    with ScriptedModel(['x']) as llm:
        assert llm.chat(ASK) == 'x'
    llm.close()


async def test_an_awaited_model_is_closed_by_an_async_block() -> None:
    async with AsyncScriptedModel(['x']) as llm:
        assert await llm.chat(ASK) == 'x'
    await llm.close()
    with pytest.raises(TypeError, match='AsyncScriptedModel is closed with "async with"'), llm:
        pass


def opened(monkeypatch: pytest.MonkeyPatch, sdk: str, client: str) -> list[Any]:
    """The SDK's clients that are made from now on."""
    made: list[Any] = []
    kind = getattr(importlib.import_module(sdk), client)

    class Kept(kind):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            made.append(self)

    monkeypatch.setattr(importlib.import_module(sdk), client, Kept)
    return made


def test_the_connections_are_closed_and_opened_again(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = opened(monkeypatch, 'openai', 'AsyncOpenAI')
    with GPTAPI('m', key='k', api_base=serve(message('x')).url) as llm:
        assert llm.chat(ASK) == 'x'
        assert [client.is_closed() for client in made] == [False]
    assert [client.is_closed() for client in made] == [True]
    assert llm.chat(ASK) == 'x'
    assert [client.is_closed() for client in made] == [True, False]
    llm.close()
    llm.close()
    assert [client.is_closed() for client in made] == [True, True]


async def test_the_connections_of_an_awaited_model(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = opened(monkeypatch, 'openai', 'AsyncOpenAI')
    async with AsyncGPTAPI('m', key='k', api_base=serve(message('x')).url) as llm:
        await llm.chat(ASK)
        elsewhere = asyncio.to_thread(asyncio.run, llm.chat(ASK))
        await elsewhere
        assert len(made) == 2
    assert all(client.is_closed() for client in made)


async def test_what_was_never_asked_has_nothing_to_close() -> None:
    AnthropicAPI('m', key='k').close()
    await AsyncAnthropicAPI('m', key='k').close()
