"""Runs whose process is killed at every boundary of an effect, and at random moments.

Each is resumed in a new process until it ends: with the same answer and transcript; with every side
effect once, or said to be unknown; and without a container that is left. `LAGENT_CHAOS_KILLS` says
how many random kills there are; with less than 200, one boundary of six is tried.
"""

import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sandbox import reaper
from sandbox.backends.engine import engine as lent_engine
from sandbox.image import image_tag

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get('LAGENT_CHAOS_KILLS', '12'))
STRIDE = 1 if KILLS >= 200 else 6  # from one boundary to the next
ENGINE = runpy.run_path(str(ROOT / 'tests/integration/sandbox/test_engine_restart.py'))
UNKNOWN = 'It is not known whether this'

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.alone]


class Counting(ThreadingHTTPServer):
    """Counts requests, and how often each key came."""

    def __init__(self) -> None:
        super().__init__(('127.0.0.1', 0), Handler)
        self.plain = 0
        self.keys: Counter[str] = Counter()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server: Any = self.server
        if self.path.startswith('/once/'):
            server.keys[self.path.removeprefix('/once/')] += 1
        else:
            server.plain += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'counted')

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def counter() -> Iterator[Counting]:
    with Counting() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the runs are, and the sandboxes' sockets; of these nothing may be left."""
    with tempfile.TemporaryDirectory() as name:
        monkeypatch.setenv('XDG_RUNTIME_DIR', name)
        yield Path(name)
        deadline = time.monotonic() + 60
        while left(name):
            assert time.monotonic() < deadline, left(name)
            reaper.collect_garbage()
            time.sleep(0.5)


def left(folder: str) -> list[str]:
    mine = [each.id for each in reaper.containers() if folder in str(each.labels)]
    below = Path(folder, f'lagent-{os.geteuid()}')
    return mine + [place.name for place in below.iterdir() if place.is_dir()]


def work(folder: Path, counter: Counting, seed: int, kills: int, how: str) -> dict[str, Any]:
    arguments = [str(folder), str(counter.server_port), str(seed), str(kills), how, str(STRIDE)]
    command = [sys.executable, str(Path(__file__).with_name('workers.py')), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def check(folder: Path, counter: Counting, runs: list[str]) -> Counter[str]:
    """Check all runs, and count what was unusual."""
    seen: Counter[str] = Counter()
    counted = 0
    for run in runs:
        answer = json.loads((folder / f'{run}.answer').read_text())
        words, results = answer[::2], answer[1::2]
        steps = ['cell 1', 'count', 'cell 2', 'count once', 'cell 3']
        assert words == [f'go: {step}' for step in steps]
        first, count, second, once, third = results
        if UNKNOWN in count:
            seen['unknown calls'] += 1
        else:
            assert count == 'counted'
            counted += 1
        assert once == 'counted'
        if any(cell['outcome'] == 'unknown' for cell in (first, second, third)):
            seen['runs with a cell that is told to be unknown'] += 1
            continue
        assert [cell['outcome'] for cell in (first, second, third)] == ['ok', 'ok', 'ok'], answer
        assert first['result'] == '[1]'
        assert (second['stdout'], second['result']) == ('0\n1\n2\n3\n4\n', '[1, 2]')
        assert third['result'] == "([1, 2, 3], 'a\\nb\\nc\\n')"
        notices = [notice for cell in (first, second, third) for notice in cell['notices']]
        seen['cells read again'] += sum('read again' in notice for notice in notices)
        seen['cells run again'] += sum('run again' in notice for notice in notices)
        seen['runs with snapshots'] += any('with a snapshot of' in notice for notice in notices)
    # A call that is said to be unknown may have happened; no other has, and none twice.
    assert counted <= counter.plain <= counted + seen['unknown calls']
    assert len(counter.keys) == len(runs)
    return seen


def report(done: dict[str, Any], seen: Counter[str], record: Any) -> None:
    figures = {**done, 'runs': len(done['runs']), **seen}
    record('chaos', json.dumps(figures))
    print(figures)


@pytest.mark.timeout(0)
def test_killed_at_random(folder, counter, record_property):
    done = work(folder, counter, seed=1, kills=KILLS, how='random')
    seen = check(folder, counter, done['runs'])
    assert seen['runs with a cell that is told to be unknown'] == 0
    report(done, seen, record_property)
    assert done['kills'] >= KILLS


@pytest.mark.timeout(0)
def test_killed_at_every_boundary(folder, counter, record_property):
    done = work(folder, counter, seed=2, kills=1_000, how='moments')
    seen = check(folder, counter, done['runs'])
    assert seen['runs with a cell that is told to be unknown'] == 0
    report(done, seen, record_property)
    assert done['kills'] * STRIDE > 60


@pytest.mark.timeout(0)
def test_killed_with_its_container_at_every_effect(folder, counter, record_property):
    """Variables and files come from snapshots; a cell that ran meanwhile is told to be unknown."""
    done = work(folder, counter, seed=3, kills=1_000, how='effects')
    seen = check(folder, counter, done['runs'])
    report(done, seen, record_property)
    assert done['kills'] == 2 * 5
    assert seen['runs with snapshots'] >= 2
    assert seen['runs with a cell that is told to be unknown'] <= 2 * 3


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Docker engine of the test's own that has the kernel image."""
    if os.geteuid() != 0 or any(shutil.which(name) is None for name in ENGINE['PROGRAMS']):
        pytest.skip('needs root and the programs of an engine')
    with tempfile.TemporaryDirectory(prefix='e-') as name:
        own = ENGINE['Engine'](Path(name))
        with lent_engine(300) as client:
            image = b''.join(client.images.get(image_tag()).save(named=image_tag()))
        monkeypatch.setenv('DOCKER_HOST', own.host)
        try:
            own.start()
            with lent_engine(300) as client:
                client.images.load(image)
            yield own
        finally:
            own.end()
            ENGINE['unmount'](own.folder)


@pytest.mark.timeout(600)
def test_program_and_engine_killed(engine, folder, counter):
    """What is killed with the engine is gone: recorded cells are run again, others told."""
    runs = []
    for seed, moments in enumerate((6, 14, 22, 26, 30)):
        first = work(folder, counter, seed, moments, 'once')
        assert not first['ended']
        engine.end(signal.SIGKILL)
        engine.start()
        assert work(folder, counter, seed, sys.maxsize, 'once')['ended']
        runs += first['runs']
    seen = check(folder, counter, runs)
    print(seen)
    assert seen['cells run again'] + seen['runs with a cell that is told to be unknown'] > 0
