"""A program that restarts or closes a session in a recorded run: done once, and never undone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lagent.actions import AsyncInterpreter, Interpreter
from lagent.actions.cells import Cells
from lagent.agents import Agent
from lagent.flow import arun
from lagent.journal import NotRecordable, NotRecorded, SqliteJournal, Unused, record, replay
from lagent.llms import ScriptedModel
from lagent.schema import AgentMessage
from lagent.utils.counts import many
from sandbox import FakeBackend, SandboxPolicy
from sandbox.backends.fake import FakeMachine

RESTART, CLOSE = 'restart', 'close_session'


class Stop(Exception):
    pass


class Crash(BaseException):
    """What a killed process looks like to the code that it was executing."""


class Machine(FakeMachine):
    log: list[str]

    async def restart(self) -> None:
        self.log.append(RESTART)
        await super().restart()

    async def close(self) -> None:
        self.log.append(CLOSE)
        await super().close()


class Backend(FakeBackend):
    """Writes down what is done with its sandboxes."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log

    async def start(self, policy: SandboxPolicy, *, labels: Mapping[str, str]) -> FakeMachine:
        machine = Machine(lambda code: self.log.append(code) or '', policy)
        machine.log = self.log
        return machine


def steps(interpreter: Interpreter, *asked: str, session: Any = None) -> list[Any]:
    """Restart, close, or execute code; in the end the notices and state of the last cell."""
    told: list[Any] = []
    for step in asked:
        if step == '|':
            raise Stop
        if step in (RESTART, CLOSE):
            getattr(interpreter, step)(session)
        else:
            result = interpreter.execute(step, session)
            told = [result.state_preserved, *result.notices]
    return told


def resumed(where: Path, *asked: str, **options: Any) -> list[Any]:
    """Do steps of one run, those behind ``'|'`` in a second attempt with other sandboxes."""
    cut = asked.index('|')
    with (
        Interpreter(unsafe=True, **options) as interpreter,
        pytest.raises(Stop),
        record(where, 'r'),
    ):
        steps(interpreter, *asked[: cut + 1])
    if isinstance(options['backend'], Backend):
        options['backend'].log.clear()
    with Interpreter(unsafe=True, **options) as interpreter, record(where, 'r'):
        return steps(interpreter, *asked[:cut], *asked[cut + 1 :])


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / 'runs.db'


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.mark.parametrize('method', [RESTART, CLOSE])
def test_what_was_done_is_not_done_again(where, log, method):
    with Interpreter(backend=Backend(log), unsafe=True) as interpreter:
        with pytest.raises(Stop), record(where, 'r'):
            steps(interpreter, 'a', method, 'b', '|')
        with record(where, 'r'):
            steps(interpreter, 'a', method, 'b', 'c')
        assert log == ['a', method, 'b', 'c']


@pytest.mark.parametrize('method', [RESTART, CLOSE])
def test_what_nobody_knows_of_is_done_again(where, log, method, monkeypatch):
    def dies(*_: Any) -> Any:
        yield from ()
        raise Crash

    with Interpreter(backend=Backend(log), unsafe=True) as interpreter:
        with monkeypatch.context() as patch, pytest.raises(Crash), record(where, 'r'):
            patch.setattr(interpreter._resumption, 'threw_away', dies)
            steps(interpreter, 'a', method)
        with record(where, 'r'):
            steps(interpreter, 'a', method, 'b')
        done = [method] if method == CLOSE else [method, method]  # what is closed stays so
        assert log == ['a', *done, 'b']


FILES = 'this one ran in a new sandbox: files from before it are lost'
ALL = 'this one ran in a new sandbox: variables, imports and files from before it are lost'


@pytest.mark.parametrize(
    ('asked', 'told'),
    [
        (['a', RESTART, '|', 'c'], f'the program was interrupted after 1 cell, and {FILES}'),
        (['a', '|', RESTART, 'c'], f'the program was interrupted after 1 cell, and {FILES}'),
        (['a', RESTART, 'b', '|', 'c'], f'the program was interrupted after 2 cells, and {ALL}'),
        (['a', CLOSE, '|', 'c'], None),
        (['a', '|', CLOSE, 'c'], None),
        (['a', CLOSE, RESTART, '|', RESTART, 'c'], None),
        (['a', CLOSE, 'b', '|', 'c'], f'the program was interrupted after 1 cell, and {ALL}'),
        (['a', CLOSE, 'b', '|', CLOSE, 'c', 'd', CLOSE, 'e'], None),
    ],
)
def test_what_the_program_threw_away_is_not_said_to_be_lost(where, log, asked, told):
    news = resumed(where, *asked, backend=Backend(log))
    assert news == ([True] if told is None else [False, told])
    assert asked[-1] in log


