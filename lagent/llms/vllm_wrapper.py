"""VllmModel and AsyncVllmModel: models that vLLM runs."""

import asyncio
import gc
import sys
import threading
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from lagent._extras import require
from lagent.concurrency import gather
from lagent.effects import emit, listening
from lagent.llms.base_api import APITemplateParser
from lagent.llms.base_llm import AsyncBaseLLM, BaseLLM, Chunk, LMTemplateParser
from lagent.llms.chat_template import TokenDialogs, as_prompt, has_chat_template
from lagent.llms.control_tokens import broken_up
from lagent.llms.effect import model_call, model_stream
from lagent.llms.errors import ServerFailed
from lagent.llms.meta_template import CHAT_META
from lagent.llms.sharing import SharesEngine
from lagent.llms.vllm_request import Adapters, job, overflow_typed, reply_of, sampling_params
from lagent.schema import ModelStatusCode


class VllmModel(SharesEngine, TokenDialogs, BaseLLM):
    """A model that vLLM's offline engine runs in this process.

    Dialogs are written with the tokenizer's chat template. With a `meta_template` or a
    `template_parser` they are written by that; and a base model, whose tokenizer has no chat
    template, gets the contents, a line each.

    Calls from several threads wait for one another. For many sessions at once take
    `AsyncVllmModel`, whose engine batches them.

    Args:
        path: a checkpoint's directory or its name on the hub.
        tp: GPUs that share the model.
        vllm_cfg: more of vLLM's engine arguments (``dtype``, ``max_model_len``,
            ``trust_remote_code``, ...).
        lora: a LoRA adapter for every call that names no other one: its directory, or its name on
            the hub.
        prefill: the beginning of every reply, see `HFTransformerChat`.
        template_parser: see `BaseLLM`.
        meta_template: see `LMTemplateParser`.
        gen_params: generation parameters, see `BaseLLM`.

    Attributes:
        model: the engine.
        tokenizer: its tokenizer.

    Raises:
        ExtraMissing: vLLM is not installed.
    """

    provider = 'vllm'
    _shared = ('model', 'tokenizer', '_vllm', '_adapters', '_lock', '_loop', '_closed')

    def __init__(
        self,
        path: str,
        tp: int = 1,
        vllm_cfg: dict[str, Any] | None = None,
        *,
        lora: str | None = None,
        prefill: str = '',
        template_parser: Any = None,
        meta_template: Any = None,
        **gen_params: Any,
    ) -> None:
        own_template = template_parser is not None or meta_template is not None
        super().__init__(
            path,
            template_parser=template_parser or LMTemplateParser,
            meta_template=meta_template,
            **gen_params,
        )
        self.prefill = prefill
        self._vllm = require('vllm', 'vllm')
        arguments = {'model': path, 'tensor_parallel_size': tp, **(vllm_cfg or {})}
        if lora:
            arguments.setdefault('enable_lora', True)
            self.gen_params['lora'] = lora
        self._adapters = Adapters()
        self.model = self._load(arguments)
        with_tokenizer = not arguments.get('skip_tokenizer_init', False)
        get_tokenizer = getattr(self.model, 'get_tokenizer', None)
        self.tokenizer: Any = get_tokenizer() if get_tokenizer and with_tokenizer else None
        self._by_chat_template = not own_template and has_chat_template(self.tokenizer)
        if self._by_chat_template:
            self.template_parser = APITemplateParser(CHAT_META)
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def _load(self, arguments: dict[str, Any]) -> Any:
        # An engine that nobody uses any more ends, when it is collected, what all engines of a
        # process share. So it goes now; vLLM has hidden what it consists of from the collector.
        gc.unfreeze()
        gc.collect()
        return self._vllm.LLM(**arguments)

    def tokenize(self, prompts: str) -> list[int]:
        """Turn a text into token ids.

        Args:
            prompts: the text.

        Returns:
            The ids.
        """
        ids: list[int] = self.tokenizer.encode(prompts)
        return ids

    def render_dialog(self, dialog: Any) -> Any:
        """Turn one dialog into what `generate` takes.

        Args:
            dialog: the dialog; token ids, and vLLM's prompt dicts, stay as they are.

        Returns:
            The prompt.
        """
        if isinstance(dialog, dict):
            return dialog
        if (given := as_prompt(dialog)) is not None:
            return given
        if self._by_chat_template:
            return self.prompt_of(self.template_parser(dialog))
        if isinstance(dialog, list):
            dialog = broken_up(self.tokenizer, dialog)
        return self.template_parser(dialog)

    @model_call
    def generate(
        self,
        inputs: Any,
        do_preprocess: bool | None = None,
        skip_special_tokens: bool = False,
        return_dict: bool = False,
        **gen_params: Any,
    ) -> Any:
        """Complete a prompt, or each of a list of prompts in one batch.

        Args:
            inputs: a text, a list of token ids, or one of vLLM's prompt dicts; or a list of those.
            do_preprocess: without effect; it is there for InternLM's callers.
            skip_special_tokens: leave special tokens out of the text.
            return_dict: give dicts with what vLLM says (``text``, ``token_ids``,
                ``cumulative_logprob``, ``logprobs``, ``finish_reason``, ``stop_reason``).
            gen_params: generation parameters of this call, InternLM's or vLLM's own;
                ``structured_outputs`` may be a dict (``{'json': schema}``, ``{'regex': ...}``,
                ``{'grammar': ...}``, ``{'choice': [...]}``). `lora` names a LoRA adapter, None the
                model itself. With ``return_token_ids=True`` a completion has `prompt_token_ids`.

        Returns:
            The completion or completions, or dicts, in order.

        Raises:
            ContextOverflow: a prompt is longer than the model's context.
            BadRequest: the LoRA adapter cannot be loaded.
        """
        jobs, many = self._jobs(inputs)
        params = self.update_gen_params(**gen_params, skip_special_tokens=skip_special_tokens)
        sampling = sampling_params(self._vllm, params)
        adapter = self._adapters.request(params.get('lora'))
        started = time.monotonic()
        with self._lock, overflow_typed():
            self._check_open()
            if not self._adapters.is_loaded(adapter):
                with self._adapters.loading(adapter):
                    self.model.llm_engine.add_lora(adapter)
            prompts = [prompt for prompt, _ in jobs]
            try:
                outputs = self.model.generate(
                    prompts, sampling, use_tqdm=False, lora_request=adapter
                )
            except BaseException:
                self._abort_all()
                raise
        replies = [
            reply_of(output, opening, params, started, return_dict=return_dict)
            for output, (_, opening) in zip(outputs, jobs, strict=True)
        ]
        if many:
            return replies
        if listening():
            emit(str(replies[0]))
        return replies[0]

    def close(self) -> None:
        """Stop the engine, with its processes, once it has answered; its memory is free then.

        An engine that runs in this process (``VLLM_ENABLE_V1_MULTIPROCESSING=0``) takes with it
        what vLLM shares among all engines of a process: close others that do together with it.
        Closing twice does nothing; a later call is a `ServerFailed`.
        """
        with self._lock:
            if not self._closed.is_set():
                self._closed.set()
                self.model.llm_engine.engine_core.shutdown()
            self.model = None  # in this process the weights live as long as the engine

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ServerFailed(f'This {type(self).__name__} was closed. Make another one.')

    def _abort_all(self) -> None:
        """Leave nothing in the engine that the next call would go on with, and be answered."""
        engine = self.model.llm_engine
        engine.abort_request(list(engine.output_processor.request_states), internal=True)

    @staticmethod
    def _jobs(inputs: Any) -> tuple[list[tuple[Any, str]], bool]:
        """What the engine is asked, with the opening of each reply; and whether it is a list."""
        many = isinstance(inputs, list) and bool(inputs) and not isinstance(inputs[0], int)
        return [job(prompt) for prompt in (inputs if many else [inputs])], many


