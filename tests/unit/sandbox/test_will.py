"""The ledger of a sandbox that survives, and the right to its name."""

import os

import pytest

from sandbox import PolicyError, SandboxPolicy, Survival
from sandbox.backends import will
from sandbox.backends.rendezvous import Rendezvous
from sandbox.backends.will import Begun, Ledger, Name, Will


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv('XDG_RUNTIME_DIR', '/nowhere' if len(str(tmp_path)) > 60 else str(tmp_path))
    return Rendezvous(tmp_path)


def test_a_ledger_names_every_cell(place):
    ledger = Ledger(place)
    assert (ledger.read().count, ledger.read().last, ledger.read().is_whole) == (0, None, True)
    ledger.begin(Begun('a', 'm1', 5.0, 10.0))
    ledger.begin(Begun(None, 'm2', 5.0, 11.0))
    cells = ledger.read()
    assert (cells.count, cells.tags, cells.is_same_kernel) == (2, {'a'}, True)
    assert cells.last == Begun(None, 'm2', 5.0, 11.0)
    ledger.new_kernel()
    assert not ledger.read().is_same_kernel


def test_a_line_that_was_cut_off_is_of_a_cell_that_was_not_sent(place):
    ledger = Ledger(place)
    ledger.begin(Begun('a', 'm1', 5.0, 10.0))
    whole = (place.root / 'cells').read_bytes()
    for end in range(1, 40):
        (place.root / 'cells').write_bytes(whole + whole[:end])
        assert ledger.read().count == 1
        ledger.begin(Begun('b', 'm2', 5.0, 10.0))
        assert ledger.read().tags == {'a', 'b'}


def test_a_ledger_that_was_begun_anew_says_so(place, monkeypatch):
    monkeypatch.setattr(will, '_LARGEST', 300)
    ledger = Ledger(place)
    for number in range(10):
        ledger.begin(Begun(str(number), 'm', 5.0, 10.0))
    cells = ledger.read()
    assert not cells.is_whole
    assert cells.last is not None
    assert cells.last.tag == '9'
    assert (place.root / 'cells').stat().st_size <= 300


def test_a_name_is_one_holders(place):
    first = Name.take('test-will', str(os.getpid()))
    assert first is not None
    assert Name.take('test-will', str(os.getpid())) is None
    other = Name.take('test-will-2', str(os.getpid()))
    assert other is not None
    other.release()
    first.release()
    first.release()
    again = Name.take('test-will', str(os.getpid()))
    assert again is not None
    again.release()


def test_a_will_is_read_as_it_was_written_and_by_its_user_only(place):
    left = Will('app', 'sé', 60.0, 'digest', 'container', 'key')
    left.write(place)
    assert Will.read(place) == left
    assert (place.root / 'will').stat().st_mode & 0o777 == 0o600
    assert 'key=' not in repr(left)
    (place.root / 'will').write_text('{"scope": 1')
    assert Will.read(place) is None


def test_a_survival_is_checked():
    assert Survival('a', 5).applied(SandboxPolicy()).orphan_grace == 5.0
    for scope, seconds in (('', 1), ('x' * 201, 1), ('a', 0), ('a', float('inf'))):
        with pytest.raises(PolicyError):
            Survival(scope, seconds)
