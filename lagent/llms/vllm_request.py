"""What vLLM's engines are asked, and what they answer: the part that both engines share."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lagent._extras import require
from lagent.llms.chat_template import as_prompt
from lagent.llms.completion import Completion, Usage
from lagent.llms.errors import BadRequest, ContextOverflow, is_overflow
from lagent.llms.stops import cut_at_stop

_OURS = ('lora', 'return_token_ids')  # generation parameters that are none of sampling


def job(prompt: Any) -> tuple[Any, str]:
    """One prompt as an engine takes it.

    Args:
        prompt: a text, token ids, a `Prompt`, or one of vLLM's prompt dicts.

    Returns:
        The prompt, and the opening of its reply.
    """
    if not isinstance(prompt, dict) and (given := as_prompt(prompt)) is not None:
        return {'prompt_token_ids': given.token_ids}, given.opening
    return prompt, ''


def sampling_params(vllm: Any, params: dict[str, Any], **more: Any) -> Any:
    """VLLM's sampling parameters; those of InternLM that it names differently are renamed.

    Args:
        vllm: the library.
        params: generation parameters, InternLM's and vLLM's.
        more: others, which take precedence.

    Returns:
        The library's object.
    """
    arguments = {name: value for name, value in params.items() if name not in _OURS} | more
    max_new_tokens, stops = arguments.pop('max_new_tokens'), arguments.pop('stop_words')
    arguments.setdefault('max_tokens', max_new_tokens)
    arguments.setdefault('stop', [stop for stop in stops or () if stop])
    if arguments['top_k'] is None:
        del arguments['top_k']
    if isinstance(structure := arguments.get('structured_outputs'), dict):
        structures = vllm.sampling_params.StructuredOutputsParams
        arguments['structured_outputs'] = structures(**structure)
    return vllm.SamplingParams(**arguments)


def reply_of(
    output: Any, opening: str, params: dict[str, Any], started: float, *, return_dict: bool
) -> Any:
    """The reply that an engine's output holds, as far as it has come.

    Args:
        output: vLLM's ``RequestOutput``.
        opening: the beginning of the reply that was part of the prompt.
        params: generation parameters of the call.
        started: when the call began, on the monotonic clock.
        return_dict: give InternLM's dict instead of a completion.

    Returns:
        The completion, or the dict.
    """
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
        prompt_token_ids=prompt_ids if params.get('return_token_ids') else None,
        latency=time.monotonic() - started,
    )


def _chosen(token_ids: Any, tables: Any) -> list[float] | None:
    """The log probability of each token that was taken."""
    if not tables:
        return None
    return [table[token].logprob for token, table in zip(token_ids, tables, strict=True)]


@contextmanager
def overflow_typed() -> Iterator[None]:
    """Give vLLM's error about the context our own type; its classes differ between versions.

    Raises:
        ContextOverflow: the prompt is longer than the model's context.
    """
    try:
        yield
    except Exception as error:
        if is_overflow(str(error)):
            raise ContextOverflow(f'{error} Shorten the conversation.') from error
        raise


class Adapters:
    """The LoRA adapters that one engine has been asked for, each under a number of its own."""

    def __init__(self) -> None:
        self._requests: dict[str, Any] = {}
        self._loaded: set[str] = set()
        self._lock = threading.Lock()

    def request(self, lora: Any) -> Any:
        """How vLLM is asked for an adapter.

        Args:
            lora: its directory or its name on the hub; a ``LoRARequest`` stays as it is.

        Returns:
            A ``LoRARequest``; None for the model without an adapter.
        """
        if not isinstance(lora, str):
            return lora
        if not lora:
            return None
        with self._lock:
            if lora not in self._requests:
                kind = require('vllm.lora.request', 'vllm').LoRARequest
                self._requests[lora] = kind(lora, len(self._requests) + 1, lora)
            return self._requests[lora]

    def is_loaded(self, request: Any) -> bool:
        """Whether the engine has loaded an adapter.

        Args:
            request: what `request` gave.

        Returns:
            True for None, too: without an adapter there is nothing to load.
        """
        return request is None or request.lora_name in self._loaded

    @contextmanager
    def loading(self, request: Any) -> Iterator[None]:
        """Mark an adapter as loaded when the block, which loads it, succeeds.

        An adapter that the engine meets for the first time inside a batch, and cannot load, would
        end the engine.

        Args:
            request: what `request` gave.

        Raises:
            BadRequest: it cannot be loaded.
        """
        try:
            yield
        except Exception as error:
            raise BadRequest(
                f'vLLM cannot load the LoRA adapter {request.lora_path!r}: {error}. The engine '
                "needs lora=... when it is made, or vllm_cfg={'enable_lora': True}, and a "
                'max_lora_rank that the adapter fits in.'
            ) from error
        self._loaded.add(request.lora_name)
