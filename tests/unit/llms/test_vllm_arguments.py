"""What VllmModel asks of vLLM, seen by an engine that only looks like it."""

import sys
import types
from types import SimpleNamespace
from typing import Any

import pytest

from lagent.errors import ExtraMissing
from lagent.llms import BadRequest, Completion, ContextOverflow, VllmModel

ASK = [{'role': 'user', 'content': 'q'}]


class Structure(SimpleNamespace):
    pass


class Engine:
    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        self.asked: list[Any] = []

        self.adapters: list[Any] = []
        self.loaded: list[str] = []
        self.llm_engine = self
        self.output_processor = SimpleNamespace(request_states={'left': None})
        self.aborted: list[str] = []

    def add_lora(self, request: Any) -> None:
        if request.lora_path == 'missing':
            raise ValueError('No adapter found.')
        self.loaded.append(request.lora_path)

    def abort_request(self, ids: list[str], internal: bool) -> None:
        self.aborted += ids

    def generate(
        self, prompts: list[Any], params: dict[str, Any], *, lora_request: Any, use_tqdm: bool
    ) -> list[Any]:
        self.asked.append((prompts, params))
        self.adapters.append(lora_request)
        if 'too long' in prompts:
            raise ValueError('The prompt is longer than the maximum model length of 8.')
        told = {'token_ids': [1, 2], 'cumulative_logprob': -1.0, 'logprobs': None}
        out = SimpleNamespace(
            text='keep STOP drop', finish_reason='length', stop_reason=None, **told
        )
        ids = [p.get('prompt_token_ids') if isinstance(p, dict) else None for p in prompts]
        return [SimpleNamespace(outputs=[out], prompt_token_ids=given) for given in ids]


@pytest.fixture(autouse=True)
def fake_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    vllm = types.ModuleType('vllm')
    vllm.LLM, vllm.SamplingParams = Engine, dict  # type: ignore[attr-defined]
    vllm.sampling_params = SimpleNamespace(StructuredOutputsParams=Structure)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, 'vllm', vllm)


def test_engine_arguments() -> None:
    llm = VllmModel('a/model', tp=2, vllm_cfg={'dtype': 'float32'})
    assert llm.model.arguments == {
        'model': 'a/model',
        'tensor_parallel_size': 2,
        'dtype': 'float32',
    }


def test_parameters_get_vllms_names() -> None:
    llm = VllmModel('m', stop_words=['a'])
    llm.gen_params['stop_words'].append('b')
    llm.chat(ASK, top_k=None, min_p=0.1, logprobs=1)
    assert llm.model.asked == [
        (
            ['q'],
            {
                'max_tokens': 512,
                'stop': ['a', 'b'],
                'top_p': 0.8,
                'temperature': 0.8,
                'repetition_penalty': 1.0,
                'skip_special_tokens': False,
                'min_p': 0.1,
                'logprobs': 1,
            },
        )
    ]


def test_structured_output_may_be_a_dict() -> None:
    llm = VllmModel('m')
    llm.chat(ASK, structured_outputs={'regex': '[0-9]+'})
    llm.chat(ASK, structured_outputs=(own := Structure(json={})))
    given = [params['structured_outputs'] for _, params in llm.model.asked]
    assert given == [Structure(regex='[0-9]+'), own]


@pytest.fixture
def lora(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType('vllm.lora.request')
    module.LoRARequest = lambda name, number, path: SimpleNamespace(  # type: ignore[attr-defined]
        lora_name=name, number=number, lora_path=path
    )
    monkeypatch.setitem(sys.modules, 'vllm.lora.request', module)


@pytest.mark.usefixtures('lora')
def test_adapters_have_numbers_and_are_loaded_once() -> None:
    llm = VllmModel('m', lora='a/one')
    assert llm.model.arguments['enable_lora'] is True
    for given in ({}, {'lora': 'a/two'}, {}, {'lora': None}, {'lora': 'a/two'}):
        llm.chat(ASK, **given)
    asked = [None if it is None else (it.lora_path, it.number) for it in llm.model.adapters]
    assert asked == [('a/one', 1), ('a/two', 2), ('a/one', 1), None, ('a/two', 2)]
    assert llm.model.loaded == ['a/one', 'a/two']
    assert 'lora' not in llm.model.asked[0][1]


@pytest.mark.usefixtures('lora')
def test_an_adapter_that_cannot_be_loaded_is_refused_before_anything_runs() -> None:
    llm = VllmModel('m')
    assert 'enable_lora' not in llm.model.arguments
    for _ in range(2):
        with pytest.raises(BadRequest, match=r'missing.*enable_lora'):
            llm.chat(ASK, lora='missing')
    assert llm.model.asked == []


def test_the_ids_of_the_prompt_are_given_where_they_are_asked_for() -> None:
    llm = VllmModel('m')
    assert llm.chat(ASK).prompt_token_ids is None
    reply = llm.chat((5, 6), return_token_ids=True)
    assert (reply.prompt_token_ids, reply.token_ids) == ((5, 6), (1, 2))
    assert llm.chat([(5, 6), (7,)], return_token_ids=True)[1].prompt_token_ids == (7,)
    assert llm.chat({'prompt_token_ids': [8]}, return_token_ids=True).prompt_token_ids == (8,)
    assert 'return_token_ids' not in llm.model.asked[-1][1]


def test_the_calls_stop_words_are_cut_off() -> None:
    reply = VllmModel('m').chat(ASK, stop_words=[' STOP'])
    assert (reply, reply.finish_reason, reply.stop_reason) == ('keep', 'stop', ' STOP')


def test_batches_dicts_and_token_ids() -> None:
    llm = VllmModel('m')
    replies = llm.generate(['a', [5, 6], {'prompt': 'b'}])
    assert [type(reply) for reply in replies] == [Completion] * 3
    assert llm.model.asked[0][0] == ['a', {'prompt_token_ids': [5, 6]}, {'prompt': 'b'}]
    assert llm.generate([5, 6]).finish_reason == 'length'
    assert llm.generate('a', return_dict=True) == {
        'text': 'keep STOP drop',
        'token_ids': [1, 2],
        'cumulative_logprob': -1.0,
        'logprobs': None,
        'finish_reason': 'length',
        'stop_reason': None,
    }


def test_a_meta_template_writes_the_dialog() -> None:
    meta = [{'role': 'user', 'begin': '<u>', 'end': '</u>'}, {'role': 'assistant', 'begin': '<a>'}]
    llm = VllmModel('m', meta_template=meta)
    llm.chat(ASK)
    assert llm.model.asked[0][0] == ['<u>q</u><a>']


def test_a_prompt_that_is_too_long() -> None:
    llm = VllmModel('m')
    with pytest.raises(ContextOverflow, match='maximum model length'):
        llm.generate('too long')
    assert llm.model.aborted == ['left']


def test_without_vllm_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'vllm', None)
    with pytest.raises(ExtraMissing, match=r'lagent-sandbox\[vllm\]'):
        VllmModel('m')
