"""How full `AsyncVllmModel` keeps its engine, and what it costs beside the engine.

Many conversations are asked at once: through the model, which writes each with the chat template,
and straight through vLLM's own ``generate`` on the same engine, with prompts that were written
before. Both sides take turns, in one process, with the same sampling parameters and a fixed number
of tokens a reply; prefixes are not cached, so that no pass helps the next one. On a machine that
does other work, the rates by processor time say more than those by the clock.

    python benchmarks/llm_throughput.py --rounds 5

Needs the extra ``vllm`` and a checkpoint with a chat template, by default the small real one
(`scripts/fetch_model.py`). Prints one JSON object.
"""

import argparse
import asyncio
import gc
import json
import os
import statistics
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

MODEL = Path(__file__).parents[1] / '.cache' / 'models' / 'SmolLM2-135M-Instruct'
ENVIRONMENT = {
    'HF_HUB_OFFLINE': '1',
    'TOKENIZERS_PARALLELISM': 'false',
    'VLLM_CPU_KVCACHE_SPACE': '1',
    'VLLM_LOGGING_LEVEL': 'ERROR',
    'VLLM_NO_USAGE_STATS': '1',
}
AT_LEAST, AT_MOST = 0.95, 1.0  # throughput to vLLM's own; framework time a request, in ms
TOPICS = ('the weather', 'a recipe', 'a table of sales', 'the history of a town', 'a sorting bug')

Dialog = list[dict[str, str]]
Sample = tuple[float, ...]
Side = Callable[[], Awaitable[Sample]]


