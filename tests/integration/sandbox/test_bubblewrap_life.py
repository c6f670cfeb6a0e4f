"""What the bubblewrap back end promises on this machine, and how its sandboxes end."""

import asyncio
import contextlib
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import (
    BackendUnavailable,
    ImageMissing,
    PolicyNotEnforced,
    Sandbox,
    SandboxError,
    SandboxPolicy,
)
from sandbox.backends import bubblewrap, cgroups, get_backend
from sandbox.backends.bubblewrap import BubblewrapBackend, BubblewrapInstance
from sandbox.backends.rendezvous import Rendezvous, runtime_folder
from sandbox.kernel.supervisor import Supervisor
from sandbox.owner import Owner

GAPS = BubblewrapBackend().unenforced(SandboxPolicy())
ROOT = os.geteuid() == 0
ME = Owner.current()

pytestmark = pytest.mark.alone


def backend() -> BubblewrapBackend:
    return BubblewrapBackend(accept_unenforced=GAPS)


def groups() -> list[Path]:
    return [
        found for each in cgroups.hierarchy().parents.values() for found in each.glob('lagent-*')
    ]


def left_behind() -> tuple[set[str], set[str]]:
    """Names of the folders of this process, and of control groups that have lost their folder."""
    own = {each.name for each in runtime_folder().iterdir() if Rendezvous(each).owner() == ME}
    names = {each.name for each in groups()}
    return own, {each for each in names if not (runtime_folder() / each[len('lagent-') :]).exists()}


@pytest.fixture(scope='module', autouse=True)
def _usable() -> None:
    try:
        BubblewrapBackend().check()
    except SandboxError as error:
        pytest.skip(error.message)


def test_it_says_what_it_enforces():
    promises = SandboxPolicy().enforced_by('bubblewrap')
    assert {field: reason for field, reason in promises.items() if reason != 'enforced'} == GAPS
    assert GAPS == {} or not ROOT or 'control group' in str(GAPS)


def test_an_interpreter_behind_a_link_is_found(tmp_path, monkeypatch):
    link = tmp_path / 'current'
    link.symlink_to(sys.prefix)
    monkeypatch.setattr(sys, 'executable', str(link / 'bin' / Path(sys.executable).name))
    monkeypatch.setattr(sys, 'prefix', str(link))
    with Sandbox(backend=backend()) as box:
        assert box.execute('import sys; print(sys.prefix)').stdout == f'{link}\n'


@pytest.mark.parametrize('changes', [{'network': 'full'}, {'runtime': 'runsc'}])
def test_what_it_cannot_do_is_refused_by_name(changes):
    (field,) = changes
    with (
        pytest.raises(PolicyNotEnforced, match=field),
        Sandbox(policy=SandboxPolicy(**changes), backend=backend()),
    ):
        pass
    with pytest.raises(ValueError, match='cannot be relaxed'):
        BubblewrapBackend(accept_unenforced=[field])


def test_limits_that_do_not_hold_are_refused_unless_given_up_by_name(monkeypatch):
    monkeypatch.setattr(cgroups, 'hierarchy', lambda: cgroups.Hierarchy(2, {}))
    with pytest.raises(PolicyNotEnforced, match='cannot enforce cpus, memory here') as refusal:
        Sandbox(backend='bubblewrap').start()
    assert "accept_unenforced=['cpus', 'memory']" in refusal.value.hint
    with Sandbox(backend=BubblewrapBackend(accept_unenforced=['cpus', 'memory'])) as box:
        first, second = box.execute('1 + 1'), box.execute('1 + 1')
    assert (first.result, first.state_preserved, second.notices) == ('2', True, ())
    assert [notice.split(':')[0] for notice in first.notices] == [
        'cpus is not enforced',
        'memory is not enforced',
    ]


def test_auto_without_docker_says_what_it_took(monkeypatch, caplog):
    monkeypatch.setattr(
        'sandbox.backends.docker.DockerBackend.check',
        lambda *_: (_ for _ in ()).throw(ImageMissing('There is no image.')),
    )
    monkeypatch.setattr('sandbox.backends.auto.BubblewrapBackend', backend)
    auto = get_backend('auto')
    with caplog.at_level(logging.WARNING), Sandbox(backend=auto) as box:
        assert auto.name == 'bubblewrap'
        first, second = box.execute('1 + 1'), box.execute('1 + 1')
    assert first.notices[0] == (
        'this sandbox is made by bubblewrap, since Docker cannot be used: There is no image.'
    )
    assert second.notices == ()
    assert [record.levelname for record in caplog.records if 'bubblewrap' in record.message] == [
        'WARNING'
    ]


