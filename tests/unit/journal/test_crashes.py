"""A process that is killed at any moment: each side effect happens once, or is said to be unknown.

The process executes `crashing.py` and kills itself with SIGKILL. It is started again, and killed
again, until it comes to its end.
"""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from lagent.journal import SqliteJournal

SCRIPT = Path(__file__).parent / 'crashing.py'
FOREVER = 10**6
EXPECTED = [
    'reply to one',
    'sent a sent b',
    'ran x = 1',
    'found l',
    'reply to two',
]
MOMENTS = 38  # in a run that nothing interrupts
ONCE = {'mail a', 'mail b', 'cell x = 1'}
REPEATABLE = {'model one', 'model two', 'look l'}


def start(folder: Path, moments: int, kind: str) -> int:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), str(moments), kind],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, 'PYTHONPATH': str(Path(__file__).parents[3])},
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def check(folder: Path) -> None:
    world = Counter((folder / 'world').read_text().splitlines())
    answer = (folder / 'answer').read_text().splitlines()
    unknown = [line for line in answer if 'not known' in line]
    assert set(world) <= ONCE | REPEATABLE
    assert all(world[name] >= 1 for name in REPEATABLE)
    for name in ONCE:
        assert world[name] <= 1, f'{name} happened {world[name]} times'
    text = '\n'.join(answer)
    for name, result in (('mail a', 'sent a'), ('mail b', 'sent b'), ('cell x = 1', 'ran x = 1')):
        # What the agent knows of an effect is true: it has its result, or the doubt about it.
        if result in text:
            assert world[name] == 1
        else:
            assert unknown, f'nothing says what became of {name}'
    with SqliteJournal(folder / 'runs.db') as journal:
        assert journal.run('r').status == 'done'
        assert journal.run('r').owner == ''


def test_a_run_that_nothing_interrupts(tmp_path: Path) -> None:
    assert start(tmp_path, FOREVER, 'sync') == 0
    assert (tmp_path / 'answer').read_text().splitlines() == EXPECTED
    check(tmp_path)


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize(
    ('kind', 'moment'),
    [('sync', moment) for moment in range(0, MOMENTS, 2)]
    + [('async', moment) for moment in range(1, MOMENTS, 4)],
)
def test_a_process_killed_at_any_moment(tmp_path: Path, moment: int, kind: str) -> None:
    start(tmp_path, moment, kind)
    assert start(tmp_path, FOREVER, kind) == 0
    check(tmp_path)


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize('seed', range(4))
def test_a_process_killed_again_and_again(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    for _ in range(6):
        if start(tmp_path, choose.randrange(2, 18), 'sync') == 0:
            break
    else:
        assert start(tmp_path, FOREVER, 'sync') == 0
    check(tmp_path)
