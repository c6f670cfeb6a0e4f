"""The data analyst's rules, with a scripted model and an interpreter that only notes things."""

import asyncio
import inspect
import json

import pytest

from lagent.actions import AsyncInterpreter, Interpreter
from lagent.actions.hooked import settle
from lagent.actions.interpreter import carried, policy_for_data
from lagent.agents import AsyncDataAnalyst, Coder, DataAnalyst
from lagent.agents.analyst import _references, instruction
from lagent.analysis.look import MIME
from lagent.errors import LimitExceeded
from lagent.llms import AsyncScriptedModel, ScriptedModel
from lagent.prompts.prompt_files import PromptFiles
from lagent.schema import AgentMessage
from sandbox import (
    ErrorInfo,
    ExecutionResult,
    FileInfo,
    FileRefused,
    Outcome,
    Output,
    SandboxPolicy,
)

CODE = 'I compute.\n```python\nprint(6 * 7)\n```'
PROFILE = {'kind': 'table', 'encoding': 'utf-8', 'delimiter': ';', 'tables': [{'width': 2}]}


def done(*artifacts):
    files = tuple(FileInfo(path, 10, 0.0) for path in artifacts)
    return ExecutionResult(Outcome.OK, (Output('stdout', '42\n'),), artifacts=files)


FAILED = ExecutionResult(Outcome.ERROR, error=ErrorInfo('ValueError', 'no', 'ValueError: no'))


class Desk:
    """Stands for an interpreter and its sandbox."""

    name = 'interpreter'

    def __init__(self, *outcomes, notices=()):
        self.outcomes, self.store, self.notices = list(outcomes), {}, notices
        self.closed = []

    def __call__(self, message, session_id=None):
        result = carried(self.outcomes.pop(0))
        self.store.update({info.path: b'0123456789' for info in result.artifacts})
        return AgentMessage(
            sender=self.name, content=result.outcome, formatted=result, type='interpreter'
        )

    def upload(self, paths, session_id=None):
        ((name, source),) = paths.items()
        if 'bad' in str(name):
            raise FileRefused(f'{name} was refused')
        self.store[name] = source if isinstance(source, bytes) else source.read_bytes()
        return [FileInfo(name, len(self.store[name]), 0.0)]

    def execute(self, code, session_id=None, timeout=None, idempotent=False):
        data = {MIME: {'profiles': dict.fromkeys(self.store, PROFILE)}}
        return ExecutionResult(Outcome.OK, (Output('display', '', data),), notices=self.notices)

    def files(self, session_id=None):
        return [FileInfo(name, len(data), 0.0) for name, data in self.store.items()]

    def close_session(self, session_id=None):
        self.closed.append(session_id)

    def close(self):
        pass


def analyst(replies, *outcomes, notices=(), **kwargs):
    return DataAnalyst(ScriptedModel(replies), Desk(*outcomes, notices=notices), **kwargs)


def inner(agent, session_id=0):
    return [(m.sender, m.type) for m in agent.agent.memory.get_memory(session_id)]


def test_the_model_is_told_of_files_before_the_question(tmp_path):
    (tmp_path / 'a.csv').write_text('x;y\n1;2\n')
    agent = analyst(['Nothing.'], template='sys')
    (profile,) = agent.upload(tmp_path / 'a.csv')
    agent('What is it?')
    assert (profile.path, profile.size, profile.kind, profile.delimiter) == (
        'a.csv',
        8,
        'table',
        ';',
    )
    asked = agent.agent.llm.calls[0].messages
    assert [message['role'] for message in asked] == ['system', 'user']
    assert asked[1]['content'].startswith('[files] The user has put these files')
    assert "'a.csv': table, 8 bytes, encoding utf-8, delimiter ';'" in asked[1]['content']
    assert asked[1]['content'].endswith('\n\nWhat is it?')


def test_files_of_the_same_name_do_not_replace_one_another(tmp_path):
    for folder in ('one', 'two'):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / 'a.tar.csv').write_text(folder)
    paths = [tmp_path / 'one' / 'a.tar.csv', tmp_path / 'two' / 'a.tar.csv']
    agent = analyst([])
    assert [profile.path for profile in agent.upload(paths)] == ['a.tar.csv', 'a.tar-2.csv']
    assert agent.interpreter.store == {'a.tar.csv': b'one', 'a.tar-2.csv': b'two'}
    agent.upload({'a.tar.csv': b'a new one'})
    assert agent.interpreter.store['a.tar.csv'] == b'a new one'


