"""A data analyst in a real container, recorded once: then played with no engine in reach."""

from pathlib import Path
from typing import Any

import pytest

from lagent.agents import DataAnalyst
from lagent.journal import NotCaptured, OutputsDiffer, replay
from lagent.llms import ScriptedModel
from sandbox import BackendUnavailable, SandboxError

CODE = """```python
import pandas as pd
table = pd.read_csv('sales.csv')
print(table.revenue.sum())
```
```python
table.plot.bar(x='month').figure.savefig('sales.png')
```"""
REPLIES = [CODE, 'The total is 210. [The plot](sales.png) shows both months.']
pytestmark = pytest.mark.docker


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / 'sales.csv'
    path.write_text('month,revenue\njan,120\nfeb,90\n')
    return path


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An engine can't be reached."""
    monkeypatch.setenv('DOCKER_HOST', f'unix://{tmp_path}/nowhere.sock')
    monkeypatch.delenv('DOCKER_CONTEXT', raising=False)


def analyse(analyst: DataAnalyst, table: Path) -> list[Any]:
    profiles = analyst.upload(table)
    answer = analyst('What is the total? Plot it by month.')
    return [
        [(profile.path, profile.size) for profile in profiles],
        str(answer.content),
        [artifact['path'] for artifact in answer.extra_info['artifacts']],
        [profile.path for profile in analyst.artifacts()],
    ]


@pytest.mark.slow
def test_a_data_analyst_is_recorded_played_and_checked(
    tmp_path: Path, table: Path, request: pytest.FixtureRequest
) -> None:
    cassette_file = tmp_path / 'analyst.jsonl'
    with DataAnalyst(ScriptedModel(REPLIES)) as analyst, replay(cassette_file, record='once'):
        recorded = analyse(analyst, table)
    assert recorded[1:] == [REPLIES[1], ['sales.png'], ['sales.png']]

    with DataAnalyst(ScriptedModel([])) as analyst, replay(cassette_file, strict=True):
        assert analyse(analyst, table) == recorded
    text = cassette_file.read_text()
    assert r'"text":"210\n"' in text
    cassette_file.write_text(text.replace('table.revenue.sum()', 'table.revenue.max()'))
    with (
        pytest.raises(OutputsDiffer, match=r'(?s)-.*210.*\+.*120'),
        DataAnalyst(ScriptedModel([])) as analyst,
        replay(cassette_file, strict=True),
    ):
        analyse(analyst, table)
    cassette_file.write_text(text)

    request.getfixturevalue('nowhere')
    with DataAnalyst(ScriptedModel([])) as analyst:
        with replay(cassette_file):
            assert analyse(analyst, table) == recorded
            with pytest.raises(NotCaptured):
                analyst.interpreter.download('sales.png', to=tmp_path)
        with pytest.raises(SandboxError) as caught:
            analyst.interpreter.files()
        assert isinstance(caught.value, BackendUnavailable)
