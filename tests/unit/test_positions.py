"""Each effect has a place of its own, and the same one in every attempt."""

import itertools
import random
from pathlib import Path

import pytest

from lagent.effects import Effect, perform
from lagent.export import trajectories
from lagent.flow import run
from lagent.journal import SqliteJournal, record
from lagent.llms import ScriptedModel
from lagent.positions import Scope, branch, current_scope, entered

KEYS = [
    *(1, '1', "'1'", True, 1.0, None, 'None', ('x',), "('x',)", ''),
    *('a', 'a][b', "a']['b", 'a.1', 'a].1', '[', ']', r'\x5d', '\n', '\ud800', '北京'),
]


def test_keys_that_differ_are_branches_that_differ() -> None:
    scope = Scope('r')
    paths = [scope.branch(key).path for key in KEYS]
    paths += [scope.branch('a').branch('b').path]
    assert len({*paths}) == len(KEYS) + 1
    assert [Scope('r').branch(key).path for key in KEYS] == paths[:-1]
    assert Scope('r').branch(0).path == '[0]'


def test_a_branch_goes_on_where_it_was_left() -> None:
    with entered(Scope('r')):
        for position in ("['a'].1", "['a'].2"):
            with branch('a'):
                scope = current_scope()
                assert scope is not None
                assert scope.next() == position


@pytest.mark.parametrize('keys', list(itertools.pairwise(KEYS)), ids=repr)
def test_branches_are_resumed_in_any_order(tmp_path: Path, keys: tuple[object]) -> None:
    def ask(*order: object) -> list[str]:
        said = []
        for key in order:
            with branch(key):
                said.append(run(perform(Effect('tool', 'x', ascii(key)), str, random.random())))
        return said

    with pytest.raises(ZeroDivisionError), record(tmp_path / 'runs.db', 'r'):
        first = ask(*keys)
        raise ZeroDivisionError
    with record(tmp_path / 'runs.db', 'r'):
        assert ask(*reversed(keys)) == first[::-1]


@pytest.mark.timeout(20)
def test_calls_in_branches_of_any_name_have_an_end_as_training_data(tmp_path: Path) -> None:
    asked = [{'role': 'user', 'content': 'x'}]
    with SqliteJournal(tmp_path / 'runs.db') as journal:
        with record(journal, 'r'):
            for key in KEYS:
                with branch(key):
                    ScriptedModel(['said']).chat(asked)
                    run(perform(Effect('tool', 'x', ascii(key)), str, 42))
        samples = trajectories(journal, journal.run('r'))
    tools = [tool for sample in samples for tool in sample.tools]
    assert len(tools) == len(KEYS)
