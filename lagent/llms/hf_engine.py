"""Text generation with transformers: batches, streams, stop words, and how a reply ended."""

import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lagent._extras import require
from lagent.errors import ConfigError
from lagent.llms.chat_template import Prompt
from lagent.llms.completion import Completion, Usage
from lagent.llms.errors import ContextOverflow
from lagent.llms.stops import StopCutter, cut_at_stop


@dataclass(frozen=True, slots=True)
class Request:
    """How a model continues it.

    Attributes:
        arguments: for ``model.generate``.
        max_new_tokens: tokens that a reply may have.
        stop_words: texts that end a reply.
        skip_special_tokens: leave special tokens out of the text.
        logprobs: give the log probability of each token.
        return_token_ids: give the ids of the prompt, too.
        cancelled: set it, from any thread, to stop after the current token.
    """

    arguments: dict[str, Any]
    max_new_tokens: int
    stop_words: list[str]
    skip_special_tokens: bool = False
    logprobs: bool = False
    return_token_ids: bool = False
    cancelled: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def make(cls, params: dict[str, Any], *, do_sample: bool) -> 'Request':
        """Sort InternLM's generation parameters, and others, by who needs them.

        Args:
            params: the parameters.
            do_sample: False takes the likeliest token each time.

        Returns:
            The request.
        """
        rest = dict(params)
        arguments: dict[str, Any] = {'do_sample': do_sample and rest['temperature'] > 0}
        # In the place of one that is left out come the checkpoint's own, or a top_k of 50.
        sampling = {name: rest.pop(name) for name in ('temperature', 'top_p', 'top_k')}
        if arguments['do_sample']:
            unbounded = {'top_p': 1.0, 'top_k': 0}
            arguments |= {
                name: unbounded[name] if value is None else value
                for name, value in sampling.items()
            }
        return cls(
            max_new_tokens=rest.pop('max_new_tokens'),
            stop_words=[stop for stop in rest.pop('stop_words') or () if stop],
            skip_special_tokens=rest.pop('skip_special_tokens', False),
            logprobs=rest.pop('logprobs', False),
            return_token_ids=rest.pop('return_token_ids', False),
            arguments=arguments | rest,
        )


class Engine:
    """A loaded model with its tokenizer. It generates one batch at a time.

    Args:
        model: the model.
        tokenizer: its tokenizer.
        end_ids: ids of tokens that end a reply, besides the model's own.
    """

    def __init__(self, model: Any, tokenizer: Any, end_ids: list[int]) -> None:
        self.model, self.tokenizer = model, tokenizer
        own = model.generation_config.eos_token_id
        ids = {tokenizer.eos_token_id, *(own if isinstance(own, list) else [own]), *end_ids}
        self.end_ids: list[int] = sorted(ids - {None})
        pad = tokenizer.pad_token_id
        self._pad_id: int = pad if pad is not None else (self.end_ids or [0])[0]
        self._context: int | None = getattr(
            model.config.get_text_config(), 'max_position_embeddings', None
        )
        self._lock = threading.Lock()

    def complete(self, prompts: list[Prompt], request: Request) -> list[Completion]:
        """Continue prompts, as one batch.

        Args:
            prompts: the prompts.
            request: how.

        Returns:
            A completion for each.

        Raises:
            ContextOverflow: a prompt is longer than the model's context.
        """
        return self._generate(prompts, request, streamer=None)

    def stream(self, prompt: Prompt, request: Request) -> Generator[str | Completion, None, None]:
        """Continue a prompt and yield the text piece by piece, and at last the completion.

        Args:
            prompt: the prompt.
            request: how. It is cancelled when the consumer leaves early.

        Yields:
            Pieces of the reply's text; then the whole reply.

        Raises:
            ContextOverflow: the prompt is longer than the model's context.
        """
        transformers = require('transformers', 'hf')
        streamer = transformers.TextIteratorStreamer(
            self.tokenizer, skip_prompt=True, skip_special_tokens=request.skip_special_tokens
        )

        def generate() -> Completion:
            try:
                return self._generate([prompt], request, streamer=streamer)[0]
            finally:
                # Also when it failed: the consumer waits for the end of the text.
                streamer.on_finalized_text('', stream_end=True)

        ends = [self.tokenizer.decode([token]) for token in self.end_ids]
        cutter = StopCutter([*request.stop_words, *ends])
        with ThreadPoolExecutor(1, 'lagent-generate') as thread:
            reply = thread.submit(generate)
            try:
                if prompt.opening:
                    yield prompt.opening
                for piece in streamer:
                    if text := cutter.feed(piece):
                        yield text
                if text := cutter.flush():
                    yield text
            finally:
                request.cancelled.set()
        yield reply.result()

    def _generate(self, prompts: list[Prompt], request: Request, streamer: Any) -> list[Completion]:
        torch = require('torch', 'hf')
        started = time.monotonic()
        width = max(len(prompt.token_ids) for prompt in prompts)
        room = request.max_new_tokens
        if self._context is not None:
            room = min(room, self._context - width)
            if room <= 0:
                raise ContextOverflow(
                    f'The prompt has {width} tokens and the context of the model '
                    f'{self._context}. Shorten the conversation.'
                )
        # Padding goes to the left: a reply must follow its prompt's last token.
        padded = [[self._pad_id] * (width - len(p.token_ids)) + p.token_ids for p in prompts]
        mask = [[0] * (width - len(p.token_ids)) + [1] * len(p.token_ids) for p in prompts]
        device = self.model.device
        with self._lock, torch.inference_mode():
            output = self.model.generate(
                input_ids=torch.tensor(padded, device=device),
                attention_mask=torch.tensor(mask, device=device),
                max_new_tokens=room,
                eos_token_id=self.end_ids or None,
                pad_token_id=self._pad_id,
                stop_strings=request.stop_words or None,
                tokenizer=self.tokenizer,
                stopping_criteria=[_Cancellation(request.cancelled)],
                streamer=streamer,
                return_dict_in_generate=True,
                output_logits=request.logprobs,
                **request.arguments,
            )
        tokens = output.sequences[:, width:]
        logprobs: list[list[float]] | list[None] = [None] * len(prompts)
        if request.logprobs:
            logits = torch.stack(output.logits, dim=1).float().log_softmax(-1)
            logprobs = logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1).tolist()
        written = self._written(output.sequences, width, request.stop_words)
        latency = time.monotonic() - started
        return [
            self._completion(prompt, ids, probs, request, room, latency)
            for prompt, ids, probs in zip(prompts, written, logprobs, strict=True)
        ]

    def _written(self, sequences: Any, width: int, stop_words: list[str]) -> list[list[int]]:
        """The tokens of each reply, without the padding behind a stop word.

        A reply of a batch that came to a stop word is padded while others go on, and the padding
        looks like a token that the model wrote, often like its end token. Behind an end token it
        does no harm.
        """
        rows: list[list[int]] = sequences[:, width:].tolist()
        if len(rows) == 1 or not stop_words:
            return rows
        stopped = require('transformers', 'hf').StopStringCriteria(self.tokenizer, stop_words)
        lengths: dict[int, int] = {}
        for length in range(1, len(rows[0])):
            for row in stopped(sequences[:, : width + length], None).nonzero().flatten().tolist():
                lengths.setdefault(row, length)
        return [ids[: lengths.get(row)] for row, ids in enumerate(rows)]

    def _completion(
        self,
        prompt: Prompt,
        ids: list[int],
        logprobs: list[float] | None,
        request: Request,
        room: int,
        latency: float,
    ) -> Completion:
        end = next((at for at, token in enumerate(ids) if token in self.end_ids), None)
        if end is not None:  # what follows is padding
            ids = ids[: end + 1]
        whole = self.tokenizer.decode(
            ids if end is None else ids[:end], skip_special_tokens=request.skip_special_tokens
        )
        text, stop = cut_at_stop(whole, request.stop_words)
        stop_reason: str | int | None = stop
        finish_reason = 'length' if len(ids) >= room else 'abort'
        if stop is not None:
            finish_reason = 'stop'
        elif end is not None:
            finish_reason = 'stop'
            own_end = ids[-1] == self.tokenizer.eos_token_id
            stop_reason = None if own_end else ids[-1]
        return Completion(
            prompt.opening + text,
            finish_reason=finish_reason,
            stop_reason=stop_reason,
            usage=Usage(len(prompt.token_ids), len(ids)),
            token_ids=ids,
            logprobs=None if logprobs is None else logprobs[: len(ids)],
            prompt_token_ids=prompt.token_ids if request.return_token_ids else None,
            latency=latency,
        )


