"""Whole conversations of the data analyst, on real kernels."""

import base64
import re
import sqlite3

import nbformat
import openpyxl
import pytest

from lagent.actions import AsyncInterpreter, Interpreter, execution_results
from lagent.agents import AsyncDataAnalyst, DataAnalyst
from lagent.llms import AsyncScriptedModel, ScriptedModel
from sandbox import FileRefused, Outcome, SandboxPolicy

BACKENDS = [
    pytest.param({'backend': 'local', 'unsafe': True}, id='local'),
    pytest.param({'backend': 'docker'}, id='docker', marks=pytest.mark.docker),
]
UMSATZ = base64.b64decode(
    'U3RhZHQ7VW1zYXR6O05vdGl6Ckv2bG47MS4yMzQsNTA7R3L232UKTfxuY2hlbjs5ODcsMDA7lgo='
)
NAMES = ('Umsätze – März 2025 (final).csv', "it's $HOME; 100%.csv", 'データ.csv')

pytestmark = pytest.mark.kernel


@pytest.fixture(scope='module', params=BACKENDS)
def interpreter(request):
    with Interpreter(timeout=60, **request.param) as interpreter:
        yield interpreter


def cell(code, said='Next.'):
    return f'{said}\n```python\n{code}\n```'


def as_told(messages):
    """Reads the table as the description of the file says."""
    reading = re.findall(r'read it with (pd\.\S.*)', messages[1]['content'])[-1]
    return cell(f'import pandas as pd\ntable = {reading}\nprint(table.columns.tolist())')


def test_a_question_about_a_table_with_a_repair_and_a_plot(interpreter, tmp_path):
    replies = [
        cell("import pandas as pd\nsales = pd.read_csv('umsatz.csv')", 'Plan: read, sum, plot.'),
        lambda messages: as_told(messages).replace('table', 'sales'),
        cell('sales.Umsatz.sum()')
        + '\n'
        + cell("sales.plot.bar(x='Stadt').figure.savefig('umsatz.png')"),
        'The total is 2,221.50. See [the plot](plot.png).',
        'The total is 2,221.50. See [the plot](umsatz.png).',
    ]
    llm = ScriptedModel(
        replies,
        expect=[
            "encoding cp1252, delimiter ';', decimal sign ','",
            'UnicodeDecodeError',
            "['Stadt', 'Umsatz', 'Notiz']",
            'np.float64(2221.5)',
            '[check] The answer refers to files that do not exist: plot.png',
        ],
    )
    analyst = DataAnalyst(llm, interpreter)
    (tmp_path / 'umsatz.csv').write_bytes(UMSATZ)
    analyst.upload(tmp_path / 'umsatz.csv', session_id='sales')
    answer = analyst('Total of Umsatz? Plot it.', session_id='sales')
    assert answer.content.endswith('(umsatz.png).')
    (artifact,) = answer.extra_info['artifacts']
    assert (artifact['path'], artifact['kind']) == ('umsatz.png', 'image')
    assert 'png, 640 x 480 pixels' in artifact['preview']
    copy = interpreter.download('umsatz.csv', tmp_path / 'back', session_id='sales')
    assert copy.read_bytes() == UMSATZ

    path = analyst.export(tmp_path / 'out' / 'sales.ipynb', session_id='sales')
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    code = [one for one in notebook.cells if one.cell_type == 'code']
    assert [one.metadata.lagent.outcome for one in code] == ['error', 'ok', 'ok', 'ok']
    assert 'image/png' in code[-1].outputs[0].data
    assert (tmp_path / 'out' / 'umsatz.csv').read_bytes() == UMSATZ
    (tmp_path / 'out' / 'umsatz.csv').write_text('something else')
    with pytest.raises(FileExistsError):
        analyst.export(tmp_path / 'out' / 'sales.ipynb', session_id='sales')


def test_a_workbook_with_merged_headings(interpreter, tmp_path):
    book = openpyxl.Workbook()
    book.active['A1'], book.active['C1'] = 'North', 'South'
    book.active.merge_cells('A1:B1')
    book.active.merge_cells('C1:D1')
    for row in (['jan', 'feb', 'jan', 'feb'], [1, 2, 3, 4], [5, 6, 7, 8]):
        book.active.append(row)
    book.create_sheet('Notes')['A1'] = 'made by hand'
    book.save(tmp_path / 'regions.xlsx')
    llm = ScriptedModel([as_told, cell("table[('North', 'feb')].mean()"), 'It is 4.0.'])
    analyst = DataAnalyst(llm, interpreter)
    analyst.upload(tmp_path / 'regions.xlsx', session_id='regions')
    assert analyst('Mean of North/feb?', session_id='regions').content == 'It is 4.0.'
    told = llm.calls[0].messages[1]['content']
    assert 'the header has merged cells over 2 rows' in told
    assert "'Notes'" in told
    assert 'np.float64(4.0)' in llm.calls[-1].messages[-1]['content']


