"""Snapshots of a session: what its sandbox makes, what is done with it, what is told."""

import sys
import threading
from typing import Any

import pytest

from lagent.actions import AsyncInterpreter, Interpreter, snapshots
from lagent.actions.snapshot_guest import definitions, restore, save
from lagent.agents import Agent, AsyncAgent
from lagent.journal import SqliteJournal
from lagent.llms import ScriptedModel
from lagent.prompts import CodeParser
from lagent.schema import AgentMessage
from sandbox import SandboxPolicy


def kept(namespace: dict[str, Any], *cells: str, each: int = 1 << 20) -> Any:
    answer = save(namespace, {}, list(cells), total=1 << 20, each=each, seconds=5)
    return answer, *snapshots._parsed(answer)


def names(entries: list[Any]) -> list[list[str]]:
    return [entry['names'] for entry in entries]


def test_values_modules_and_names_of_one_object_come_back():
    value = [1, {'a': (2, 3)}]
    answer, entries, lost, more = kept({'x': value, 'y': value, 'th': threading, '_i3': 'shell'})
    assert (names(entries), lost, more) == ([['x', 'y'], ['th']], [], 0)
    made: dict[str, Any] = {}
    restore(made, answer, 5)
    assert made['x'] == value
    assert made['x'] is made['y']
    assert made['th'] is threading


def test_what_can_not_be_kept_is_listed_with_its_reason(tmp_path):
    with (tmp_path / 'f').open('w') as file:
        namespace = {'f': file, 'lock': threading.Lock(), 'g': (n for n in 'ab'), 'big': b'x' * 99}
        _, entries, lost, _ = kept(namespace, each=50)
    assert entries == []
    assert [(each['names'], each['type']) for each in lost] == [
        (['f'], 'TextIOWrapper'),
        (['lock'], 'lock'),
        (['g'], 'generator'),
        (['big'], 'bytes'),
    ]
    assert 'pickle' in lost[2]['reason']
    assert 'larger than the 50 bytes' in lost[3]['reason']


def test_more_entries_than_are_kept_are_counted():
    *_, more = kept({f'n{number}': object() for number in range(1_200)})
    assert more == 200


CELL = """\
import functools

default = 3

@functools.cache
def ignored():
    pass

class Point:
    def __init__(self, x): self.x = x
    def double(self): return 2 * self.x

def scaled(point, by=default):
    return by * point.x

p = Point(7)
adder = lambda x: x + 1
def outer():
    def inner(): pass
    return inner
inner = outer()
"""


@pytest.fixture
def main(monkeypatch):
    """A namespace that is that of `__main__`, as in a kernel."""
    from types import ModuleType

    module = ModuleType('__main__')
    monkeypatch.setitem(sys.modules, '__main__', module)
    return vars(module)


def test_functions_and_classes_are_made_again_from_their_source(main):
    exec(CELL, main)
    del main['__builtins__'], main['ignored']
    answer, _, lost, _ = kept(main, 'not python!', CELL)
    assert names(lost) == [['adder'], ['inner']]
    assert 'top level' in lost[0]['reason']
    for name in [name for name in main if not name.startswith('__')]:
        del main[name]
    report = snapshots._parsed(restore(main, answer, 5))
    assert report == ([], [], 0)
    assert main['p'].double() == 14
    assert main['scaled'](main['p']) == 21
    assert definitions([])['Point'].startswith('class Point:')  # for the snapshot after this one


def test_what_fails_when_it_is_made_is_told(main):
    exec('class Gone: pass\ng = Gone()\nx = 1', main)
    answer, *_ = kept(main, 'class Gone: pass')
    del main['Gone'], main['g']
    answer = answer.replace(b'class Gone: pass', b'1 / 0 # one: pas')
    _, lost, _ = snapshots._parsed(restore(main, answer, 5))
    assert sorted(names(lost)) == [['Gone'], ['g']]
    assert main['x'] == 1


def footed(text: bytes, data: bytes = b'') -> bytes:
    return data + text + len(text).to_bytes(8, 'big')


@pytest.mark.parametrize(
    'answer',
    [
        b'',
        b'\xff' * 30,
        footed(b'[' * 100_000),
        footed(b'{}'),
        footed(b'{"kept": [{"names": [1], "type": "", "kind": "value", "size": 0}]}'),
        footed(b'{"kept": [], "lost": [], "more": 0}', b'x'),
        footed(
            b'{"kept": [{"names": ["a"], "type": "t", "kind": "value", "size": -1},'
            b'{"names": ["a"], "type": "t", "kind": "value", "size": 2}], "lost": [], "more": 0}',
            b'x',
        ),
        footed(b'{"kept": [], "lost": [], "more": 1e999}'),
    ],
)
def test_what_a_hostile_sandbox_gives_is_refused(answer):
    with pytest.raises(snapshots.NoSnapshot, match='the sandbox gave'):
        snapshots._parsed(answer)


