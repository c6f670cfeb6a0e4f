"""Large files stream; what is expected of all others is in `sandbox.conformance`."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


LARGE = """
import sys
from sandbox import Sandbox

def peak():
    # The peak that `getrusage` tells may be that of the program which started this one.
    status = dict(line.split(':', 1) for line in open('/proc/self/status'))
    return int(status['VmHWM'].split()[0]) * 1024

with Sandbox(backend=sys.argv[1], unsafe=sys.argv[1] == 'local') as box:
    before = peak()
    box.upload(sys.argv[2], name='sub/dir/big.bin')
    print(box.execute("import os; print(os.path.getsize('sub/dir/big.bin'))").stdout, end='')
    target = box.download('sub/dir/big.bin', to=sys.argv[3])
    print(target.stat().st_size)
    print((peak() - before) >> 20)
"""


@pytest.mark.slow
def test_a_large_file_streams_both_ways(backend, tmp_path):
    source = tmp_path / 'big.bin'
    with source.open('wb') as file:
        file.truncate(300 << 20)
    done = subprocess.run(
        [sys.executable, '-c', LARGE, backend, source, tmp_path / 'out'],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=150,
        check=True,
    )
    inside, outside, grown = map(int, done.stdout.split())
    assert inside == outside == 300 << 20
    assert grown < 64
