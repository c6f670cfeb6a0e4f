"""What a killed owner leaves behind: it ends by itself, or is collected; the living are spared."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Sandbox, reaper
from sandbox.backends.rendezvous import Rendezvous
from sandbox.owner import FOLDER_LABEL, OWNER_LABEL, Owner

OWNER_PROGRAM = """
import sys, time
from sandbox import Sandbox, SandboxPolicy
box = Sandbox(policy=SandboxPolicy(orphan_grace=float(sys.argv[1])))
box.__enter__()
assert box.execute('6 * 7').result == '42'
print(box.container_id, flush=True)
time.sleep(600)
"""

FOLDER_PROGRAM = """
from sandbox.backends.rendezvous import Rendezvous
print(Rendezvous.create()[0].root)
"""

LOCAL_PROGRAM = """
import pathlib, sys, time
from sandbox import Sandbox
with Sandbox(backend='local', unsafe=True):
    while pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.01)
"""

pytestmark = pytest.mark.alone


def killed_owner(grace: float) -> str:
    """Start a sandbox in a process, kill the process, and return the container's id."""
    with subprocess.Popen(
        [sys.executable, '-c', OWNER_PROGRAM, str(grace)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        container = process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)
    assert container
    return container


def find(container: str) -> reaper.Container | None:
    return next((each for each in reaper.containers() if each.id == container), None)


@pytest.fixture
def living() -> Iterator[Sandbox]:
    with Sandbox() as box:
        assert box.execute('x = 42').ok
        yield box


@pytest.mark.docker
def test_what_a_killed_owner_leaves_is_collected_and_nothing_else(living):
    container = killed_owner(600.0)
    orphan = find(container)
    assert orphan is not None
    assert (orphan.status, orphan.owner_state) == ('running', 'dead')
    folder = orphan.labels[FOLDER_LABEL]
    assert Path(folder).is_dir()
    wanted = {reaper.Orphan('container', container), reaper.Orphan('folder', folder)}
    assert wanted <= set(reaper.orphans())

    assert wanted <= set(reaper.collect_garbage())
    assert find(container) is None
    assert not Path(folder).exists()
    assert wanted.isdisjoint(reaper.collect_garbage())

    mine = find(living.container_id or '')
    assert mine is not None
    assert mine.owner_state == 'alive'
    assert living.execute('x').result == '42'


@pytest.mark.docker
def test_what_a_killed_owner_leaves_ends_by_itself():
    container = killed_owner(1.0)
    deadline = time.monotonic() + 30
    while find(container) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    # The folder is all that is left, and it is found by its own record.
    reaper.collect_garbage()
    assert not any(Rendezvous(Path(each.name)).root.exists() for each in reaper.orphans())


@pytest.mark.docker
def test_a_stranger_with_our_label_is_not_touched(living):
    mine = find(living.container_id or '')
    assert mine is not None
    dead = Owner.current()._replace(pid=1 << 30)
    for labels in ({OWNER_LABEL: str(dead)}, {OWNER_LABEL: 'nonsense', FOLDER_LABEL: '/'}):
        owner = Owner.parse(labels[OWNER_LABEL])
        state = owner.state() if owner else 'unknown'
        stranger = reaper.Container('id', 'name', 'image', 'running', 0.0, labels, owner, state)
        assert not reaper._is_orphan(stranger)


def make_deserted_folder() -> Path:
    done = subprocess.run(
        [sys.executable, '-c', FOLDER_PROGRAM], capture_output=True, text=True, check=True
    )
    folder = Path(done.stdout.strip())
    assert folder.is_dir()
    return folder


def test_folders_are_collected_without_an_engine():
    mine, _ = Rendezvous.create()
    try:
        folder = make_deserted_folder()
        assert reaper.Orphan('folder', str(folder)) in reaper.collect_garbage(docker=False)
        assert not folder.exists()
        assert mine.root.is_dir()
    finally:
        mine.remove()


def test_the_next_program_sweeps_the_folders():
    folder = make_deserted_folder()
    with subprocess.Popen([sys.executable, '-c', LOCAL_PROGRAM, str(folder)]) as program:
        assert program.wait(60) == 0
    assert not folder.exists()


def test_an_owner_is_told_from_others():
    me = Owner.current()
    assert Owner.parse(str(me)) == me
    assert me.pid == os.getpid()
    assert me.state() == 'alive'
    assert me._replace(started=me.started + 1).state() == 'dead'  # the id was used again
    assert me._replace(pid=1 << 30).state() == 'dead'
    assert me._replace(namespace=1).state() == 'unknown'
    before = me._replace(boot_id='an earlier run of the machine')
    assert (before.state(), before.is_dead_here()) == ('unknown', True)
    for text in ('', 'a:b:c:d', 'boot:1:2', 'boot:1:2:3:4', 'boot:-1:2:3'):
        assert Owner.parse(text) is None


def test_a_folder_says_whom_a_warm_one_was_given_to():
    place, _ = Rendezvous.create()
    try:
        assert place.session() is None
        place.assign('user-42 \udcff')
        assert place.session() == 'user-42 ?'
        place.assign('x' * 2_000)
        assert place.session() == 'x' * 1_000
        (place.root / 'session').unlink()
        (place.root / 'session').mkdir()
        place.assign('never fails')
        assert place.session() == ''
    finally:
        place.remove()
