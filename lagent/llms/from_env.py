"""The model that a command line or the environment names."""

import importlib.util
import os
from pathlib import Path
from typing import Any

from lagent.effects import is_offline
from lagent.errors import ConfigError
from lagent.llms.anthropic_llm import ANTHROPIC_DEFAULT, ANTHROPIC_MAX_TOKENS, AnthropicAPI
from lagent.llms.recorded import RecordedModel

OPENAI_DEFAULT = 'gpt-4o'
# Anthropic's endpoint for clients of the OpenAI protocol.
ANTHROPIC_URL = 'https://api.anthropic.com/v1'
_LOCAL_MAX_TOKENS = 4096  # a small model may not find an end


def model_from_env(
    model: str | None = None, base_url: str | None = None, max_new_tokens: int | None = None
) -> Any:
    """Build the model that is asked for, or the one that the environment has a key for.

    Args:
        model: name of a served model, or a folder with the weights of a local one.
        base_url: address of an OpenAI-compatible server.
        max_new_tokens: tokens that a reply may have. When not given, a server's own limit, where a
            reply needs none, or some thousands.

    Returns:
        A local `HFTransformerChat` for a folder; else a `GPTAPI` for the given server, or for
        OpenAI (``OPENAI_API_KEY``), or a model of Anthropic's (``ANTHROPIC_API_KEY``), in this
        order. That one is an `AnthropicAPI`; a `GPTAPI` where its SDK is not installed. Where no
        model is asked, as in a replay, what has the given name.

    Raises:
        ConfigError: nothing says which model to use.
    """
    if model and is_offline('model'):
        return RecordedModel(model)
    if model and Path(model).is_dir():
        from lagent.llms.huggingface import HFTransformerChat

        return HFTransformerChat(model, max_new_tokens=max_new_tokens or _LOCAL_MAX_TOKENS)
    from lagent.llms.openai import GPTAPI

    if base_url:
        if not model:
            raise ConfigError(
                'A server was given, but no model. Name one with --model or MODEL; `lagent models` '
                'lists those of the server.'
            )
        return GPTAPI(model, base_url=base_url, max_new_tokens=max_new_tokens)
    if os.environ.get('OPENAI_API_KEY'):
        return GPTAPI(model or OPENAI_DEFAULT, max_new_tokens=max_new_tokens)
    if key := os.environ.get('ANTHROPIC_API_KEY'):
        model = model or ANTHROPIC_DEFAULT
        tokens = max_new_tokens or ANTHROPIC_MAX_TOKENS
        if importlib.util.find_spec('anthropic') is not None:
            return AnthropicAPI(model, max_new_tokens=tokens)
        return GPTAPI(model, key=key, base_url=ANTHROPIC_URL, max_new_tokens=tokens)
    raise ConfigError(
        'No model is named. Set OPENAI_API_KEY or ANTHROPIC_API_KEY, or give --base-url of an '
        'OpenAI-compatible server and --model, or --model FOLDER for local weights.'
    )
