"""The end of a program that has not closed vLLM's asynchronous engine."""

import subprocess
import sys
from pathlib import Path

from .conftest import VLLM_MARKS

pytestmark = VLLM_MARKS

UNCLOSED = """
import asyncio, sys
from lagent.llms import AsyncVllmModel

if __name__ == '__main__':
    cfg = {'max_model_len': 256, 'enforce_eager': True, 'kv_cache_memory_bytes': 64 << 20}
    llm = AsyncVllmModel(sys.argv[1], vllm_cfg=cfg, max_new_tokens=2)
    asyncio.run(llm.chat([{'role': 'user', 'content': 'q'}]))
    print('asked', flush=True)
"""


def test_an_engine_that_nobody_closes_ends_quietly(tiny_model: Path, tmp_path: Path) -> None:
    script = tmp_path / 'unclosed.py'
    script.write_text(UNCLOSED)
    command = [sys.executable, script, tiny_model]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, 'asked'), done.stderr
    assert 'Exception ignored' not in done.stderr
