"""VllmModel on vLLM's own offline engine."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from lagent.agents import Agent
from lagent.effects import Event, subscribe
from lagent.llms import Completion, ContextOverflow, Usage, VllmModel

from .conftest import VLLM_MARKS, VLLM_SMALL

pytestmark = VLLM_MARKS

ASK = [{'role': 'user', 'content': 'How many rows?'}]
PROMPT = '<|im_start|>user\nHow many rows?<|im_end|>\n<|im_start|>assistant\n'
GREEDY: dict[str, Any] = {'temperature': 0, 'max_new_tokens': 12}


@pytest.fixture(scope='module')
def llm(tiny_model: Path) -> VllmModel:
    cfg = {**VLLM_SMALL, 'dtype': 'float32', 'kv_cache_memory_bytes': 64 * 1024**2}
    return VllmModel(str(tiny_model), vllm_cfg=cfg, stop_words=['never written'], **GREEDY)


@pytest.fixture(scope='module')
def real(model_path: Path) -> VllmModel:
    # Lives as long as the other one: an engine that goes takes with it what all in a process share.
    cfg = {**VLLM_SMALL, 'dtype': 'bfloat16', 'kv_cache_memory_bytes': 256 * 1024**2}
    return VllmModel(str(model_path), vllm_cfg=cfg, temperature=0, max_new_tokens=30)


def test_a_dialog_is_written_with_the_chat_template(llm: VllmModel) -> None:
    assert llm.tokenizer.decode(llm.render_dialog(ASK).token_ids) == PROMPT


def test_a_reply_with_what_the_engine_knows(llm: VllmModel) -> None:
    reply = llm.chat(ASK, max_new_tokens=5, logprobs=1)
    assert type(reply) is Completion
    assert (reply.finish_reason, reply.stop_reason) == ('length', None)
    assert len(reply.token_ids) == len(reply.logprobs) == 5
    assert all(score <= 0 for score in reply.logprobs)
    assert reply == llm.tokenizer.decode(reply.token_ids)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (
        len(llm.render_dialog(ASK).token_ids),
        5,
    )


def test_stop_words_of_the_constructor_the_list_and_the_call(llm: VllmModel) -> None:
    whole = llm.chat(ASK)
    stop = whole[4:6]
    cut = whole[: whole.index(stop)]
    reply = llm.chat(ASK, stop_words=[stop])
    assert (reply, reply.finish_reason, reply.stop_reason) == (cut, 'stop', stop)
    llm.gen_params['stop_words'].append(stop)
    try:
        assert llm.chat(ASK) == cut
    finally:
        llm.gen_params['stop_words'].remove(stop)
    assert llm.chat(ASK) == whole


def test_structured_output(llm: VllmModel) -> None:
    assert llm.chat(ASK, structured_outputs={'choice': ['rows', 'mean']}) in ('rows', 'mean')
    reply = llm.chat(ASK, structured_outputs={'regex': '[0-9]{3} rows'})
    assert re.fullmatch('[0-9]{3} rows', reply)


def test_a_batch_comes_back_in_order(llm: VllmModel) -> None:
    dialogs = [[{'role': 'user', 'content': word}] for word in ('rows', 'mean', 'table', 'rows')]
    replies = llm.chat(dialogs)
    assert replies[0] == replies[3]
    assert [reply.usage for reply in replies] == [
        Usage(
            len(llm.render_dialog(dialog).token_ids),
            len(reply.token_ids),
            cached_tokens=reply.usage.cached_tokens,
        )
        for dialog, reply in zip(dialogs, replies, strict=True)
    ]
    assert llm.chat([ASK], [7])[0] == llm.chat(ASK)


def test_token_ids_in_give_the_same_token_ids_out(llm: VllmModel) -> None:
    ids = llm.render_dialog(ASK).token_ids
    assert llm.generate(ids).token_ids == llm.chat(ASK).token_ids
    assert llm.generate({'prompt_token_ids': ids}).token_ids == llm.chat(ASK).token_ids


def test_a_conversation_in_token_ids(llm: VllmModel) -> None:
    reply = llm.chat(ASK, return_token_ids=True)
    assert list(reply.prompt_token_ids) == llm.render_dialog(ASK).token_ids
    again = llm.chat(reply.prompt_token_ids, return_token_ids=True)
    assert (again.token_ids, again.prompt_token_ids) == (reply.token_ids, reply.prompt_token_ids)
    # Half of a reply, fed back as the model wrote it, is continued with the other half.
    half = reply.prompt_token_ids + reply.token_ids[:6]
    assert llm.generate(half, max_new_tokens=6).token_ids == reply.token_ids[6:]
    both = llm.chat([reply.prompt_token_ids, half], return_token_ids=True)
    assert [it.prompt_token_ids for it in both] == [reply.prompt_token_ids, half]
    following = llm.next_prompt(reply, [{'role': 'user', 'content': 'And now?'}])
    written = [*reply.prompt_token_ids, *reply.token_ids]
    assert following.token_ids[: len(written)] == written
    assert llm.tokenizer.decode(following.token_ids[len(written) :]) == (
        '<|im_end|>\n<|im_start|>user\nAnd now?<|im_end|>\n<|im_start|>assistant\n'
    )
    assert llm.chat(following).usage.prompt_tokens == len(following.token_ids)


def test_an_agent_tokenizes_nothing_twice(llm: VllmModel) -> None:
    agent = Agent(llm)
    noise = {'temperature': 2, 'top_p': 1, 'top_k': None, 'return_token_ids': True}
    turns = [agent(f'Question {n}', seed=n, **noise).content for n in range(4)]
    for before, after in itertools.pairwise(turns):
        written = before.prompt_token_ids + before.token_ids
        assert after.prompt_token_ids[: len(written)] == written
    # From their texts other tokens would have come.
    assert any(tuple(llm.tokenize(str(turn))) != turn.token_ids for turn in turns)


def test_structured_output_by_schema_and_grammar(llm: VllmModel, real: VllmModel) -> None:
    schema = {
        'type': 'object',
        'properties': {'rows': {'type': 'integer', 'minimum': 0, 'maximum': 9}},
        'required': ['rows'],
        'additionalProperties': False,
    }
    # The noise of the tiny model fills what room the schema leaves with white space.
    assert 0 <= json.loads(real.chat(ASK, structured_outputs={'json': schema}))['rows'] <= 9
    grammar = 'root ::= ("mean" | "sum") " of " ("rows" | "columns")'
    reply = llm.chat(ASK, structured_outputs={'grammar': grammar}, max_new_tokens=60)
    assert re.fullmatch('(mean|sum) of (rows|columns)', reply)
    assert reply.finish_reason == 'stop'


def test_return_dict(llm: VllmModel) -> None:
    told = llm.chat(ASK, return_dict=True, logprobs=0)
    reply = llm.chat(ASK)
    assert told['text'] == reply
    assert tuple(told['token_ids']) == reply.token_ids
    assert told['cumulative_logprob'] < 0
    assert told['finish_reason'] == 'length'
    assert len(told['logprobs']) == 12


def test_a_reply_can_be_begun(llm: VllmModel) -> None:
    continued = llm.chat([*ASK, {'role': 'assistant', 'content': '```python\n'}])
    llm.prefill = '```python\n'
    try:
        assert llm.chat(ASK) == '```python\n' + continued
    finally:
        llm.prefill = ''


def test_a_listener_gets_the_reply(llm: VllmModel) -> None:
    heard: list[Event] = []
    with subscribe(heard.append):
        reply = llm.chat(ASK)
    assert [(event.type, event.data) for event in heard] == [
        ('begin', None),
        ('delta', reply),
        ('end', reply),
    ]


def test_a_prompt_longer_than_the_context(llm: VllmModel) -> None:
    with pytest.raises(ContextOverflow):
        llm.chat([{'role': 'user', 'content': 'many rows ' * 600}])
    assert llm.chat(ASK).finish_reason == 'length', 'the engine goes on'


def test_a_call_that_is_broken_off_leaves_nothing_behind(
    llm: VllmModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = llm.model.llm_engine
    with monkeypatch.context() as patch:
        steps = iter([engine.step])

        def step() -> Any:
            for once in steps:
                return once()
            raise KeyboardInterrupt

        patch.setattr(engine, 'step', step)
        with pytest.raises(KeyboardInterrupt):
            llm.chat([ASK, ASK])
    assert not engine.has_unfinished_requests()
    assert llm.chat(ASK).finish_reason == 'length', 'the engine goes on'


def test_the_small_real_model(real: VllmModel) -> None:
    france, italy = real.chat(
        [
            [{'role': 'user', 'content': f'What is the capital of {country}?'}]
            for country in ('France', 'Italy')
        ]
    )
    assert 'Paris' in france
    assert 'Rome' in italy
    assert (france.finish_reason, france.stop_reason) == ('stop', None)
