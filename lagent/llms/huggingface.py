"""HFTransformer and its kin: models that transformers runs in this process."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, closing
from typing import Any

from lagent.effects import emit, listening
from lagent.llms.base_api import APITemplateParser
from lagent.llms.base_llm import AsyncBaseLLM, BaseLLM, Chunk, LMTemplateParser, is_batch
from lagent.llms.chat_template import Prompt, TokenDialogs, as_prompt
from lagent.llms.completion import Completion
from lagent.llms.control_tokens import broken_up
from lagent.llms.effect import model_call, model_stream
from lagent.llms.hf_engine import Engine, Request, load_model, load_tokenizer
from lagent.llms.meta_template import CHAT_META
from lagent.llms.sharing import SharesEngine
from lagent.schema import ModelStatusCode


class HFTransformer(SharesEngine, BaseLLM):
    """A model that completes a prompt, by transformers.

    Args:
        path: a checkpoint's directory or its name on the hub; a GGUF file, or a directory with one.
        tokenizer_path: where the tokenizer lies, if elsewhere.
        tokenizer_kwargs: more arguments for loading the tokenizer.
        tokenizer_only: load no weights; only `tokenize` works then.
        model_kwargs: more arguments for loading the model (``device_map``, ``quantization_config``,
            ``attn_implementation``, ``trust_remote_code``, ...).
        meta_template: how roles are written, see `LMTemplateParser`.
        stop_words_id: ids of more tokens that end a reply.
        template_parser: see `BaseLLM`.
        device: where the model runs, such as ``'cuda:1'``; without it the first CUDA GPU, else
            the CPU. A ``device_map`` takes precedence.
        dtype: of the weights; ``'auto'`` takes the checkpoint's own.
        gen_params: generation parameters, see `BaseLLM`.

    Raises:
        ExtraMissing: transformers or torch is not installed.
    """

    provider = 'transformers'
    _shared = ('model', 'tokenizer', '_engine')

    def __init__(
        self,
        path: str,
        tokenizer_path: str | None = None,
        tokenizer_kwargs: dict[str, Any] | None = None,
        tokenizer_only: bool = False,
        model_kwargs: dict[str, Any] | None = None,
        meta_template: Any = None,
        stop_words_id: list[int] | int | None = None,
        *,
        template_parser: Any = LMTemplateParser,
        device: str | None = None,
        dtype: Any = 'auto',
        **gen_params: Any,
    ) -> None:
        super().__init__(path, tokenizer_only, template_parser, meta_template, **gen_params)
        self.tokenizer = load_tokenizer(tokenizer_path or path, tokenizer_kwargs)
        if tokenizer_only:
            return
        ends = [stop_words_id] if isinstance(stop_words_id, int) else stop_words_id or []
        self.model = load_model(path, model_kwargs, device=device, dtype=dtype)
        self._engine = Engine(self.model, self.tokenizer, ends)

    def tokenize(self, prompts: str | list[str]) -> Any:
        """Turn a text, or each of several, into token ids.

        Args:
            prompts: the text or texts.

        Returns:
            A list of ids, or a list of such lists.
        """
        return self.tokenizer(prompts)['input_ids']

    @model_call
    def generate(self, inputs: Any, do_sample: bool = True, **gen_params: Any) -> Any:
        """Complete a prompt, or each of a list of prompts in one batch.

        Args:
            inputs: a text or token ids; or a list of those.
            do_sample: False takes the likeliest token each time, as a temperature of 0 does.
            gen_params: generation parameters of this call; those that are not InternLM's go to
                ``model.generate`` as they are. With ``logprobs=True`` the completions have them,
                with ``return_token_ids=True`` also `prompt_token_ids`.

        Returns:
            The completion or completions, in order.

        Raises:
            ContextOverflow: a prompt is longer than the model's context.
        """
        many = isinstance(inputs, list) and bool(inputs) and not isinstance(inputs[0], int)
        return self._complete(inputs, many, self._request(do_sample, gen_params))

    @model_stream
    def stream_generate(
        self, inputs: Any, do_sample: bool = True, **gen_params: Any
    ) -> Iterator[Chunk]:
        """Complete a prompt and yield its growing completion.

        Args:
            inputs: a text or a list of token ids.
            do_sample: see `generate`.
            gen_params: see `generate`.

        Yields:
            ``(STREAM_ING, text so far, None)``, and at last ``(END, completion, None)``.
        """
        yield from self._stream(self._prompt(inputs), self._request(do_sample, gen_params))

    @model_call
    def chat(
        self, inputs: Any, session_ids: Any = None, do_sample: bool = True, **gen_params: Any
    ) -> Any:
        """Answer a dialog, or each of a list of dialogs in one batch.

        Args:
            inputs: the dialog or dialogs.
            session_ids: not used: models keep nothing between calls.
            do_sample: see `generate`.
            gen_params: see `generate`.

        Returns:
            The reply or replies, in order.

        Raises:
            ContextOverflow: a dialog is longer than the model's context.
        """
        return self._chat(inputs, self._request(do_sample, gen_params))

    @model_stream
    def stream_chat(
        self, inputs: Any, do_sample: bool = True, session_id: Any = None, **gen_params: Any
    ) -> Iterator[Chunk]:
        """Answer a dialog and yield the growing reply.

        Args:
            inputs: the dialog.
            do_sample: see `generate`.
            session_id: not used: models keep nothing between calls.
            gen_params: see `generate`.

        Yields:
            ``(STREAM_ING, text so far, None)``, and at last ``(END, completion, None)``.
        """
        prompt = self._prompt(self.render_dialog(inputs))
        yield from self._stream(prompt, self._request(do_sample, gen_params))

    def render_dialog(self, dialog: Any) -> Any:
        """Turn one dialog into what `generate` takes.

        Args:
            dialog: the dialog; token ids stay as they are.

        Returns:
            The prompt.
        """
        if (given := as_prompt(dialog)) is not None:
            return given
        if isinstance(dialog, list):
            dialog = broken_up(self.tokenizer, dialog)
        return self.template_parser(dialog)

    def _stream(self, prompt: Prompt, request: Request) -> Iterator[Chunk]:
        text = ''
        with closing(self._engine.stream(prompt, request)) as pieces:
            for piece in pieces:
                if isinstance(piece, Completion):
                    yield ModelStatusCode.END, piece, None
                else:
                    text += piece
                    yield ModelStatusCode.STREAM_ING, text, None

    def _request(self, do_sample: bool, gen_params: dict[str, Any]) -> Request:
        return Request.make(self.update_gen_params(**gen_params), do_sample=do_sample)

    def _prompt(self, prompt: Any) -> Prompt:
        return as_prompt(prompt) or Prompt(self.tokenize(prompt))

    def _chat(self, inputs: Any, request: Request) -> Any:
        return self._complete(self.render(inputs), is_batch(inputs), request)

    def _complete(self, inputs: Any, many: bool, request: Request) -> Any:
        prompts = [self._prompt(prompt) for prompt in (inputs if many else [inputs])]
        if many:
            return self._engine.complete(prompts, request)
        if not listening():
            return self._engine.complete(prompts, request)[0]
        for piece in self._engine.stream(prompts[0], request):
            if isinstance(piece, Completion):
                return piece
            emit(piece)
        raise AssertionError('a stream ends with its completion')


class HFTransformerCasualLM(HFTransformer):
    """`HFTransformer` under the name that InternLM gave to causal models."""


class HFTransformerChat(TokenDialogs, HFTransformerCasualLM):
    """A chat model: dialogs are written with the tokenizer's own chat template.

    Args:
        path: see `HFTransformer`.
        template_parser: turns a dialog into messages.
        meta_template: how roles are named, see `APITemplateParser`.
        prefill: the beginning of every reply. It is written for the model, which continues it, and
            is part of the reply; with the opening of a code block a small model writes code. A
            dialog that ends with the assistant's message is continued there instead.
        kwargs: see `HFTransformer`.
    """

    def __init__(
        self,
        path: str,
        *,
        template_parser: Any = APITemplateParser,
        meta_template: Any = CHAT_META,
        prefill: str = '',
        **kwargs: Any,
    ) -> None:
        super().__init__(
            path, template_parser=template_parser, meta_template=meta_template, **kwargs
        )
        self.prefill = prefill

    def render_dialog(self, dialog: Any) -> Prompt:
        """Turn one dialog into what `generate` takes; see `HFTransformer.render_dialog`."""
        return as_prompt(dialog) or self.prompt_of(self.template_parser(dialog))


class AsyncHFTransformerChat(HFTransformerChat, AsyncBaseLLM):
    """`HFTransformerChat` whose methods are awaited; the model runs on a worker thread.

    Cancelling a call stops the model after its current token.
    """

    @model_call
    async def generate(  # type: ignore[override]  # the awaited face of the same method
        self, inputs: Any, session_ids: Any = None, do_sample: bool = True, **gen_params: Any
    ) -> Any:
        """Complete a prompt, or each of a list of prompts; see `HFTransformer.generate`."""
        many = isinstance(inputs, list) and bool(inputs) and not isinstance(inputs[0], int)
        request = self._request(do_sample, gen_params)
        return await _in_thread(request, self._complete, inputs, many, request)

    @model_call
    async def chat(
        self, inputs: Any, session_ids: Any = None, do_sample: bool = True, **gen_params: Any
    ) -> Any:
        """Answer a dialog, or each of a list of dialogs; see `HFTransformer.chat`."""
        request = self._request(do_sample, gen_params)
        return await _in_thread(request, self._chat, inputs, request)

    @model_stream
    async def stream_generate(  # type: ignore[override]  # the awaited face of the same method
        self, inputs: Any, do_sample: bool = True, **gen_params: Any
    ) -> AsyncIterator[Chunk]:
        """Complete a prompt and yield its growing completion; see `HFTransformer`."""
        request = self._request(do_sample, gen_params)
        async with aclosing(_from_thread(request, self._stream, self._prompt(inputs))) as chunks:
            async for chunk in chunks:
                yield chunk

    @model_stream
    async def stream_chat(  # type: ignore[override]  # the awaited face of the same method
        self, inputs: Any, do_sample: bool = True, session_id: Any = None, **gen_params: Any
    ) -> AsyncIterator[Chunk]:
        """Answer a dialog and yield the growing reply; see `HFTransformer`."""
        request = self._request(do_sample, gen_params)
        prompt = self.render_dialog(inputs)
        async with aclosing(_from_thread(request, self._stream, prompt)) as chunks:
            async for chunk in chunks:
                yield chunk


async def _in_thread(request: Request, work: Callable[..., Any], *args: Any) -> Any:
    """Run a generation on a worker thread; cancelling the wait stops it."""
    try:
        return await asyncio.to_thread(work, *args)
    finally:
        request.cancelled.set()


async def _from_thread(
    request: Request, stream: Callable[..., Iterator[Chunk]], prompt: Prompt
) -> AsyncGenerator[Chunk, None]:
    """Iterate over a generation that runs on a worker thread; leaving early stops it."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[Chunk | None] = asyncio.Queue()

    def pump() -> None:
        try:
            for chunk in stream(prompt, request):
                loop.call_soon_threadsafe(arrived.put_nowait, chunk)
        finally:
            loop.call_soon_threadsafe(arrived.put_nowait, None)

    work = asyncio.create_task(asyncio.to_thread(pump))
    try:
        while (chunk := await arrived.get()) is not None:
            yield chunk
    finally:
        request.cancelled.set()
        await work
