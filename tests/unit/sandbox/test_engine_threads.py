"""The threads that ask the Docker engine."""

import subprocess
import sys

PROGRAM = """
import asyncio, sys
from sandbox.backends.engine import in_thread

def is_loaded():
    return hasattr(sys.modules['docker'], 'DockerClient')

async def main():
    assert 'docker' not in sys.modules
    assert all(await asyncio.gather(*(in_thread(is_loaded) for _ in range(16))))

asyncio.run(main())
"""


def test_all_of_the_library_is_there_before_any_of_them_begins() -> None:
    done = subprocess.run([sys.executable, '-c', PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
