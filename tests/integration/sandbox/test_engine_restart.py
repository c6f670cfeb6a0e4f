"""Sessions whose Docker engine is stopped, killed, or started again.

The engine is one of the test's own, in a network namespace of its own: no other sandbox of this
machine notices.

A host speaks with its sandboxes without the engine. So what counts is what an engine does to its
containers: one that is stopped takes them along, unless it was started with ``--live-restore``; one
that is killed leaves them running, and removes them when it is started again.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from docker.errors import NotFound

import docker
from sandbox import BackendUnavailable, Outcome, Sandbox, SandboxManager, SandboxPolicy, reaper
from sandbox.backends.engine import engine
from sandbox.backends.rendezvous import runtime_folder
from sandbox.image import image_tag

PROGRAMS = ('dockerd', 'unshare', 'umount')
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
pytestmark = [
    pytest.mark.docker,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason='needs root, to start an engine'),
    pytest.mark.skipif(bool(MISSING), reason=f'needs {", ".join(MISSING)}'),
]

TICKS = """
import time
for number in range({}):
    print(number, flush=True)
    time.sleep(0.05)
print('done')
"""


class Engine:
    """A Docker engine that keeps everything below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = f'unix://{folder}/d'
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start it, and wait until it answers."""
        places = {'data-root': 'data', 'exec-root': 'x', 'pidfile': 'pid'}
        command = [
            *('unshare', '--net', 'dockerd', '--host', self.host),
            *('--bridge=none', '--iptables=false', '--ip6tables=false', '--ip-forward=false'),
            *(f'--{name}={self.folder}/{place}' for name, place in places.items()),
            *options,
        ]
        with (self.folder / 'log').open('ab') as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while not self.answers():
            assert self.process.poll() is None, (self.folder / 'log').read_text()[-2000:]
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def answers(self) -> bool:
        with contextlib.suppress(BackendUnavailable), engine(5) as client:
            return client.ping()
        return False

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Send it a signal and wait for its end."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)
            self.process = None
        # Its containerd ends with it. Where nobody reaps that, a new engine would wait for it.
        (self.folder / 'x/containerd/containerd.pid').unlink(missing_ok=True)

    def remains(self) -> list[str]:
        """Return what is left of containers: the engine's records, and processes."""
        with engine() as client:
            listed = [each['Id'] for each in client.api.containers(all=True)]
            records = [each for each in listed if is_known(client, each)]
        shims = []
        for file in Path('/proc').glob('[0-9]*/cmdline'):
            with contextlib.suppress(OSError):
                command = file.read_text(errors='replace')
                if 'containerd-shim' in command and str(self.folder) in command:
                    shims.append(file.parent.name)
        return records + shims


def is_known(client: docker.DockerClient, container: str) -> bool:
    """Whether there is such a container: the engine may list one that it has removed."""
    try:
        client.api.inspect_container(container)
    except NotFound:
        return False
    return True


