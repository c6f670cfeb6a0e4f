"""Warm sandboxes with real kernels: handed out at once, once, hardened, and never left behind."""

import asyncio
import json
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from sandbox import AsyncSandboxManager, Outcome, SandboxManager, SandboxPolicy
from sandbox.backends.engine import engine
from sandbox.backends.rendezvous import Rendezvous, runtime_folder
from sandbox.cli import app
from sandbox.owner import OWNER_LABEL, Owner
from sandbox.reaper import collect_garbage, containers

HOST_PROGRAM = """
import time
from sandbox import SandboxManager, SandboxPolicy
manager = SandboxManager(SandboxPolicy(orphan_grace=600.0), warm=2)
manager.start()
print(manager.session('a').container_id, flush=True)
time.sleep(600)
"""

KILL_THE_KERNEL = """
import os, signal
for pid in filter(str.isdigit, os.listdir('/proc')):
    parent = open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[1]
    if int(parent) > 1:
        os.kill(int(pid), signal.SIGKILL)
"""


def own() -> list[str]:
    me = str(Owner.current())
    return [each.id for each in containers() if each.labels[OWNER_LABEL] == me]


def listed() -> dict[str, tuple[str, str]]:
    """What `sandbox ps` says of each container of this process: its session and its state."""
    rows = json.loads(CliRunner().invoke(app, ['ps', '--json'], catch_exceptions=False).stdout)
    return {row['container']: (row['session'], row['status']) for row in rows}


def test_sessions_of_a_pool_are_new_and_apart(options):
    with SandboxManager(warm=2, **options) as manager:
        manager.start()
        one, two = manager.session('a'), manager.session('b')
        assert one.execute('x = 1\nopen("f", "w").write("1")').ok
        assert one.execute('print(x)').stdout == '1\n'
        result = two.execute('x')
        assert result.error.name == 'NameError'
        assert result.notices == ()
        assert result.execution_count == 1
        assert two.files() == []
        manager.close_session('a')
        again = manager.session('a')
        assert again.execute('x').outcome is Outcome.ERROR
        assert again.files() == []


async def test_more_at_once_than_are_warm(options):
    async with AsyncSandboxManager(warm=2, **options) as manager:
        await manager.start()

        async def ask(number: int) -> str:
            box = await manager.session(f'user-{number}')
            return (await box.execute(f'print({number})')).stdout

        answers = await asyncio.gather(*map(ask, range(5)))
        assert answers == [f'{number}\n' for number in range(5)]


def test_a_stricter_session_beside_a_pool(options):
    policy = SandboxPolicy(timeout=30.0)
    with SandboxManager(policy, warm=1, **options) as manager:
        manager.start()
        box = manager.session('a', policy=policy.tighten(timeout=0.3))
        assert box.execute('while True: pass').outcome is Outcome.TIMEOUT


@pytest.mark.docker
def test_a_stricter_sandbox_is_a_new_one():
    with SandboxManager(warm=1) as manager:
        manager.start()
        box = manager.session('a', policy=manager.policy.tighten(memory=128 << 20))
        assert manager.ready == 1
        with engine() as client:
            limits = client.api.inspect_container(box.container_id)['HostConfig']
        assert limits['Memory'] == 128 << 20


@pytest.mark.docker
def test_what_is_warm_is_listed_as_such_and_removed_with_the_manager():
    with SandboxManager(warm=2) as manager:
        manager.start()
        assert [listed()[each] for each in own()] == [('', 'warm')] * 2
        box = manager.session('user-42')
        manager.start()
        assert len(own()) == 3
        assert listed()[box.container_id] == ('user-42', 'running')
    assert own() == []
    me = Owner.current()
    assert [path for path in runtime_folder().iterdir() if Rendezvous(path).owner() == me] == []


@pytest.mark.docker
def test_a_warm_one_is_hardened_before_anybody_has_it():
    with SandboxManager(warm=1) as manager:
        manager.start()
        (container,) = [each for each in containers() if each.id in own()]
        sockets = Rendezvous(runtime_folder() / container.name.rpartition('-')[2]).sockets
        assert sockets.stat().st_mode & 0o222 == 0
        result = manager.session('a').execute('open("/run/k/x", "w")')
        assert result.error.name in {'PermissionError', 'OSError'}


@pytest.mark.docker
@pytest.mark.parametrize('deed', ['kill', 'remove', 'crash'])
async def test_a_warm_one_that_dies_is_replaced(deed):
    async with AsyncSandboxManager(warm=1) as manager:
        await manager.start()
        (first,) = own()
        with engine() as client:
            container = client.containers.get(first)
            if deed == 'kill':
                container.kill()
            elif deed == 'remove':
                container.remove(force=True)
            else:
                container.exec_run(['python3', '-c', KILL_THE_KERNEL])
        async with asyncio.timeout(30):
            while manager.ready == 0 or (now := own()) == [first] or not now:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        box = await manager.session('a')
        assert box.container_id != first
        assert (await box.execute('6 * 7')).result == '42'


@pytest.mark.alone
@pytest.mark.docker
def test_what_a_killed_owner_leaves_of_its_pool_is_collected():
    with subprocess.Popen(
        [sys.executable, '-c', HOST_PROGRAM], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        used = process.stdout.readline().strip()
        owner = next(each.owner for each in containers() if each.id == used)
        process.send_signal(signal.SIGKILL)
    left = {each.id for each in containers() if each.owner == owner}
    assert used in left
    assert len(left) >= 2
    deadline = time.monotonic() + 30
    while any(each.owner == owner for each in containers()) and time.monotonic() < deadline:
        collect_garbage()  # the engine may still be creating the one that was being refilled
    assert not [each for each in containers() if each.owner == owner]


@pytest.mark.docker
async def test_closing_while_the_pool_is_being_filled_leaves_nothing():
    for delay in (0.0, 0.1, 0.3, 0.6):
        manager = AsyncSandboxManager(warm=3)
        asking = asyncio.create_task(manager.session('a'))
        await asyncio.sleep(delay)
        await manager.close()
        await asyncio.wait({asking})
        assert own() == []