def test_a_refused_file_is_an_error_and_the_model_knows_of_those_before_it():
    agent = analyst([])
    with pytest.raises(FileRefused):
        agent.upload({'a.csv': b'1', 'bad.csv': b'2', 'c.csv': b'3'})
    assert list(agent.interpreter.store) == ['a.csv']
    (message,) = agent.agent.memory.get_memory()
    assert message.extra_info == {'pinned': True, 'files': ['a.csv']}


def test_news_of_the_kernel_that_a_look_was_told_reach_the_model():
    agent = analyst(['ok'], notices=('the kernel was restarted',))
    agent.upload({'a.csv': b'1'})
    agent('q')
    assert (
        '[notice] the kernel was restarted\n\n' in agent.agent.llm.calls[0].messages[1]['content']
    )


def test_an_answer_right_after_an_error_is_given_back_once():
    agent = analyst([CODE, 'It is 42.', 'I could not find it.'], FAILED)
    answer = agent('How much?')
    assert answer.content == 'I could not find it.'
    last = agent.agent.llm.calls[-1].messages[-1]
    assert last['role'] == 'user'
    assert last['content'].startswith('[check] The last code did not end well (ValueError)')
    assert analyst([CODE, 'It is 42.'], FAILED, reviews=0)('How much?').content == 'It is 42.'


def test_an_answer_after_code_that_the_user_has_interrupted_is_the_last_word():
    interrupted = ExecutionResult(Outcome.INTERRUPTED)
    agent = analyst([CODE, 'I stopped, see `no.csv`.'], interrupted)
    assert agent('How much?').content == 'I stopped, see `no.csv`.'


def test_an_answer_that_names_files_that_are_not_there_is_given_back():
    replies = [CODE, 'See [the plot](plt.png) and `t.csv`.', 'See [it](plot.png).']
    agent = analyst(replies, done('plot.png'))
    answer = agent('Plot it.')
    assert answer.content == 'See [it](plot.png).'
    assert (
        'plt.png, t.csv. There are: plot.png.' in agent.agent.llm.calls[-1].messages[-1]['content']
    )
    (artifact,) = answer.extra_info['artifacts']
    assert (artifact['path'], artifact['size'], artifact['kind']) == ('plot.png', 10, 'table')
    assert artifact['preview'].startswith("'plot.png': table")
    json.dumps(agent.state_dict())


def test_a_file_that_the_user_asked_for_may_be_said_to_be_missing():
    assert analyst(['There is no `sales.csv`.'])('What is in sales.csv?').content


def test_an_answer_is_not_given_back_when_no_turn_is_left():
    agent = analyst([CODE, 'It is 42.'], FAILED, max_turn=1)
    assert agent('How much?').content == 'It is 42.'
    with pytest.raises(LimitExceeded):
        analyst([CODE, CODE], done(), max_turn=1)('How much?')


@pytest.mark.parametrize(
    ('text', 'names'),
    [
        ('[a](a.png) ![b](./b.png "t")', ['a.png']),
        ('[a](sandbox:/mnt/data/a.png), [b](/workspace/x/b.csv)', ['a.png', 'x/b.csv']),
        ('[a](https://example.org/a.png) [b](mailto:a@b.org) [c](#top)', []),
        ('`a b.csv` and `df.head` and `x`', ['a b.csv']),
        ('[a](<my plot.png>) [b](my%20plot.png)', ['my plot.png']),
        ('plain a.png', []),
    ],
)
def test_references_to_files(text, names):
    assert _references(text) == names


def test_looking_for_references_takes_linear_time():
    # With any backtracking over the blanks this would not end today.
    assert _references('](' + ' ' * 1_000_000) == []
    assert _references('](' * 500_000) == []


def test_artifacts_are_files_that_are_still_there():
    agent = analyst(
        [CODE, 'a', CODE, 'b'], done('a.csv', '.hidden', '__pycache__/m.pyc'), done('b.csv')
    )
    agent('1')
    agent('2')
    del agent.interpreter.store['a.csv']
    assert [profile.path for profile in agent.artifacts()] == ['b.csv']
    assert agent.artifacts('another') == []


def test_of_very_many_artifacts_only_the_first_are_looked_at():
    names = [f'{number:03}.csv' for number in range(120)]
    agent = analyst([CODE, 'Done.'], done(*names))
    looks = []
    execute = agent.interpreter.execute

    def look(code, **kwargs):
        looks.append(code)
        return execute(code, **kwargs)

    agent.interpreter.execute = look
    artifacts = agent('How much?').extra_info['artifacts']
    assert [artifact['path'] for artifact in artifacts] == names
    assert len(looks) == 1
    assert [artifact['kind'] for artifact in artifacts[49:51]] == ['table', 'unknown']
    assert 'only the first 50 of 120 files' in artifacts[50]['preview']


