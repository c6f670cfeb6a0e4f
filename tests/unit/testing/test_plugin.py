"""The pytest plugins, in runs of pytest of their own."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ['pytester']

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

PLUGINS = ('-p', 'lagent.pytest_plugin', '-p', 'sandbox.pytest_plugin', '-p', 'no:randomly')

PIPELINE = """
import pytest
from lagent.actions import Interpreter
from lagent.agents import Coder
from lagent.llms import ScriptedModel

CODE = '```python\\nopen("a.txt", "w").write("abc")\\n```'


@pytest.fixture
def agent(cassette):
    model = cassette.model(lambda: ScriptedModel([CODE, 'It is 3.']))
    with Coder(model, interpreter=Interpreter(backend='local', unsafe=True)) as coder:
        yield coder


def test_length(agent, ask):
    run = ask(agent, 'How long is abc?')
    run.ran_code('a.txt')
    assert run.answer == 'It is 3.'
"""


@pytest.fixture
def pytest_in(pytester: pytest.Pytester) -> Any:
    """Run pytest with the plugins on a test module; gives the result."""
    options = {'asyncio_mode': 'auto', 'asyncio_default_fixture_loop_scope': 'function'}
    lines = [f'{name} = {value}' for name, value in options.items()]
    pytester.makeini('\n'.join(['[pytest]', *lines, 'addopts = --import-mode=importlib', '']))

    def run(source: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=source)
        # In this process, modules that it loads first would be taken away again from all others.
        return pytester.runpytest_subprocess(*PLUGINS, *options)

    return run


def cassette_in(pytester: pytest.Pytester, name: str = 'test_length') -> Path:
    return pytester.path / 'cassettes' / 'test_it' / f'{name}.jsonl'


def test_a_test_is_recorded_and_then_played(pytest_in: Any, pytester: pytest.Pytester) -> None:
    result = pytest_in(PIPELINE)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(['*no such cassette*--lagent-record=all*'])

    result = pytest_in(PIPELINE, '--lagent-record=once')
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(['lagent: cassettes are recorded (once)'])
    assert cassette_in(pytester).is_file()

    # Neither the model nor a sandbox is there any more.
    without = PIPELINE.replace('[CODE, ', '[1 / 0, ').replace("backend='local', unsafe=True", '')
    pytest_in(without).assert_outcomes(passed=1)


def test_a_change_is_shown(pytest_in: Any) -> None:
    pytest_in(PIPELINE, '--lagent-record=once').assert_outcomes(passed=1)
    result = pytest_in(PIPELINE.replace('How long is abc?', 'How long is abcd?'))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(['*-*How long is abc?*', '*+*How long is abcd?*'])


def test_a_test_that_skips_itself_needs_no_cassette(pytest_in: Any) -> None:
    source = 'import pytest\ndef test_it(cassette):\n    pytest.skip("not on this platform")\n'
    for mode in ('once', 'none'):
        pytest_in(source, f'--lagent-record={mode}').assert_outcomes(skipped=1)


def test_a_call_that_is_not_made_any_more_is_an_error(pytest_in: Any) -> None:
    pytest_in(PIPELINE, '--lagent-record=once').assert_outcomes(passed=1)
    source = PIPELINE[: PIPELINE.index('    run = ask')] + '    pass\n'
    result = pytest_in(source)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(['*calls that were not made*'])


@pytest.mark.parametrize('ending', ['assert False', 'pytest.skip("not today")'])
def test_only_a_test_that_passes_is_recorded(
    pytest_in: Any, pytester: pytest.Pytester, ending: str
) -> None:
    pytest_in(f'{PIPELINE}    {ending}\n', '--lagent-record=all')
    assert not cassette_in(pytester).exists()


def test_strict_executes_the_cells_again(pytest_in: Any, pytester: pytest.Pytester) -> None:
    other = pytester.path / 'other.txt'
    source = PIPELINE.replace('"abc"', f'open("{other}").read()')
    other.write_text('abc')
    pytest_in(source, '--lagent-record=once').assert_outcomes(passed=1)
    pytest_in(source, '--lagent-strict').assert_outcomes(passed=1)
    other.write_text('abcd')
    pytest_in(source).assert_outcomes(passed=1)
    result = pytest_in(source, '--lagent-strict')
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(['*Not as * says: 1 cell.*', '*-*"size": 3*', '*+*"size": 4*'])


def test_the_report_says_what_was_used(pytest_in: Any, pytester: pytest.Pytester) -> None:
    pytest_in(PIPELINE, '--lagent-record=once', '--junitxml=report.xml').assert_outcomes(passed=1)
    found = [
        (each.get('name'), each.get('value'))
        for each in ET.parse(pytester.path / 'report.xml').iter('property')
    ]
    assert ('lagent.model_calls', '2') in found
    assert ('lagent.cells', '1') in found
    assert ('lagent.artifact', 'a.txt (3 bytes)') in found
    assert ('lagent.cassette', 'cassettes/test_it/test_length.jsonl') in found


def test_workers_of_xdist_record_and_play(pytest_in: Any, pytester: pytest.Pytester) -> None:
    pytest.importorskip('xdist')
    source = PIPELINE.replace(
        'def test_length(agent, ask):',
        "@pytest.mark.parametrize('number', range(8))\ndef test_length(agent, ask, number):",
    )
    options = ('-n', '2', '--junitxml=report.xml')
    pytest_in(source, '--lagent-record=once', *options).assert_outcomes(passed=8)
    folder = pytester.path / 'cassettes' / 'test_it'
    names = sorted(path.name for path in folder.iterdir())
    assert names == [f'test_length-{number}.jsonl' for number in range(8)]
    without = source.replace('[CODE, ', '[1 / 0, ').replace("backend='local', unsafe=True", '')
    pytest_in(without, *options).assert_outcomes(passed=8)
    values = [
        each.get('value')
        for each in ET.parse(pytester.path / 'report.xml').iter('property')
        if each.get('name') == 'lagent.model_calls'
    ]
    assert values == ['2'] * 8


ASYNC = """
import pytest
from lagent.agents import AsyncAgent
from lagent.llms import AsyncScriptedModel


