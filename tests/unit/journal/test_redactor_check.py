"""Secrets that only the caller knows are hidden in every attempt at a run, or there is none."""

import copy
import pickle
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from lagent import cli
from lagent.agents import Agent, AsyncAgent
from lagent.effects import Effect, perform
from lagent.errors import RunSuspended
from lagent.flow import run as drive
from lagent.journal import (
    Approval,
    Redactor,
    RedactorMissing,
    SqliteJournal,
    edit,
    record,
    reject,
)
from lagent.llms import AsyncScriptedModel, ScriptedModel

SECRET = 'known-to-nobody-else'
RULE = ('guest-', r'guest-\d{4}')


class Gentle(Redactor):
    """Hides what no value and no rule says."""

    def text(self, text: str) -> str:
        return super().text(text).replace(SECRET, '[hidden]')


class Failing(Agent):
    """Fails after its model call, as long as it is told to."""

    fails = True

    def __init__(self, secret: str = SECRET) -> None:
        super().__init__(ScriptedModel(lambda messages: 'reply'), template=f'Use {secret}.')

    def forward(self, *message: Any, **kwargs: Any) -> Any:
        reply = super().forward(*message, **kwargs)
        if self.fails:
            raise ValueError('down')
        return reply


def made() -> Failing:
    agent = Failing()
    agent.fails = False
    return agent


def with_its_own() -> Failing:
    agent = made()
    agent.redactor = Redactor(values=[SECRET])
    return agent


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    module = types.ModuleType('their_agents')
    module.made, module.with_its_own = made, with_its_own  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, 'their_agents', module)
    path = tmp_path / 'runs.db'
    begin(path, Redactor(values=[SECRET]))
    return path


def begin(path: Path, redactor: Redactor | None, run_id: str = 'r') -> None:
    with pytest.raises(ValueError, match='down'):
        Failing().run('q', run_id=run_id, journal=path, redactor=redactor)


def runs(where: Path, *arguments: str) -> Result:
    env = {'COLUMNS': '200', 'LAGENT_JOURNAL': str(where)}
    return CliRunner().invoke(cli.app, ['runs', *arguments], env=env)


def shown(where: Path) -> list[Any]:
    with SqliteJournal(where) as journal:
        return [journal.run('r').status, *journal.records('r')]


def is_written(where: Path, text: str = SECRET) -> bool:
    return any(text.encode() in file.read_bytes() for file in where.parent.glob('runs.db*'))


@pytest.mark.parametrize('command', ['resume', 'replay'])
def test_a_command_that_can_not_hide_them_does_and_shows_nothing(where: Path, command: str) -> None:
    before = shown(where)
    result = runs(where, command, 'r', '--agent', 'their_agents:made')
    assert result.exit_code == 2
    said = ' '.join(result.output.split())
    assert 'began with a redactor of your own (1 value and 0 rules), and none is given' in said
    assert '--agent MODULE:FUNCTION' in said
    assert SECRET not in result.output
    assert shown(where) == before
    assert not is_written(where)


def test_the_agent_that_is_made_brings_its_redactor(where: Path) -> None:
    result = runs(where, 'resume', 'r', '--agent', 'their_agents:with_its_own')
    assert result.exit_code == 0, result.output
    result = runs(where, 'replay', 'r', '--agent', 'their_agents:with_its_own')
    assert result.exit_code == 0, result.output
    assert not is_written(where)


@pytest.mark.parametrize(
    'redactor', [None, Redactor(), Redactor(values=['short', '']), Redactor(rules=[RULE])]
)
@pytest.mark.parametrize('way', ['run', 'rerun', 'another question'])
def test_one_that_hides_less_is_refused(where: Path, redactor: Redactor | None, way: str) -> None:
    with pytest.raises(RedactorMissing) as caught:
        if way == 'rerun':
            made().rerun('r', journal=where, redactor=redactor)
        else:
            made().run(*[SECRET][way == 'run' :], run_id='r', journal=where, redactor=redactor)
    assert SECRET not in str(caught.value)
    assert made().run(
        run_id='r', journal=where, redactor=Redactor(values=[SECRET, 'one that was added'])
    )


async def test_an_asynchronous_agent_is_refused_likewise(where: Path) -> None:
    with pytest.raises(RedactorMissing):
        await AsyncAgent(AsyncScriptedModel([])).run(run_id='r', journal=where)


@pytest.mark.parametrize(
    ('begun', 'now', 'is_enough'),
    [
        (Redactor(), None, True),
        (Redactor(environ={}), None, True),
        (None, Redactor(values=[SECRET]), True),
        (Redactor(rules=[RULE]), Redactor(), False),
        (Redactor(rules=[RULE]), Redactor(rules=iter([RULE])), True),
        (Gentle(), Redactor(), False),
        (Gentle(), Gentle(), True),
    ],
)
def test_plain_code_needs_as_much_as_it_began_with(
    tmp_path: Path, begun: Redactor | None, now: Redactor | None, is_enough: bool
) -> None:
    path = tmp_path / 'runs.db'
    with pytest.raises(ZeroDivisionError), record(path, 'r', redactor=begun):
        raise ZeroDivisionError
    if is_enough:
        with record(path, 'r', redactor=now) as run:
            run.answer = 42
        with record(path, 'r', redactor=now) as run:
            assert run.answer == 42
        return
    with pytest.raises(RedactorMissing), record(path, 'r', redactor=now):
        pytest.fail('the block was executed')


