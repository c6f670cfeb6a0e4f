"""LoRA adapters on vLLM's own engines, held against weights that were merged by hand."""

import asyncio
import gc
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lagent.llms import AsyncVllmModel, BadRequest, VllmModel

from .conftest import VLLM_MARKS, VLLM_SMALL

pytestmark = VLLM_MARKS
on_one_loop = pytest.mark.asyncio(loop_scope='module')

ASK = [{'role': 'user', 'content': 'How many rows?'}]
GREEDY: dict[str, Any] = {'temperature': 0, 'max_new_tokens': 12}
CFG = {**VLLM_SMALL, 'dtype': 'float32', 'kv_cache_memory_bytes': 64 * 1024**2}
RANK, ALPHA = 4, 8
TARGETS = {'q_proj': 128, 'v_proj': 64}  # with the width of what each gives


def layers(model: Any) -> list[Any]:
    return [layer.self_attn for layer in model.model.layers]


@pytest.fixture(scope='module')
def adapters(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two random adapters by path, and for each the token ids that the merged model writes."""
    import torch
    import transformers
    from safetensors.torch import save_file

    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    ids = tokenizer.apply_chat_template(ASK, add_generation_prompt=True, return_dict=False)
    expected = {}
    for seed in (1, 2):
        torch.manual_seed(seed)
        path = tmp_path_factory.mktemp(f'adapter{seed}')
        model = transformers.AutoModelForCausalLM.from_pretrained(tiny_model)
        weights = {}
        for n, attention in enumerate(layers(model)):
            for name, width in TARGETS.items():
                down, up = torch.randn(RANK, 128), torch.randn(width, RANK)
                key = f'base_model.model.model.layers.{n}.self_attn.{name}'
                weights |= {f'{key}.lora_A.weight': down, f'{key}.lora_B.weight': up}
                getattr(attention, name).weight.data += ALPHA / RANK * up @ down
        save_file(weights, path / 'adapter_model.safetensors')
        config = {
            'peft_type': 'LORA',
            'task_type': 'CAUSAL_LM',
            'r': RANK,
            'lora_alpha': ALPHA,
            'target_modules': list(TARGETS),
            'base_model_name_or_path': str(tiny_model),
        }
        (path / 'adapter_config.json').write_text(json.dumps(config))
        output = model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)
        expected[str(path)] = tuple(output[0, len(ids) :].tolist())
    return expected


def test_an_adapter_changes_what_the_model_writes(
    tiny_model: Path, adapters: dict[str, Any]
) -> None:
    (one, ones), (two, twos) = adapters.items()
    llm = VllmModel(str(tiny_model), vllm_cfg=CFG, lora=one, **GREEDY)
    assert llm.chat(ASK).token_ids == ones
    assert llm.chat(ASK, lora=two).token_ids == twos
    plain = llm.chat(ASK, lora=None)
    assert plain.token_ids not in (ones, twos)
    assert llm.chat([ASK, ASK], lora=two)[1].token_ids == twos
    with pytest.raises(BadRequest, match='no/such/adapter'):
        llm.chat(ASK, lora='no/such/adapter')
    assert llm.chat(ASK, lora=None) == plain, 'the engine goes on'


def test_a_model_that_is_dropped_takes_nothing_from_the_next(tiny_model: Path) -> None:
    first = VllmModel(str(tiny_model), vllm_cfg=CFG, **GREEDY)
    reply = first.chat(ASK)
    del first
    second = VllmModel(str(tiny_model), vllm_cfg=CFG, **GREEDY)
    gc.unfreeze()
    gc.collect()
    assert second.chat(ASK).token_ids == reply.token_ids


@pytest.fixture(scope='module')
def waiting(tiny_model: Path) -> Iterator[AsyncVllmModel]:
    # A slot more than adapters: for a request without one, vLLM's CPU kernels read the last slot.
    cfg = {**CFG, 'enable_lora': True, 'max_loras': 3}
    llm = AsyncVllmModel(str(tiny_model), vllm_cfg=cfg, **GREEDY)
    yield llm
    asyncio.run(llm.close())
    # vLLM leaves its ZeroMQ context to the collector, which warns about it.
    del llm.model
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', ResourceWarning)
        gc.collect()


@on_one_loop
async def test_sessions_with_different_adapters_at_once(
    waiting: AsyncVllmModel, adapters: dict[str, Any]
) -> None:
    plain = await waiting.chat(ASK)
    asked = [*adapters, None] * 3
    replies = await asyncio.gather(*(waiting.chat(ASK, n, lora=it) for n, it in enumerate(asked)))
    expected = {**adapters, None: plain.token_ids}
    assert [reply.token_ids for reply in replies] == [expected[it] for it in asked]
    waiting.gen_params['lora'] = asked[0]
    try:
        assert (await waiting.chat(ASK)).token_ids == adapters[asked[0]]
    finally:
        del waiting.gen_params['lora']


@on_one_loop
async def test_an_adapter_that_is_none_does_not_end_the_engine(
    waiting: AsyncVllmModel, tmp_path: Path
) -> None:
    before = await waiting.chat(ASK)
    for broken in ('no/such/adapter', str(tmp_path)):
        with pytest.raises(BadRequest, match='cannot load the LoRA adapter'):
            await waiting.chat(ASK, lora=broken)
    assert await waiting.chat(ASK) == before
