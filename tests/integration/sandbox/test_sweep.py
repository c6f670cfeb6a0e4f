"""Programs that are killed at any moment leave nothing that the sweep does not find.

`LAGENT_CHAOS_KILLS` says how many there are.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Sandbox, SandboxManager, reaper, sweep
from sandbox.backends.rendezvous import runtime_folder
from sandbox.owner import OWNER_LABEL

ROOT = Path(__file__).parents[3]
KILLS, AT_ONCE = int(os.environ.get('LAGENT_CHAOS_KILLS', '10')), 5
LONGEST_LIFE = 4.0
# It opens a session, runs a cell, closes it, and so on: a signal may meet it anywhere.
PROGRAM = """
from sandbox import Sandbox, SandboxPolicy

print('on', flush=True)
while True:
    with Sandbox(policy=SandboxPolicy(orphan_grace=600.0)) as box:
        box.execute('open("f", "w").write("x")')
"""

pytestmark = [pytest.mark.docker, pytest.mark.alone]


@pytest.fixture
def living() -> Iterator[Sandbox]:
    with Sandbox() as box:
        assert box.execute('x = 42').ok
        yield box


def killed(seed: int) -> None:
    """Start a few programs and kill each of them at a random time."""
    dice = random.Random(seed)
    programs = [
        subprocess.Popen([sys.executable, '-c', PROGRAM], stdout=subprocess.PIPE, cwd=ROOT)
        for _ in range(AT_ONCE)
    ]
    try:
        for program in programs:
            assert program.stdout.readline() == b'on\n'
        began = time.monotonic()
        for moment, program in sorted(
            ((dice.uniform(0, LONGEST_LIFE), program) for program in programs),
            key=lambda pair: pair[0],
        ):
            time.sleep(max(0.0, began + moment - time.monotonic()))
            program.send_signal(signal.SIGKILL)
    finally:
        for program in programs:
            program.kill()
            program.wait()
            program.stdout.close()


def sweep_until_clean(patience: float = 60.0) -> int:
    """Collect until nothing is left, and return how much there was.

    A container that was asked for with a program's last breath appears after the program's death.
    """
    deadline = time.monotonic() + patience
    found = clean = 0
    while clean < 2:
        assert time.monotonic() < deadline, reaper.orphans()
        removed = len(reaper.collect_garbage())
        found, clean = found + removed, 0 if removed else clean + 1
        time.sleep(0.5)
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_is_left_of_programs_killed_at_random(living):
    sweep_until_clean()
    volumes = docker_lines('volume', 'ls', '-q')
    folders = {path.name for path in runtime_folder().iterdir()}
    containers = set(docker_lines('ps', '-aq', '--filter', f'label={OWNER_LABEL}'))
    found = 0
    for batch in range(KILLS // AT_ONCE):
        killed(batch)
        found += sweep_until_clean()
    # Other programs may sweep at the same time, and may have begun or ended what is theirs.
    assert found
    alive = {each.id[:12] for each in reaper.containers() if each.owner_state == 'alive'}
    assert set(docker_lines('ps', '-aq', '--filter', f'label={OWNER_LABEL}')) <= containers | alive
    assert set(docker_lines('volume', 'ls', '-q')) <= set(volumes)
    new = {path for path in runtime_folder().iterdir() if path.name not in folders}
    assert not [path for path in new if path.exists() and not owner_lives(path)]
    assert living.execute('x').result == '42'


def docker_lines(*command: str) -> list[str]:
    done = subprocess.run(['docker', *command], capture_output=True, text=True, check=True)
    return done.stdout.split()


def owner_lives(folder: Path) -> bool:
    from sandbox.backends.rendezvous import Rendezvous

    owner = Rendezvous(folder).owner()
    return owner is not None and owner.state() == 'alive'


def orphan() -> str:
    """Leave a container behind and return its id."""
    program = PROGRAM.replace('box.execute(', 'print(box.container_id, flush=True); box.execute(')
    with subprocess.Popen(
        [sys.executable, '-c', program], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout.readline() == 'on\n'
        container = process.stdout.readline().strip()
        process.kill()
    return container


@pytest.mark.parametrize('face', [Sandbox, SandboxManager])
def test_a_start_sweeps_what_others_left(monkeypatch, face):
    container = orphan()
    monkeypatch.setattr(sweep, '_last', -sweep._INTERVAL)
    with face() as box:
        if face is SandboxManager:
            box.session('a')
        deadline = time.monotonic() + 30
        while container in {each.id for each in reaper.containers()}:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    reaper.collect_garbage()