@pytest.mark.parametrize(
    ('asked', 'done', 'cells'),
    [
        (['a', RESTART, 'b', '|', 'c'], ['a', RESTART, 'b', 'c'], 2),
        (['a', RESTART, '|', 'c'], ['a', RESTART, 'c'], 1),
        (['a', '|', RESTART, 'c'], ['a', RESTART, 'c'], 1),
        (['a', CLOSE, 'b', RESTART, 'c', '|', 'd'], ['b', RESTART, 'c', 'd'], 2),
        (['a', RESTART, 'b', CLOSE, 'c', '|', 'd'], ['c', 'd'], 1),
        (['a', CLOSE, '|', 'b'], ['b'], 0),
        (['a', '|', CLOSE, 'b'], ['b'], 0),
    ],
)
def test_cells_are_run_again_as_they_were(where, log, asked, done, cells):
    news = resumed(where, *asked, backend=Backend(log), rebuild='rerun')
    assert log == [*done, CLOSE]  # the last one is that of the interpreter
    assert news[0]
    told = f'the {many(cells, "cell")} before this one ran again'
    assert told in news[1] if cells else len(news) == 1


CELL = 'x = 1; open("f", "w").close()'
LOOK = 'import os; assert ("x" in globals(), "y" in globals(), os.path.exists("f")) == {}'


@pytest.mark.parametrize(
    ('asked', 'there'),
    [
        ([CELL, RESTART, '|'], (False, False, True)),
        ([CELL, '|', RESTART], (False, False, True)),
        ([CELL, RESTART, 'y = 1', '|'], (False, True, True)),
        ([CELL, CLOSE, '|'], (False, False, False)),
        ([CELL, '|', CLOSE], (False, False, False)),
        ([CELL, CLOSE, 'y = 1', '|'], (False, True, False)),
    ],
)
def test_a_snapshot_has_nothing_of_what_was_thrown_away(where, asked, there):
    preserved, *notices = resumed(
        where, *asked, LOOK.format(there), backend='local', rebuild='snapshot', timeout=60
    )
    assert preserved, notices
    assert not any('lost' in notice or 'Not restored' in notice for notice in notices)
    assert bool(notices) == (there != (False, False, False))


def test_one_session_says_nothing_of_another(where, log):
    def work(interpreter: Interpreter, *more: str) -> list[Any]:
        with record(where, 'r'):
            steps(interpreter, 'a', session='s')
            for other in ('t', 's/t', 's2', None):
                steps(interpreter, CLOSE, RESTART, session=other)
            return steps(interpreter, *more, session='s')

    backend = Backend(log)
    with Interpreter(backend=backend, unsafe=True) as interpreter, pytest.raises(Stop):
        work(interpreter, '|')
    log.clear()
    with Interpreter(backend=backend, unsafe=True, rebuild='rerun') as interpreter:
        preserved, notice = work(interpreter, 'b')
    assert log == ['a', 'b', CLOSE]
    assert preserved
    assert 'the 1 cell before' in notice


@pytest.mark.parametrize(('method', 'there'), [(RESTART, ['given.csv']), (CLOSE, [])])
@pytest.mark.parametrize('before', [True, False])
def test_given_files_are_given_again_unless_their_session_was_closed(
    where, log, method, there, before
):
    """Also those from before the run, which `record` sees with the first effect."""

    def work(interpreter: Interpreter, *more: str) -> list[str]:
        given = {'given.csv': b'1'}
        if before:
            interpreter.upload(given)
        with record(where, 'r'):
            if not before:
                interpreter.upload(given)
            steps(interpreter, method, *more)
            return [info.path for info in interpreter.files()]

    with Interpreter(backend=Backend(log), unsafe=True) as interpreter, pytest.raises(Stop):
        work(interpreter, '|')
    with Interpreter(backend=Backend(log), unsafe=True) as interpreter, record(where, 'r'):
        if not before:
            interpreter.upload({'given.csv': b'1'})
        steps(interpreter, method, 'x')
        assert [info.path for info in interpreter.files()] == there


