"""What `lagent runs export` writes of a recorded run."""

import json
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from typer.testing import CliRunner, Result

from lagent import cli, export
from lagent.actions import ActionExecutor, Interpreter, tool_api
from lagent.agents import Coder
from lagent.journal import SqliteJournal, record
from lagent.llms import Completion, ScriptedModel, Usage
from lagent.schema import AgentMessage
from sandbox import ErrorInfo, ExecutionResult, FakeBackend, Outcome

CODE = 'Let me see.\n\n```python\nprint(6 * 7)\n```'


def reply(text: str, before: list[int], written: list[int]) -> Completion:
    return Completion(
        text,
        prompt_token_ids=before,
        token_ids=written,
        logprobs=[-0.5] * len(written),
        usage=Usage(len(before), len(written)),
    )


@pytest.fixture
def where(tmp_path: Path) -> Path:
    path = tmp_path / 'runs.db'
    llm = ScriptedModel([reply(CODE, [1, 2], [3, 4]), reply('It is 42.', [1, 2, 3, 4, 5], [6])])
    interpreter = Interpreter(backend=FakeBackend(lambda _: 'ran it'), unsafe=True)
    with Coder(llm, interpreter) as coder:
        coder.run('6 * 7?', run_id='asked', session_id='s', journal=path)
    return path


def exported(where: Path, form: str, *more: str, run: str = 'asked') -> Result:
    command = ['runs', 'export', run, '--journal', str(where), '--format', form, *more]
    result = CliRunner().invoke(cli.app, command)
    assert result.exit_code == 0, result.output
    return result


def lines_of(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_runs_of_a_listing_are_exported_as_they_are(where: Path) -> None:
    with SqliteJournal(where) as journal:
        (listed,), whole = journal.runs(), journal.run('asked')
        assert listed.opening is None
        assert export.trajectories(journal, listed) == export.trajectories(journal, whole)
        found = [*export.events(journal, listed)]
        assert found == [*export.events(journal, whole)]
        assert found[-1] == {'event': 'answer', 'answer': 'It is 42.', 'type': None}
        cells = export.notebook(journal, listed)['cells']
    assert any('6 * 7?' in cell['source'] for cell in cells)


def test_a_trajectory_has_the_tokens_that_were_recorded(where: Path) -> None:
    (line,) = lines_of(exported(where, 'trajectory'))
    assert line['token_ids'] == [1, 2, 3, 4, 5, 6]
    assert line['loss_mask'] == [0, 0, 1, 1, 0, 1]
    assert line['logprobs'] == [None, None, -0.5, -0.5, None, -0.5]
    assert line['missing'] is None
    assert [turn['position'] for turn in line['turns']] == ['1', '3']
    (tool,) = line['tools']
    assert (tool['kind'], tool['position'], tool['turn'], tool['tokens']) == (
        'kernel',
        '2',
        0,
        [4, 5],
    )
    assert (tool['asked'], tool['result']['outcome']) == ('print(6 * 7)', 'ok')


def test_events_have_the_schema_of_live_ones(where: Path) -> None:
    lines = lines_of(exported(where, 'events'))
    assert [line['event'] for line in lines] == [
        'request',
        'reply',
        'code',
        'result',
        'request',
        'reply',
        'answer',
    ]
    assert {line['v'] for line in lines} == {1}
    assert [line['effect'] for line in lines[:-1]] == [1, 1, 2, 2, 3, 3]
    assert {line['session'] for line in lines[:-1]} == {'s'}
    assert lines[1]['usage']['completion_tokens'] == 2
    assert lines[2]['code'] == 'print(6 * 7)'
    assert lines[-1]['answer'] == 'It is 42.'


def test_a_notebook_has_the_code_and_its_output(where: Path, tmp_path: Path) -> None:
    path = tmp_path / 'run.ipynb'
    exported(where, 'notebook', '--to', str(path))
    notebook = nbformat.read(path, as_version=4)
    (code,) = [cell for cell in notebook.cells if cell.cell_type == 'code']
    assert code.source == 'print(6 * 7)'
    assert code.outputs[0].text == 'ran it'
    words = [cell.source for cell in notebook.cells if cell.cell_type == 'markdown']
    assert [word for word in words if '6 * 7?' in word]
    assert [word for word in words if word.strip() == 'Let me see.']
    assert words[-1].strip() == 'It is 42.'


def test_tools_failures_and_plain_functions(tmp_path: Path) -> None:
    @tool_api
    def add(a: int) -> int:
        """Add.

        Args:
            a (int): one.
        """
        return a + 1

    path = tmp_path / 'runs.db'
    raised = ErrorInfo('NameError', 'name x', 'Traceback')
    failing = FakeBackend([ExecutionResult(Outcome.ERROR, error=raised)])
    cells = '```python\nx\n```\n\n```python\ny\n```'
    llm = ScriptedModel([cells, 'It failed.'])
    with pytest.raises(ValueError, match='broken'), record(path, 'plain'):
        ActionExecutor([add])(
            AgentMessage(sender='m', content={'name': 'add', 'parameters': {'a': 1}})
        )
        with Coder(llm, Interpreter(backend=failing, unsafe=True)) as coder:
            coder('q')
        ScriptedModel([ValueError('broken')]).chat('q')
    events = lines_of(exported(path, 'events', run='plain'))
    assert [line['event'] for line in events[:2]] == ['call', 'return']
    assert (events[-1]['event'], events[-1]['type']) == ('error', 'ValueError')
    (sample,) = lines_of(exported(path, 'trajectory', run='plain'))
    assert 'return_token_ids' in sample['missing']
    assert sample['tools'][0]['result']['outcome'] == 'error'
    with SqliteJournal(path) as journal:
        notebook = export.notebook(journal, journal.run('plain'))
    tool = next(cell for cell in notebook['cells'] if 'add(' in cell['source'])
    assert '"a": 1' in tool['source']
    (code,) = [cell for cell in notebook['cells'] if cell['cell_type'] == 'code']
    assert (code['source'], code['metadata']['tags']) == ('x', ['raises-exception'])


def test_what_can_not_be_written_is_said(
    where: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_ = ['runs', 'export', 'asked', '--journal', str(where), '--format']
    result = CliRunner().invoke(
        cli.app, [*export_, 'events', '--to', str(tmp_path / 'none' / 'file')]
    )
    assert result.exit_code == 1
    assert 'No such file' in result.output.replace('\n', ' ')
    result = CliRunner().invoke(cli.app, [*export_, 'poem'])
    assert result.exit_code == 2
    monkeypatch.setitem(sys.modules, 'nbformat', None)
    result = CliRunner().invoke(cli.app, [*export_, 'notebook'])
    assert result.exit_code == 2
    assert 'lagent-sandbox[notebook]' in result.output
