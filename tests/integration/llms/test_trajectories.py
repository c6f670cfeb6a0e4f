"""Training data of conversations with real engines: what they were given and wrote."""

import asyncio
import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lagent import export
from lagent.actions import Interpreter
from lagent.agents import Agent, AsyncAgent, Coder, StreamingAgent
from lagent.effects import subscribe
from lagent.journal import SqliteJournal, record
from lagent.llms import AsyncVllmModel, Completion, HFTransformerChat
from lagent.memory import Memory
from lagent.schema import AgentMessage
from lagent.trajectory import Collector, Sample
from sandbox import FakeBackend

from .conftest import VLLM_MARKS, VLLM_SMALL

GREEDY: dict[str, Any] = {'temperature': 0, 'max_new_tokens': 12}
QUESTIONS = ['How many rows?', 'And columns?', 'Why?']


def check(sample: Sample, turns: list[Completion]) -> None:
    """See that a sample is the last prompt and reply, and that its mask marks what was written."""
    last = turns[-1]
    assert last.prompt_token_ids is not None
    assert last.token_ids is not None
    assert sample.token_ids == [*last.prompt_token_ids, *last.token_ids]
    assert sample.loss_mask is not None
    written = [i for i, bit in zip(sample.token_ids, sample.loss_mask, strict=True) if bit]
    assert written == [i for turn in turns for i in turn.token_ids or ()]
    for turn, reply in zip(sample.turns, turns, strict=True):
        assert turn.tokens is not None
        start, end = turn.tokens
        assert tuple(sample.token_ids[start:end]) == reply.token_ids
        assert tuple(sample.token_ids[:start]) == reply.prompt_token_ids
        assert (turn.text, turn.finish_reason) == (reply, reply.finish_reason)


@pytest.mark.model
def test_a_conversation_with_transformers(tiny_model: Path, tmp_path: Path) -> None:
    agent = Agent(HFTransformerChat(str(tiny_model), **GREEDY))
    collector = Collector()
    where = tmp_path / 'runs.db'
    with subscribe(collector), record(where, 'rollout'):
        turns = [agent(text, return_token_ids=True, logprobs=0).content for text in QUESTIONS]
    (heard,) = collector.samples()
    check(heard, turns)
    with SqliteJournal(where) as journal:
        (sample,) = export.trajectories(journal, journal.run('rollout'))
    check(sample, turns)


@pytest.mark.model
def test_two_agents_that_talk_to_each_other(tiny_model: Path) -> None:
    llm = HFTransformerChat(str(tiny_model), **GREEDY)
    one, other = (
        Agent(llm, name='one'),
        Agent(llm, name='other', memory={'type': Memory, 'recent_n': 3}),
    )
    collector, said = Collector(), AgentMessage(sender='user', content=QUESTIONS[0])
    told: list[AgentMessage] = []
    with subscribe(collector):
        for speaker in (one, other) * 3:
            said = speaker(said, return_token_ids=True, logprobs=0)
            told.append(said)
    found = collector.samples()
    assert [len(sample.turns) for sample in found] == [3, 2, 1], 'the other one forgets'
    check(found[0], [message.content for message in told[::2]])
    check(found[1], [message.content for message in told[1:4:2]])
    check(found[2], [told[5].content])


@pytest.mark.model
def test_without_ids_the_text_and_the_reason(tiny_model: Path) -> None:
    agent = Agent(HFTransformerChat(str(tiny_model), **GREEDY))
    collector = Collector()
    with subscribe(collector):
        reply = agent(QUESTIONS[0]).content
    (sample,) = collector.samples()
    assert sample.token_ids is None
    assert sample.missing is not None
    assert sample.turns[0].text == reply


class TestVllm:
    pytestmark = VLLM_MARKS

    @pytest.fixture
    def llm(self, tiny_model: Path) -> Iterator[AsyncVllmModel]:
        llm = AsyncVllmModel(str(tiny_model), vllm_cfg=VLLM_SMALL, **GREEDY)
        yield llm
        asyncio.run(llm.close())
        # vLLM leaves its ZeroMQ context to the collector, which warns about it.
        del llm.model
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', ResourceWarning)
            gc.collect()

    async def test_a_conversation_with_logprobs(self, llm: AsyncVllmModel, tmp_path: Path) -> None:
        where = tmp_path / 'runs.db'
        agent = AsyncAgent(llm)
        with record(where, 'rollout'):
            turns = [
                (await agent(text, return_token_ids=True, logprobs=0)).content for text in QUESTIONS
            ]
        with SqliteJournal(where) as journal:
            (sample,) = export.trajectories(journal, journal.run('rollout'))
        check(sample, turns)
        assert sample.logprobs is not None
        assert sample.loss_mask is not None
        pairs = zip(sample.logprobs, sample.loss_mask, strict=True)
        assert all((logprob is not None) == bool(bit) for logprob, bit in pairs)
        known = [logprob for logprob in sample.logprobs if logprob is not None]
        assert known == [logprob for turn in turns for logprob in turn.logprobs or ()]


@pytest.mark.model
def test_code_between_turns(tiny_model: Path) -> None:
    prefill = (
        '```python\nprint(6 * 7)\n```\n'  # the model writes noise: this is what it begins with
    )
    llm = HFTransformerChat(str(tiny_model), prefill=prefill, **GREEDY)
    interpreter = Interpreter(backend=FakeBackend(lambda _: '42\n'), unsafe=True)
    collector = Collector()
    coder = Coder(llm, interpreter, 'Run code.', max_turn=2, on_max_turn='return')
    with coder, subscribe(collector):
        coder('6 * 7?', return_token_ids=True)
    (sample,) = collector.samples()
    assert sample.token_ids is not None
    assert sample.loss_mask is not None
    assert len(sample.turns) > 1
    text = llm.tokenizer.decode(sample.token_ids)
    assert text.count(prefill) == len(sample.turns)
    written = [i for i, bit in zip(sample.token_ids, sample.loss_mask, strict=True) if bit]
    noise = ''.join(turn.text.removeprefix(prefill) for turn in sample.turns)
    assert llm.tokenizer.decode(written).replace('<|im_end|>', '') == noise
    for tool in sample.tools[:-1]:
        assert tool.tokens is not None
        told = llm.tokenizer.decode(sample.token_ids[slice(*tool.tokens)])
        assert '42' in told
        assert told.endswith(prefill)


@pytest.mark.model
def test_streamed_replies(tiny_model: Path) -> None:
    agent = StreamingAgent(HFTransformerChat(str(tiny_model), **GREEDY))
    collector = Collector()
    with subscribe(collector):
        turns = [[*agent(text, return_token_ids=True)][-1].content for text in QUESTIONS[:2]]
    (sample,) = collector.samples()
    check(sample, turns)
