"""The model that the environment names."""

import importlib.util
from pathlib import Path

import pytest

from lagent.errors import ConfigError
from lagent.llms import GPTAPI, AnthropicAPI, huggingface
from lagent.llms.from_env import model_from_env


def test_nothing_is_named() -> None:
    with pytest.raises(ConfigError, match='No model is named'):
        model_from_env()
    with pytest.raises(ConfigError, match='no model'):
        model_from_env(base_url='http://h/v1')


def test_a_server() -> None:
    llm = model_from_env('m', 'http://h/v1')
    assert (type(llm), llm.url) == (GPTAPI, 'http://h/v1/chat/completions')


def test_openai_comes_before_anthropic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('ANTHROPIC_API_KEY', 'a')
    llm = model_from_env()
    assert (type(llm), llm.keys) == (AnthropicAPI, ['a'])
    assert model_from_env('claude-x').model_type == 'claude-x'
    monkeypatch.setenv('OPENAI_API_KEY', 'o')
    assert type(model_from_env()) is GPTAPI


def limit_of(*arguments: object) -> object:
    llm = model_from_env(*arguments)  # type: ignore[arg-type]
    return llm.gen_params['max_new_tokens']


def test_replies_are_as_long_as_the_server_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limit_of('gpt-5', 'http://h/v1') is None
    assert limit_of('gpt-5', 'http://h/v1', 900) == 900
    monkeypatch.setenv('ANTHROPIC_API_KEY', 'a')
    assert (limit_of(), limit_of(None, None, 900)) == (8192, 900)
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    assert (limit_of(), limit_of(None, None, 900)) == (8192, 900)
    monkeypatch.setenv('OPENAI_API_KEY', 'o')
    assert (limit_of(), limit_of(None, None, 900)) == (None, 900)


def test_weights_of_ones_own_may_say_more_than_512_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, object]] = []
    monkeypatch.setattr(
        huggingface,
        'HFTransformerChat',
        lambda path, max_new_tokens: asked.append((path, max_new_tokens)),
    )
    model_from_env(str(tmp_path))
    model_from_env(str(tmp_path), None, 900)
    assert asked == [(str(tmp_path), 4096), (str(tmp_path), 900)]


def test_anthropic_without_its_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('ANTHROPIC_API_KEY', 'a')
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    llm = model_from_env()
    assert (type(llm), llm.keys) == (GPTAPI, ['a'])
    assert llm.url == 'https://api.anthropic.com/v1/chat/completions'
