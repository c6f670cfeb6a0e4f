"""The `lagent runs` commands, with a scripted model and a scripted sandbox."""

import json
import sqlite3
import subprocess
import sys
import time
import types
from contextlib import closing
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from lagent import cli
from lagent.actions import Interpreter
from lagent.agents import Agent, AsyncAgent, Coder, StreamingAgent
from lagent.console import ConsoleView
from lagent.effects import subscribe
from lagent.errors import RunSuspended
from lagent.events import JsonLines
from lagent.journal import Approval, Run, SqliteJournal, pending, record
from lagent.journal.lease import new_owner
from lagent.llms import AsyncScriptedModel, ScriptedModel
from sandbox import FakeBackend

CODE = '```python\nprint(6 * 7)\n```'


def model(messages: Any) -> str:
    return CODE if len(messages) <= 2 else f'I saw: {messages[-1]["content"]}'


def make() -> Coder:
    backend = FakeBackend(lambda code: f'ran {code}')
    return Coder(ScriptedModel(model), Interpreter(backend=backend, unsafe=True))


@pytest.fixture
def factories(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType('their_agents')
    module.make = make  # type: ignore[attr-defined]
    module.awaited = lambda: AsyncAgent(AsyncScriptedModel(['awaited answer']))  # type: ignore[attr-defined]
    module.streamed = lambda: StreamingAgent(ScriptedModel(['streamed answer']))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, 'their_agents', module)


@pytest.fixture
def where(tmp_path: Path, factories: None) -> Path:
    path = tmp_path / 'runs.db'
    with make() as agent, pytest.raises(RunSuspended):
        agent.run(
            'what is 6 * 7?',
            run_id='waiting',
            journal=path,
            approval=Approval(kernel=True),
            factory='their_agents:make',
        )
    with make() as agent:
        agent.run('what is 6 * 7?', run_id='ended', journal=path)
    return path


def runs(where: Path, *arguments: str, stdin: str | None = None) -> Result:
    env = {'COLUMNS': '200', 'LAGENT_JOURNAL': str(where)}
    return CliRunner().invoke(cli.app, ['runs', *arguments], env=env, input=stdin)


def test_a_list_says_what_waits(where: Path) -> None:
    result = runs(where, 'list')
    assert result.exit_code == 0, result.output
    waiting = next(line for line in result.output.splitlines() if line.startswith('waiting'))
    assert 'suspended' in waiting
    assert 'waits: effect 2: kernel interpreter (all code needs a yes)' in waiting
    only = runs(where, 'list', '--status', 'done').output
    assert 'ended' in only
    assert 'waiting' not in only


def test_a_list_has_the_runs_beside_one_that_can_not_say_for_what_it_waits(where: Path) -> None:
    with pytest.raises(RunSuspended), record(where, 'outer'), make() as agent:
        agent.run('q', run_id='inner', journal=where, approval=Approval(kernel=True))
    with closing(sqlite3.connect(where)) as database, database:
        database.execute(
            "update lagent_records set body = '{}' where type = 'request' and run_id = 'waiting'"
        )
    result = runs(where, 'list')
    assert result.exit_code == 0, result.output
    rows = {line.split()[0]: line for line in result.output.splitlines()}
    assert 'waits for no decision of its own' in rows['outer']
    assert 'waits: effect 2: kernel interpreter' in rows['inner']
    assert 'The journal is damaged: record ' in rows['waiting']
    assert 'done' in rows['ended']


def test_a_run_is_shown_as_a_timeline(where: Path) -> None:
    result = runs(where, 'show', 'ended')
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.output.splitlines()]
    shown = [line[2:6] for line in lines if len(line) > 3 and line[1] == 's']
    assert shown[0][:4] == ['1', 'intent', 'model', 'scripted']
    assert shown[3][:4] == ['2', 'result', 'kernel', 'interpreter']
    assert 'ran print(6 * 7)' in result.output
    assert '= I saw: ran print(6 * 7)' in result.output


def test_a_run_whose_process_has_died_is_said_to_be_interrupted(where: Path) -> None:
    with SqliteJournal(where) as journal:
        now = time.time()
        dead = json.dumps({**json.loads(new_owner()), 'started': 'at another time'})
        for run_id, owner in (('dead', dead), ('alive', new_owner())):
            journal.begin(
                Run(id=run_id, created=now, updated=now, owner=owner, expires=now + 60), {}
            )
    lines = {line.split()[0]: line for line in runs(where, 'list').output.splitlines()}
    assert 'interrupted' in lines['dead']
    assert 'running' in lines['alive']


def test_a_run_is_shown_as_json(where: Path) -> None:
    lines = [
        json.loads(line) for line in runs(where, 'show', 'ended', '--json').output.splitlines()
    ]
    assert [line['type'] for line in lines] == ['intent', 'result'] * 3
    assert lines[2]['detail'] == 'print(6 * 7)'