@pytest.fixture(scope='module')
def stopped_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine that has the kernel image and does not run."""
    own = Engine(tmp_path_factory.mktemp('e'))
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        image = stack.enter_context(engine(300)).images.get(image_tag())
        patch.setenv('DOCKER_HOST', own.host)
        stack.callback(shutil.rmtree, own.folder)
        stack.callback(unmount, own.folder)
        stack.callback(own.end)
        own.start()
        with engine(300) as client:
            client.images.load(image.save(named=image_tag()))
        own.end()
        yield own


def unmount(folder: Path) -> None:
    mounts = [line.split()[1] for line in Path('/proc/mounts').read_text().splitlines()]
    for mount in reversed([mount for mount in mounts if mount.startswith(f'{folder}/')]):
        subprocess.run(['umount', '--lazy', mount], check=True)


@pytest.fixture
def own(stopped_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """A running engine; when a test is done with it, nothing may be left in it."""
    monkeypatch.setenv('DOCKER_HOST', stopped_engine.host)
    monkeypatch.setenv('XDG_RUNTIME_DIR', str(stopped_engine.folder))
    stopped_engine.start()
    try:
        yield stopped_engine
        assert stopped_engine.remains() == []
        assert list(runtime_folder().iterdir()) == []
    finally:
        stopped_engine.end()


@pytest.fixture
def box(own: Engine) -> Iterator[Sandbox]:
    """A session that has served."""
    box = Sandbox()
    assert box.execute('x = 41').ok
    yield box
    box.close()


def run_while(box: Sandbox, act: Callable[[], None], *, ticks: int, seen: int = 2):
    """Run a cell, and act in the middle of it.

    Returns:
        Its result, and the seconds between the end of the act and the result.
    """
    acted, outputs = None, 0
    for event in box.stream(TICKS.format(ticks), timeout=60):
        if event.output is not None:
            outputs += 1
            if outputs == seen:
                act()
                acted = time.monotonic()
        result = event.result
    assert acted is not None
    return result, time.monotonic() - acted


def assert_begins_anew(box: Sandbox, lost: str | None, *, known: bool = False) -> None:
    """Check that the next cell runs in a new container and says so, and that all is well then.

    Args:
        box: The session.
        lost: Id of its last container.
        known: Whether a result has said already that the state is lost.
    """
    result = box.execute("print('hello')\n'x' in globals()")
    assert (result.stdout, result.result) == ('hello\n', 'False')
    assert result.state_preserved == known
    assert 'variables, imports and files from before it are lost' in result.notices[0]
    assert lost is not None
    assert lost[:12] in result.notices[0]
    assert box.container_id != lost
    assert box.execute('1 + 1').notices == ()


def test_an_engine_that_is_stopped_during_a_cell(own, box):
    lost = box.container_id
    result, seconds = run_while(box, own.end, ticks=1000)
    assert result.outcome is Outcome.SANDBOX_LOST
    assert not result.state_preserved
    assert result.stdout.startswith('0\n1\n')
    assert 'done' not in result.stdout
    assert seconds < 1  # after the engine's end, hence less than that after the container's
    assert 'No Docker engine answers' in result.notices[0]
    with pytest.raises(BackendUnavailable, match='start Docker'):
        box.execute('1')
    own.start()
    assert_begins_anew(box, lost, known=True)


def test_an_engine_that_is_stopped_between_cells(own, box):
    lost = box.container_id
    own.end()
    for _ in range(2):
        with pytest.raises(BackendUnavailable, match='start Docker'):
            box.execute('1')
    with pytest.raises(BackendUnavailable):
        box.upload(b'x', name='f')
    own.start()
    assert_begins_anew(box, lost)


def test_an_engine_that_is_killed_takes_no_session_with_it(own, box):
    result, _ = run_while(box, lambda: own.end(signal.SIGKILL), ticks=40)
    assert (result.outcome, result.state_preserved) == (Outcome.OK, True)
    assert result.stdout.endswith('39\ndone\n')
    assert box.execute('x + 1').result == '42'
    box.upload(b'abc', name='f')
    assert box.read('f') == b'abc'
    assert box.execute('import os; os._exit(1)').outcome is Outcome.KERNEL_DIED
    assert box.execute("open('f').read()").result == "'abc'"
    own.start()


def test_a_killed_engine_that_is_started_again_during_a_cell(own, box):
    lost = box.container_id

    def again() -> None:
        own.end(signal.SIGKILL)
        own.start()

    result, seconds = run_while(box, again, ticks=1000)
    assert result.outcome is Outcome.SANDBOX_LOST
    assert result.stdout.startswith('0\n1\n')
    assert seconds < 1
    assert f'its container {lost[:12]}' in result.notices[0]
    assert_begins_anew(box, lost, known=True)


def test_a_killed_engine_that_is_started_again_between_cells(own, box):
    lost = box.container_id
    own.end(signal.SIGKILL)
    own.start()
    assert_begins_anew(box, lost)


@pytest.mark.parametrize('how', [signal.SIGTERM, signal.SIGKILL])
def test_an_engine_with_live_restore(own, how):
    own.end()
    own.start('--live-restore')
    with Sandbox() as box:
        assert box.execute('x = 41').ok
        lost = box.container_id
        result, _ = run_while(box, lambda: own.end(how), ticks=40)
        assert (result.outcome, result.state_preserved) == (Outcome.OK, True)
        assert box.execute('x').result == '41'
        own.start('--live-restore')
        if lost in own.remains():
            assert box.execute('x').result == '41'
        else:  # engine 20.10 removes on its return what was started with `--rm`, as ours are
            assert_begins_anew(box, lost)


def test_what_cannot_be_removed_without_the_engine_is_removed_later(own):
    box = Sandbox()
    assert box.execute('1').ok
    own.end(signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(BackendUnavailable):
            box.close()
        assert not box.closed
    assert box.container_id is not None
    own.start()
    box.close()
    assert box.closed


def test_what_nobody_removes_ends_by_itself(own):
    box = Sandbox(SandboxPolicy(orphan_grace=1.0))
    assert box.execute('1').ok
    with engine() as client:
        process = Path('/proc', str(client.api.inspect_container(box.container_id)['State']['Pid']))
    own.end(signal.SIGKILL)
    assert process.exists()
    with pytest.raises(BackendUnavailable):
        box.close()  # from here on it has no owner
    deadline = time.monotonic() + 30
    while process.exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    own.start()
    box.close()


def test_a_manager_outlives_its_engine(own):
    with SandboxManager(max_sessions=2) as manager:
        assert manager.session('a').execute('x = 1').ok
        own.end()
        with pytest.raises(BackendUnavailable):
            manager.session('b')
        own.start()
        result = manager.session('a').execute("'x' in globals()")
        assert (result.result, result.state_preserved) == ('False', False)
        assert manager.session('b').execute('1 + 1').result == '2'


OWNER_PROGRAM = """
import time
from sandbox import Sandbox
box = Sandbox()
box.start()
print(box.container_id, flush=True)
time.sleep(600)
"""


def test_what_a_dead_owner_leaves_is_swept_when_the_engine_is_back(own):
    command = [sys.executable, '-c', OWNER_PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        container = owner.stdout.readline().strip()
        owner.kill()
    assert container in own.remains()
    own.end(signal.SIGKILL)
    with pytest.raises(BackendUnavailable):
        reaper.collect_garbage()
    own.start()
    assert [orphan.kind for orphan in reaper.collect_garbage()] == ['folder']
    assert reaper.collect_garbage() == []
