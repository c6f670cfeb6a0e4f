"""SensenovaAPI: SenseTime's models, through their OpenAI-compatible address."""

import os
from typing import Any

from lagent.errors import ConfigError
from lagent.llms.meta_template import CHAT_META
from lagent.llms.openai import ChatCompletions
from lagent.llms.remote import AsyncRemoteModel, BlockingRemoteModel
from lagent.llms.retry import RetryPolicy

SENSENOVA_API_BASE = 'https://api.sensenova.cn/compatible-mode/v2'
_OLD_ENDPOINT = '/llm/chat-completions'


class Sensenova(ChatCompletions):
    """What both faces are; written once, awaited."""

    provider = 'sensenova'

    def __init__(
        self,
        model_type: str = 'SenseChat-5',
        retry: int | RetryPolicy = 2,
        json_mode: bool = False,
        key: str | list[str] = 'ENV',
        meta_template: Any = CHAT_META,
        sensenova_api_base: str = SENSENOVA_API_BASE,
        proxies: str | dict[str, str] | None = None,
        *,
        repetition_penalty: float | None = None,
        **gen_params: Any,
    ) -> None:
        if sensenova_api_base.rstrip('/').endswith(_OLD_ENDPOINT):
            raise ConfigError(
                f'{sensenova_api_base} does not speak the OpenAI protocol. Leave it out, or use '
                f'{SENSENOVA_API_BASE}.'
            )
        if key == 'ENV':
            key = os.environ.get('SENSENOVA_API_KEY', '')
        super().__init__(
            model_type,
            retry,
            json_mode,
            key,
            meta_template=meta_template,
            api_base=sensenova_api_base,
            proxies=proxies,
            repetition_penalty=repetition_penalty,  # a penalty of 0 is refused there
            **gen_params,
        )


class AsyncSensenovaAPI(Sensenova, AsyncRemoteModel):
    """`SensenovaAPI` whose methods are awaited, from any event loop."""


class SensenovaAPI(Sensenova, BlockingRemoteModel):
    """A model of SenseTime's. `chat` and `stream_chat` are those of `GPTAPI`.

    Args:
        model_type: the model's name.
        retry: how many attempts a call may make, or a `RetryPolicy`.
        json_mode: ask for JSON objects.
        key: the API key, or several that are used in turn; ``'ENV'`` takes ``$SENSENOVA_API_KEY``.
        meta_template: how roles are named; see `APITemplateParser`.
        sensenova_api_base: the server's URL, up to its version.
        proxies: see `GPTAPI`.
        repetition_penalty: see `BaseLLM`; the model's own when not given.
        gen_params: generation parameters and connection settings, see `GPTAPI`.

    Raises:
        ConfigError: there is no key, or the URL is that of SenseTime's older protocol.
    """
