"""Files that a session was given are there again when its run goes on in another sandbox."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from lagent.actions import Interpreter, snapshots
from lagent.agents import Agent, Coder, DataAnalyst
from lagent.errors import RunSuspended
from lagent.journal import Approval, NotRecordable, Redactor, SqliteJournal, approve, record
from lagent.llms import ScriptedModel
from lagent.prompts import CodeParser
from lagent.schema import AgentMessage
from sandbox import FakeBackend

CODE = '```python\nprint(1)\n```'


class Stop(Exception):
    pass


def fake(ran: list[str] | None = None, **options: Any) -> Interpreter:
    def run(code: str) -> str:
        (ran if ran is not None else []).append(code)
        return 'ran'

    return Interpreter(backend=FakeBackend(run), unsafe=True, **options)


def model(messages: Any) -> str:
    return CODE if len(messages) <= 3 else f'I saw: {messages[-1]["content"]}'


def coder(interpreter: Interpreter) -> Coder:
    return Coder(ScriptedModel(model), interpreter)


def content(interpreter: Interpreter, name: str, to: Path) -> bytes:
    return interpreter.download(name, to=to).read_bytes()


def suspended(where: Path, give: Any, **options: Any) -> None:
    with coder(fake()) as agent:
        give(agent.interpreter)
        with pytest.raises(RunSuspended):
            agent.run('q', run_id='r', journal=where, approval=Approval(kernel=True), **options)
    with SqliteJournal(where) as journal:
        approve(journal, 'r')


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / 'runs.db'


def test_a_file_is_there_after_an_approval_in_another_process(tmp_path, where):
    suspended(where, lambda interpreter: interpreter.upload({'in/a.csv': b'a,b\n'}))
    with coder(fake()) as agent:
        answer = agent.run(run_id='r', journal=where)
        assert content(agent.interpreter, 'in/a.csv', tmp_path) == b'a,b\n'
    assert answer.content == 'I saw: ran'  # there is nothing to tell: nothing is lost


def test_it_is_as_it_was_when_the_run_began(tmp_path, where):
    def give(interpreter: Interpreter) -> None:
        interpreter.upload({'a.csv': b'first', 'b.csv': b'b'})
        (box, _), *_ = interpreter._preparations.open_boxes()
        box.upload(b'changed by code', name='a.csv')
        box.delete('b.csv')

    suspended(where, give)
    with coder(fake()) as agent:
        agent.interpreter.upload({'a.csv': b'another one'})  # what the factory gives by itself
        agent.run(run_id='r', journal=where)
        assert content(agent.interpreter, 'a.csv', tmp_path) == b'changed by code'
        assert [info.path for info in agent.interpreter.files()] == ['a.csv']


def test_a_large_file_is_given_again_if_it_is_the_same(tmp_path, where, monkeypatch):
    monkeypatch.setattr(snapshots, 'MOST_FILE_BYTES', 10)
    large, changed = tmp_path / 'large.csv', tmp_path / 'changed.csv'
    large.write_bytes(b'x' * 100)
    changed.write_bytes(b'x' * 100)

    def give(interpreter: Interpreter) -> None:
        interpreter.upload([large, changed])
        interpreter.upload({'mine': b'y' * 100})

    suspended(where, give)
    changed.write_bytes(b'z' * 100)
    with coder(fake()) as agent:
        answer = str(agent.run(run_id='r', journal=where).content)
        assert content(agent.interpreter, 'large.csv', tmp_path / 'got') == b'x' * 100
        assert [info.path for info in agent.interpreter.files()] == ['large.csv']
    assert f'changed.csv (it is too large to be kept, and {changed} is not there or' in answer
    assert 'mine (it is too large to be kept)' in answer


SESSIONS = [UUID(int=1), UUID(int=2), 1.5, 2.5, b'a', ('a', UUID(int=1))]


def test_sessions_of_one_kind_have_their_own(where):
    def work(interpreter: Interpreter, *, dies: bool) -> None:
        with record(where, 'r'):
            for number, session in enumerate(SESSIONS):
                interpreter.upload({f'{number}.csv': b''}, session_id=session)
            for session in SESSIONS:
                interpreter.execute('x', session_id=session)
            if dies:
                raise Stop
            for number, session in enumerate(SESSIONS):
                interpreter.execute('y', session_id=session)
                files = interpreter.files(session_id=session)
                assert [info.path for info in files] == [f'{number}.csv']

    with fake() as interpreter, pytest.raises(Stop):
        work(interpreter, dies=True)
    with fake() as interpreter:
        work(interpreter, dies=False)


def test_a_session_that_another_process_can_not_know_is_refused(where):
    ran: list[str] = []
    with fake(ran) as interpreter:
        with pytest.raises(NotRecordable, match='a session that is a frozenset'), record(where):
            interpreter.execute('x', session_id=frozenset())
        assert not ran
        assert interpreter.execute('x', session_id=frozenset()).ok


def test_a_file_that_holds_a_secret_is_told_to_be_lost(tmp_path, where):
    redactor = Redactor(values=['tiger-77-stripes'])
    suspended(
        where,
        lambda interpreter: interpreter.upload({'a.env': b'key=tiger-77-stripes'}),
        redactor=redactor,
    )
    with coder(fake()) as agent:
        answer = str(agent.run(run_id='r', journal=where, redactor=redactor).content)
    assert 'Given files that are lost: a.env (it holds a secret, which' in answer
    assert b'tiger' not in where.read_bytes()


class Worker(Agent):
    """Gives a file and runs cells of both kinds; dies before a step."""

    def __init__(self, interpreter: Interpreter, dies_at: int = -1) -> None:
        super().__init__(ScriptedModel(lambda _: ''))
        self.interpreter, self.dies_at = interpreter, dies_at

    def step(self, number: int) -> None:
        if number == self.dies_at:
            raise Stop

    def forward(self, *message: AgentMessage, **kwargs: Any) -> Any:
        self.interpreter.upload({'a.txt': b'a'})
        self.step(1)
        own = self.interpreter.execute('x = 1')
        self.step(2)
        parsed = CodeParser().parse_response('```python\nx\n```')
        result = self.interpreter(AgentMessage(content='x', formatted=parsed)).formatted
        self.step(3)
        names = [info.path for info in self.interpreter.files()]
        return [own.stdout, names, *own.notices, *result.notices]


def attempts(where: Path, dies_at: int, **options: Any) -> tuple[list[str], Any, Interpreter]:
    ran: list[str] = []
    with fake(ran, **options) as interpreter, pytest.raises(Stop):
        Worker(interpreter, dies_at).run('go', run_id='r', journal=where)
    ran.append('---')
    with fake(ran, **options) as interpreter:
        answer = Worker(interpreter).run('go', run_id='r', journal=where).content
    return ran, answer, interpreter


@pytest.mark.parametrize('dies_at', [1, 2, 3])
def test_what_a_program_does_aside_is_done_once(where, dies_at):
    ran, (output, names, *notices), _ = attempts(where, dies_at)
    done = ['x = 1', 'x'][: dies_at - 1]
    assert ran == [*done, '---', *['x = 1', 'x'][dies_at - 1 :]]
    assert (output, names) == ('ran', ['a.txt'])
    if dies_at == 2:
        assert 'interrupted after 1 cell' in notices[0]
        assert 'Files that were given to the session are there: a.txt.' in notices[0]
    else:  # there was nothing to lose yet; or no cell to tell it
        assert notices == []


def test_own_cells_are_run_again_before_the_others(where):
    ran, (_, names, *notices), _ = attempts(where, 2, rebuild='rerun')
    assert ran == ['x = 1', '---', 'x = 1', 'x']
    assert names == ['a.txt']
    assert 'the 1 cell before this one ran again' in notices[0]


def test_nobody_is_asked_for_a_yes(where):
    with fake() as interpreter, record(where, approval=Approval(kernel=True)) as run:
        interpreter.upload({'a.txt': b'a'})
        run.answer = interpreter.execute('1').stdout
    assert run.answer == 'ran'


def test_an_own_cell_that_may_have_run_is_not_run_again(where):
    ran: list[str] = []

    def attempt(code: str) -> Any:
        with fake(ran) as interpreter, record(where, 'r') as run:
            done = interpreter.execute(code)
            looked = interpreter.execute('look', idempotent=True)
            run.answer = [done.outcome, *done.notices, looked.stdout]
        return run.answer

    class Die(BaseException):
        pass

    real = SqliteJournal.append

    def dying(
        self: Any, run_id: str, owner: str, expires: float, records: Any, *rest: Any, **how: Any
    ) -> None:
        if records[0].type == 'result':
            raise Die
        real(self, run_id, owner, expires, records, *rest, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteJournal, 'append', dying)
        with pytest.raises(Die):
            attempt('x += 1')
    outcome, notice, looked = attempt('x += 1')
    assert ran == ['x += 1', 'look']
    assert (outcome, looked) == ('unknown', 'ran')
    assert 'It is not known whether' in notice


def test_what_earlier_questions_have_left_is_told_to_be_lost(where):
    def answer(messages: Any) -> str:
        return (
            CODE if messages[-1]['content'].endswith('?') else 'I saw: ' + messages[-1]['content']
        )

    with Coder(ScriptedModel(answer), fake()) as agent:
        agent.run('first?', run_id='first', journal=where)
        with pytest.raises(RunSuspended):
            agent.run('second?', run_id='r', journal=where, approval=Approval(kernel=True))
    with SqliteJournal(where) as journal:
        approve(journal, 'r')
    with Coder(ScriptedModel(answer), fake()) as agent:
        seen = str(agent.run(run_id='r', journal=where).content)
    assert 'variables, imports and files from before it are lost' in seen


def test_an_analyst_is_told_of_its_files_once(where, tmp_path):
    asked: list[Any] = []

    def answer(messages: Any) -> str:
        asked.append([str(message['content']) for message in messages])
        return CODE if '[stdout]' not in asked[-1][-1] and 'ran' not in asked[-1][-1] else 'Done.'

    def analyst() -> DataAnalyst:
        return DataAnalyst(ScriptedModel(answer), fake())

    told = {'run_id': 'r', 'journal': where}
    with analyst() as agent:
        agent.upload({'sales.csv': b'a,b\n1,2\n'})
        with pytest.raises(RunSuspended):
            agent.run('Sum a.', approval=Approval(kernel=True), **told)
    with SqliteJournal(where) as journal:
        approve(journal, 'r')
    with analyst() as agent:
        assert agent.run(**told).content == 'Done.'
        assert content(agent.interpreter, 'sales.csv', tmp_path) == b'a,b\n1,2\n'
    assert len(asked) == 2
    assert asked[1][: len(asked[0])] == asked[0]
    with analyst() as agent:
        assert agent.rerun('r', journal=where).content == 'Done.'
    assert len(asked) == 2
