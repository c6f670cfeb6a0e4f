"""Real engines: a tiny model of random weights, made here, and the small real one.

The tiny one writes noise, at once: good for ids, counts, and how replies end.
"""

import os
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    '{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}'
)
SENTENCES = [
    'How many rows does the table have?',
    'The answer to the question is in the last line of the output.',
    'import pandas as pd and print the mean of the column',
    string.printable,  # and nothing else, so that every token is readable by itself
]
# vLLM's arguments for two CPU cores. One process: no pipes to wait for, nothing to leave behind.
VLLM_SMALL = {'max_model_len': 512, 'max_num_seqs': 8, 'enforce_eager': True}
# What torch and vLLM deprecate among themselves is not our affair.
VLLM_MARKS = [
    pytest.mark.model,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings('ignore::DeprecationWarning'),
    pytest.mark.filterwarnings('ignore::FutureWarning'),
]
VLLM_ENV = {
    'HF_HUB_OFFLINE': '1',
    # Threads that wait for each other lose most of their time where others want the cores as well.
    'OMP_NUM_THREADS': '1',
    'TOKENIZERS_PARALLELISM': 'false',
    'VLLM_CPU_KVCACHE_SPACE': '1',
    'VLLM_CPU_OMP_THREADS_BIND': 'nobind',
    'VLLM_ENABLE_V1_MULTIPROCESSING': '0',
    'VLLM_LOGGING_LEVEL': 'ERROR',
    'VLLM_NO_USAGE_STATS': '1',
}


@pytest.fixture(scope='session', autouse=True)
def engine_environment() -> Iterator[None]:
    """What the engines read from the environment when they are imported."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in VLLM_ENV.items():
            if name not in os.environ:
                patch.setenv(name, value)
        yield


@pytest.fixture(scope='session')
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of about a million random parameters, as a checkpoint with a ChatML template."""
    import tokenizers
    import torch
    import transformers

    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=['<|im_start|>', '<|im_end|>'],
        show_progress=False,
    )
    bpe.train_from_iterator(SENTENCES, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token='<|im_end|>', pad_token='<|im_end|>', chat_template=CHATML
    )
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=0,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    path = tmp_path_factory.mktemp('models') / 'tiny'
    transformers.LlamaForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path
