"""GPTAPI and AsyncGPTAPI: models behind any OpenAI-compatible server."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import Any

from lagent._extras import require
from lagent.effects import emit, listening
from lagent.errors import ConfigError
from lagent.llms.base_api import APITemplateParser, AsyncBaseAPILLM, BaseAPILLM
from lagent.llms.base_llm import Chunk, is_batch
from lagent.llms.completion import Completion
from lagent.llms.effect import model_call
from lagent.llms.errors import (
    BadReply,
    ModelCallFailed,
    ModelTimeout,
    ModelUnavailable,
    QuotaExhausted,
    StreamCut,
)
from lagent.llms.meta_template import CHAT_META
from lagent.llms.openai_reply import ReplyBuilder
from lagent.llms.openai_request import request_body
from lagent.llms.openai_server import KeyRing, Server, error_of_status
from lagent.llms.retry import Attempts, RetryPolicy
from lagent.llms.sse import EventDecoder, WholeDecoder
from lagent.portal import blocking, blocking_iterator
from lagent.schema import ModelStatusCode

OPENAI_API_BASE = 'https://api.openai.com/v1/chat/completions'
_MAX_PARALLEL = 20  # dialogs of a batch that are asked at once
_DRAIN = 0.5  # seconds


class _ChatCompletions(BaseAPILLM):
    """What both faces are; written once, awaited."""

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
        base_url: str | None = None,
        template_parser: Any = APITemplateParser,
        connect_timeout: float = 10.0,
        read_timeout: float = 300.0,
        **gen_params: Any,
    ) -> None:
        super().__init__(model_type, retry, template_parser, meta_template, **gen_params)
        url = api_base or base_url or os.environ.get('OPENAI_BASE_URL')
        self._server = Server(
            url or OPENAI_API_BASE,
            proxies=proxies,
            connect_timeout=connect_timeout,
            read_timeout=read_timeout,
        )
        if key == 'ENV':
            # Servers of one's own mostly want none, but the protocol has no way to send none.
            key = os.environ.get('OPENAI_API_KEY') or ('EMPTY' if url else '')
        if not key:
            raise ConfigError(
                f"No API key for {model_type}: pass key='...', or set OPENAI_API_KEY. A server of "
                'your own (api_base=...) needs none.'
            )
        self._ring = KeyRing(key, org)
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

    async def _answer(self, dialog: Any, gen_params: dict[str, Any], *, stream: bool) -> Completion:
        async with aclosing(self._ask(dialog, gen_params, stream=stream)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Completion):
                    return piece
                if stream:
                    emit(piece[0])
        raise AssertionError('a reply ends with its completion')

    async def _ask(
        self, dialog: Any, gen_params: dict[str, Any], *, stream: bool
    ) -> AsyncGenerator[tuple[str, str] | Completion, None]:
        """Each new piece with the text so far, then the reply; failed attempts are made again."""
        params = self.update_gen_params(**gen_params)
        messages = self.template_parser(dialog)
        _, body = self.generate_request_data(self.model_type, messages, params, self.json_mode)
        if stream:
            body = {'stream_options': {'include_usage': True}, **body, 'stream': True}
        attempts = Attempts(self.retry_policy)
        while True:
            key, org = self._ring.next()
            builder = ReplyBuilder(params.get('stop_words'))
            exchange = _Exchange(self._server, attempts, builder)
            try:
                async with aclosing(exchange.run(body, key, org)) as pieces:
                    async for piece in pieces:
                        if piece:
                            yield piece, builder.text
                rest, reply = builder.finish(complete=exchange.complete)
            except QuotaExhausted:
                self._ring.dropped.add(key)
            except ModelCallFailed as error:
                error.partial = error.partial or builder.text
                if stream and builder.text and not self.retry_policy.after_first_token:
                    attempts.give_up(error)
                await attempts.again(error)
            else:
                if rest:
                    yield rest, builder.text
                reply.usage = attempts.total_usage(reply.usage)
                reply.latency = attempts.elapsed
                yield reply
                return


class _Exchange:
    """One request, and its reply as it comes in.

    Attributes:
        complete: whether the server said that nothing follows.
    """

    def __init__(self, server: Server, attempts: Attempts, builder: ReplyBuilder) -> None:
        self._server, self._attempts, self._builder = server, attempts, builder
        self.complete = False

    async def run(
        self, body: dict[str, Any], key: str, org: str | None
    ) -> AsyncGenerator[str, None]:
        """Make the request, feed the reply to the builder, and yield the text it adds."""
        streamed = body.get('stream', False)
        async with AsyncExitStack() as stack:
            async with self._attempts.within_budget():
                pieces = await stack.enter_async_context(self._server.post(body, key, org))
            decoder = EventDecoder() if streamed else WholeDecoder()
            try:
                while not (self.complete or self._builder.stopped):
                    async with self._attempts.within_budget():
                        piece = await anext(pieces, None)
                    for data in decoder.close() if piece is None else decoder.feed(piece):
                        yield self._take(data)
                    if piece is None:
                        if not streamed:
                            self.complete = True
                        break
            except ModelTimeout:
                raise
            except ModelUnavailable as error:
                if not streamed or error.status:
                    raise
                raise StreamCut(str(error)) from error
            if self.complete:
                await _drain(pieces)

    def _take(self, data: str) -> str:
        if self.complete or data == '[DONE]':
            self.complete = True
            return ''
        try:
            reply = json.loads(data)
        except ValueError as error:
            raise BadReply(f'The server sent what is not JSON ({error}): {data[:80]!r}') from error
        if isinstance(reply, dict) and reply.get('error'):
            raise error_of_status(None, reply['error'], str(reply['error']))
        return self._builder.feed(reply)


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    """Read the end of a body, without which its connection could not serve another request."""
    with contextlib.suppress(TimeoutError, ModelCallFailed):  # the reply itself is complete
        async with asyncio.timeout(_DRAIN):
            async for _ in pieces:
                pass


class AsyncGPTAPI(_ChatCompletions, AsyncBaseAPILLM):
    """`GPTAPI` whose methods are awaited, from any event loop."""

    @model_call
    async def chat(
        self, /, inputs: Any, session_ids: Any = None, **gen_params: Any
    ) -> Completion | list[Completion]:
        """Answer a dialog, or each of a list of dialogs.

        While somebody listens to the run's events the reply is streamed, so that its pieces can
        be shown as they arrive.

        Args:
            inputs: the dialog or dialogs.
            session_ids: not used: nothing of a session is sent to a provider.
            gen_params: generation parameters of this call; those that are not InternLM's go into
                the request as they are (``tools``, ``response_format``, ``seed``, ...).

        Returns:
            The reply or replies, in order.

        Raises:
            ModelCallFailed: there is no usable reply; the subclass says why.
        """
        if not is_batch(inputs):
            return await self._answer(inputs, gen_params, stream=listening())
        slots = asyncio.Semaphore(_MAX_PARALLEL)

        async def answer(dialog: Any) -> Completion:
            async with slots:
                return await self._answer(dialog, gen_params, stream=False)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(answer(dialog)) for dialog in inputs]
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [task.result() for task in tasks]

    async def stream_chat(  # type: ignore[override]  # the awaited face of the same method
        self, /, inputs: Any, session_id: Any = None, **gen_params: Any
    ) -> AsyncGenerator[Chunk, None]:
        """Answer a dialog and yield the growing reply.

        Args:
            inputs: the dialog.
            session_id: not used: nothing of a session is sent to a provider.
            gen_params: see `chat`.

        Yields:
            ``(STREAM_ING, text so far, None)``, and at last ``(END, completion, None)``.

        Raises:
            ModelCallFailed: there is no usable reply; the subclass says why.
        """
        async with aclosing(self._ask(inputs, gen_params, stream=True)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Completion):
                    yield ModelStatusCode.END, piece, None
                else:
                    yield ModelStatusCode.STREAM_ING, piece[1], None


class GPTAPI(_ChatCompletions):
    """A model behind an OpenAI-compatible server, any server and any model name.

    Args:
        model_type: the model's name at the server.
        retry: how many attempts a call may make, or a `RetryPolicy`.
        json_mode: ask for JSON objects.
        key: the API key, or several that are used in turn; ``'ENV'`` takes ``$OPENAI_API_KEY``.
            A key whose quota is used up is dropped. With a server of your own it may be missing.
        org: the organization, or several that are used in turn.
        meta_template: how roles are named; see `APITemplateParser`.
        api_base: the server's URL, up to ``/v1`` or with ``/chat/completions``. Without one,
            ``$OPENAI_BASE_URL``, else OpenAI's own.
        proxies: a proxy's URL, or a dict from ``'http'`` and ``'https'`` to URLs. Without one, the
            usual environment variables count.
        base_url: the OpenAI SDK's name for `api_base`.
        connect_timeout: seconds to reach the server.
        read_timeout: seconds without a byte from it. The time of the whole call is the policy's.
        gen_params: generation parameters, see `BaseAPILLM`.

    Attributes:
        url: where requests go.
        keys: the API keys.

    Raises:
        ConfigError: there is no key for OpenAI's own server, or the URL is none.
    """

    # The effect is performed here too, so that it begins and ends on the caller's thread.
    chat = model_call(blocking(AsyncGPTAPI.chat))
    stream_chat = blocking_iterator(AsyncGPTAPI.stream_chat)
