"""The Docker back end: containers come and go, and nothing is left behind."""

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from docker.errors import APIError

from sandbox import BackendUnavailable, ImageMissing, Sandbox, SandboxPolicy
from sandbox.backends import get_backend
from sandbox.backends.docker import DockerBackend, _Started, container_options
from sandbox.backends.docker_container import DockerInstance
from sandbox.backends.engine import engine, lent_client
from sandbox.backends.rendezvous import Rendezvous, runtime_folder
from sandbox.errors import PolicyError, SandboxError, StartFailed
from sandbox.kernel.supervisor import Supervisor
from sandbox.owner import OWNER_LABEL, Owner

pytestmark = pytest.mark.docker


def own_containers() -> list[str]:
    with engine() as client:
        filters = {'label': f'{OWNER_LABEL}={Owner.current()}'}
        return [each.id for each in client.containers.list(all=True, filters=filters)]


def own_folders() -> list[str]:
    me = Owner.current()
    return [str(path) for path in runtime_folder().iterdir() if Rendezvous(path).owner() == me]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = own_containers(), own_folders()
    yield
    assert (own_containers(), own_folders()) == before


async def ready(instance: DockerInstance) -> Supervisor:
    """Become the owner and wait until the kernel has bound its last socket."""
    supervisor = await Supervisor.connect(instance.endpoint.control)
    async with asyncio.timeout(30):
        while not (instance.endpoint.directory / 's-5').exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return supervisor


async def test_an_instance_starts_and_is_removed():
    backend = DockerBackend()
    instance = await backend.start(SandboxPolicy(), labels={'purpose': 'test'})
    try:
        with engine() as client:
            container = client.containers.get(instance.id)
        assert container.labels['purpose'] == 'test'
        assert container.labels[OWNER_LABEL] == str(Owner.current())
        supervisor = await ready(instance)
        await supervisor.close()
        await instance.seal()
        assert 'runs but does not answer' in await instance.describe_loss()
    finally:
        await instance.remove()
    await instance.remove()  # may be repeated
    assert 'ended with exit code 137' in await instance.describe_loss()


async def test_the_folder_is_closed_for_others_and_sealed():
    instance = await DockerBackend().start(SandboxPolicy(), labels={})
    folder = instance.endpoint.directory
    try:
        assert folder.parent.stat().st_mode & 0o777 == 0o700
        supervisor = await ready(instance)
        await instance.seal()
        assert folder.stat().st_mode & 0o7777 == 0o555
        await instance.unseal()
        assert folder.stat().st_mode & 0o7777 == 0o1777
        (folder / 'strange').touch()
        with pytest.raises(StartFailed, match='strange'):
            await instance.seal()
        await supervisor.close()
    finally:
        await instance.remove()
    assert not folder.parent.exists()


async def test_a_cancelled_start_leaves_nothing(monkeypatch):
    backend = DockerBackend()
    original, entered = backend._start, threading.Event()

    def slow_start(*args: object) -> str:
        container_id = original(*args)  # type: ignore[arg-type]
        entered.set()
        return container_id

    monkeypatch.setattr(backend, '_start', slow_start)
    for delay in (0.0, 0.05, 0.15, None):
        entered.clear()
        task = asyncio.create_task(backend.start(SandboxPolicy(), labels={}))
        await (asyncio.to_thread(entered.wait, 30) if delay is None else asyncio.sleep(delay))
        task.cancel()
        instance = None
        with contextlib.suppress(asyncio.CancelledError):
            instance = await task
        if instance:  # it was ready just before
            await instance.remove()
        assert own_containers() == []
        assert own_folders() == []


def pause(container: Any) -> None:
    """Pause it: on a busy machine the engine may fail to freeze a control group in time."""
    for attempt in itertools.count(1):
        try:
            container.pause()
        except APIError as error:
            if 'unable to freeze' not in str(error) or attempt == 5:
                raise
        else:
            return


@pytest.mark.parametrize(
    ('deed', 'words'),
    [
        ('pause', 'is paused'),
        ('kill', 'ended with exit code 137'),
        ('remove', 'ended with exit code 137'),
    ],
)
async def test_a_loss_is_explained(deed, words):
    instance = await DockerBackend().start(SandboxPolicy(), labels={})
    try:
        await (await ready(instance)).close()
        with engine() as client:
            container = client.containers.get(instance.id)
            if deed == 'remove':
                container.remove(force=True)
            elif deed == 'pause':
                pause(container)
            else:
                container.kill()
            if deed == 'kill':
                with contextlib.suppress(Exception):
                    container.wait(condition='removed', timeout=20)
        assert words in await instance.describe_loss()
    finally:
        await instance.remove()


async def test_a_missing_image_names_the_command(monkeypatch):
    with pytest.raises(ImageMissing, match='sandbox build'):
        monkeypatch.setattr('sandbox.backends.docker.image_tag', lambda *_: 'lagent-sandbox:none')
        await DockerBackend().start(SandboxPolicy(), labels={})
    with pytest.raises(ImageMissing, match='docker pull no-such-image'):
        DockerBackend(image='no-such-image').check()


@pytest.mark.parametrize('host', ['tcp://192.0.2.1:2375', 'ssh://user@host'])
async def test_an_engine_behind_a_network_is_refused(monkeypatch, host):
    with monkeypatch.context() as patch:
        patch.setenv('DOCKER_HOST', host)
        with pytest.raises(BackendUnavailable, match='Unset DOCKER_HOST'):
            DockerBackend().check()
        with pytest.raises(BackendUnavailable):
            await DockerBackend().start(SandboxPolicy(), labels={})