def measure(
    model: str = str(MODEL),
    *,
    conversations: int = 200,
    tokens: int = 16,
    rounds: int = 5,
    max_num_seqs: int = 64,
) -> dict[str, Any]:
    """Measure both sides.

    Args:
        model: directory of the checkpoint.
        conversations: how many are asked at once.
        tokens: what each reply has.
        rounds: samples a side.
        max_num_seqs: what the engine runs at once.

    Returns:
        Medians with the least and the greatest sample, ratios, and goals.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    return asyncio.run(_measure(model, conversations, tokens, rounds, max_num_seqs))


async def _measure(
    model: str, conversations: int, tokens: int, rounds: int, max_num_seqs: int
) -> dict[str, Any]:
    from lagent.llms import AsyncVllmModel

    cfg = {
        'dtype': 'bfloat16',
        'enable_prefix_caching': False,
        'enforce_eager': True,
        'max_model_len': 512,
        'max_num_seqs': max_num_seqs,
    }
    llm = AsyncVllmModel(model, vllm_cfg=cfg, temperature=0, max_new_tokens=tokens)
    sides = Sides(llm, [dialog(n) for n in range(conversations)], tokens)
    try:
        through, straight = await interleave(rounds, sides.through, sides.straight)
        beside, by_hand = await interleave(4 * rounds, sides.beside, sides.by_hand)
    finally:
        llm.close()
    ours, floor, ours_cpu, floor_cpu = (
        [sample[at] for sample in samples] for at in (0, 1) for samples in (through, straight)
    )
    ratio = statistics.median(ours) / statistics.median(floor)
    framework = [sample[0] for sample in beside]
    return {
        'model': Path(model).name,
        'conversations': conversations,
        'tokens_a_reply': tokens,
        'throughput': {
            'unit': 'generated tokens a second',
            'ours': summary(ours),
            'floor': summary(floor),
            'floor_is': "vLLM's own generate, same engine, prompts written before",
            'ratio': round(ratio, 3),
            'goal': {'ratio_at_least': AT_LEAST, 'met': ratio >= AT_LEAST},
        },
        'throughput_by_processor_time': {
            'unit': 'generated tokens a second of processor time, the engine included',
            'ours': summary(ours_cpu),
            'floor': summary(floor_cpu),
            'ratio': round(statistics.median(ours_cpu) / statistics.median(floor_cpu), 3),
        },
        'framework_time': {
            'unit': 'ms of processor time a request, with an engine that answers at once',
            'ours': summary(framework),
            'floor': summary([sample[0] for sample in by_hand]),
            'floor_is': 'the chat template and the engine, called by hand',
            'goal': {'at_most': AT_MOST, 'met': statistics.median(framework) < AT_MOST},
        },
    }


class Sides:
    """What is compared; each takes one sample."""

    def __init__(self, llm: Any, dialogs: list[Dialog], tokens: int) -> None:
        import vllm

        self.llm, self.engine, self.dialogs, self.tokens = llm, llm.model, dialogs, tokens
        self.prompts = [llm.render_dialog(dialog).token_ids for dialog in dialogs]
        self.sampling = vllm.SamplingParams(
            temperature=0,
            max_tokens=tokens,
            ignore_eos=True,
            skip_special_tokens=False,
            output_kind=vllm.sampling_params.RequestOutputKind.FINAL_ONLY,
        )

    async def through(self) -> Sample:
        """Generated tokens a second, of the clock and of processor time; through the model."""
        started, used = time.perf_counter(), processor_time()
        asked = (self.llm.chat(it, n, ignore_eos=True) for n, it in enumerate(self.dialogs))
        replies = await asyncio.gather(*asked)
        return self._rates([reply.token_ids for reply in replies], started, used)

    async def straight(self) -> Sample:
        """The same, asked straight from the engine."""
        started, used = time.perf_counter(), processor_time()
        outputs = await asyncio.gather(*(self._generate(self.engine, ids) for ids in self.prompts))
        return self._rates([output.outputs[0].token_ids for output in outputs], started, used)

    async def beside(self) -> Sample:
        """Milliseconds of its thread that the model takes for a request beside its engine."""
        self.llm.model = AtOnce(await self._generate(self.engine, self.prompts[0]))
        try:
            started = time.thread_time()
            for n, asked in enumerate(self.dialogs):
                await self.llm.chat(asked, n, ignore_eos=True)
            elapsed = time.thread_time() - started
        finally:
            self.llm.model = self.engine
        return (elapsed / len(self.dialogs) * 1e3,)

    async def by_hand(self) -> Sample:
        """The same of a caller who uses tokenizer and engine as they are."""
        engine = AtOnce(await self._generate(self.engine, self.prompts[0]))
        started = time.thread_time()
        for asked in self.dialogs:
            ids = self.llm.tokenizer.apply_chat_template(
                asked, add_generation_prompt=True, return_dict=False
            )
            await self._generate(engine, ids)
        return ((time.thread_time() - started) / len(self.dialogs) * 1e3,)

    async def _generate(self, engine: Any, ids: list[int]) -> Any:
        prompt = {'prompt_token_ids': ids}
        outputs = engine.generate(prompt, self.sampling, request_id=uuid.uuid4().hex)
        return [output async for output in outputs][-1]

    def _rates(self, replies: list[Any], started: float, used: float) -> Sample:
        elapsed, spent = time.perf_counter() - started, processor_time() - used
        assert all(len(ids) == self.tokens for ids in replies), 'both sides do the same work'
        tokens = sum(map(len, replies))
        return tokens / elapsed, tokens / spent


class AtOnce:
    """An engine that answers without any work."""

    def __init__(self, output: Any) -> None:
        self._output = output

    async def generate(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Yield the one output that there is."""
        yield self._output


def processor_time() -> float:
    """Seconds that this process and the engine's have used so far, on all cores."""
    import psutil  # comes with vLLM

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


async def interleave(rounds: int, *sides: Side) -> list[list[Sample]]:
    """Take samples in turns, every second round backwards, after one that does not count.

    Args:
        rounds: samples a side.
        sides: what is sampled.

    Returns:
        The samples of each side.
    """
    samples: list[list[Sample]] = [[] for _ in sides]
    for number in range(-1, rounds):
        for at in range(len(sides))[:: -1 if number % 2 else 1]:
            gc.collect()
            sample = await sides[at]()
            if number >= 0:
                samples[at].append(sample)
    return samples


def summary(samples: list[float]) -> dict[str, Any]:
    """A median between its extremes, and the samples that they are of."""
    short = [float(f'{sample:.4g}') for sample in samples]
    return {
        'median': statistics.median(short),
        'min': min(short),
        'max': max(short),
        'samples': short,
    }


def main() -> None:
    """Read the command line, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--model', default=str(MODEL))
    for name, default in {
        'conversations': 200,
        'tokens': 16,
        'rounds': 5,
        'max-num-seqs': 64,
    }.items():
        parser.add_argument(f'--{name}', type=int, default=default)
    json.dump(measure(**vars(parser.parse_args())), sys.stdout, indent=2)
    sys.stdout.write('\n')


if __name__ == '__main__':
    main()
