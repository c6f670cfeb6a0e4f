"""The whole of a long text: kept outside of memory, up to a limit, and then in the session."""

import asyncio
import subprocess
import sys
from typing import IO

from sandbox import outputs as outputs_module
from sandbox.kernel.collector import Collector
from sandbox.kernel.framing import Refusal
from sandbox.kernel.spill import Spill
from sandbox.kernel.workspace import FileEntry
from sandbox.outputs import Outputs
from sandbox.policy import SandboxPolicy

POLICY = SandboxPolicy(output_chars=1_000, spill_bytes=10_000)


def content(spill: Spill) -> dict[str, bytes]:
    found = {}
    for name, size, file in spill.wanted():
        found[name] = file.read()
        assert len(found[name]) == size
    return found


class Workspace:
    """Files in memory, of a bounded size."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.data: dict[str, bytes] = {}
        self._room = room

    async def write(self, path: str, size: int, source: IO[bytes]) -> FileEntry:
        data = source.read()
        assert len(data) == size
        if len(data) > self._room:
            raise Refusal('no_space', 'no space left')
        self.data[path] = data
        return FileEntry(path, size, 0, 'file', 0)

    async def delete(self, path: str) -> None:
        del self.data[path]


def test_only_what_is_wanted_comes_out():
    with Spill(1_000) as spill:
        spill.add('stdout', 'wanted ')
        spill.add('stderr', 'not wanted')
        spill.add('stdout', 'é')
        spill.want('stdout')
        spill.want('stdout')
        assert content(spill) == {'stdout': 'wanted é'.encode()}
        assert spill.complete


def test_the_limit_is_that_of_all_streams_and_spares_whole_characters():
    with Spill(8) as spill:
        spill.add('stdout', 'abcd')
        spill.add('stderr', 'ééé')
        spill.add('stdout', 'more')
        for name in ('stdout', 'stderr'):
            spill.want(name)
        assert content(spill) == {'stdout': b'abcd', 'stderr': 'éé'.encode()}
        assert not spill.complete
        spill.clear()
        assert spill.complete
        assert content(spill) == {}


def test_a_large_text_leaves_memory():
    with Spill(4 << 20) as spill:
        for _ in range(40):
            spill.add('stdout', 'x' * 100_000)
        spill.want('stdout')
        (file,) = spill._files.values()
        assert file._rolled  # on disk, and without a name there
        assert len(content(spill)['stdout']) == 4_000_000


def test_a_collector_keeps_what_it_cuts_and_forgets_what_is_cleared():
    with Spill(1 << 20) as spill:
        collector = Collector(POLICY, spill=spill)
        for _ in range(30):
            collector.feed('stream', {'name': 'stdout', 'text': '0123456789' * 10})
        collector.feed('execute_result', {'data': {'text/plain': 'v' * 2_000}})
        collector.outputs()
        assert content(spill) == {'stdout': b'0123456789' * 300, 'values': b'v' * 2_000 + b'\n'}
        collector.feed('clear_output', {'wait': False})
        collector.feed('stream', {'name': 'stdout', 'text': 'short'})
        collector.outputs()
        assert content(spill) == {}


def long(outputs: Outputs, size: int) -> Spill:
    spill = outputs.begin()
    spill.add('stdout', 'x' * size)
    spill.want('stdout')
    return spill


async def test_the_newest_files_are_kept():
    workspace, outputs = Workspace(), Outputs(POLICY)
    for size in (4_000, 5_000, 6_000, 40_000):
        with long(outputs, size) as spill:
            kept, words = await outputs.keep(workspace, spill)
        assert sum(map(len, workspace.data.values())) <= 10_000
        assert kept[0].path in workspace.data
    assert list(workspace.data) == ['.outputs/cell-4-stdout.txt']
    assert words == ['only the first 0.00953674 MiB of the full output are kept in a file']


async def test_a_file_that_cannot_be_written_is_told():
    workspace, outputs = Workspace(room=100), Outputs(POLICY)
    with long(outputs, 5_000) as spill:
        kept, words = await outputs.keep(workspace, spill)
    assert kept == []
    assert words == ['the full output could not be kept in .outputs/cell-1-stdout.txt (no_space)']


async def test_what_cannot_be_kept_in_time_is_given_up(monkeypatch):
    async def never(*_: object) -> FileEntry:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(outputs_module, '_PATIENCE', 0.05)
    workspace, outputs = Workspace(), Outputs(POLICY)
    workspace.write = never
    with long(outputs, 5_000) as spill:
        async with asyncio.timeout(5):
            kept, words = await outputs.keep(workspace, spill)
    assert kept == []
    assert 'could not be kept' in words[0]


FULL_DISK = """
import asyncio, resource, signal
from sandbox.outputs import Outputs
from sandbox.policy import SandboxPolicy

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
outputs = Outputs(SandboxPolicy())
with outputs.begin() as spill:
    for _ in range(40):
        spill.add('stdout', 'x' * 10_000)
        spill.add('stderr', 'x' * 10_000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (401_000, resource.RLIM_INFINITY))
    for name in ('stdout', 'stderr'):
        spill.add(name, 'x' * 3_000)  # into a buffer
        spill.want(name)
    spill.add('stdout', 'x' * 300_000)  # to the disk
    print(asyncio.run(outputs.keep(None, spill)), spill.complete)
"""


def test_a_full_disk_of_the_host_costs_the_whole_text_and_nothing_else():
    done = subprocess.run(
        [sys.executable, '-c', FULL_DISK], capture_output=True, text=True, timeout=60, check=True
    )
    said = "([], ['the full output could not be kept in a file (File too large)']) False"
    assert done.stdout.strip() == said


SMALL_TEXTS = """
import asyncio, resource, signal
from sandbox.outputs import Outputs
from sandbox.policy import SandboxPolicy

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
outputs = Outputs(SandboxPolicy())
with outputs.begin() as spill:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, resource.RLIM_INFINITY))
    spill.add('stdout', 'x' * 200_000)  # into memory
    spill.want('stdout')
    print(asyncio.run(outputs.keep(None, spill)))
with outputs.begin() as spill:
    spill.add('stderr', 'x' * 300_000)
    print(asyncio.run(outputs.keep(None, spill)))
"""


def test_the_hosts_disk_is_blamed_where_it_is_to_blame_and_only_for_what_is_missed():
    done = subprocess.run(
        [sys.executable, '-c', SMALL_TEXTS], capture_output=True, text=True, timeout=60, check=True
    )
    missed, nothing = done.stdout.splitlines()
    assert missed == "([], ['the full output could not be kept in a file (File too large)'])"
    assert nothing == '([], [])'