def test_closed_in_an_attempt_files_are_gone_in_it(where, log):
    with Interpreter(backend=Backend(log), unsafe=True) as interpreter, record(where, 'r'):
        interpreter.upload({'given.csv': b'1'})
        steps(interpreter, 'a', CLOSE, 'b')
        assert interpreter.files() == []


@pytest.mark.parametrize('rebuild', ['fresh', 'rerun', 'snapshot'])
def test_nothing_is_made_for_it(where, log, rebuild):
    resumed(where, RESTART, CLOSE, '|', RESTART, CLOSE, backend=Backend(log), rebuild=rebuild)
    assert log == []


def test_sessions_without_a_lasting_name(where, log):
    with Interpreter(backend=Backend(log), unsafe=True) as interpreter:
        session = frozenset()
        steps(interpreter, 'a', RESTART, CLOSE, session=session)
        assert log == ['a', RESTART, CLOSE]
        unnamed = pytest.raises(NotRecordable, match='uses a session that is a frozenset')
        with unnamed, record(where, 'r'):
            interpreter.close_session(session)


class Worker(Agent):
    """Asks nobody; `asked` are the steps of its answer."""

    def __init__(self, backend: Any, *asked: str) -> None:
        super().__init__(ScriptedModel([]))
        self.interpreter, self.asked = Interpreter(backend=backend, unsafe=True), asked

    def forward(self, *message: AgentMessage, **kwargs: Any) -> Any:
        return steps(self.interpreter, *self.asked)


class Nothing(FakeBackend):
    async def start(self, policy: SandboxPolicy, *, labels: Mapping[str, str]) -> FakeMachine:
        raise AssertionError('a sandbox was started')


ASKED = ['a', RESTART, 'b', CLOSE, 'c']


def test_a_journal_answers_without_a_sandbox(where, log):
    with Worker(Backend(log), *ASKED) as agent:
        agent.run('go', run_id='r', journal=where)
    with Worker(Nothing(), *ASKED) as agent:
        assert agent.rerun('r', journal=where).content == [True]


def test_a_cassette_answers_without_a_sandbox(cassette_file, log):
    with Worker(Backend(log), *ASKED) as agent, replay(cassette_file, record='once'):
        agent('go', session_id='s')
    assert log[: len(ASKED)] == ASKED
    with Worker(Nothing(), *ASKED) as agent, replay(cassette_file):
        assert agent('go', session_id='s').content == [True]
    with Worker(Backend(again := []), *ASKED) as agent, replay(cassette_file, strict=True):
        agent('go', session_id='s')
    assert again == log
    missing = pytest.raises(Unused, match=r"kernel 'interpreter\.restart': s")
    with Worker(Nothing(), 'a', 'b', CLOSE, 'c') as agent, missing, replay(cassette_file):
        agent('go', session_id='s')
    another = pytest.raises(NotRecorded, match=r"kernel 'interpreter\.restart': t")
    with Worker(Nothing(), *ASKED) as agent, another, replay(cassette_file):
        agent('go', session_id='t')


async def test_the_async_form_does_the_same(where, log):
    async def work(*asked: str) -> None:
        with record(where, 'r'):
            for step in asked:
                if step in (RESTART, CLOSE):
                    await getattr(interpreter, step)()
                else:
                    await interpreter.execute(step)
            if CLOSE not in asked:
                raise Stop

    async with AsyncInterpreter(backend=Backend(log), unsafe=True) as interpreter:
        with pytest.raises(Stop):
            await work('a', RESTART, 'b')
        await work('a', RESTART, 'b', CLOSE)
        assert log == ['a', RESTART, 'b', CLOSE]


async def test_the_cells_of_a_tool_are_no_effects(where, log):
    cells = Cells({'backend': Backend(log), 'unsafe': True}, timeout=10)
    try:
        with record(where, 'r'):
            await cells.execute('a', 's')
            await cells.restart('s')
            await cells.close_session('s')
        await cells.restart('s')
        await cells.close_session('s')
        assert await arun(cells._open_sandbox('s')) is None
    finally:
        await cells.close()
    assert log == ['a', RESTART, CLOSE]
    with SqliteJournal(where) as journal:
        assert journal.records('r') == []