def test_a_run_is_approved_and_resumed(where: Path) -> None:
    assert 'lagent runs resume waiting' in runs(where, 'approve', 'wait').output
    result = runs(where, 'resume', 'waiting')
    assert result.exit_code == 0, result.output
    assert 'I saw: ran print(6 * 7)' in result.output
    assert runs(where, 'diff', 'waiting', 'ended').exit_code == 0


def test_a_beginning_that_several_runs_have_is_not_chosen_from(where: Path) -> None:
    with SqliteJournal(where) as journal:
        for index in range(12):
            journal.begin(Run(id=f'many-{index:02}', created=float(index), status='done'), {})
        journal.begin(Run(id='many', status='done'), {})
    result = runs(where, 'show', 'many-')
    assert result.exit_code == 2
    said = ' '.join(result.output.split())
    assert "Several runs begin with 'many-': many-11, many-10" in said
    assert 'many-02, …' in said
    assert 'many-01' not in said
    assert runs(where, 'show', 'many').output.startswith('many ')
    assert "no run 'none'" in runs(where, 'show', 'none').output
    assert runs(where, 'show', 'many-03').output.startswith('many-03')


def test_what_a_run_waits_for_beside_what_was_decided_is_told(where: Path) -> None:
    with SqliteJournal(where) as journal:
        owner, asked = new_owner(), pending(journal, 'waiting')
        journal.acquire('waiting', owner, time.time() + 60)
        journal.append('waiting', owner, time.time(), [replace(asked, position='7')], {})
        journal.release('waiting', owner, 'suspended', None, {})
    said = runs(where, 'approve', 'waiting').output
    assert 'It also waits for a decision about effect 7: kernel interpreter' in said
    assert 'Go on with' not in said
    assert 'waits: effect 7' in runs(where, 'list', '--status', 'suspended').output
    assert 'Go on with: lagent runs resume' in runs(where, 'approve', 'waiting').output


def test_a_run_that_still_waits_says_so(where: Path) -> None:
    result = runs(where, 'resume', 'waiting')
    assert result.exit_code == 5
    assert 'waits for a decision' in result.output


def test_a_run_is_rejected_and_differs(where: Path) -> None:
    runs(where, 'reject', 'waiting', 'no code today')
    assert 'no code today' in runs(where, 'resume', 'waiting').output
    result = runs(where, 'diff', 'waiting', 'ended')
    assert result.exit_code == 1
    assert '@ 2  kernel interpreter' in result.output
    assert '+ran print(6 * 7)' in result.output


def test_code_is_edited(where: Path) -> None:
    assert runs(where, 'edit', 'waiting', '-', stdin='print(42)').exit_code == 0
    assert 'ran print(42)' in runs(where, 'resume', 'waiting').output
    assert 'print(42)' in runs(where, 'show', 'waiting').output


@pytest.mark.parametrize('kind', ['awaited', 'streamed'])
def test_any_kind_of_agent_is_resumed(tmp_path: Path, factories: None, kind: str) -> None:
    path = tmp_path / 'runs.db'
    with pytest.raises(ValueError, match='down'):
        Agent(ScriptedModel([ValueError('down')])).run('q', run_id='r', journal=path)
    result = runs(path, 'resume', 'r', '--agent', f'their_agents:{kind}')
    assert f'{kind} answer' in result.output


@pytest.mark.parametrize('spec', ['their_agents', 'os:system {"command": "true"}', ''])
def test_a_recorded_factory_is_called_without_arguments(tmp_path: Path, spec: str) -> None:
    path = tmp_path / 'runs.db'
    with pytest.raises(ValueError, match='down'):
        Agent(ScriptedModel([ValueError('down')])).run('q', run_id='r', journal=path, factory=spec)
    result = runs(path, 'resume', 'r')
    assert result.exit_code == 2
    assert '--agent MODULE:FUNCTION' in result.output


@pytest.mark.parametrize('spec', ['nosuch_module:f', 'os:nosuch'])
def test_a_factory_that_is_not_there_is_told(where: Path, spec: str) -> None:
    result = runs(where, 'resume', 'waiting', '--agent', spec)
    assert result.exit_code == 2
    assert f'{spec}, which makes the agent, could not be had' in ' '.join(result.output.split())


def test_a_status_that_does_not_exist_is_refused(where: Path) -> None:
    assert runs(where, 'list', '--status', 'nonsense').exit_code == 2


def test_old_runs_are_pruned(where: Path) -> None:
    assert runs(where, 'prune').output == '0 runs removed\n'
    assert runs(where, 'prune', '--days', '0').output == '1 run removed\n'
    with SqliteJournal(where) as journal:
        assert [run.id for run in journal.runs()] == ['waiting']
    assert runs(where, 'prune', '--days', '0', '--all').output == '1 run removed\n'


