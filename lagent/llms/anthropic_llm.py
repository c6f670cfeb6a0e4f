"""AnthropicAPI and AsyncAnthropicAPI: Claude, through Anthropic's own SDK."""

import os
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from lagent._extras import require
from lagent.effects import is_offline
from lagent.errors import ConfigError
from lagent.llms.anthropic_wire import MessageBuilder, messages_body, out_of_credit
from lagent.llms.base_api import APITemplateParser
from lagent.llms.errors import ModelCallFailed
from lagent.llms.keys import KeyRing
from lagent.llms.meta_template import CHAT_META
from lagent.llms.rate_limits import RateLimits
from lagent.llms.remote import AsyncRemoteModel, BlockingRemoteModel, RemoteModel
from lagent.llms.retry import RetryPolicy
from lagent.llms.sdk_server import SdkServer, split_url

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

ANTHROPIC_API_BASE = 'https://api.anthropic.com'
ANTHROPIC_DEFAULT = 'claude-sonnet-4-5'
ANTHROPIC_MAX_TOKENS = 8192  # a number is required; this one every model since Claude 3.5 allows
_KEY_VARIABLES = ('ANTHROPIC_API_KEY', 'Claude_API_KEY')  # the second one is InternLM's


class AnthropicServer(SdkServer):
    """Anthropic's server, or one that speaks its protocol.

    Args:
        url: where it is; with or without ``/v1`` or ``/v1/messages``.
        settings: see `SdkServer`.
    """

    def __init__(self, url: str, **settings: Any) -> None:
        split_url(url, ANTHROPIC_API_BASE)
        base_url = url.rstrip('/').removesuffix('/messages').removesuffix('/v1')
        super().__init__(base_url, require('anthropic', 'anthropic'), 'AsyncAnthropic', **settings)

    def _call(
        self,
        client: 'AsyncAnthropic',
        body: dict[str, Any],
        headers: dict[str, str],
        key: str,
        org: str | None,
    ) -> AbstractAsyncContextManager[Any]:
        # In the SDK's own way: which header a key goes into depends on its version.
        return client.with_options(api_key=key).messages.with_streaming_response.create(
            model=body['model'],
            messages=body['messages'],
            max_tokens=body['max_tokens'],
            stream=body.get('stream', False),
            extra_body=body,
            extra_headers=headers,
        )

    def _typed(self, error: Any) -> ModelCallFailed:
        fields = error.body.get('error') if isinstance(error.body, dict) else None
        return out_of_credit(super()._typed(error), fields)


class Messages(RemoteModel):
    """What both faces are; written once, awaited."""

    provider = 'anthropic'

    def __init__(
        self,
        model_type: str = ANTHROPIC_DEFAULT,
        retry: int | RetryPolicy = 5,
        key: str | list[str] = 'ENV',
        proxies: str | dict[str, str] | None = None,
        meta_template: Any = CHAT_META,
        temperature: float | None = None,
        max_new_tokens: int = ANTHROPIC_MAX_TOKENS,
        top_p: float | None = None,
        top_k: int | None = None,
        repetition_penalty: float = 0.0,
        stop_words: list[str] | str | None = None,
        *,
        base_url: str | None = None,
        template_parser: Any = APITemplateParser,
        connect_timeout: float = 10.0,
        read_timeout: float = 300.0,
        rate_limits: RateLimits | None = None,
    ) -> None:
        super().__init__(
            model_type,
            retry,
            template_parser,
            meta_template,
            max_new_tokens=max_new_tokens,
            repetition_penalty=repetition_penalty,
            stop_words=stop_words,
        )
        # None leaves them to the model: some refuse to be given both temperature and top_p.
        self.gen_params |= {'temperature': temperature, 'top_p': top_p, 'top_k': top_k}
        self._server = server = AnthropicServer(
            base_url or os.environ.get('ANTHROPIC_BASE_URL') or ANTHROPIC_API_BASE,
            proxies=proxies,
            connect_timeout=connect_timeout,
            read_timeout=read_timeout,
        )
        if key == 'ENV':
            key = next((found for name in _KEY_VARIABLES if (found := os.environ.get(name))), '')
        if not key and is_offline('model'):
            key = 'EMPTY'
        if not key:
            raise ConfigError(
                f"No API key for {model_type}: pass key='...', or set {_KEY_VARIABLES[0]}."
            )
        self._ring = KeyRing(key)
        self.rate_limits = rate_limits or RateLimits()
        self.url = f'{server.base_url}/v1/messages'
        self.keys = self._ring.keys

    def generate_request_data(
        self, model_type: str, messages: Any, gen_params: dict[str, Any]
    ) -> dict[str, Any]:
        """The body of a request.

        Args:
            model_type: the model's name.
            messages: messages as the template parser wrote them.
            gen_params: generation parameters.

        Returns:
            The body, alone as in InternLM's.

        Raises:
            NotImplementedError: `max_tokens` was given; it is called `max_new_tokens` here.
        """
        if 'max_tokens' in gen_params:
            raise NotImplementedError('unsupported parameter: max_tokens (use max_new_tokens)')
        return messages_body(model_type, messages, gen_params)

    def _request(
        self, messages: Any, params: dict[str, Any], *, stream: bool
    ) -> tuple[dict[str, str], dict[str, Any]]:
        body = self.generate_request_data(self.model_type, messages, params)
        return {}, {**body, 'stream': True} if stream else body

    def _new_reply(self, params: dict[str, Any]) -> MessageBuilder:
        return MessageBuilder(params.get('stop_words'))


class AsyncAnthropicAPI(Messages, AsyncRemoteModel):
    """`AnthropicAPI` whose methods are awaited, from any event loop."""


class AnthropicAPI(Messages, BlockingRemoteModel):
    """Claude, through the extra `anthropic`.

    `chat` and `stream_chat` are those of `GPTAPI`. Images and tools may have OpenAI's format or
    Anthropic's own; parameters that are not InternLM's (``thinking``, ``cache_control``, ...) go
    into the request as they are. What the model thought is the reply's `reasoning`.

    Args:
        model_type: the model's name.
        retry: how many attempts a call may make, or a `RetryPolicy`.
        key: the API key, or several that are used in turn; ``'ENV'`` takes ``$ANTHROPIC_API_KEY``,
            else ``$Claude_API_KEY``. A key without credit is passed over for some minutes.
        proxies: a proxy's URL, or a dict from ``'http'`` and ``'https'`` to URLs.
        meta_template: how roles are named; see `APITemplateParser`.
        temperature: see `BaseLLM`; the model's own when not given, like the next two.
        max_new_tokens: see `BaseLLM`; thinking counts.
        top_p: see `BaseLLM`.
        top_k: see `BaseLLM`.
        repetition_penalty: without effect; it is there for InternLM's callers.
        stop_words: see `BaseLLM`.
        base_url: the server's URL. Without one, ``$ANTHROPIC_BASE_URL``, else Anthropic's own.
        template_parser: see `BaseLLM`.
        connect_timeout: seconds to reach the server.
        read_timeout: seconds without a byte from it. The time of the whole call is the policy's.
        rate_limits: limits that several models share.

    Attributes:
        url: where requests go.
        keys: the API keys.

    Raises:
        ConfigError: there is no key, or the URL is none.
        ExtraMissing: the SDK is not installed.
    """


# InternLM's names.
ClaudeAPI = AnthropicAPI
AsyncClaudeAPI = AsyncAnthropicAPI
