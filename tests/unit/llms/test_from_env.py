"""The model that the environment names."""

import importlib.util

import pytest

from lagent.errors import ConfigError
from lagent.llms import GPTAPI, AnthropicAPI
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


def test_anthropic_without_its_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('ANTHROPIC_API_KEY', 'a')
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    llm = model_from_env()
    assert (type(llm), llm.keys) == (GPTAPI, ['a'])
    assert llm.url == 'https://api.anthropic.com/v1/chat/completions'