class Stop(Exception):
    pass


class Worker(Agent):
    """Runs cells, and dies before one of them."""

    def __init__(self, interpreter: Interpreter, cells: list[str], dies_at: int | None) -> None:
        super().__init__(ScriptedModel(lambda _: ''))
        self.interpreter, self.cells, self.dies_at = interpreter, cells, dies_at

    def forward(self, *message: AgentMessage, **kwargs: Any) -> Any:
        results = []
        for number, source in enumerate(self.cells):
            if number == self.dies_at:
                raise Stop
            parsed = CodeParser().parse_response(f'```python\n{source}\n```')
            answer = self.interpreter(AgentMessage(content=source, formatted=parsed))
            results.append(answer.formatted)
        return [[each.result, each.state_preserved, *each.notices] for each in results]


def resumed(journal: Any, cells: list[str], *deaths: int | None, **options: Any) -> Any:
    """Run cells in attempts with a sandbox each; each but the last dies before a cell."""
    for dies_at in (*deaths, None):
        with Interpreter(
            backend='local', unsafe=True, rebuild='snapshot', timeout=60, **options
        ) as interpreter:
            try:
                return Worker(interpreter, cells, dies_at).run(
                    'go', run_id='r', session_id=0, journal=journal
                )
            except Stop:
                pass
    return None


def test_a_run_goes_on_with_variables_and_files(tmp_path):
    cells = [
        'import math\nx = [1]\nopen("f", "w").write("kept")\ndef f(n): return n + len(x)',
        'import os\nos.mkdir("d"); os.chdir("d")\nx.append(2)\ng = (n for n in x)',
        'math.floor(2.5), x, f(1), open("f").read()',
        'sorted(name for name in globals() if "snap" in name), In[3], _i',
        'f(2), x',
    ]
    answer = resumed(tmp_path / 'j.db', cells, 2, 4).content
    result, preserved, notice = answer[2]
    assert (result, preserved) == ("(2, [1, 2], 3, 'kept')", False)
    assert 'interrupted after 2 cells' in notice
    assert 'x (list)' in notice
    assert 'f (function)' in notice
    assert 'Not restored: g (generator: ' in notice
    assert 'Files restored: f.' in notice
    assert 'is not in it' not in notice
    assert answer[3][0].startswith("([], '', 'math.floor")
    result, preserved, notice = answer[4]
    assert (result, preserved) == ('(4, [1, 2])', True)
    assert 'interrupted after 4 cells' in notice
    assert 'Not restored' not in notice


def test_a_secret_is_told_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv('SOME_API_KEY', 'swordfish-1234')
    cells = ['s = ["swordfish", "-1234"]; s = "-".join(["swordfish", "1234"])', 'x = 1', 'x']
    cells[1] += '; open("f", "w").write(s); open("g", "w").write("g")'
    _, _, notice = resumed(tmp_path / 'j.db', cells, 2).content[2]
    assert 'Restored: x (int).' in notice
    assert 'Files restored: g. Files lost: f.' in notice
    assert 's (str: it held a secret' in notice


def test_what_a_snapshot_does_not_have_is_counted(tmp_path, monkeypatch):
    cells = ['x = 1', 'x = 2', 'x']
    with SqliteJournal(tmp_path / 'j.db') as journal:
        real = snapshots.keep
        asked = []

        def once(*arguments: Any) -> Any:
            asked.append(arguments)
            if len(asked) == 2:
                raise snapshots.NoSnapshot('the disk was full')
            return (yield from real(*arguments))

        monkeypatch.setattr(snapshots, 'keep', once)
        result, preserved, notice = resumed(journal, cells, 2).content[2]
    assert (result, preserved) == ('1', False)
    assert 'what the last 1 of them did is not in it (the disk was full)' in notice


def test_a_process_that_dies_before_the_snapshot_is_seen(tmp_path, monkeypatch):
    real = snapshots.keep
    asked = []

    def once(*arguments: Any) -> Any:
        asked.append(arguments)
        if len(asked) == 2:
            raise Stop
        return (yield from real(*arguments))

    monkeypatch.setattr(snapshots, 'keep', once)
    cells = ['x = 1', 'x = 2', 'x']
    result, preserved, notice = resumed(tmp_path / 'j.db', cells, None).content[2]
    assert (result, preserved) == ('1', False)
    assert 'what the last 1 of them did is not in it. Restored: x (int).' in notice