def test_odd_names_and_every_format_go_in_and_are_told(interpreter, tmp_path):
    for name in NAMES:
        (tmp_path / name).write_bytes(b'a,b\n1,2\n')
    with sqlite3.connect(tmp_path / 'shop.db') as connection:
        connection.execute('CREATE TABLE items (id INTEGER)')
    connection.close()
    (tmp_path / 'empty.csv').write_bytes(b'')
    (tmp_path / 'broken.xlsx').write_bytes(b'PK\x03\x04broken')
    (tmp_path / 'log.jsonl').write_bytes(b'{"a": 1}\n')
    analyst = DataAnalyst(ScriptedModel([]), interpreter)
    paths = [*(tmp_path / name for name in NAMES), *sorted(tmp_path.glob('[a-z]*.[a-z]*'))]
    paths = list(dict.fromkeys(paths))
    profiles = {profile.path: profile for profile in analyst.upload(paths, session_id='odd')}
    assert [profiles[name].kind for name in NAMES] == ['table'] * 3
    assert {name: profiles[name].kind for name in ('shop.db', 'empty.csv', 'log.jsonl')} == {
        'shop.db': 'database',
        'empty.csv': 'empty',
        'log.jsonl': 'json lines',
    }
    assert 'could not be read as ZIP' in profiles['broken.xlsx'].error
    listed = interpreter.execute('import os\nprint(sorted(os.listdir()))', 'odd').stdout
    assert all(repr(name) in listed for name in NAMES)
    for name in NAMES:
        assert interpreter.download(name, tmp_path / 'back', 'odd').read_bytes() == b'a,b\n1,2\n'


@pytest.mark.parametrize('name', ['../../tmp/esc.txt', '/etc/abs.txt', 'a\\..\\b.txt', '', 'nul\0'])
def test_names_that_leave_the_folder_are_refused(interpreter, name):
    analyst = DataAnalyst(ScriptedModel([]), interpreter)
    with pytest.raises(FileRefused, match=re.escape(repr(name))):
        analyst.upload({name: b'x'}, session_id='names')
    assert analyst.files('names') == []


def test_a_look_leaves_nothing_in_the_session(interpreter):
    names = 'sorted(name for name in globals() if name.strip("_i0123456789"))'
    modules = (
        '[m for m in ("openpyxl", "sqlite3", "zipfile", "guest") if m in __import__("sys").modules]'
    )
    before = [interpreter.execute(code, 'clean').result for code in (names, modules)]
    analyst = DataAnalyst(ScriptedModel([]), interpreter)
    analyst.upload({'a.csv': b'a;b\n1;2\n'}, session_id='clean')
    assert [interpreter.execute(code, 'clean').result for code in (names, modules)] == before


def test_a_look_finds_the_files_also_from_another_folder(interpreter):
    interpreter.execute('import os\nos.makedirs("sub")\nos.chdir("sub")', 'elsewhere')
    analyst = DataAnalyst(ScriptedModel([]), interpreter)
    (profile,) = analyst.upload({'a.csv': b'a;b\n1;2\n'}, session_id='elsewhere')
    assert profile.delimiter == ';'


@pytest.mark.parametrize(
    'code',
    [
        'import subprocess\nsubprocess.run = None',
        'import time\ntime.monotonic = None',
        'compile = exec = None',
        'import builtins\nbuiltins.compile = lambda *a: (_ for _ in ()).throw(SystemExit)',
        'import IPython\nIPython.display.publish_display_data = lambda data: print("x" * 10**6)',
    ],
)
def test_code_that_breaks_the_look_gets_a_profile_that_says_so(interpreter, code):
    interpreter.close_session('hostile')
    interpreter.execute(code, 'hostile')
    analyst = DataAnalyst(ScriptedModel([]), interpreter)
    (profile,) = analyst.upload({'a.csv': b'a;b\n1;2\n'}, session_id='hostile')
    assert (profile.path, profile.size) == ('a.csv', 8)
    assert profile.kind == 'table' or profile.error
    interpreter.close_session('hostile')


