"""How full `AsyncVllmModel` keeps its engine, and what it costs beside the engine.

Many conversations are asked at once: through the model, which writes each with the chat template,
and straight through vLLM's own ``generate`` on the same engine, with prompts that were written
before. Both sides take turns, in one process, with the same sampling parameters and a fixed number
of tokens a reply; prefixes are not cached, so that no pass helps the next one. On a machine that
does other work, the rates by processor time say more than those by the clock.

Needs the extra ``vllm`` and the small real model (`scripts/fetch_model.py`).
"""

import asyncio
import importlib.util
import os
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from benchmarks.harness import MS, Goal, Measurement, Run, Skipped, interleave

MODEL = Path(__file__).parents[1] / '.cache' / 'models' / 'SmolLM2-135M-Instruct'
TOKENS = 16  # of a reply
ENVIRONMENT = {
    'HF_HUB_OFFLINE': '1',
    'TOKENIZERS_PARALLELISM': 'false',
    'VLLM_CPU_KVCACHE_SPACE': '1',
    'VLLM_LOGGING_LEVEL': 'ERROR',
    'VLLM_NO_USAGE_STATS': '1',
}
TOPICS = ('the weather', 'a recipe', 'a table of sales', 'the history of a town', 'a sorting bug')

Dialog = list[dict[str, str]]


async def measure(run: Run) -> AsyncIterator[Measurement]:
    """Measure generated tokens a second, and the model's own part of a request.

    Raises:
        Skipped: vLLM or the model is not there.
    """
    if importlib.util.find_spec('vllm') is None:
        raise Skipped('vLLM is not installed (the extra vllm)')
    if not MODEL.is_dir():
        raise Skipped('there is no model (scripts/fetch_model.py)')
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from lagent.llms import AsyncVllmModel

    cfg = {
        'dtype': 'bfloat16',
        'enable_prefix_caching': False,
        'enforce_eager': True,
        'max_model_len': 512,
        'max_num_seqs': 64,
    }
    llm = AsyncVllmModel(str(MODEL), vllm_cfg=cfg, temperature=0, max_new_tokens=TOKENS)
    try:
        sides = Sides(llm, [dialog(n) for n in range(run.n(200, 32))])
        mine, theirs = await interleave(run.n(5, 1), sides.through, sides.straight)
        beside, by_hand = await interleave(run.n(20, 4), sides.beside, sides.by_hand)
    finally:
        await llm.close()
    floor_is = "vLLM's own generate, same engine, prompts written before"
    yield Measurement(
        f'vLLM, {len(sides.dialogs)} conversations at once: generated tokens',
        'tokens/s',
        mine,
        theirs,
        floor_is,
        (Goal('ratio', 0.95, at_least=True),),
    )
    yield Measurement(
        'the same for a second of processor time, the engine included',
        'tokens/s',
        *sides.by_processor(len(mine)),
        floor_is,
    )
    yield Measurement(
        'processor time of a request beside its engine',
        'ms',
        beside,
        by_hand,
        'the chat template and the engine, called by hand',
        (Goal('value', 1.0),),
    )


class Sides:
    """What is compared; each takes one sample."""

    def __init__(self, llm: Any, dialogs: list[Dialog]) -> None:
        import vllm

        self.llm, self.engine, self.dialogs = llm, llm.model, dialogs
        self._by_processor: dict[str, list[float]] = {'through': [], 'straight': []}
        self.prompts = [llm.render_dialog(dialog).token_ids for dialog in dialogs]
        self.sampling = vllm.SamplingParams(
            temperature=0,
            max_tokens=TOKENS,
            ignore_eos=True,
            skip_special_tokens=False,
            output_kind=vllm.sampling_params.RequestOutputKind.FINAL_ONLY,
        )

    async def through(self) -> float:
        """Generated tokens a second; through the model."""
        started, used = time.perf_counter(), processor_time()
        asked = (self.llm.chat(it, n, ignore_eos=True) for n, it in enumerate(self.dialogs))
        replies = await asyncio.gather(*asked)
        return self._rate('through', [reply.token_ids for reply in replies], started, used)

    async def straight(self) -> float:
        """The same, asked straight from the engine."""
        started, used = time.perf_counter(), processor_time()
        outputs = await asyncio.gather(*(self._generate(self.engine, ids) for ids in self.prompts))
        replies = [output.outputs[0].token_ids for output in outputs]
        return self._rate('straight', replies, started, used)

    async def beside(self) -> float:
        """Milliseconds of its thread that the model takes for a request beside its engine."""
        self.llm.model = AtOnce(await self._generate(self.engine, self.prompts[0]))
        try:
            started = time.thread_time()
            for n, asked in enumerate(self.dialogs):
                await self.llm.chat(asked, n, ignore_eos=True)
            elapsed = time.thread_time() - started
        finally:
            self.llm.model = self.engine
        return elapsed / len(self.dialogs) * MS

    async def by_hand(self) -> float:
        """The same of a caller who uses tokenizer and engine as they are."""
        engine = AtOnce(await self._generate(self.engine, self.prompts[0]))
        started = time.thread_time()
        for asked in self.dialogs:
            ids = self.llm.tokenizer.apply_chat_template(
                asked, add_generation_prompt=True, return_dict=False
            )
            await self._generate(engine, ids)
        return (time.thread_time() - started) / len(self.dialogs) * MS

    async def _generate(self, engine: Any, ids: list[int]) -> Any:
        prompt = {'prompt_token_ids': ids}
        outputs = engine.generate(prompt, self.sampling, request_id=uuid.uuid4().hex)
        return [output async for output in outputs][-1]

    def by_processor(self, n: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The last samples of both, by processor time."""
        through, straight = (tuple(rates[-n:]) for rates in self._by_processor.values())
        return through, straight

    def _rate(self, side: str, replies: list[Any], started: float, used: float) -> float:
        elapsed, spent = time.perf_counter() - started, processor_time() - used
        assert all(len(ids) == TOKENS for ids in replies), 'both sides do the same work'
        tokens = sum(map(len, replies))
        self._by_processor[side].append(tokens / spent)
        return tokens / elapsed


class AtOnce:
    """An engine that answers without any work."""

    def __init__(self, output: Any) -> None:
        self._output = output

    async def generate(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Yield the one output that there is."""
        yield self._output


def processor_time() -> float:
    """Seconds that this process and the engine's have used so far, on all cores."""
    import psutil  # type: ignore[import-untyped]  # comes with vLLM

    here = psutil.Process()
    spent = [process.cpu_times() for process in (here, *here.children(recursive=True))]
    return float(sum(it.user + it.system for it in spent))


def dialog(n: int) -> Dialog:
    """A conversation unlike the others, of one to three turns."""
    topic = TOPICS[n % len(TOPICS)]
    said: Dialog = [{'role': 'system', 'content': 'You answer briefly.'}]
    for turn in range(n % 3):
        said += [
            {'role': 'user', 'content': f'Question {turn} of {n}: tell me about {topic}.'},
            {'role': 'assistant', 'content': f'There is much to say about {topic}. ' * (turn + 1)},
        ]
    return [*said, {'role': 'user', 'content': f'Write {n} words about {topic}, please.'}]
