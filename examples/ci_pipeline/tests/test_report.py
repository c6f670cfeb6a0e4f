"""The pipeline, from cassettes: no key, no network, no Docker."""

from pathlib import Path
from typing import Any

import pytest
import report

from lagent.actions import Interpreter
from lagent.agents import Coder
from lagent.errors import LimitExceeded
from sandbox import FakeBackend


@pytest.fixture
def agent(cassette: Any) -> report.Report:
    return report.Report(cassette.model(report.model))


@pytest.fixture(autouse=True)
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / 'board.txt'
    monkeypatch.setattr(report, 'BOARD', path)
    return path


def test_the_better_shop_is_found_and_posted(agent: report.Report, ask: Any) -> None:
    run = ask(agent, 'Which shop of sales.csv sold more per day? Plot both.')
    run.ran_code('read_csv')
    run.answered('north')
    run.called_tool('post', text=run.answer)
    assert [file.path for file in run.artifacts] == ['shops.png']


def test_a_mistake_in_the_code_is_corrected(agent: report.Report, ask: Any) -> None:
    run = ask(agent, 'How many revenues are missing in sales.csv?')
    outcomes = [str(cell.gave.outcome) for cell in run.cells]
    assert outcomes == ['error', 'ok']
    run.answered('1')


@pytest.mark.cassette(kinds={'model', 'kernel'})
def test_the_tool_itself_writes_to_the_board(agent: report.Report, ask: Any, board: Path) -> None:
    """Tools are called, where only the model and the sandbox come from the cassette."""
    run = ask(agent, 'How many shops are in sales.csv?')
    assert board.read_text() == f'{run.answer}\n'


def test_a_model_that_never_answers_is_stopped(scripted_model: Any, ask: Any) -> None:
    """What no model does at will is scripted; nothing is executed here."""
    model = scripted_model(*(f'```python\nx = {number}\n```' for number in range(4)))
    interpreter = Interpreter(backend=FakeBackend())
    coder = Coder(model, interpreter, max_turn=3, on_max_turn='raise')
    with coder, pytest.raises(LimitExceeded, match='max_turn=3'):
        ask(coder, 'Go on and on.')