@pytest.mark.parametrize(
    'arguments', [('show', 'nothing'), ('approve', 'ended'), ('resume', 'nothing')]
)
def test_what_is_not_there_is_said(where: Path, arguments: tuple[str, ...]) -> None:
    result = runs(where, *arguments)
    assert result.exit_code == 2
    assert 'Traceback' not in result.output


def test_a_journal_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    result = runs(tmp_path / 'no.db', 'list')
    assert result.exit_code == 2
    assert not (tmp_path / 'no.db').exists()


def test_a_question_is_recorded_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lagent.llms import from_env

    monkeypatch.setattr(from_env, 'model_from_env', lambda *_: ScriptedModel(model))
    monkeypatch.setattr(
        'lagent.actions.Interpreter',
        lambda **options: Interpreter(backend=FakeBackend(lambda code: 'ran it'), unsafe=True),
    )
    path = tmp_path / 'runs.db'
    ask = ['run', 'what is 6 * 7?', '--journal', str(path), '--run-id', 'q', '--ask']
    assert CliRunner().invoke(cli.app, ask).exit_code == 5
    assert runs(path, 'approve', 'q').exit_code == 0
    result = runs(path, 'resume', 'q')
    assert 'I saw: ran it' in result.output, result.output
    assert CliRunner().invoke(cli.app, ask).exit_code == 0
    assert CliRunner().invoke(cli.app, ['run', 'x', '--ask']).exit_code == 2


def test_what_is_known_from_the_journal_is_shown_as_such(tmp_path: Path) -> None:
    path, asked = tmp_path / 'runs.db', [{'role': 'user', 'content': 'a'}]
    output = StringIO()
    for view in (ConsoleView(Console(file=output, width=80)), JsonLines(StringIO())):
        with pytest.raises(ZeroDivisionError), subscribe(view), record(path, type(view).__name__):
            ScriptedModel(['said']).chat(asked)
            raise ZeroDivisionError
        with subscribe(view), record(path, type(view).__name__):
            ScriptedModel([]).chat(asked)
    assert output.getvalue().count('said') == 1
    assert 'model scripted known from the journal' in output.getvalue()


@pytest.mark.parametrize(
    'spec',
    [
        'lagent.utils:create_object {"config": {"type": "subprocess.Popen", "args": ["true"]}}',
        'lagent.cli:remade_otherwise {}',
    ],
)
def test_no_other_function_is_called_with_what_a_journal_says(tmp_path: Path, spec: str) -> None:
    path = tmp_path / 'runs.db'
    with pytest.raises(ValueError, match='down'):
        Agent(ScriptedModel([ValueError('down')])).run('q', run_id='r', journal=path, factory=spec)
    for command in ('resume', 'replay'):
        result = runs(path, command, 'r')
        assert result.exit_code == 2
        assert '--agent MODULE:FUNCTION' in result.output


def test_a_journal_does_not_consent_to_code_without_isolation(tmp_path: Path) -> None:
    path = tmp_path / 'runs.db'
    spec = 'lagent.cli:remade {"backend": "local", "unsafe": true}'
    with pytest.raises(ValueError, match='down'):
        Agent(ScriptedModel([ValueError('down')])).run('q', run_id='r', journal=path, factory=spec)
    result = runs(path, 'resume', 'r')
    assert result.exit_code == 2
    assert 'Give --unsafe to go on with it' in result.output


def test_a_decision_shows_what_it_is_about(where: Path) -> None:
    other = runs(where, 'approve', 'waiting', '--effect', '1')
    assert other.exit_code == 2
    assert 'about effect 1 (any more), but about 2' in ' '.join(other.output.split())
    result = runs(where, 'approve', 'waiting', '--effect', '2')
    assert result.exit_code == 0
    assert 'approved: effect 2: kernel interpreter' in result.output
    assert 'print(6 * 7)' in result.output


def test_lines_fit_into_the_terminal(where: Path) -> None:
    env = {'COLUMNS': '60', 'LAGENT_JOURNAL': str(where)}
    with SqliteJournal(where) as journal, record(journal, 'long') as run:
        run.answer = 'x' * 500
    shown = CliRunner().invoke(cli.app, ['runs', 'show', 'long'], env=env).output
    assert max(map(len, shown.splitlines())) <= 60
    assert shown.splitlines()[-1].endswith('x…')


def test_a_factory_in_the_folder_where_the_command_is_started(tmp_path: Path) -> None:
    (tmp_path / 'my_agents.py').write_text(
        'from lagent.agents import Agent\n'
        'from lagent.llms import ScriptedModel\n'
        "def make():\n    return Agent(ScriptedModel(['done']))\n"
    )
    path = tmp_path / 'runs.db'
    with pytest.raises(ValueError, match='down'):
        Agent(ScriptedModel([ValueError('down')])).run('q', run_id='r', journal=path)
    command = Path(sys.executable).with_name('lagent')
    arguments = ('runs', 'resume', 'r', '--journal', path, '--agent', 'my_agents:make')
    done = subprocess.run(
        [command, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert 'done' in done.stdout