def test_without_an_engine_it_says_what_to_do(monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setenv('DOCKER_HOST', f'unix://{tmp_path}/none.sock')
        with pytest.raises(BackendUnavailable, match='Install and start Docker'):
            DockerBackend().check()


async def test_an_engine_that_refuses_is_a_failed_start(monkeypatch):
    def unheard_of(*args: object) -> dict[str, object]:
        return {**container_options(*args), 'network_mode': 'no-such-network'}  # type: ignore[arg-type]

    monkeypatch.setattr('sandbox.backends.docker.container_options', unheard_of)
    with pytest.raises(StartFailed, match='no-such-network'):
        await DockerBackend().start(SandboxPolicy(), labels={})


@pytest.mark.parametrize('flag', ['MemoryLimit', 'PidsLimit', 'CpuCfsQuota'])
def test_an_engine_that_cannot_limit_is_refused(flag):
    class Engine:
        def info(self) -> dict[str, bool]:
            names = ('MemoryLimit', 'PidsLimit', 'CpuCfsQuota', 'SwapLimit')
            return {name: name != flag for name in names}

    with pytest.raises(BackendUnavailable, match='cannot limit'):
        DockerBackend()._check_limits(Engine())  # type: ignore[arg-type]


async def test_a_failed_removal_is_told_and_can_be_repeated(monkeypatch):
    instance = await DockerBackend().start(SandboxPolicy(), labels={})
    with monkeypatch.context() as patch:
        patch.setenv('DOCKER_HOST', 'unix:///nowhere.sock')
        with pytest.raises(SandboxError):
            await instance.remove()
    assert own_containers() == [instance.id]
    await instance.remove()


async def test_what_can_be_removed_is_removed_though_the_rest_fails(monkeypatch):
    instance = await DockerBackend().start(SandboxPolicy(), labels={})
    remove = Rendezvous.remove

    def fail(_: Rendezvous) -> None:
        raise PermissionError(13, 'not today')

    monkeypatch.setattr(Rendezvous, 'remove', fail)
    with pytest.raises(SandboxError, match='not today'):
        await instance.remove()
    assert own_containers() == []
    monkeypatch.setattr(Rendezvous, 'remove', remove)
    await instance.remove()


async def test_a_start_that_fails_takes_back_all_it_can(monkeypatch):
    class Proxy:
        stopped = False

        def stop(self) -> None:
            self.stopped = True
            raise SandboxError('the proxy did not stop.')

    def refuse(_: str) -> None:
        raise SandboxError('the engine failed.')

    proxy, backend = Proxy(), DockerBackend()
    monkeypatch.setattr(
        backend, '_start', lambda name, *_: (time.sleep(0.5), _Started(name, proxy))[1]
    )
    monkeypatch.setattr('sandbox.backends.docker_container.remove_container', refuse)
    task = asyncio.create_task(backend.start(SandboxPolicy(), labels={}))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await task
    assert proxy.stopped
    assert own_folders() == []
    told = ' '.join(cancelled.value.__notes__)
    assert 'the engine failed' in told
    assert 'the proxy did not stop' in told


async def test_an_engine_that_fails_does_not_keep_the_folder(monkeypatch):
    instance = await DockerBackend().start(SandboxPolicy(), labels={})
    with monkeypatch.context() as patch:
        patch.setenv('DOCKER_HOST', 'unix:///nowhere.sock')
        with pytest.raises(SandboxError):
            await instance.remove()
    assert own_folders() == []
    await instance.remove()


async def test_the_code_may_not_be_the_user_that_the_host_runs_as(monkeypatch):
    monkeypatch.setattr('os.geteuid', lambda: 65_532)
    with pytest.raises(PolicyError, match='uid=65532'):
        await DockerBackend().start(SandboxPolicy(), labels={})


def test_a_session_works_and_ends():
    with Sandbox(backend=get_backend('docker')) as box:
        assert box.execute('6 * 7').result == '42'
        assert len(own_containers()) == 1
        box.execute('1', timeout=10)
        box.restart()
        assert box.execute('2').result == '2'


def test_a_first_plot_does_not_build_a_font_cache():
    with Sandbox() as box:
        result = box.execute(
            'import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.title("x")\nNone', timeout=30
        )
        assert result.ok, result.text
        assert [image[:4] for image in result.images] == [b'\x89PNG']
        assert result.stderr == ''


@pytest.mark.parametrize('workspace', ['/data/project', '/tmp/a/b'])
def test_the_workspace_may_be_anywhere_outside_of_the_system(workspace: str) -> None:
    with Sandbox(backend=DockerBackend(workspace=workspace)) as box:
        box.upload(b'here', name='a.txt')
        result = box.execute("import os; print(os.getcwd(), open('a.txt').read())")
    assert result.stdout == f'{workspace} here\n'


@pytest.mark.parametrize(
    'workspace',
    ['', '/', 'data', '/data/../etc', '/data/', '/etc/x', '/tmp', '/home/sandbox', '/a:b', '/a\nb'],
)
def test_other_places_for_the_workspace_are_refused(workspace: str) -> None:
    with pytest.raises(PolicyError, match='workspace'):
        DockerBackend(workspace=workspace)


def test_a_client_is_used_again_in_its_process_until_its_connection_fails(monkeypatch):
    with lent_client() as first, lent_client(timeout=5) as second:
        assert first is not second
        assert second.api.timeout == 5
    with pytest.raises(SandboxError, match='refused'), lent_client():
        raise SandboxError('refused')
    with lent_client() as again:
        assert again is first
    with monkeypatch.context() as patch:
        patch.setattr('os.getpid', lambda: 1)
        with lent_client() as forked:
            assert forked not in (first, second)
    with pytest.raises(ConnectionError), lent_client() as broken:
        raise ConnectionError
    with lent_client() as healthy:
        assert healthy is not broken
        assert healthy.ping()
