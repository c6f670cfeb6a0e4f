"""The engines on a GPU, with the small real model: ``pytest -m gpu`` on a machine that has one.

One GPU is enough. The engines run one after the other, and each leaves its memory to the next.
"""

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lagent.llms import GPTAPI, AsyncVllmModel, HFTransformerChat, VllmModel, VllmServer

from .conftest import VLLM_ENV, VLLM_MARKS

pytestmark = [*VLLM_MARKS, pytest.mark.gpu]

CAPITALS = {'France': 'Paris', 'Italy': 'Rome', 'Japan': 'Tokyo', 'Spain': 'Madrid'}
GREEDY: dict[str, Any] = {'temperature': 0, 'max_new_tokens': 30}
CFG = {'dtype': 'bfloat16', 'max_model_len': 2048, 'gpu_memory_utilization': 0.3}


def ask(country: str) -> list[dict[str, str]]:
    return [{'role': 'user', 'content': f'What is the capital of {country}?'}]


@pytest.fixture(autouse=True)
def memory_is_given_back() -> Iterator[None]:
    import torch

    yield
    gc.collect()
    torch.cuda.empty_cache()


def test_transformers(model_path: Path) -> None:
    import torch

    llm = HFTransformerChat(str(model_path), device='cuda:0', dtype='bfloat16', **GREEDY)
    assert llm.model.device == torch.device('cuda:0')
    assert llm.model.dtype == torch.bfloat16
    replies = llm.chat([ask(country) for country in CAPITALS])
    assert 'Paris' in replies[0]
    assert all(reply.finish_reason == 'stop' for reply in replies)
    one = llm.chat(ask('France'), return_token_ids=True, logprobs=True)
    assert len(one.logprobs) == len(one.token_ids)
    assert llm.chat(one.prompt_token_ids) == one
    *chunks, (_, streamed, _) = llm.stream_chat(ask('France'))
    assert len(chunks) > 3
    assert streamed == one


def test_transformers_takes_the_gpu_unless_told_otherwise(model_path: Path) -> None:
    assert HFTransformerChat(str(model_path), **GREEDY).model.device.type == 'cuda'
    assert HFTransformerChat(str(model_path), device='cpu', **GREEDY).model.device.type == 'cpu'


def test_vllm(model_path: Path) -> None:
    llm = VllmModel(str(model_path), tp=1, vllm_cfg=CFG, **GREEDY)
    replies = llm.chat([ask(country) for country in CAPITALS])
    assert 'Paris' in replies[0]
    assert 'Rome' in replies[1]
    reply = llm.chat(ask('France'), return_token_ids=True)
    assert llm.chat(reply.prompt_token_ids).token_ids == reply.token_ids
    assert llm.chat(ask('France'), structured_outputs={'choice': ['yes', 'no']}) in ('yes', 'no')


async def test_vllm_with_many_sessions(model_path: Path) -> None:
    llm = AsyncVllmModel(str(model_path), vllm_cfg=CFG, **GREEDY)
    try:
        asked = [*CAPITALS] * 50
        replies = await asyncio.gather(*(llm.chat(ask(it), n) for n, it in enumerate(asked)))
        assert all('Paris' in reply for reply in replies[:: len(CAPITALS)])
        batch = await llm.chat([ask(it) for it in CAPITALS])
        assert 'Paris' in batch[0]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await llm.chat(ask('France'), max_new_tokens=2000, ignore_eos=True)
        assert llm.model.get_num_unfinished_requests() == 0
    finally:
        await llm.close()


def test_a_server_of_ones_own(model_path: Path) -> None:
    llm = VllmServer(str(model_path), vllm_cfg=CFG, env=VLLM_ENV, start_timeout=400, **GREEDY)
    with llm:
        reply = llm.chat(ask('France'))
        assert 'Paris' in reply
        *_, (_, streamed, _) = GPTAPI(
            str(model_path), base_url=llm.url, key=llm.keys[0], **GREEDY
        ).stream_chat(ask('France'))
        assert (streamed, streamed.usage) == (reply, reply.usage)
    assert llm.process is not None
    assert not llm.process.running