def test_what_is_too_large_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshots, 'MOST_FILE_BYTES', 1_000)
    monkeypatch.setattr(snapshots, 'MOST_OF_ONE', 1_000)
    cells = ['x = b"1" * 2_000; y = 3; open("f", "wb").write(x); open("g", "w").close()', 'y']
    result, preserved, notice = resumed(tmp_path / 'j.db', cells, 1).content[1]
    assert (result, preserved) == ('3', False)
    assert 'Not restored: x (bytes: it is larger than the 1,000 bytes that are left' in notice
    assert 'Files restored: g. Files lost: f.' in notice


def test_a_value_that_ends_the_kernel_when_it_is_kept(tmp_path):
    cells = [
        'x = 1',
        'class Trap:\n    def __reduce__(self): import os; os._exit(3)\ntrap = Trap()',
        '"x" in globals()',
        '"y"',
    ]
    answer = resumed(tmp_path / 'j.db', cells).content
    assert [each[:2] for each in answer] == [
        [None, True],
        [None, True],
        ['False', False],
        ["'y'", True],
    ]
    assert any('exit' in notice for notice in answer[2][2:])


def test_a_snapshot_is_used_only_where_that_is_wanted(tmp_path):
    journal = tmp_path / 'j.db'
    cells = ['x = 1', '"x" in globals()']
    with (
        Interpreter(backend='local', unsafe=True, rebuild='snapshot') as interpreter,
        pytest.raises(Stop),
    ):
        Worker(interpreter, cells, 1).run('go', run_id='r', session_id=0, journal=journal)
    with Interpreter(backend='local', unsafe=True) as interpreter:
        worker = Worker(interpreter, cells, None)
        answer = worker.run('go', run_id='r', session_id=0, journal=journal)
    assert answer.content[1][0] == 'False'


class AsyncWorker(AsyncAgent):
    """A `Worker` of the other kind."""

    def __init__(self, interpreter: Any, cells: list[str], dies_at: int | None) -> None:
        super().__init__(ScriptedModel(lambda _: ''))
        self.interpreter, self.cells, self.dies_at = interpreter, cells, dies_at

    async def forward(self, *message: AgentMessage, **kwargs: Any) -> Any:
        for number, source in enumerate(self.cells):
            if number == self.dies_at:
                raise Stop
            parsed = CodeParser().parse_response(f'```python\n{source}\n```')
            answer = await self.interpreter(AgentMessage(content=source, formatted=parsed))
        return [answer.formatted.result, *answer.formatted.notices]


async def test_the_async_form_does_the_same(tmp_path):
    for dies_at in (1, None):
        async with AsyncInterpreter(backend='local', unsafe=True, rebuild='snapshot') as cells:
            worker = AsyncWorker(cells, ['x = 41', 'x + 1'], dies_at)
            try:
                answer = await worker.run('go', run_id='r', journal=tmp_path / 'j.db')
            except Stop:
                continue
    assert answer.content[0] == '42'
    assert 'Restored: x (int).' in answer.content[1]


def test_what_is_told_of_files_is_bounded(tmp_path):
    cells = ['for n in range(260): open(f"f{n:03}", "w").close()', '1']
    _, _, notice = resumed(tmp_path / 'j.db', cells, 1).content[1]
    assert 'Files restored: f000, f001, ' in notice
    assert 'f029, and 170 more. Files lost: f200, ' in notice
    assert 'f229, and 30 more.' in notice


def test_a_workspace_too_full_to_list_costs_no_variables(tmp_path):
    policy = SandboxPolicy(max_files=5)
    cells = ['for n in range(9): open(f"f{n}", "w").close()', 'n']
    result, _, notice = resumed(tmp_path / 'j.db', cells, 1, policy=policy).content[1]
    assert result == '8'
    assert 'Files lost: all (' in notice


def test_a_kernel_that_died_leaves_nothing_to_restore(tmp_path):
    cells = ['x = 1', 'import os; os._exit(3)', '"x" in globals()']
    result, preserved, notice = resumed(tmp_path / 'j.db', cells, 2).content[2]
    assert (result, preserved) == ('False', False)
    assert 'the variables were lost' in notice
    assert 'Restored' not in notice
