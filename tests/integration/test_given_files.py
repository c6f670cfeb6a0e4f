"""A question about a file waits for a yes; another process, with another container, answers it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AGENT = """
from lagent.actions import Interpreter
from lagent.agents import DataAnalyst
from lagent.errors import RunSuspended
from lagent.journal import Approval
from lagent.llms import ScriptedModel

CODE = '''```python
import pandas as pd
table = pd.read_csv('sales.csv')
table.to_csv('copy.csv')
print(table.revenue.sum())
```'''


def reply(messages):
    return 'It is 210, see `copy.csv`.' if '210' in str(messages[-1]) else CODE


def make():
    return DataAnalyst(ScriptedModel(reply))


def begin(table, journal):
    with make() as analyst:
        analyst.upload(table)
        try:
            analyst.run('Sum?', run_id='r', journal=journal, approval=Approval(kernel=True))
        except RunSuspended as waits:
            print(waits)
"""
NOWHERE = {'DOCKER_HOST': 'unix:///nowhere.sock'}


@pytest.mark.docker
@pytest.mark.slow
def test_a_file_survives_a_wait_for_a_yes(tmp_path, monkeypatch):
    (tmp_path / 'sales_agent.py').write_text(AGENT)
    table = tmp_path / 'sales.csv'
    table.write_text('month,revenue\njan,120\nfeb,90\n')
    monkeypatch.setenv('PYTHONPATH', f'{tmp_path}:{ROOT}')

    def call(*command: str, **environ: str) -> 'subprocess.CompletedProcess[str]':
        monkeypatch.setenv('LAGENT_JOURNAL', 'runs.db')
        with monkeypatch.context() as patch:
            for name, value in environ.items():
                patch.setenv(name, value)
            return subprocess.run(
                [sys.executable, *command],
                capture_output=True,
                text=True,
                cwd=tmp_path,
                timeout=300,
            )

    def runs(*command: str, **environ: str) -> 'subprocess.CompletedProcess[str]':
        return call('-c', 'from lagent.cli import main; main()', 'runs', *command, **environ)

    begun = call('-c', "import sales_agent; sales_agent.begin('sales.csv', 'runs.db')")
    assert 'waits' in begun.stdout, begun.stderr
    table.unlink()
    assert runs('approve', 'r').returncode == 0
    done = runs('resume', 'r', '--agent', 'sales_agent:make')
    assert done.returncode == 0, done.stdout + done.stderr
    assert '210' in done.stdout
    assert 'It is 210, see `copy.csv`.' in done.stdout
    assert 'lost' not in done.stdout
    again = runs('replay', 'r', '--agent', 'sales_agent:make', **NOWHERE)
    assert again.returncode == 0, again.stdout + again.stderr
    assert 'The same way as recorded' in again.stdout
    shown = runs('show', 'r', **NOWHERE).stdout
    print(shown)
    assert 'aside' in shown
