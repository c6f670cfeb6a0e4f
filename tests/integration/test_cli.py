"""The `lagent` command, with a scripted model and real kernels."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from typer.testing import CliRunner

from lagent import cli
from lagent.llms import Completion, ScriptedModel, from_env

LOCAL = ['--backend', 'local', '--unsafe']
COUNT = (
    "```python\nprint(sum(1 for _ in open('table.csv')) - 1)\n"
    "n = open('out.txt', 'w').write('x')\n```"
)


@pytest.fixture
def model(monkeypatch):
    """Make the command use a model that gives these replies."""

    def use(*replies):
        llm = ScriptedModel(list(replies))
        monkeypatch.setattr(from_env, 'model_from_env', lambda *_: llm)
        return llm

    return use


@pytest.fixture
def table(tmp_path):
    path = tmp_path / 'table.csv'
    path.write_text('a,b\n1,2\n3,4\n')
    return path


def lagent(*arguments, stdin=None):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments], input=stdin)


def test_run_answers_a_question_about_a_file(model, table, tmp_path):
    llm = model(COUNT, 'It has 2 rows.')
    result = lagent('run', 'How many rows?', table, *LOCAL, '--save', tmp_path / 'saved')
    assert result.exit_code == 0, result.output
    for part in ('print(sum(', 'ok, ', 'file out.txt', 'It has 2 rows.'):
        assert part in result.output
    assert 'table.csv' in llm.calls[0].messages[-1]['content']
    assert llm.calls[1].messages[-1]['content'].startswith('2\n')
    assert (tmp_path / 'saved' / 'out.txt').read_text() == 'x'


def test_a_model_is_told_files_of_one_name_under_the_names_that_they_have(model, tmp_path):
    llm = model('Two tables.')
    paths = [tmp_path / folder / 'x.csv' for folder in 'ab']
    for path, rows in zip(paths, ('1,2\n', '3,4\n5,6\n'), strict=True):
        path.parent.mkdir()
        path.write_text(f'a,b\n{rows}')
    result = lagent('run', 'What is there?', *paths, *LOCAL)
    assert result.exit_code == 0, result.output
    system, *_, asked = (message['content'] for message in llm.calls[0].messages)
    assert 'x.csv' not in system
    assert asked.count("read_csv('x.csv')") == asked.count("read_csv('x-2.csv')") == 1


NESTED = """```python
import os
for folder in 'ab':
    os.makedirs(f'{folder}/deep')
    open(f'{folder}/deep/same.txt', 'w').write(folder)
open('same.txt', 'w').write('top')
open('back\\\\slash', 'w').write('x')
```"""


def test_saved_files_keep_their_folders_and_a_refused_one_is_told(model, tmp_path):
    model(NESTED, 'Done.')
    saved = tmp_path / 'saved'
    result = lagent('run', 'Go', *LOCAL, '--save', saved)
    assert result.exit_code == cli.SANDBOX_FAILED
    found = {path.relative_to(saved).as_posix(): path.read_text() for path in saved.rglob('*.txt')}
    assert found == {'same.txt': 'top', 'a/deep/same.txt': 'a', 'b/deep/same.txt': 'b'}
    for words in ('backslash', 'Done.'):
        assert words in result.output
    assert result.output.replace('\n', '').count('saved ') == 3


def test_a_conversation_survives_what_cannot_be_saved(model, tmp_path):
    model(COUNT.replace('table.csv', '/dev/null'), 'One.', 'Two.')
    (tmp_path / 'file').write_text('in the way')
    result = lagent('chat', *LOCAL, '--save', tmp_path / 'file' / 'saved', stdin='a\nb\n/quit\n')
    assert result.exit_code == 0, result.output
    for words in ('One.', 'Two.', 'FileRefused'):
        assert words in result.output


def test_run_speaks_json(model, table):
    model(COUNT, 'It has 2 rows.')
    result = lagent('run', 'How many rows?', table, *LOCAL, '--json')
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event['event'] for event in events] == [
        'request',
        'reply',
        'code',
        'output',
        'result',
        'request',
        'reply',
        'answer',
    ]
    assert events[3]['output']['text'] == '2\n'
    assert (events[4]['outcome'], events[-1]['answer']) == ('ok', 'It has 2 rows.')
    assert {event['v'] for event in events} == {1}


def test_a_limit_is_no_answer(model, table):
    model(*[COUNT] * 3)
    result = lagent('run', 'How many rows?', table, *LOCAL, '--max-turn', 1)
    assert result.exit_code == cli.NO_ANSWER
    assert 'max_turn' in result.output


def test_a_failing_model_has_its_exit_code(model):
    model()
    result = lagent('run', 'Hello?', *LOCAL)
    assert result.exit_code == cli.MODEL_FAILED
    assert 'ScriptEnded' in result.output
    assert 'Traceback' not in result.output


def test_a_missing_sandbox_has_its_exit_code(model):
    model(COUNT)
    result = lagent('run', 'Hello?', '--backend', 'local')
    assert result.exit_code == cli.SANDBOX_FAILED
    assert 'unsafe' in result.output


def test_no_model_is_wrong_usage(monkeypatch):
    result = lagent('run', 'Hello?', *LOCAL)
    assert result.exit_code == cli.USAGE
    assert 'OPENAI_API_KEY' in result.output


def test_chat_keeps_variables_and_obeys_commands(model):
    model(
        '```python\nx = 41\n```',
        'Noted.',
        '```python\nprint(x + 1)\n```',
        'It is 42.',
        Completion('```python\nprint(1', finish_reason='length'),
        'Sorry.',
    )
    lines = ['Remember 41', 'One more?', '/files', '/help', 'Cut', '/reset', '/quit', 'never']
    result = lagent('chat', *LOCAL, stdin='\n'.join(lines))
    assert result.exit_code == 0, result.output
    for part in ('Noted.', '42\n', 'It is 42.', 'Commands:', 'Sorry.', 'are gone'):
        assert part in result.output
    assert 'never' not in result.output


INTERRUPTED = """
import sys
from lagent import cli
from lagent.llms import ScriptedModel, from_env
code = '```python\\nimport time\\nprint("begun", flush=True)\\ntime.sleep(60)\\n```'
from_env.model_from_env = lambda *_: ScriptedModel([code])
sys.argv = ['lagent', 'run', 'Sleep', '--backend', 'local', '--unsafe']
cli.main()
"""


def test_ctrl_c_ends_the_run_and_leaves_nothing_behind(tmp_path):
    process = subprocess.Popen(
        [sys.executable, '-u', '-c', textwrap.dedent(INTERRUPTED)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, 'PYTHONUNBUFFERED': '1'},
        start_new_session=True,
    )
    seen = []
    for line in process.stdout:
        seen.append(line)
        if line.startswith('begun'):
            break
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=30)
    assert process.returncode == cli.INTERRUPTED, ''.join(seen) + rest
    assert 'Interrupted' in rest
