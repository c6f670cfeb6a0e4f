"""VllmModel and AsyncVllmModel: models that vLLM runs."""

import asyncio
import sys
import threading
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from lagent._extras import require
from lagent.effects import emit, listening
from lagent.llms.base_api import APITemplateParser
from lagent.llms.base_llm import AsyncBaseLLM, BaseLLM, Chunk, LMTemplateParser
from lagent.llms.chat_template import Prompt, chat_prompt, has_chat_template
from lagent.llms.completion import Completion, Usage
from lagent.llms.effect import model_call
from lagent.llms.errors import ContextOverflow, is_overflow
from lagent.llms.meta_template import CHAT_META
from lagent.llms.stops import cut_at_stop
from lagent.schema import ModelStatusCode


class VllmModel(BaseLLM):
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

    def __init__(
        self,
        path: str,
        tp: int = 1,
        vllm_cfg: dict[str, Any] | None = None,
        *,
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
        self.model = self._load(arguments)
        with_tokenizer = not arguments.get('skip_tokenizer_init', False)
        get_tokenizer = getattr(self.model, 'get_tokenizer', None)
        self.tokenizer: Any = get_tokenizer() if get_tokenizer and with_tokenizer else None
        self._by_chat_template = not own_template and has_chat_template(self.tokenizer)
        if self._by_chat_template:
            self.template_parser = APITemplateParser(CHAT_META)
        self._lock = threading.Lock()

    def _load(self, arguments: dict[str, Any]) -> Any:
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
            dialog: the dialog.

        Returns:
            The prompt.
        """
        rendered = self.template_parser(dialog)
        if self._by_chat_template:
            return chat_prompt(self.tokenizer, rendered, self.prefill)
        return rendered

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
                ``{'grammar': ...}``, ``{'choice': [...]}``).

        Returns:
            The completion or completions, or dicts, in order.

        Raises:
            ContextOverflow: a prompt is longer than the model's context.
        """
        jobs, many = self._jobs(inputs)
        params = self.update_gen_params(**gen_params, skip_special_tokens=skip_special_tokens)
        started = time.monotonic()
        try:
            with self._lock:
                outputs = self.model.generate(
                    [prompt for prompt, _ in jobs], self._sampling(params), use_tqdm=False
                )
        except Exception as error:
            _raise_overflow(error)
            raise
        replies = [
            self._reply(output, opening, params, started, return_dict=return_dict)
            for output, (_, opening) in zip(outputs, jobs, strict=True)
        ]
        if many:
            return replies
        if listening():
            emit(str(replies[0]))
        return replies[0]

    chat = model_call(BaseLLM.chat)

    @staticmethod
    def _jobs(inputs: Any) -> tuple[list[tuple[Any, str]], bool]:
        """What the engine is asked, with the opening of each reply; and whether it is a list."""
        many = isinstance(inputs, list) and bool(inputs) and not isinstance(inputs[0], int)
        return [_job(prompt) for prompt in (inputs if many else [inputs])], many

    def _sampling(self, params: dict[str, Any], **more: Any) -> Any:
        """VLLM's sampling parameters; those of InternLM that it names differently are renamed."""
        arguments = {**params, **more}
        max_new_tokens, stops = arguments.pop('max_new_tokens'), arguments.pop('stop_words')
        arguments.setdefault('max_tokens', max_new_tokens)
        arguments.setdefault('stop', [stop for stop in stops or () if stop])
        if arguments['top_k'] is None:
            del arguments['top_k']
        if isinstance(structure := arguments.get('structured_outputs'), dict):
            structures = self._vllm.sampling_params.StructuredOutputsParams
            arguments['structured_outputs'] = structures(**structure)
        return self._vllm.SamplingParams(**arguments)

    @staticmethod
    def _reply(
        output: Any, opening: str, params: dict[str, Any], started: float, *, return_dict: bool
    ) -> Any:
        best = output.outputs[0]
        text, stop = cut_at_stop(best.text, params['stop_words'])
        ended = ('stop', stop) if stop is not None else (best.finish_reason, best.stop_reason)
        if return_dict:
            return {
                'text': opening + text,
                'token_ids': best.token_ids,
                'cumulative_logprob': best.cumulative_logprob,
                'logprobs': best.logprobs,
                'finish_reason': ended[0],
                'stop_reason': ended[1],
            }
        # Engines that only look like vLLM may leave these out.
        prompt_ids = getattr(output, 'prompt_token_ids', None) or ()
        cached = getattr(output, 'num_cached_tokens', None) or 0
        return Completion(
            opening + text,
            finish_reason=ended[0],
            stop_reason=ended[1],
            usage=Usage(len(prompt_ids), len(best.token_ids), cached_tokens=cached),
            token_ids=best.token_ids,
            logprobs=_chosen(best.token_ids, best.logprobs),
            latency=time.monotonic() - started,
        )


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

    def close(self) -> None:
        """Stop the engine's process. Closing twice does nothing."""
        self.model.shutdown()

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
        """
        jobs, many = self._jobs(inputs)
        params = self.update_gen_params(**gen_params, skip_special_tokens=skip_special_tokens)
        if not many:
            return await self._answer(*jobs[0], params, return_dict=return_dict, show=listening())
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(
                        self._answer(*job, params, return_dict=return_dict, show=False)
                    )
                    for job in jobs
                ]
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [task.result() for task in tasks]

    chat = model_call(AsyncBaseLLM.chat)

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
        async with aclosing(self._ask(*_job(inputs), params, stream=True)) as replies:
            async for state, reply in replies:
                yield state, reply if state == ModelStatusCode.END else str(reply), None

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
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise RuntimeError(
                'This vLLM engine serves another event loop, which it was first used in. Make one '
                'model for each loop, or all calls inside one asyncio.run().'
            )
        self._loop = loop
        kinds = self._vllm.sampling_params.RequestOutputKind
        sampling = self._sampling(
            params, output_kind=kinds.CUMULATIVE if stream else kinds.FINAL_ONLY
        )
        started = time.monotonic()
        # Leaving the generator early, by cancellation too, aborts the request in the engine.
        outputs = self.model.generate(prompt, sampling, request_id=uuid.uuid4().hex)
        try:
            async with aclosing(outputs):
                async for output in outputs:
                    state = ModelStatusCode.END if output.finished else ModelStatusCode.STREAM_ING
                    yield (
                        state,
                        self._reply(output, opening, params, started, return_dict=return_dict),
                    )
        except Exception as error:
            _raise_overflow(error)
            raise


def _job(prompt: Any) -> tuple[Any, str]:
    """One prompt as the engine takes it, and the opening of its reply."""
    if isinstance(prompt, Prompt):
        return {'prompt_token_ids': prompt.token_ids}, prompt.opening
    if isinstance(prompt, list):
        return {'prompt_token_ids': prompt}, ''
    return prompt, ''


def _chosen(token_ids: Any, tables: Any) -> list[float] | None:
    """The log probability of each token that was taken."""
    if not tables:
        return None
    return [table[token].logprob for token, table in zip(token_ids, tables, strict=True)]


def _raise_overflow(error: Exception) -> None:
    """Raise our own error if that is what vLLM means, whose classes differ between versions."""
    if is_overflow(str(error)):
        raise ContextOverflow(f'{error} Shorten the conversation.') from error
