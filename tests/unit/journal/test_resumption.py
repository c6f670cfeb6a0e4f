"""What the first cell of a resumed run is told, and what is run again before it."""

from typing import Any

import pytest

from lagent.actions import Interpreter
from lagent.agents import Agent
from lagent.errors import RunSuspended
from lagent.journal import Approval, SqliteJournal, approve, edit
from lagent.llms import ScriptedModel
from lagent.prompts import CodeParser
from lagent.schema import AgentMessage
from sandbox import FakeBackend, Sandbox


class Stop(Exception):
    pass


class Worker(Agent):
    """Runs cells, and dies before one of them."""

    def __init__(self, interpreter: Interpreter, cells: list[str], dies_at: int = -1) -> None:
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
        return [[result.outcome, result.state_preserved, *result.notices] for result in results]


@pytest.fixture
def ran() -> list[str]:
    return []


def resumed(tmp_path: Any, ran: list[str], **options: Any) -> Any:
    """Run three cells, the last of them in a second attempt with another sandbox."""
    backend = FakeBackend(lambda code: ran.append(code) or '')
    for dies_at in (2, -1):
        with Interpreter(backend=backend, unsafe=True, **options) as interpreter:
            worker = Worker(interpreter, ['a', 'b', 'c'], dies_at)
            try:
                return worker.run('go', run_id='r', journal=tmp_path / 'runs.db').content
            except Stop:
                ran.append('---')
    return None


def test_a_new_sandbox_is_told(tmp_path, ran):
    answers = resumed(tmp_path, ran)
    assert ran == ['a', 'b', '---', 'c']
    assert answers[:2] == [['ok', True], ['ok', True]]
    outcome, kept, notice = answers[2]
    assert (outcome, kept) == ('ok', False)
    assert 'interrupted after 2 cells' in notice
    assert 'variables, imports and files from before it are lost' in notice


def test_recorded_cells_are_run_again_where_that_is_wanted(tmp_path, ran):
    answers = resumed(tmp_path, ran, rebuild='rerun')
    assert ran == ['a', 'b', '---', 'a', 'b', 'c']
    outcome, kept, notice = answers[2]
    assert (outcome, kept) == ('ok', True)
    assert 'the 2 cells before this one ran again' in notice


def test_a_run_that_goes_on_in_the_same_sandbox_is_told_nothing(tmp_path, ran):
    backend = FakeBackend(lambda code: ran.append(code) or '')
    with Interpreter(backend=backend, unsafe=True, rebuild='rerun') as interpreter:
        with pytest.raises(Stop):
            Worker(interpreter, ['a', 'b'], 1).run('go', run_id='r', journal=tmp_path / 'j.db')
        answer = Worker(interpreter, ['a', 'b']).run('go', run_id='r', journal=tmp_path / 'j.db')
    assert ran == ['a', 'b']
    assert answer.content == [['ok', True], ['ok', True]]


def test_what_was_edited_is_run_again_as_it_was_run(tmp_path, ran):
    journal = str(tmp_path / 'j.db')
    backend = FakeBackend(lambda code: ran.append(code) or '')

    def attempt(dies_at: int) -> Any:
        with Interpreter(backend=backend, unsafe=True, rebuild='rerun') as interpreter:
            worker = Worker(interpreter, ['a', 'b'], dies_at)
            return worker.run('go', run_id='r', journal=journal, approval=approval)

    approval = Approval(kernel=True)
    with pytest.raises(RunSuspended):
        attempt(1)
    with SqliteJournal(journal) as opened:
        edit(opened, 'r', 'harmless')
    with pytest.raises(Stop):
        attempt(1)
    approval = Approval()
    attempt(-1)
    assert ran == ['harmless', 'harmless', 'b']


def test_what_was_approved_is_run_again_as_code(tmp_path, ran):
    journal = str(tmp_path / 'j.db')
    backend = FakeBackend(lambda code: ran.append(code) or '')

    def attempt(dies_at: int) -> Any:
        with Interpreter(backend=backend, unsafe=True, rebuild='rerun') as interpreter:
            worker = Worker(interpreter, ['a', 'b'], dies_at)
            return worker.run('go', run_id='r', journal=journal, approval=Approval(kernel=True))

    for dies_at in (1, -1):
        with pytest.raises(RunSuspended):
            attempt(dies_at)
        with SqliteJournal(journal) as opened:
            approve(opened, 'r')
        if dies_at == 1:
            with pytest.raises(Stop):
                attempt(dies_at)
    attempt(-1)
    assert ran == ['a', 'a', 'b']


@pytest.mark.parametrize(
    ('rebuild', 'has_variables', 'told'),
    [
        ('fresh', False, 'variables, imports and files from before it are lost'),
        ('rerun', True, 'the 1 cell before this one ran again'),
        ('snapshot', True, 'with a snapshot of the old one'),
    ],
)
def test_a_sandbox_without_a_container_is_another_one(tmp_path, rebuild, has_variables, told):
    """Two processes have the same id of a container, none, and are two sandboxes all the same."""
    cells = [
        'x = 1',
        f'assert (open("given").read(), "x" in globals()) == ("kept", {has_variables})',
    ]
    for dies_at in (1, -1):
        with Interpreter(backend='local', unsafe=True, rebuild=rebuild) as interpreter:
            worker = Worker(interpreter, cells, dies_at)
            if dies_at == 1:
                interpreter.upload({'given': b'kept'})
                with pytest.raises(Stop):
                    worker.run('go', run_id='r', journal=tmp_path / 'j.db')
            else:
                answer = worker.run('go', run_id='r', journal=tmp_path / 'j.db').content
    outcome, _, notice = answer[1]
    assert outcome == 'ok'
    assert told in notice


def test_what_was_half_run_again_is_begun_anew(tmp_path, ran, monkeypatch):
    """In the same process, too: no cell is run twice in one kernel."""
    backend = FakeBackend(lambda code: ran.append(code) or '')
    with Interpreter(backend=backend, unsafe=True) as interpreter, pytest.raises(Stop):
        Worker(interpreter, ['a', 'b', 'c'], 2).run('go', run_id='r', journal=tmp_path / 'j.db')
    execute = Sandbox.execute

    def failing(box: Sandbox, code: str, **options: Any) -> Any:
        if code == 'b':
            raise Stop
        return execute(box, code, **options)

    with Interpreter(backend=backend, unsafe=True, rebuild='rerun') as interpreter:
        worker = Worker(interpreter, ['a', 'b', 'c'])
        with monkeypatch.context() as patched, pytest.raises(Stop):
            patched.setattr(Sandbox, 'execute', failing)
            worker.run('go', run_id='r', journal=tmp_path / 'j.db')
        half_built = interpreter._open_box(0)
        answer = worker.run('go', run_id='r', journal=tmp_path / 'j.db').content
        assert half_built.closed
    assert ran == ['a', 'b', 'a', 'a', 'b', 'c']
    assert answer[2][:2] == ['ok', True]
