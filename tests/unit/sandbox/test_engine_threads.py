"""The threads that ask the Docker engine and remove sandboxes."""

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from sandbox import SandboxPolicy
from sandbox.backends.local import LocalBackend

PROGRAM = """
import asyncio, sys
from sandbox.backends.engine import load_library
from sandbox.threads import in_thread

def is_loaded():
    load_library()
    return hasattr(sys.modules['docker'], 'DockerClient')

async def main():
    assert 'docker' not in sys.modules
    assert all(await asyncio.gather(*(in_thread(is_loaded) for _ in range(16))))

asyncio.run(main())
"""


def test_all_of_the_library_is_there_before_any_of_them_begins() -> None:
    done = subprocess.run([sys.executable, '-c', PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


async def test_a_sandbox_is_removed_while_all_threads_of_the_loop_wait() -> None:
    busy = threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    instance = await LocalBackend(unsafe=True).start(SandboxPolicy(), labels={})
    waiting = asyncio.create_task(asyncio.to_thread(busy.wait))
    try:
        async with asyncio.timeout(30):
            await instance.remove()
    finally:
        busy.set()
        await waiting