def test_auto_never_falls_back_to_anything_weaker(monkeypatch):
    def refuse(*_: object) -> None:
        raise BackendUnavailable('Not here.')

    monkeypatch.setattr('sandbox.backends.docker.DockerBackend.check', refuse)
    monkeypatch.setattr('sandbox.backends.bubblewrap.BubblewrapBackend.check', refuse)
    with pytest.raises(BackendUnavailable, match='neither Docker nor bubblewrap'):
        Sandbox(backend='auto').start()


# How it ends


def test_it_ends_in_a_program_with_many_open_files():
    before = left_behind()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    try:
        with contextlib.ExitStack() as many:
            for _ in range(1100):
                many.enter_context(open('/dev/null'))  # noqa: PTH123
            with Sandbox(backend=backend()) as box:
                assert box.execute('6 * 7').result == '42'
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert left_behind() == before


async def test_a_cancelled_remount_leaves_no_process(monkeypatch, tmp_path):
    script = tmp_path / 'waits.py'
    script.write_text(
        'import os, sys, time\nopen(sys.argv[3], "w").write(f"{os.getpid()} ")\ntime.sleep(60)\n'
    )
    monkeypatch.setattr(bubblewrap.remount, '__file__', str(script))
    monkeypatch.setattr(bubblewrap.os, 'geteuid', lambda: 1)
    told = tmp_path / 'pid'
    instance = BubblewrapInstance.__new__(BubblewrapInstance)
    instance._first = 1
    remounting = asyncio.create_task(instance._remount(str(told)))
    async with asyncio.timeout(20):
        while not told.exists() or not told.read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        remounting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await remounting
        while os.path.exists(f'/proc/{told.read_text().strip()}'):  # noqa: ASYNC110, ASYNC240, PTH110
            await asyncio.sleep(0.01)


async def test_an_instance_ends_with_all_it_started_and_its_files():
    instance = await backend().start(SandboxPolicy(), labels={})
    supervisor = await Supervisor.connect(instance.endpoint.control)
    root = instance.endpoint.directory.parent
    assert 'runs but does not answer' in await instance.describe_loss()
    assert len(list(_sandboxed(instance.id))) >= 2
    assert len({each for each in groups() if root.name in each.name}) == len(
        set(cgroups.hierarchy().parents.values())
    )
    os.kill(int(instance.id), signal.SIGKILL)
    await supervisor.gone()
    await supervisor.close()
    await instance.remove()
    await instance.remove()
    assert 'was killed by signal 9' in await instance.describe_loss()
    assert not root.exists()
    assert not [each for each in groups() if root.name in each.name]


async def test_a_start_that_is_cancelled_leaves_nothing():
    await asyncio.to_thread(backend().check)
    before = left_behind()
    for delay in (0.0, 0.005, 0.02, 0.05):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                instance = await backend().start(SandboxPolicy(), labels={})
                await instance.remove()
    assert left_behind() == before


def test_a_start_that_fails_says_why_and_leaves_nothing(monkeypatch):
    monkeypatch.setattr('sandbox.backends.bubblewrap.supervisor', lambda _: ('/no/such/program',))
    before = left_behind()
    with pytest.raises(SandboxError, match='no/such/program'):
        Sandbox(backend=backend()).start()
    assert left_behind() == before


OWNER = """
import sys, time
from sandbox import Sandbox
from sandbox.backends.bubblewrap import BubblewrapBackend
box = Sandbox(backend=BubblewrapBackend(accept_unenforced=sys.argv[1].split()))
box.start()
box.execute('import subprocess; subprocess.Popen(["sleep", "1000"], start_new_session=True)')
print(box._machine.id, flush=True)
time.sleep(600)
"""


def test_what_a_killed_owner_leaves_dies_with_it_and_is_collected():
    from sandbox.reaper import collect_garbage

    with subprocess.Popen(
        [sys.executable, '-c', OWNER, ' '.join(GAPS)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        process = owner.stdout.readline().strip()
        left = list(_sandboxed(process))
        owner.kill()
    assert len(left) >= 3  # supervisor, kernel, and what the code has started
    deadline = time.monotonic() + 10
    while any(_alive(pid) for pid in left) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [pid for pid in left if _alive(pid)] == []
    collect_garbage(docker=False)
    folders = {each.name for each in runtime_folder().iterdir()}
    assert [each for each in groups() if each.name.removeprefix('lagent-') not in folders] == []


def _sandboxed(first: str) -> Iterator[int]:
    """Yield a process and all below it."""
    yield int(first)
    children = Path(f'/proc/{first}/task/{first}/children')
    for child in children.read_text(encoding='ascii').split():
        yield from _sandboxed(child)


def _alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        state = Path(f'/proc/{pid}/stat').read_bytes().rpartition(b')')[2].split()[0]
        return state not in (b'Z', b'X')
    return False
