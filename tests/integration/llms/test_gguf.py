"""A directory with a GGUF file, as a quantized model is given away: no configuration beside it."""

import importlib.util
from pathlib import Path

import pytest

from lagent.llms import HFTransformerChat

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[3]
ASK = [{'role': 'user', 'content': 'What is the capital of France?'}]


@pytest.fixture(scope='module')
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the weights of the small model lie, as its package ships them."""
    spec = importlib.util.spec_from_file_location('fetch', ROOT / 'scripts' / 'fetch_model.py')
    assert spec is not None
    assert spec.loader is not None
    fetch = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fetch)
    gguf: Path = fetch.find_gguf(tmp_path_factory.mktemp('gguf'))
    return gguf.parent


def test_it_is_the_same_model_as_the_checkpoint(directory: Path, model_path: Path) -> None:
    assert not (directory / 'config.json').exists()
    settings = {'temperature': 0, 'max_new_tokens': 12, 'dtype': 'bfloat16', 'device': 'cpu'}
    llm = HFTransformerChat(str(directory), **settings)
    reply = llm.chat(ASK, return_token_ids=True)
    assert 'Paris' in reply
    expected = HFTransformerChat(str(model_path), **settings).chat(ASK, return_token_ids=True)
    assert (reply.prompt_token_ids, reply.token_ids) == (
        expected.prompt_token_ids,
        expected.token_ids,
    )
