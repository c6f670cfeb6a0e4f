"""The end of vLLM's engines: closed, or left to the end of the program."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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


CLOSED = """
import asyncio, json, sys, time
from multiprocessing import active_children
from lagent.llms import AsyncVllmModel, ServerFailed, VllmModel

ASK = [{'role': 'user', 'content': 'q'}]


def ask(llm):
    try:
        reply = llm.chat(ASK)
        if asyncio.iscoroutine(reply):
            reply = runner.run(reply)
        return len(reply.token_ids)
    except ServerFailed as error:
        return str(error)


def close(llm):
    if (closing := llm.close()) is not None:
        runner.run(closing)


if __name__ == '__main__':
    kind = {'VllmModel': VllmModel, 'AsyncVllmModel': AsyncVllmModel}[sys.argv[2]]
    cfg = {'max_model_len': 256, 'enforce_eager': True, 'kv_cache_memory_bytes': 64 << 20}
    seen = []
    with asyncio.Runner() as runner:
        for _ in range(2):
            llm = kind(sys.argv[1], vllm_cfg=cfg, max_new_tokens=2)
            seen += [ask(llm), bool(active_children())]
            close(llm)
            close(llm)
            told, deadline = ask(llm), time.monotonic() + 60
            while active_children() and time.monotonic() < deadline:
                time.sleep(0.1)
            seen += [told, bool(active_children())]
    print(json.dumps(seen), flush=True)
"""


@pytest.mark.parametrize(
    ('kind', 'processes'), [('VllmModel', '1'), ('VllmModel', '0'), ('AsyncVllmModel', '1')]
)
def test_a_closed_engine_is_gone_and_says_so(
    tiny_model: Path, tmp_path: Path, kind: str, processes: str
) -> None:
    script = tmp_path / 'closed.py'
    script.write_text(CLOSED)
    done = subprocess.run(
        [sys.executable, script, tiny_model, kind],
        env={**os.environ, 'VLLM_ENABLE_V1_MULTIPROCESSING': processes},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    told = f'This {kind} was closed. Make another one.'
    once = [2, processes == '1', told, False]
    assert json.loads(done.stdout.splitlines()[-1]) == once * 2
    assert 'Exception ignored' not in done.stderr
