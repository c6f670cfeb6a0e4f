"""The sweep at the start: rare, in the background, and never a reason to fail."""

import os
import threading
import time
from pathlib import Path

import pytest

from sandbox import FakeSandbox, Sandbox, reaper, sweep
from sandbox.backends import rendezvous
from sandbox.backends.fake import FakeBackend
from sandbox.errors import BackendUnavailable


@pytest.fixture
def sweeps(monkeypatch):
    """Whether the engine was asked, of each sweep; the first one is due."""
    calls = []
    monkeypatch.setattr(sweep, '_last', time.monotonic() - 2 * sweep._INTERVAL)
    monkeypatch.setattr(reaper, 'collect_garbage', lambda *, docker: calls.append(docker) or [])
    return calls


def join() -> None:
    for thread in threading.enumerate():
        if thread.name == 'sandbox-sweep':
            thread.join(10)


def test_at_most_once_a_minute(sweeps):
    for _ in range(3):
        sweep.sweep_soon('docker')
    join()
    assert sweeps == [True]
    sweep._last -= sweep._INTERVAL
    sweep.sweep_soon('local')
    join()
    assert sweeps == [True, False]


def test_what_fails_is_no_reason_not_to_start(sweeps, monkeypatch):
    def fail(*, docker: bool) -> None:
        sweeps.append(docker)
        raise BackendUnavailable('there is no engine.')

    monkeypatch.setattr(reaper, 'collect_garbage', fail)
    sweep.sweep_soon('docker')
    join()
    assert sweeps == [True]


def test_a_fake_sandbox_leaves_nothing_to_sweep(sweeps):
    with FakeSandbox() as box:
        assert box.execute('1').ok
    join()
    assert sweeps == []


def test_the_back_end_that_auto_has_chosen_says_what_is_swept(sweeps):
    class Chooser(FakeBackend):
        name = 'auto'

        async def start(self, policy, *, labels):
            self.name = 'docker'
            return await super().start(policy, labels=labels)

    with Sandbox(backend=Chooser()) as box:
        assert box.execute('1').ok
    join()
    assert sweeps == [True]


def test_a_folder_whose_maker_died_at_once_is_found_after_a_while(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(rendezvous, 'runtime_folder', lambda: tmp_path)
    young, old, other = (tmp_path / name for name in ('0' * 12, 'a' * 12, 'matplotlib'))
    for folder in (young, old, other):
        folder.mkdir()
    for folder in (old, other):
        os.utime(folder, (1, 1))
    assert [place.root for place in rendezvous.deserted()] == [old]
