"""The ledger of a sandbox that survives, and the right to its name."""

import os

import pytest

from sandbox import PolicyError, SandboxPolicy, Survival
from sandbox.backends import detach
from sandbox.backends.detach import DetachRecord, Ledger, SessionLock, StartedCell
from sandbox.backends.rendezvous import Rendezvous


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv('XDG_RUNTIME_DIR', '/nowhere' if len(str(tmp_path)) > 60 else str(tmp_path))
    return Rendezvous(tmp_path)


def test_a_ledger_names_every_cell(place):
    ledger = Ledger(place)
    assert (ledger.read().count, ledger.read().last, ledger.read().is_whole) == (0, None, True)
    ledger.begin(StartedCell('a', 'm1', 5.0, 10.0))
    ledger.begin(StartedCell(None, 'm2', 5.0, 11.0))
    cells = ledger.read()
    assert (cells.count, cells.tags, cells.is_same_kernel) == (2, {'a'}, True)
    assert cells.last == StartedCell(None, 'm2', 5.0, 11.0)
    ledger.new_kernel()
    assert not ledger.read().is_same_kernel


def test_a_line_that_was_cut_off_is_of_a_cell_that_was_not_sent(place):
    ledger = Ledger(place)
    ledger.begin(StartedCell('a', 'm1', 5.0, 10.0))
    whole = (place.root / 'cells').read_bytes()
    for end in range(1, 40):
        (place.root / 'cells').write_bytes(whole + whole[:end])
        assert ledger.read().count == 1
        ledger.begin(StartedCell('b', 'm2', 5.0, 10.0))
        assert ledger.read().tags == {'a', 'b'}


def test_a_ledger_that_was_begun_anew_says_so(place, monkeypatch):
    monkeypatch.setattr(detach, '_LARGEST', 300)
    ledger = Ledger(place)
    for number in range(10):
        ledger.begin(StartedCell(str(number), 'm', 5.0, 10.0))
    cells = ledger.read()
    assert not cells.is_whole
    assert cells.last is not None
    assert cells.last.tag == '9'
    assert (place.root / 'cells').stat().st_size <= 300


def test_a_name_is_one_holders(place):
    first = SessionLock.take('test-lock', str(os.getpid()))
    assert first is not None
    assert SessionLock.take('test-lock', str(os.getpid())) is None
    other = SessionLock.take('test-lock-2', str(os.getpid()))
    assert other is not None
    other.release()
    first.release()
    first.release()
    again = SessionLock.take('test-lock', str(os.getpid()))
    assert again is not None
    again.release()


def test_a_will_is_read_as_it_was_written_and_by_its_user_only(place):
    left = DetachRecord('app', 'sé', 60.0, 'digest', 'container', 'key')
    left.write(place)
    assert DetachRecord.read(place) == left
    assert (place.root / 'detached').stat().st_mode & 0o777 == 0o600
    assert 'key=' not in repr(left)
    (place.root / 'detached').write_text('{"scope": 1')
    assert DetachRecord.read(place) is None


def test_a_survival_is_checked():
    assert Survival('a', 5).applied(SandboxPolicy()).orphan_grace == 5.0
    for scope, seconds in (('', 1), ('x' * 201, 1), ('a', 0), ('a', float('inf'))):
        with pytest.raises(PolicyError):
            Survival(scope, seconds)