def test_undo_takes_back_the_last_question_and_keeps_what_is_known_of_files():
    agent = analyst(['a', CODE, 'b', 'c'], done())
    agent('1')
    agent.upload({'a.csv': b'1'})
    agent('2')
    agent.upload({'b.csv': b'1'})
    assert agent.undo().content == '2'
    assert inner(agent) == [('user', None), ('DataAnalyst', None)] + [('upload', 'upload')] * 2
    assert [message.content for message in agent.memory.get_memory()] == ['1', 'a']
    assert agent.undo().content == '1'
    assert agent.undo() is None
    assert inner(agent) == [('upload', 'upload')] * 2
    agent('3')
    assert [message.content for message in agent.memory.get_memory()] == ['3', 'c']


def test_a_notebook_that_is_only_read_is_shown_with_fences_that_its_code_does_not_close(tmp_path):
    nbformat = pytest.importorskip('nbformat')
    code = "print('```')"
    path = tmp_path / 'read.ipynb'
    cells = [nbformat.v4.new_code_cell(code)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    agent = analyst([])
    assert agent.open_notebook(path, run_cells=False) == []
    (shown,) = agent.agent.memory.get_memory()
    assert f'````python\n{code}\n````' in shown.content


def test_a_notebook_is_not_written_over_a_file_of_the_session(tmp_path):
    agent = analyst([])
    own = tmp_path / 'own.ipynb'
    own.write_text('mine')
    agent.upload(own)
    with pytest.raises(FileExistsError, match=r'own\.ipynb is also a file of the session'):
        agent.export(own)
    assert [path.name for path in tmp_path.iterdir()] == ['own.ipynb']
    assert own.read_text() == 'mine'


@pytest.mark.parametrize(
    'there',
    [
        'mine',
        '{}',
        '{"cells": []}',
        '{"cells": [{"metadata": {"lagent": {"role": "warning"}}}, {"metadata": {}}]}',
    ],
)
def test_a_notebook_is_not_written_over_another_one(tmp_path, there):
    own = tmp_path / 'own.ipynb'
    own.write_text(there)
    with pytest.raises(FileExistsError, match=r'own\.ipynb is not a notebook that was exported'):
        analyst([]).export(own)
    assert [path.name for path in tmp_path.iterdir()] == ['own.ipynb']
    assert own.read_text() == there


@pytest.mark.parametrize(
    ('kind', 'runs'), [(DataAnalyst, Interpreter), (AsyncDataAnalyst, AsyncInterpreter)]
)
def test_a_notebook_is_written_over_an_earlier_export(tmp_path, kind, runs):
    agent = kind(ScriptedModel([]), runs(backend='fake', unsafe=True))
    path = tmp_path / 'own.ipynb'
    for asked in ('1', '2'):
        agent.agent.update_memory(AgentMessage(sender='user', content=asked))
        assert settle(agent.export, path) == path
    assert 'user:** 2' in path.read_text()


def test_reset_forgets_the_conversation_and_closes_the_sandbox():
    agent = analyst(['a', 'b'])
    agent('1', session_id='s')
    agent('1', session_id='t')
    agent.reset('s')
    assert (agent.interpreter.closed, inner(agent, 's')) == (['s'], [])
    assert len(inner(agent, 't')) == 2
    agent.reset('t', keypath='agent')
    assert (agent.interpreter.closed, inner(agent, 't')) == (['s'], [])
    assert len(agent.memory.get_memory('t')) == 2


def test_both_faces_have_the_same_methods_and_give_the_same_transcript():
    names = ('upload', 'files', 'artifacts', 'undo', 'reset', 'export', 'open_notebook')
    for name in names:
        plain, later = getattr(DataAnalyst, name), getattr(AsyncDataAnalyst, name)
        assert inspect.signature(plain) == inspect.signature(later)
        assert inspect.iscoroutinefunction(later)

    class AsyncDesk(Desk):
        async def __call__(self, message, session_id=None):
            return super().__call__(message, session_id)

        async def upload(self, *args, **kwargs):
            return super().upload(*args, **kwargs)

        async def execute(self, *args, **kwargs):
            return super().execute(*args, **kwargs)

        async def files(self, *args, **kwargs):
            return super().files(*args, **kwargs)

    replies = [CODE, 'See [it](no.png).', 'See [it](plot.png).']
    plain = analyst(replies, done('plot.png'))
    later = AsyncDataAnalyst(
        AsyncScriptedModel(replies), AsyncDesk(done('plot.png')), name='DataAnalyst'
    )

    async def work():
        await later.upload({'a.csv': b'1'})
        await later('q')
        return await later.artifacts()

    plain.upload({'a.csv': b'1'})
    plain('q')
    assert plain.artifacts() == asyncio.run(work())
    assert plain.state_dict() == later.state_dict()


def test_prompts_in_chinese_and_from_a_folder(tmp_path):
    agent = analyst(['好'], language='zh')
    agent.upload({'a.csv': b'1'})
    agent('多少？')
    system, user = agent.agent.llm.calls[0].messages
    assert '数据分析师' in system['content']
    assert '[文件]' in user['content']
    (tmp_path / 'en').mkdir()
    (tmp_path / 'en' / 'system.md').write_text('Be {brief}.')
    agent = analyst(['ok'], prompts=tmp_path)
    agent('q')
    assert agent.agent.llm.calls[0].messages[0]['content'] == 'Be {brief}.'
    assert agent.prompts.text('files', files='F').startswith('[files]')
    with pytest.raises(ValueError, match=r"prompts in \['en', 'zh'\], not in 'de'"):
        analyst([], language='de')
    with pytest.raises(ValueError, match='no folder'):
        analyst([], language='../en', prompts=tmp_path)
    with pytest.raises(ValueError, match=r'no folder .*typo with prompts'):
        analyst([], prompts=tmp_path / 'typo')


@pytest.mark.parametrize('language', ['en', 'zh'])
@pytest.mark.parametrize(
    ('interpreter', 'there', 'not_there'),
    [
        (Interpreter(SandboxPolicy(variant='minimal')), ['NumPy'], ['polars']),
        (Interpreter(SandboxPolicy(variant='analysis')), ['polars', 'emoji'], ['{']),
        (Interpreter(SandboxPolicy(packages=('networkx>=3',))), ['openpyxl, networkx>=3'], []),
        (Interpreter(image='mine'), ['pandas'], ['NumPy']),
        (Interpreter(backend='local', unsafe=True), ['pandas'], ['NumPy']),
        (object(), ['pandas'], ['NumPy']),
    ],
    ids=['minimal', 'analysis', 'packages', 'image', 'local', 'other'],
)
def test_the_model_is_told_which_libraries_there_are(language, interpreter, there, not_there):
    text = instruction(PromptFiles('analyst', language), interpreter).replace('\n', ' ')
    assert all(word in text for word in there)
    assert not any(word in text for word in not_there)
    assert '{libraries}' not in text


def test_what_is_asked_does_not_depend_on_what_is_built(monkeypatch):
    monkeypatch.setattr('sandbox.image.find_image', lambda *_, **__: 'there')
    assert DataAnalyst(ScriptedModel(['ok'])).interpreter.policy.variant == 'minimal'
    assert policy_for_data().variant == 'analysis'  # of the command line, which records it


def test_what_a_prompt_is_filled_with_is_not_filled_itself(tmp_path):
    text = PromptFiles('analyst').text('missing', missing='{files}.csv {x}', files='a.csv')
    assert '{files}.csv {x}' in text
    assert text.count('a.csv') == 1


@pytest.mark.parametrize('language', ['en', 'zh'])
def test_all_prompts_exist_in_all_languages(language):
    prompts = PromptFiles('analyst', language)
    names = ('system', 'files', 'failed', 'missing', 'notebook', 'opened')
    for name in (*names, 'minimal', 'analysis', 'other'):
        assert len(prompts.text(name)) > 20
    with pytest.raises(LookupError, match=r'nothing\.md'):
        prompts.text('nothing')


def test_a_negative_number_of_reviews_is_refused():
    with pytest.raises(ValueError, match='reviews'):
        analyst([], reviews=-1)
    assert issubclass(DataAnalyst, Coder)


def test_the_results_are_counted_with_the_models_tokenizer():
    class Local(ScriptedModel):
        tokenizer = 'loaded'

        def tokenize(self, text):
            return text.split()

    assert DataAnalyst(Local([])).interpreter.view.tokenizer('a b') == ['a', 'b']
    assert DataAnalyst(ScriptedModel([])).interpreter.view.tokenizer is None