class AsyncVllmModel(VllmModel, AsyncBaseLLM):
    """A model that vLLM's asynchronous engine runs, for many sessions at once.

    The engine batches what it is asked at one time; cancelling a call aborts it in the engine. It
    serves the event loop that first asks it, for as long as that loop runs.

    Args:
        args: see `VllmModel`.
        kwargs: see `VllmModel`.
    """

    _loop: asyncio.AbstractEventLoop | None = None

    def _load(self, arguments: dict[str, Any]) -> Any:
        class Engine(self._vllm.AsyncLLMEngine):  # type: ignore[misc, name-defined]
            def __del__(self) -> None:
                # At the end of the process vLLM's modules are gone, and so are its own processes.
                if not sys.is_finalizing():
                    super().__del__()

        return Engine.from_engine_args(self._vllm.AsyncEngineArgs(**arguments))

    async def close(self) -> None:  # type: ignore[override]  # the awaited face of the same method
        """Stop the engine's process. Closing twice does nothing; see `VllmModel.close`."""
        if not self._closed.is_set():
            self._closed.set()
            await asyncio.to_thread(self.model.shutdown)

    @model_call
    async def generate(  # type: ignore[override]  # the awaited face of the same method
        self,
        inputs: Any,
        session_ids: Any = None,
        do_preprocess: bool | None = None,
        skip_special_tokens: bool = False,
        return_dict: bool = False,
        **gen_params: Any,
    ) -> Any:
        """Complete a prompt, or each of a list of prompts; see `VllmModel.generate`.

        Args:
            inputs: see `VllmModel.generate`.
            session_ids: not used: every request has an id of its own.
            do_preprocess: see `VllmModel.generate`.
            skip_special_tokens: see `VllmModel.generate`.
            return_dict: see `VllmModel.generate`.
            gen_params: see `VllmModel.generate`.

        Returns:
            The completion or completions, or dicts, in order.

        Raises:
            ContextOverflow: a prompt is longer than the model's context.
            BadRequest: the LoRA adapter cannot be loaded.
        """
        jobs, many = self._jobs(inputs)
        params = self.update_gen_params(**gen_params, skip_special_tokens=skip_special_tokens)
        if not many:
            return await self._answer(*jobs[0], params, return_dict=return_dict, show=listening())
        return await gather(
            lambda job: self._answer(*job, params, return_dict=return_dict, show=False), jobs
        )

    @model_stream
    async def stream_generate(  # type: ignore[override]  # the awaited face of the same method
        self, inputs: Any, skip_special_tokens: bool = False, **gen_params: Any
    ) -> AsyncGenerator[Chunk, None]:
        """Complete a prompt and yield its growing completion.

        Args:
            inputs: one prompt, see `VllmModel.generate`.
            skip_special_tokens: leave special tokens out of the text.
            gen_params: see `VllmModel.generate`.

        Yields:
            ``(STREAM_ING, text so far, None)``, and at last ``(END, completion, None)``.
        """
        params = self.update_gen_params(**gen_params, skip_special_tokens=skip_special_tokens)
        async with aclosing(self._ask(*job(inputs), params, stream=True)) as replies:
            async for state, reply in replies:
                yield state, reply if state == ModelStatusCode.END else str(reply), None

    @model_stream
    async def stream_chat(  # type: ignore[override]  # the awaited face of the same method
        self, inputs: Any, session_id: Any = None, **gen_params: Any
    ) -> AsyncGenerator[Chunk, None]:
        """Answer a dialog and yield the growing reply.

        Args:
            inputs: the dialog.
            session_id: not used: every request has an id of its own.
            gen_params: see `VllmModel.generate`.

        Yields:
            ``(STREAM_ING, text so far, None)``, and at last ``(END, completion, None)``.
        """
        chunks = self.stream_generate(self.render_dialog(inputs), **gen_params)
        async with aclosing(chunks):
            async for chunk in chunks:
                yield chunk

    async def _answer(
        self, prompt: Any, opening: str, params: dict[str, Any], *, return_dict: bool, show: bool
    ) -> Any:
        shown = 0
        reply: Any = None
        replies = self._ask(prompt, opening, params, stream=show, return_dict=return_dict)
        async with aclosing(replies):
            async for _, reply in replies:
                text = reply['text'] if return_dict else reply
                if show and len(text) > shown:
                    emit(text[shown:])
                    shown = len(text)
        return reply

    async def _ask(
        self,
        prompt: Any,
        opening: str,
        params: dict[str, Any],
        *,
        stream: bool,
        return_dict: bool = False,
    ) -> AsyncGenerator[tuple[ModelStatusCode, Any], None]:
        """Ask the engine, and yield the reply as far as it has come, whole at last."""
        self._check_open()
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise RuntimeError(
                'This vLLM engine serves another event loop, which it was first used in. Make one '
                'model for each loop, or all calls inside one asyncio.run().'
            )
        self._loop = loop
        kinds = self._vllm.sampling_params.RequestOutputKind
        sampling = sampling_params(
            self._vllm, params, output_kind=kinds.CUMULATIVE if stream else kinds.FINAL_ONLY
        )
        adapter = self._adapters.request(params.get('lora'))
        started = time.monotonic()
        if not self._adapters.is_loaded(adapter):
            with self._adapters.loading(adapter):
                await self.model.add_lora(adapter)
        # Leaving the generator early, by cancellation too, aborts the request in the engine.
        outputs = self.model.generate(
            prompt, sampling, request_id=uuid.uuid4().hex, lora_request=adapter
        )
        with overflow_typed():
            async with aclosing(outputs):
                async for output in outputs:
                    state = ModelStatusCode.END if output.finished else ModelStatusCode.STREAM_ING
                    yield state, reply_of(output, opening, params, started, return_dict=return_dict)
