"""The event loop of many servers in place of asyncio's own, awaited and behind the blocking API."""

import subprocess
import sys
from pathlib import Path

import pytest
import uvloop

from sandbox import AsyncSandbox, Outcome

pytestmark = pytest.mark.docker

BLOCKING = """
import asyncio, uvloop
asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())  # as a server does
from sandbox import Sandbox
from sandbox.portal import get_portal

async def loop_of_the_portal():
    return type(asyncio.get_running_loop())

assert get_portal().call(loop_of_the_portal) is uvloop.Loop
with Sandbox() as box:
    print(box.execute('6 * 7').result)
    print([event.output.text for event in box.stream('print(1)') if event.output])
"""


def test_all_that_a_session_does(tmp_path: Path) -> None:
    large = tmp_path / 'large.bin'
    large.write_bytes(bytes(range(256)) * 12_000)

    async def scenario() -> None:
        async with AsyncSandbox() as box:
            uploaded = await box.upload(large)
            assert uploaded.size == large.stat().st_size
            assert await box.read('large.bin') == large.read_bytes()
            copy = await box.download('large.bin', to=tmp_path / 'out')
            assert copy.read_bytes() == large.read_bytes()

            result = await box.execute(
                "print('x' * 3_000_000)\nlen(open('large.bin', 'rb').read())"
            )
            assert result.result == str(large.stat().st_size)
            [kept] = result.full_output
            assert await box.read(kept.path) == b'x' * 3_000_000 + b'\n'

            assert (await box.execute('while True: pass', 0.5)).outcome is Outcome.TIMEOUT
            assert (await box.execute('import os; os._exit(3)')).exit_code == 3
            assert [file.path for file in await box.files()] == [kept.path, 'large.bin']
            assert (await box.execute('1 + 1')).result == '2'

    uvloop.run(scenario())


def test_the_loop_behind_the_blocking_api() -> None:
    done = subprocess.run(
        [sys.executable, '-c', BLOCKING], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n['1\\n']\n", '')
