"""AsyncVllmModel on vLLM's asynchronous engine, with the small real model."""

import asyncio
import gc
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from lagent.agents import AsyncAgent
from lagent.effects import Event, subscribe
from lagent.llms import AsyncVllmModel, Completion, ContextOverflow
from lagent.schema import ModelStatusCode

from .conftest import VLLM_MARKS, VLLM_SMALL

# One loop for the module: an engine serves the loop that it was first used in.
pytestmark = [*VLLM_MARKS, pytest.mark.asyncio(loop_scope='module')]

FRANCE = [{'role': 'user', 'content': 'What is the capital of France?'}]
ITALY = [{'role': 'user', 'content': 'What is the capital of Italy?'}]


@pytest.fixture(scope='module')
def llm(model_path: Path) -> Iterator[AsyncVllmModel]:
    cfg = {**VLLM_SMALL, 'dtype': 'bfloat16', 'kv_cache_memory_bytes': 256 * 1024**2}
    llm = AsyncVllmModel(str(model_path), vllm_cfg=cfg, temperature=0, max_new_tokens=30)
    yield llm
    asyncio.run(llm.close())
    asyncio.run(llm.close())
    # vLLM leaves its ZeroMQ context to the collector, which warns about it.
    del llm.model
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', ResourceWarning)
        gc.collect()


async def test_a_reply(llm: AsyncVllmModel) -> None:
    reply = await llm.chat(FRANCE, 7)
    assert type(reply) is Completion
    assert 'Paris' in reply
    assert (reply.finish_reason, reply.stop_reason) == ('stop', None)
    assert reply.usage.completion_tokens == len(reply.token_ids)


async def test_one_session_may_ask_twice_at_once(llm: AsyncVllmModel) -> None:
    france, italy, batch = await asyncio.gather(
        llm.chat(FRANCE, 7), llm.chat(ITALY, 7), llm.chat([ITALY, FRANCE], [7, 7])
    )
    assert 'Paris' in france
    assert batch == [italy, france]


async def test_streaming(llm: AsyncVllmModel) -> None:
    chunks = [chunk async for chunk in llm.stream_chat(FRANCE, session_id=7)]
    texts = [text for _, text, _ in chunks]
    assert len(chunks) > 3
    assert [state for state, _, _ in chunks[-2:]] == [
        ModelStatusCode.STREAM_ING,
        ModelStatusCode.END,
    ]
    assert texts[-1] == await llm.chat(FRANCE)
    assert all(texts[-1].startswith(text) for text in texts)
    assert chunks[-1][1].finish_reason == 'stop'


async def test_stop_words_and_an_opening(llm: AsyncVllmModel) -> None:
    reply = await llm.chat([*FRANCE, {'role': 'assistant', 'content': 'The capital of'}])
    assert reply.lstrip().startswith('France')
    reply = await llm.chat(FRANCE, stop_words=['Paris'])
    assert 'Paris' not in reply
    assert (reply.finish_reason, reply.stop_reason) == ('stop', 'Paris')
    told = await llm.chat(FRANCE, return_dict=True)
    assert 'Paris' in told['text']


async def test_the_list_of_stop_words_is_live(llm: AsyncVllmModel) -> None:
    llm.gen_params['stop_words'] = stops = ['never written']
    try:
        whole = await llm.chat(FRANCE)
        stops.append('Paris')
        reply = await llm.chat(FRANCE)
        assert (reply, reply.stop_reason) == (whole[: whole.index('Paris')], 'Paris')
        stops.remove('Paris')
        assert await llm.chat(FRANCE) == whole
    finally:
        llm.gen_params['stop_words'] = None


async def test_structured_output(llm: AsyncVllmModel) -> None:
    schema = {
        'type': 'object',
        'properties': {'city': {'enum': ['Paris', 'Oslo']}},
        'required': ['city'],
        'additionalProperties': False,
    }
    wanted = [
        ({'json': schema}, r'\{\s*"city"\s*:\s*"(Paris|Oslo)"\s*\}'),
        ({'regex': '(Paris|Oslo) [0-9]{2}'}, '(Paris|Oslo) [0-9]{2}'),
        ({'grammar': 'root ::= "yes" | "no"'}, 'yes|no'),
        ({'choice': ['Rome', 'Oslo']}, 'Rome|Oslo'),
    ]
    replies = await asyncio.gather(
        *(llm.chat(FRANCE, n, structured_outputs=it) for n, (it, _) in enumerate(wanted))
    )
    for reply, (_, pattern) in zip(replies, wanted, strict=True):
        assert re.fullmatch(pattern, reply), reply


async def test_token_ids_go_in_and_come_out_as_they_are(llm: AsyncVllmModel) -> None:
    agent = AsyncAgent(llm)
    first = (await agent('What is the capital of France?', return_token_ids=True)).content
    second = (await agent('And of Italy?', return_token_ids=True)).content
    written = first.prompt_token_ids + first.token_ids
    assert second.prompt_token_ids[: len(written)] == written
    assert 'Rome' in second
    again = await llm.chat(second.prompt_token_ids, return_token_ids=True)
    assert (again.prompt_token_ids, again.token_ids) == (second.prompt_token_ids, second.token_ids)


async def test_a_listener_gets_the_reply_as_it_is_written(llm: AsyncVllmModel) -> None:
    heard: list[Event] = []
    with subscribe(heard.append):
        reply = await llm.chat(FRANCE)
    deltas = [event.data for event in heard if event.type == 'delta']
    assert len(deltas) > 3
    assert ''.join(deltas) == reply


async def test_cancelling_a_call_aborts_it_in_the_engine(llm: AsyncVllmModel) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await llm.chat(FRANCE, max_new_tokens=450, ignore_eos=True)
    assert llm.model.get_num_unfinished_requests() == 0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await llm.chat([FRANCE, ITALY, FRANCE], max_new_tokens=450, ignore_eos=True)
    assert llm.model.get_num_unfinished_requests() == 0
    stream = llm.stream_chat(FRANCE, max_new_tokens=450, ignore_eos=True)
    await anext(stream)
    await stream.aclose()
    assert llm.model.get_num_unfinished_requests() == 0
    assert 'Paris' in await llm.chat(FRANCE)


async def test_a_prompt_longer_than_the_context(llm: AsyncVllmModel) -> None:
    with pytest.raises(ContextOverflow):
        await llm.chat([{'role': 'user', 'content': 'many rows ' * 600}])


async def test_another_event_loop_is_refused(llm: AsyncVllmModel) -> None:
    await llm.chat(FRANCE, max_new_tokens=1)
    with pytest.raises(RuntimeError, match='another event loop'):
        await asyncio.to_thread(asyncio.run, llm.chat(FRANCE))
