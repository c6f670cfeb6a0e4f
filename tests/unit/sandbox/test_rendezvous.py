"""The folder of an instance where there is no room or no right for it."""

import errno
from pathlib import Path

import pytest

from sandbox import BackendUnavailable, SandboxError
from sandbox.backends import rendezvous
from sandbox.backends.detach import Ledger, StartedCell
from sandbox.backends.rendezvous import Rendezvous, runtime_folder
from sandbox.errors import StartFailed


def full_disk(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, 'No space left on device')


def test_the_folder_of_the_user_before_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setenv('XDG_RUNTIME_DIR', '/run')
    monkeypatch.setattr(rendezvous.os, 'access', lambda path, mode: path != Path('/run'))
    assert runtime_folder().parent == Path('/tmp')


def test_a_runtime_folder_that_cannot_be_made_is_told(monkeypatch):
    monkeypatch.setattr(Path, 'mkdir', full_disk)
    with pytest.raises(BackendUnavailable, match='No space left') as caught:
        runtime_folder()
    assert 'XDG_RUNTIME_DIR' in caught.value.hint


def test_on_a_full_disk_no_folder_is_left(monkeypatch, tmp_path):
    monkeypatch.setattr(rendezvous, 'runtime_folder', lambda: tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, 'write_text', full_disk)
        with pytest.raises(StartFailed, match='No space left'):
            Rendezvous.create()
    assert list(tmp_path.iterdir()) == []
    place, _ = Rendezvous.create()
    place.remove()
    for use in (place.unseal, place.seal):
        with pytest.raises(StartFailed, match='cannot be used any more'):
            use()


def test_a_cell_that_cannot_be_written_down_is_not_sent(tmp_path):
    (tmp_path / 'cells').mkdir()
    with pytest.raises(SandboxError, match='nothing was run'):
        Ledger(Rendezvous(tmp_path)).begin(StartedCell(None, 'm', 1.0, 1.0))