async def test_async(cassette, ask):
    agent = AsyncAgent(cassette.model(lambda: AsyncScriptedModel(['ok'])))
    assert (await ask(agent, 'Go')).answer == 'ok'
"""


def test_async_tests_are_played(pytest_in: Any) -> None:
    pytest_in(ASYNC, '--lagent-record=once').assert_outcomes(passed=1)
    pytest_in(ASYNC.replace("['ok']", '[1 / 0]')).assert_outcomes(passed=1)


MARKED = """
import pytest
from lagent.agents import Agent
from lagent.journal import replay, times
from lagent.llms import ScriptedModel

QUESTION = 'What happened at 10:00:00?'


@pytest.fixture
def cassette_options():
    return {'normalise': [times]}


class TestNews:
    @pytest.mark.cassette('kept/news.jsonl', unused='warn')
    def test_named(self):
        assert Agent(ScriptedModel(['Nothing.']))(QUESTION).content == 'Nothing.'

    @pytest.mark.cassette
    @pytest.mark.parametrize('name', ['a/b', 'a-b', 'x' * 300])
    def test_default(self, name):
        assert Agent(ScriptedModel([name]))(QUESTION).content == name


@replay('kept/plain.jsonl')
def test_plain():
    assert Agent(ScriptedModel(['Nothing.']))('Go').content == 'Nothing.'
"""


def test_markers_options_and_plain_replays(pytest_in: Any, pytester: pytest.Pytester) -> None:
    pytest_in(MARKED, '--lagent-record=once', '--strict-markers').assert_outcomes(passed=5)
    assert (pytester.path / 'kept' / 'news.jsonl').is_file()
    assert (pytester.path / 'kept' / 'plain.jsonl').is_file()
    names = [path.name for path in (pytester.path / 'cassettes' / 'test_it').iterdir()]
    assert len(names) == 3
    assert 'TestNews.test_default-a-b.jsonl' in names
    assert all(len(name) < 120 for name in names)
    later = MARKED.replace('10:00:00', '11:30:00').replace(
        'ScriptedModel([', 'ScriptedModel([] and ['
    )
    pytest_in(later).assert_outcomes(passed=5)


SCRIPTED = """
from lagent.agents import Agent, AsyncAgent


def test_used(scripted_model):
    agent = Agent(scripted_model('one', 'two'))
    assert [agent('x').content for _ in range(2)] == ['one', 'two']


async def test_awaited(scripted_model):
    assert (await AsyncAgent(scripted_model('one', awaited=True))('x')).content == 'one'


def test_left_over(scripted_model):
    assert Agent(scripted_model('one', 'two'))('x').content == 'one'
"""


def test_a_scripted_model_is_used_up(pytest_in: Any) -> None:
    result = pytest_in(SCRIPTED)
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(['*was called 1 time, and has 2 replies*'])


BOX = """
import pytest


@pytest.fixture(scope='session')
def sandbox_options():
    return {'backend': 'local', 'unsafe': True}


def test_first(sandbox):
    assert sandbox.execute('x = 6 * 7\\nx').result == '42'


def test_second(sandbox):
    assert sandbox.execute('x').error.name == 'NameError'
"""


def test_each_test_has_a_sandbox_of_its_own(pytest_in: Any) -> None:
    pytest_in(BOX).assert_outcomes(passed=2)


def test_no_engine_is_an_error_and_no_skip(
    pytest_in: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv('DOCKER_HOST', f'unix://{tmp_path}/nowhere.sock')
    result = pytest_in('def test_it(sandbox):\n    pass\n')
    result.assert_outcomes(errors=1)


def test_the_plugins_load_nothing_that_a_test_does_not_ask_for() -> None:
    probe = (
        'import json, sys, pytest; before = set(sys.modules); '
        'import lagent.pytest_plugin, sandbox.pytest_plugin; '
        'print(json.dumps(sorted(set(sys.modules) - before)))'
    )
    done = subprocess.run([sys.executable, '-c', probe], capture_output=True, text=True, check=True)
    loaded = {name.partition('.')[0] for name in json.loads(done.stdout)}
    assert loaded <= {'lagent', 'sandbox', 'lazy_loader', 'ast', 'importlib', '_ast'}


def test_the_plugins_may_be_named_twice(pytester: pytest.Pytester) -> None:
    """The entry points are named after the modules, as pytest does not load a name twice."""
    import tomllib

    project = tomllib.loads((Path(__file__).parents[3] / 'pyproject.toml').read_text())['project']
    points = project['entry-points']['pytest11']
    assert points == {name: name for name in ('lagent.pytest_plugin', 'sandbox.pytest_plugin')}
