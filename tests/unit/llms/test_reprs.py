"""What a model says of itself, which never is a key."""

import pytest

from lagent.llms import (
    GPTAPI,
    AnthropicAPI,
    AsyncGPTAPI,
    BaseLLM,
    LMDeployClient,
    RateLimits,
    ScriptedModel,
)


@pytest.mark.parametrize(
    ('model', 'shown'),
    [
        (BaseLLM('/a/folder'), "BaseLLM('/a/folder')"),
        (ScriptedModel(['x']), "ScriptedModel('scripted')"),
        (
            AsyncGPTAPI('gpt-4o', key='secret'),
            "AsyncGPTAPI('gpt-4o', url='https://api.openai.com/v1/chat/completions')",
        ),
        (
            GPTAPI('m', key='secret', base_url='http://me:secret@h:1/v1?api-key=secret'),
            "GPTAPI('m', url='http://h:1/v1/chat/completions')",
        ),
        (
            AnthropicAPI('claude-x', key=['secret']),
            "AnthropicAPI('claude-x', url='https://api.anthropic.com/v1/messages')",
        ),
        (
            LMDeployClient('http://h:1', 'internlm'),
            "LMDeployClient('internlm', url='http://h:1/v1/chat/completions')",
        ),
    ],
)
def test_models_are_told_apart_without_their_keys(model: BaseLLM, shown: str) -> None:
    assert repr(model) == shown
    assert 'secret' not in repr(model)


def test_limits_name_what_they_limit() -> None:
    assert repr(RateLimits()) == 'RateLimits()'
    assert repr(RateLimits(None, 10_000, max_wait=5)) == (
        'RateLimits(tokens_per_minute=10000, max_wait=5)'
    )