class _Cancellation:
    """A stopping criterion that another thread can set."""

    def __init__(self, cancelled: threading.Event) -> None:
        self._cancelled = cancelled

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        return input_ids.new_full((len(input_ids),), self._cancelled.is_set()).bool()


def load_tokenizer(path: str, kwargs: dict[str, Any] | None) -> Any:
    """Load a tokenizer.

    Args:
        path: see `load_model`.
        kwargs: more arguments for the loader.

    Returns:
        The tokenizer.
    """
    transformers = require('transformers', 'hf')
    return transformers.AutoTokenizer.from_pretrained(**{**source(path), **(kwargs or {})})


def load_model(path: str, kwargs: dict[str, Any] | None, *, device: str | None, dtype: Any) -> Any:
    """Load a model and put it where it runs.

    Args:
        path: a checkpoint's directory or its name on the hub; a GGUF file, or a directory with one.
        kwargs: more arguments for the loader.
        device: where it runs, unless `kwargs` have a ``device_map``. Without it, the first CUDA
            GPU, else the CPU.
        dtype: of the weights.

    Returns:
        The model, ready to generate.
    """
    torch = require('torch', 'hf')
    transformers = require('transformers', 'hf')
    arguments = {**source(path), 'dtype': dtype, **(kwargs or {})}
    model = transformers.AutoModelForCausalLM.from_pretrained(**arguments)
    if 'device_map' not in arguments:
        model.to(device or ('cuda' if torch.cuda.is_available() else 'cpu'))
    return model.eval()


def source(path: str) -> dict[str, Any]:
    """Where the loaders of transformers find a checkpoint, or a GGUF file.

    Args:
        path: see `load_model`.

    Returns:
        Their arguments.

    Raises:
        ConfigError: a directory has several GGUF files.
    """
    place = Path(path)
    if place.suffix == '.gguf':
        return {'pretrained_model_name_or_path': str(place.parent), 'gguf_file': place.name}
    if place.is_dir() and not (place / 'config.json').exists():
        files = sorted(place.glob('*.gguf'))
        if len(files) > 1:
            raise ConfigError(
                f'{path} has several GGUF files; name one: {[file.name for file in files]}'
            )
        if files:
            return source(str(files[0]))
    return {'pretrained_model_name_or_path': path}
