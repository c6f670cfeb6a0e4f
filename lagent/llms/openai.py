"""GPTAPI and AsyncGPTAPI: models behind any OpenAI-compatible server."""

import os
from typing import Any

from lagent._extras import require
from lagent.effects import is_offline
from lagent.errors import ConfigError
from lagent.llms.base_api import APITemplateParser
from lagent.llms.keys import KeyRing
from lagent.llms.meta_template import CHAT_META
from lagent.llms.openai_request import request_body
from lagent.llms.openai_server import OpenAIServer
from lagent.llms.rate_limits import RateLimits
from lagent.llms.remote import AsyncRemoteModel, BlockingRemoteModel, RemoteModel
from lagent.llms.retry import RetryPolicy

OPENAI_API_BASE = 'https://api.openai.com/v1/chat/completions'


class ChatCompletions(RemoteModel):
    """What both faces are; written once, awaited."""

    provider = 'openai'

    def __init__(
        self,
        model_type: str = 'gpt-3.5-turbo',
        retry: int | RetryPolicy = 2,
        json_mode: bool = False,
        key: str | list[str] = 'ENV',
        org: str | list[str] | None = None,
        meta_template: Any = CHAT_META,
        api_base: str | None = None,
        proxies: str | dict[str, str] | None = None,
        *,
        max_new_tokens: int | None = None,
        base_url: str | None = None,
        template_parser: Any = APITemplateParser,
        connect_timeout: float = 10.0,
        read_timeout: float = 300.0,
        rate_limits: RateLimits | None = None,
        **gen_params: Any,
    ) -> None:
        super().__init__(
            model_type,
            retry,
            template_parser,
            meta_template,
            max_new_tokens=max_new_tokens,
            **gen_params,
        )
        url = api_base or base_url or os.environ.get('OPENAI_BASE_URL')
        self._server = OpenAIServer(
            url or OPENAI_API_BASE,
            proxies=proxies,
            connect_timeout=connect_timeout,
            read_timeout=read_timeout,
        )
        if key == 'ENV':
            # Servers of one's own mostly want none, but the protocol has no way to send none.
            key = os.environ.get('OPENAI_API_KEY') or ('EMPTY' if url else '')
        if not key and is_offline('model'):
            key = 'EMPTY'
        if not key:
            raise ConfigError(
                f"No API key for {model_type}: pass key='...', or set OPENAI_API_KEY. A server of "
                'your own (api_base=...) needs none.'
            )
        self._ring = KeyRing(key, org)
        self.rate_limits = rate_limits or RateLimits()
        self.json_mode = json_mode
        self.url = self._server.url
        self.keys, self.orgs = self._ring.keys, self._ring.orgs

    def generate_request_data(
        self,
        model_type: str,
        messages: Any,
        gen_params: dict[str, Any],
        json_mode: bool = False,
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """What a request consists of, apart from its key.

        Args:
            model_type: the model's name.
            messages: messages as the template parser wrote them.
            gen_params: generation parameters.
            json_mode: ask for a JSON object.

        Returns:
            The headers and the body.

        Raises:
            NotImplementedError: `max_tokens` was given; it is called `max_new_tokens` here.
        """
        if 'max_tokens' in gen_params:
            raise NotImplementedError('unsupported parameter: max_tokens (use max_new_tokens)')
        body = request_body(model_type, messages, gen_params, json_mode=json_mode)
        return {'content-type': 'application/json'}, body

    def tokenize(self, prompts: str) -> list[int]:
        """Turn a text into the token ids of OpenAI's models. Needs the library tiktoken.

        Args:
            prompts: the text.

        Returns:
            The ids.
        """
        tiktoken = require('tiktoken', 'tiktoken')
        ids: list[int] = tiktoken.encoding_for_model(self.model_type).encode(prompts)
        return ids

    def _request(
        self, messages: Any, params: dict[str, Any], *, stream: bool
    ) -> tuple[dict[str, str], dict[str, Any]]:
        headers, body = self.generate_request_data(
            self.model_type, messages, params, self.json_mode
        )
        if stream:
            body = {'stream_options': {'include_usage': True}, **body, 'stream': True}
        return headers, body


class AsyncGPTAPI(ChatCompletions, AsyncRemoteModel):
    """`GPTAPI` whose methods are awaited, from any event loop."""


class GPTAPI(ChatCompletions, BlockingRemoteModel):
    """A model behind an OpenAI-compatible server, any server and any model name.

    Args:
        model_type: the model's name at the server.
        retry: how many attempts a call may make, or a `RetryPolicy`.
        json_mode: ask for JSON objects.
        key: the API key, or several that are used in turn; ``'ENV'`` takes ``$OPENAI_API_KEY``.
            A key whose quota is used up is passed over for some minutes. With a server of your own
            it may be missing.
        org: the organization, or several that are used in turn; of as many as there are keys, each
            key has its own.
        meta_template: how roles are named; see `APITemplateParser`.
        api_base: the server's URL, up to ``/v1`` or with ``/chat/completions``. Without one,
            ``$OPENAI_BASE_URL``, else OpenAI's own.
        proxies: a proxy's URL, or a dict from ``'http'`` and ``'https'`` to URLs. Without one, the
            usual environment variables count.
        max_new_tokens: tokens that a reply may have; the server's own limit when not given. What a
            model reasons counts.
        base_url: the OpenAI SDK's name for `api_base`.
        connect_timeout: seconds to reach the server.
        read_timeout: seconds without a byte from it. The time of the whole call is the policy's.
        rate_limits: limits that several models share.
        gen_params: other generation parameters, see `BaseAPILLM`.

    Attributes:
        url: where requests go.
        keys: the API keys.

    Raises:
        ConfigError: there is no key for OpenAI's own server, or the URL is none.
    """
