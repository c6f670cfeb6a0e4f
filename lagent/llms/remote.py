"""Models behind a server: one conversation with it, whoever's protocol it is in."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from functools import partial
from typing import Any, Protocol

from lagent.concurrency import gather
from lagent.effects import emit, listening
from lagent.llms.base_api import AsyncBaseAPILLM, BaseAPILLM
from lagent.llms.base_llm import Chunk, is_batch
from lagent.llms.completion import Completion
from lagent.llms.effect import model_call, model_stream
from lagent.llms.errors import (
    BadReply,
    ModelCallFailed,
    ModelTimeout,
    ModelUnavailable,
    QuotaExhausted,
    StreamCut,
)
from lagent.llms.http_errors import shown_address, without_keys
from lagent.llms.keys import KeyRing
from lagent.llms.openai_reply import ReplyBuilder
from lagent.llms.rate_limits import RateLimits, estimate_request
from lagent.llms.retry import Attempts
from lagent.llms.sse import BodyDecoder
from lagent.portal import blocking, blocking_iterator
from lagent.schema import ModelStatusCode, without_surrogates

_MAX_PARALLEL = 20  # dialogs of a batch that are asked at once
_DRAIN = 0.5  # seconds
_SHOWN = 200  # characters of a body that is no reply


class Poster(Protocol):
    """A server, as far as a conversation needs one."""

    def post(
        self, body: dict[str, Any], headers: dict[str, str], key: str, org: str | None
    ) -> AbstractAsyncContextManager[AsyncGenerator[bytes]]:
        """Ask for a reply, and yield its body as it arrives."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class RemoteModel(BaseAPILLM):
    """What both faces of a remote model are; written once, awaited.

    A subclass sets the attributes below, and says what a request is and how a reply is read.
    """

    _server: Poster
    _ring: KeyRing
    rate_limits: RateLimits
    url: str

    def __repr__(self) -> str:
        return f'{type(self).__name__}({self.model_type!r}, url={shown_address(self.url)!r})'

    def _request(
        self, messages: Any, params: dict[str, Any], *, stream: bool
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """The headers, apart from the key, and the body of a request."""
        raise NotImplementedError

    def _new_reply(self, params: dict[str, Any]) -> ReplyBuilder:
        """What puts the reply together."""
        return ReplyBuilder(params.get('stop_words'))

    async def _until_ready(self) -> None:
        """Wait until the server takes requests, where that is known."""

    async def _close(self) -> None:
        """What both faces do to close."""
        await self._server.close()

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
        messages = self.render_dialog(dialog)
        headers, body = self._request(messages, params, stream=stream)
        body = _encodable(body)
        tokens = 0
        if self.rate_limits.tokens_per_minute:
            tokens = estimate_request(messages, params.get('max_new_tokens'))
        attempts = Attempts(self.retry_policy)
        refused: dict[str, QuotaExhausted] = {}
        while True:
            key, org = self._ring.next(self.rate_limits.held, refused)
            builder = self._new_reply(params)
            exchange = _Exchange(self._server, attempts, builder, shown_address(self.url))
            async with AsyncExitStack() as place:
                async with attempts.within_budget():
                    await self._until_ready()
                    ticket = await place.enter_async_context(self.rate_limits.slot(tokens, key))
                try:
                    async with aclosing(exchange.run(body, headers, key, org)) as pieces:
                        async for piece in pieces:
                            if piece:
                                yield piece, builder.text
                    rest, reply = builder.finish(complete=builder.ended)
                except ModelCallFailed as error:
                    ticket.settle(error.usage)
                    failure = error
                else:
                    ticket.settle(reply.usage)
                    if rest:
                        yield rest, builder.text
                    reply.usage = attempts.total_usage(reply.usage)
                    reply.latency = attempts.elapsed
                    yield reply
                    return
            # The place is free again while this one waits for its next attempt.
            failure.partial = failure.partial or builder.text
            shown = stream and builder.text and not self.retry_policy.after_first_token
            if isinstance(failure, QuotaExhausted):
                self._ring.pass_over(key)
                refused[key] = failure
                if not shown:
                    continue  # with another key, which costs no attempt
            self._hold_back(failure, key)
            if shown:
                attempts.give_up(failure)
            await attempts.again(failure)

    async def _answer_all(self, dialogs: Any, gen_params: dict[str, Any]) -> list[Completion]:
        answer = partial(self._answer, gen_params=gen_params, stream=False)
        return await gather(answer, dialogs, _MAX_PARALLEL)

    def _hold_back(self, failure: ModelCallFailed, key: str) -> None:
        """Let the other sessions wait as well, where the server asks for a wait that is waited."""
        asked = failure.retry_after
        if asked is not None and asked <= self.retry_policy.max_retry_after:
            self.rate_limits.hold(asked, key)


class AsyncRemoteModel(RemoteModel, AsyncBaseAPILLM):
    """The awaited face of a remote model."""

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
        return await self._answer_all(inputs, gen_params)

    @model_stream
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

    async def close(self) -> None:  # type: ignore[override]  # the awaited face of the same method
        """Close the connections, and the server if it was started here. Nobody may be asking.

        A later call opens connections again. Closing twice does nothing.
        """
        await self._close()


class BlockingRemoteModel(RemoteModel):
    """The blocking face of a remote model."""

    # The effect is performed here too, so that it begins and ends on the caller's thread.
    chat = model_call(blocking(AsyncRemoteModel.chat))
    stream_chat = model_stream(blocking_iterator(AsyncRemoteModel.stream_chat))
    close = blocking(AsyncRemoteModel.close)


class _Exchange:
    """One request, and its reply as it comes in."""

    def __init__(
        self, server: Poster, attempts: Attempts, builder: ReplyBuilder, address: str
    ) -> None:
        self._server, self._attempts, self._builder = server, attempts, builder
        self._address = address

    async def run(
        self, body: dict[str, Any], headers: dict[str, str], key: str, org: str | None
    ) -> AsyncGenerator[str, None]:
        """Make the request, feed the reply to the builder, and yield the text it adds."""
        streamed = body.get('stream', False)
        async with AsyncExitStack() as stack:
            async with self._attempts.within_budget():
                post = self._server.post(body, headers, key, org)
                pieces = await stack.enter_async_context(post)
            decoder = BodyDecoder()
            try:
                while not (self._builder.ended or self._builder.stopped):
                    async with self._attempts.within_budget():
                        piece = await anext(pieces, None)
                    for data in decoder.close() if piece is None else decoder.feed(piece):
                        yield self._take(data)
                    if piece is None:
                        if (document := decoder.document()) is not None:
                            yield self._take_whole(document, key)
                        break
            except ModelTimeout:
                raise
            except ModelUnavailable as error:
                if not streamed or error.status:
                    raise
                raise StreamCut(str(error)) from error
            if self._builder.ended:
                await _drain(pieces)

    def _take_whole(self, document: str, key: str) -> str:
        try:
            reply = json.loads(document)
        except (ValueError, RecursionError) as error:
            raise self._no_reply(document, key) from error
        if not self._builder.is_reply(reply):
            raise self._no_reply(document, key)
        text = self._builder.feed(reply)
        self._builder.ended = True
        return text

    def _no_reply(self, document: str, key: str) -> BadReply:
        begin = without_keys(document, [key]).strip()[:_SHOWN]
        what = f'a web page: {begin!r}' if begin.startswith('<') else repr(begin)
        return BadReply(
            f'{self._address} sent no reply of a model, but {what if begin else "nothing"}. '
            "Check that the base URL is that of the model's API, not of a page beside it, and that "
            'no proxy or login stands in between.'
        )

    def _take(self, data: str) -> str:
        if self._builder.ended or data == '[DONE]':
            self._builder.ended = True
            return ''
        try:
            reply = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise BadReply(f'The server sent what is not JSON ({error}): {data[:80]!r}') from error
        return self._builder.feed(reply)


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    """Read the end of a body, without which its connection could not serve another request."""
    with contextlib.suppress(TimeoutError, ModelCallFailed):  # the reply itself is complete
        async with asyncio.timeout(_DRAIN):
            async for _ in pieces:
                pass


def _encodable(body: dict[str, Any]) -> dict[str, Any]:
    """The same without halves of surrogate pairs, which would end every request of a session."""
    text = json.dumps(body, ensure_ascii=False, default=str)
    try:
        text.encode()
    except UnicodeEncodeError:
        body = json.loads(without_surrogates(text))
    return body