@pytest.mark.parametrize('way', ['record', 'run'])
def test_a_run_that_has_ended_shows_nothing_without_it_either(tmp_path: Path, way: str) -> None:
    path, known = tmp_path / 'runs.db', Redactor([SECRET])
    if way == 'run':
        made().run('q', run_id='r', journal=path, redactor=known)
        with pytest.raises(RedactorMissing):
            made().run(run_id='r', journal=path)
        return
    with record(path, 'r', redactor=known) as run:
        run.answer = 42
    with pytest.raises(RedactorMissing), record(path, 'r'):
        pytest.fail('the block was executed')


def test_nothing_of_the_secrets_is_noted(where: Path) -> None:
    with SqliteJournal(where) as journal:
        noted = journal.run('r').opening['redactor']
    assert noted == {'type': 'lagent.journal.redact:Redactor', 'values': 1, 'rules': 0}


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """A run that has one, and waits for a decision about a tool."""
    path = tmp_path / 'waits' / 'runs.db'
    path.parent.mkdir()
    effect = Effect('tool', 'shell', {'x': 'ls'}, edited=lambda payload: iter(()))
    begun: dict[str, Any] = {'approval': Approval(tools=True), 'redactor': Redactor([SECRET])}
    with pytest.raises(RunSuspended), record(path, 'r', **begun):
        drive(perform(effect, lambda: 1))
    return path


@pytest.mark.parametrize('redactor', [None, Redactor()])
def test_a_decision_is_not_written_without_it(waiting: Path, redactor: Redactor | None) -> None:
    before = shown(waiting)
    with SqliteJournal(waiting) as journal:
        with pytest.raises(RedactorMissing):
            edit(journal, 'r', {'x': f'login {SECRET}'}, redactor=redactor)
        with pytest.raises(RedactorMissing):
            reject(journal, 'r', f'{SECRET} is mine', redactor=redactor)
        assert shown(waiting) == before
        reject(journal, 'r', f'{SECRET} is mine', redactor=Redactor([SECRET]))
        assert journal.records('r')[-1].body['reason'] == '[redacted] is mine'
    assert not is_written(waiting)


def test_a_command_decides_only_what_holds_no_text(waiting: Path, tmp_path: Path) -> None:
    (file := tmp_path / 'p.json').write_text(f'{{"x": "login {SECRET}"}}')
    for arguments in (('edit', 'r', str(file)), ('reject', 'r', SECRET)):
        result = runs(waiting, *arguments)
        assert result.exit_code == 2
        assert 'began with a redactor of your own' in ' '.join(result.output.split())
    assert not is_written(waiting)
    assert runs(waiting, 'reject', 'r').exit_code == 0


def test_a_command_that_decides_takes_it_from_the_agent(
    waiting: Path, where: Path, tmp_path: Path
) -> None:
    agent = ('--agent', 'their_agents:with_its_own')
    (file := tmp_path / 'p.json').write_text(f'{{"x": "login {SECRET}"}}')
    said = runs(waiting, 'edit', 'r', str(file), *agent)
    assert said.exit_code == 2
    assert 'holds a secret' in ' '.join(said.output.split())
    file.write_text('{"x": "pwd"}')
    assert runs(waiting, 'edit', 'r', str(file), *agent).exit_code == 0
    with SqliteJournal(waiting) as journal:
        assert journal.records('r')[-1].body['payload'] == {'x': 'pwd'}
    assert not is_written(waiting)


def test_a_command_that_rejects_hides_them_in_the_reason(waiting: Path, where: Path) -> None:
    assert (
        runs(waiting, 'reject', 'r', SECRET, '--agent', 'their_agents:with_its_own').exit_code == 0
    )
    with SqliteJournal(waiting) as journal:
        assert journal.records('r')[-1].body['reason'] == '[redacted]'
    assert not is_written(waiting)


@pytest.mark.parametrize('copied', [lambda each: pickle.loads(pickle.dumps(each)), copy.deepcopy])
def test_it_goes_to_other_processes(copied: Any) -> None:
    """An agent is sent to another process with all that it has."""
    known = Redactor([SECRET], rules=[RULE], environ={})
    assert known.text(SECRET) == '[redacted]'
    agent = Agent(None)
    agent.redactor = known
    for redactor in (copied(known), copied(agent).redactor):
        assert redactor.text(f'{SECRET}, guest-1234') == '[redacted], [redacted]'
        assert redactor.data(SECRET.encode()) == b'[redacted]'
        assert redactor.own == known.own
    assert copied(Gentle(environ={})).text(SECRET) == '[hidden]'


def test_the_texts_that_it_has_seen_stay_here() -> None:
    redactor = Redactor(environ={})
    redactor.text(SECRET)
    assert SECRET.encode() not in pickle.dumps(redactor)