def test_a_notebook_is_opened_run_or_only_read(interpreter, tmp_path):
    cells = [
        nbformat.v4.new_markdown_cell('# Sales'),
        nbformat.v4.new_code_cell('x = 20'),
        nbformat.v4.new_code_cell('x + 1'),
        nbformat.v4.new_code_cell('1 / 0'),
        nbformat.v4.new_code_cell('x = "never"'),
    ]
    path = tmp_path / 'old.ipynb'
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    llm = ScriptedModel([cell('print(x)'), 'It is 20.'], expect=['ZeroDivisionError', '20'])
    analyst = DataAnalyst(llm, interpreter)
    results = analyst.open_notebook(path, run_cells=True, session_id='opened')
    assert [result.outcome for result in results] == ['ok', 'ok', 'error']
    assert analyst('What is x?', session_id='opened').content == 'It is 20.'
    exported = nbformat.read(analyst.export(tmp_path / 'new.ipynb', session_id='opened'), 4)
    sources = [one.source for one in exported.cells]
    assert sources[2:6] == ['# Sales', 'x = 20', 'x + 1', '1 / 0']

    llm = ScriptedModel(['Fine.'], expect=['None of its code was run'])
    analyst = DataAnalyst(llm, interpreter)
    assert analyst.open_notebook(path, run_cells=False, session_id='read') == []
    assert analyst('Look.', session_id='read').content == 'Fine.'
    assert 'NameError' in interpreter.execute('x', 'read').text


def test_a_large_file_that_code_has_made_is_only_looked_at_from_its_beginning(interpreter):
    code = (
        "with open('big.csv', 'w') as file:\n"
        "    file.write('id,value\\n')\n"
        "    file.writelines('1234567,12.5\\n' * 10_000 for _ in range(300))"
    )
    analyst = DataAnalyst(ScriptedModel([cell(code), 'Done: [it](big.csv).']), interpreter)
    answer = analyst('Make it.', session_id='big')
    preview = answer.extra_info['artifacts'][0]['preview']
    assert "'big.csv': table, 39.0 MB" in preview
    (rows,) = re.findall(r'about ([\d,]+) rows', preview)
    assert 2_970_000 <= int(rows.replace(',', '')) <= 3_030_000
    interpreter.close_session('big')


@pytest.mark.docker
def test_a_file_of_a_gigabyte_is_refused_with_its_size(tmp_path):
    with (tmp_path / 'huge.csv').open('wb') as file:
        file.truncate(1_000_000_000)
    with DataAnalyst(ScriptedModel([]), Interpreter()) as analyst:
        with pytest.raises(FileRefused, match='1,000,000,000 bytes'):
            analyst.upload([tmp_path / 'huge.csv'])
        assert analyst.files() == []


@pytest.mark.docker
def test_a_workbook_that_takes_all_memory_ends_the_look_and_not_the_kernel(tmp_path):
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet('Wide')
    for _ in range(2_500):
        sheet.append(['xxx'] * 200)
    book.save(tmp_path / 'wide.xlsx')
    policy = SandboxPolicy(memory=160 * 2**20, disk=32 * 2**20, tmp=16 * 2**20, shm=16 * 2**20)
    with DataAnalyst(ScriptedModel([]), Interpreter(policy)) as analyst:
        analyst.interpreter.execute('x = 41')
        uploads = {'a.csv': b'a\n1\n', 'wide.xlsx': tmp_path / 'wide.xlsx', 'b.csv': b'b\n1\n'}
        before, profile, behind = analyst.upload(uploads)
        assert profile.error is not None
        assert (before.kind, behind.kind) in {('table', 'table'), ('table', 'unknown')}
        assert analyst.interpreter.execute('x + 1').result == '42'


@pytest.mark.docker
async def test_the_asynchronous_form_has_the_same_conversation(tmp_path):
    replies = [cell("import pandas as pd\npd.read_csv('a.csv').b.sum()"), 'It is 6.']
    async with AsyncDataAnalyst(AsyncScriptedModel(replies), AsyncInterpreter()) as analyst:
        (profile,) = await analyst.upload({'a.csv': b'a,b\n1,2\n3,4\n'})
        assert profile.tables[0].total == 2
        assert (await analyst('Sum of b?')).content == 'It is 6.'
        results = [
            result
            for message in analyst.agent.memory.get_memory()
            if message.type == 'interpreter'
            for result in execution_results(message)
        ]
        assert [(result.outcome, result.result) for result in results] == [
            (Outcome.OK, 'np.int64(6)')
        ]
        assert [info.path for info in await analyst.files()] == ['a.csv']
        path = await analyst.export(tmp_path / 'a.ipynb')
        assert sorted(one.name for one in tmp_path.iterdir()) == ['a.csv', 'a.ipynb']
        await analyst.reset()
        assert await analyst.open_notebook(path, run_cells=False) == []
        assert await analyst.files() == []
