"""The recorded solutions solve every task, through the whole harness, on real sandboxes."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from benchmarks.tasks import data
from benchmarks.tasks.recorded import recorded
from benchmarks.tasks.report import markdown
from benchmarks.tasks.run import Results, Settings, try_all, try_one
from benchmarks.tasks.task import load
from lagent.actions import Interpreter
from lagent.llms import ScriptedModel
from sandbox import SandboxPolicy

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.docker,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

TASKS = load()
SETTINGS = Settings(model='recorded replies')
BY_ID = {task.id: task for task in TASKS}


@pytest.fixture(scope='module')
def interpreter():
    try:
        data.fetch(name for task in TASKS for name in task.files)
    except data.NotFetched as error:
        if os.environ.get('LAGENT_TEST_REQUIRE_ALL') == '1':
            raise
        pytest.skip(str(error))
    policy = SandboxPolicy(preload=('pandas', 'matplotlib.pyplot'))
    with Interpreter(policy, timeout=60) as interpreter:
        yield interpreter


def said(code, *answers):
    return ScriptedModel([f'Next.\n```python\n{code}\n```', *answers])


def test_every_solution_gives_its_answer(interpreter):
    # Tasks of a theme share a session: to start one takes longer than to run a solution.
    themes = {}
    for task in TASKS:
        themes.setdefault(task.theme, []).append(task)

    def solve(theme):
        return [
            try_one(task, recorded(task), interpreter, SETTINGS, session=theme)
            for task in themes[theme]
        ]

    with ThreadPoolExecutor(2) as pool:
        results = [result for some in pool.map(solve, themes) for result in some]
    assert {result.id: result.reason for result in results if result.outcome != 'solved'} == {}
    assert len(results) == len(TASKS)
    assert {result.steps for result in results} == {1}
    assert {result.model_calls for result in results} == {2}


def test_wrong_answers_wrong_files_and_broken_models_are_told_apart(interpreter, tmp_path):
    count, plot, table = (
        BY_ID['rows-with-gaps'],
        BY_ID['plot-of-masses'],
        BY_ID['counts-as-csv'],
    )
    blank = (
        'import matplotlib.pyplot as plt\n'
        'plt.figure().savefig("body-mass.png")\nprint("ANSWER: 5076.0")'
    )
    short = 'open("species-counts.csv", "w").write("species,count\\nAdelie,152\\n")'
    loop = [f'Again.\n```python\nprint({number})\n```' for number in range(9)]
    models = {
        'solved': (count, ScriptedModel(['I know it.\nANSWER: 11'])),
        'wrong answer': (count, said('print(11)', 'ANSWER: 12')),
        'no answer': (count, said('print(11)', 'There are 11.')),
        'unreadable answer': (count, said('print(11)', 'ANSWER: 11 or 12')),
        'out of turns': (count, ScriptedModel(loop)),
        'model failed': (count, ScriptedModel([])),
        'no picture': (plot, said('print(1)', 'ANSWER: 5076.0')),
        'blank picture': (plot, said(blank, 'ANSWER: 5076.0')),
        'short table': (table, said(short, 'ANSWER: species-counts.csv')),
    }
    settings = Settings(model='m', max_turn=2)
    results = {
        name: try_one(replace(task, id=name), model, interpreter, settings, session='one')
        for name, (task, model) in models.items()
    }
    outcomes = {name: result.outcome for name, result in results.items()}
    files = ('no picture', 'blank picture', 'short table')
    assert outcomes == {name: name for name in models} | dict.fromkeys(files, 'wrong file')
    assert [results[name].reason for name in files] == [
        'there is no body-mass.png',
        'body-mass.png: all of its pixels are alike',
        'species-counts.csv: it has 1 row',
    ]
    assert (results['out of turns'].steps, results['solved'].steps) == (2, 0)

    kept = Results.open(tmp_path / 'results.json', settings)
    for result in results.values():
        kept.add(result)
    told = markdown(kept)
    assert 'Solved 1 of 8' in told
    assert '| wrong file | 3 |' in told
    again = Results.open(tmp_path / 'results.json', settings)
    assert json.loads((tmp_path / 'results.json').read_text())['settings']['max_turn'] == 2
    assert [task.id for task in again.missing([replace(count, id='model failed')])] == [
        'model failed'
    ]
    assert again.missing([replace(count, id='wrong answer')]) == []


def test_tasks_at_the_same_time_have_sessions_of_their_own(interpreter):
    tasks = [BY_ID[name] for name in ('tip-rate', 'plurality')]
    results = list(try_all(tasks, recorded, interpreter, SETTINGS, parallel=2))
    assert {result.id: result.outcome for result in results} == {
        task.id: 'solved' for task in tasks
    }
    assert interpreter.files(tasks[0].id) == []
