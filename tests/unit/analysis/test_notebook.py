"""Sessions as notebooks, and notebooks as cells."""

import html
import json
import re
import sys

import nbformat
import pytest

from lagent.actions import Interpreter
from lagent.actions.interpreter import carried
from lagent.analysis import NotebookCell, read_notebook, to_notebook, write_notebook
from lagent.analysis.sanitize import is_simple, safe_bundle, safe_html, safe_markdown
from lagent.errors import ExtraMissing
from lagent.memory import Memory
from lagent.prompts.parsers import CodeParser
from lagent.schema import AgentMessage
from sandbox import ErrorInfo, ExecutionResult, Outcome, Output

PNG = b'\x89PNG\r\n\x1a\nrest'
TRACE = 'ValueError: no'
TIMED_OUT = 'This code did not come to an end (timeout), so it is not run here:'


def reply(text):
    return AgentMessage(sender='Analyst', content=text, formatted=CodeParser().parse_response(text))


def results(*them):
    them = [carried(result) for result in them]
    formatted = them[0] if len(them) == 1 else them
    return AgentMessage(
        sender='interpreter', content='what was shown', formatted=formatted, type='interpreter'
    )


def session():
    return [
        AgentMessage(sender='upload', content='[files] a.csv\n    1 row\n\n', type='upload'),
        AgentMessage(sender='user', content='How much?'),
        reply('I look.\n```python\nprint(1)\n2\n```\n```python\nraise ValueError("no")\n```'),
        results(
            ExecutionResult(
                Outcome.OK,
                (
                    Output('stdout', '1\n'),
                    Output('display', '<Figure>', {'text/plain': '<Figure>', 'image/png': PNG}),
                    Output('result', '2', {'text/plain': '2'}),
                ),
                execution_count=3,
            ),
            ExecutionResult(
                Outcome.ERROR,
                (Output('error', TRACE),),
                ErrorInfo('ValueError', 'no', TRACE),
                execution_count=4,
            ),
        ),
        reply('Once more.\n```python\nwhile True: pass\n```'),
        results(ExecutionResult(Outcome.TIMEOUT, notices=('the cell was interrupted',))),
        reply('```python\nnever()\n```'),
        AgentMessage(sender='user', content='And now?'),
        reply('Two, see [plot](plot.png).'),
    ]


def test_a_session_becomes_a_valid_notebook(tmp_path):
    notebook = to_notebook(session(), 'Analyst')
    nbformat.validate(notebook)
    cells = [(cell['cell_type'], cell['source']) for cell in notebook['cells'][1:]]
    assert cells == [
        ('markdown', '*upload*\n\n```text\n[files] a.csv\n    1 row\n```'),
        ('markdown', '**user:** How much?'),
        ('markdown', 'I look.'),
        ('code', 'print(1)\n2'),
        ('code', 'raise ValueError("no")'),
        ('markdown', 'Once more.'),
        ('markdown', '> the cell was interrupted'),
        (
            'markdown',
            f'{TIMED_OUT}\n\n```python\nwhile True: pass\n```',
        ),
        ('markdown', 'This code was not run:\n\n```python\nnever()\n```'),
        ('markdown', '**user:** And now?'),
        ('markdown', 'Two, see [plot](plot.png).'),
    ]
    good, bad = [cell for cell in notebook['cells'] if cell['cell_type'] == 'code']
    assert [output['output_type'] for output in good['outputs']] == [
        'stream',
        'display_data',
        'execute_result',
    ]
    assert good['outputs'][1]['data']['image/png'] == 'iVBORw0KGgpyZXN0'
    assert good['outputs'][2]['execution_count'] == good['execution_count'] == 3
    assert bad['metadata']['tags'] == ['raises-exception']
    assert bad['outputs'][0]['ename'] == 'ValueError'
    path = write_notebook(notebook, tmp_path / 'a.ipynb')
    assert nbformat.read(path, 4) == nbformat.from_dict(notebook)
    assert [p.name for p in tmp_path.iterdir()] == ['a.ipynb']
    assert notebook == to_notebook(session(), 'Analyst')


def test_a_session_that_was_saved_gives_the_same_notebook():
    memory = Memory()
    memory.load(session())
    loaded = Memory()
    loaded.load(json.loads(json.dumps(memory.save())))
    assert to_notebook(loaded.get_memory(), 'Analyst') == to_notebook(session(), 'Analyst')


def test_html_of_outputs_is_cleaned_and_what_can_be_executed_is_left_out():
    hostile = {
        'text/html': '<table border="1" onclick="x()"><td colspan="2">1</td></table>'
        '<script>1</script><img src=x onerror=x()><a href="javascript:x()">link</a>'
        '<style>*{}</style><iframe></iframe>',
        'image/svg+xml': '<svg onload="x()"/>',
        'application/javascript': 'x()',
        'text/markdown': '<script>x()</script>',
        'text/latex': r'\href{javascript:x()}{y}',
        'application/vnd.plotly.v1+json': {'data': []},
    }
    safe = safe_bundle(hostile)
    assert list(safe) == ['text/html']
    assert 'colspan="2"' in safe['text/html']
    assert 'link' in safe['text/html']
    for word in ('script', 'onclick', 'onerror', '<a', '<img', 'style', 'iframe', 'x()'):
        assert word not in safe['text/html']
    assert safe_html('a < b') == 'a &lt; b'
    assert safe_bundle({'text/html': '<script>1</script>'}) == {}


@pytest.mark.parametrize(
    'html',
    [
        '<ul><li>' * 10_000,
        '<b>' * 6_000,
        'x' * 60_000,
        # Each paragraph opens all of them again.
        '<p>' + ''.join(f'<b a={n}>' for n in range(1_000)) + '<p>x' * 1_000,
        "<p><b style='" + 'x' * 30_000 + "'>" + '<p>x' * 2_000,
    ],
    ids=['nested', 'tags', 'long', 'formatting', 'styles'],
)
def test_html_that_takes_long_to_clean_or_grows_by_it_is_left_out(html):
    assert not is_simple(html)
    assert safe_bundle({'text/html': html, 'image/png': b'a'}) == {'image/png': 'YQ=='}


def test_tables_that_people_make_are_simple():
    row = '<tr>' + ''.join(f'<td style="color:red"><b>{n}</b></td>' for n in range(20)) + '</tr>'
    assert is_simple(f'<table class="dataframe">{row * 40}</table>')
    assert is_simple('<p><a href="http://example.org/">a</a> <b class="x">b</b></p>' * 100)


@pytest.mark.parametrize(
    'text',
    [
        '<script>x()</script>',
        '<img src=x onerror=x()>',
        '</div><iframe src=//x>',
        '<!-- --><svg/onload=x()>',
        '<javascript:x()>',
    ],
)
def test_no_tag_is_left_in_markdown(text):
    assert '<' not in safe_markdown(text)


@pytest.mark.parametrize(
    'text',
    [
        '[a](javascript:x())',
        '[a](JavaScript:x())',
        r'[a](javascript\:x())',
        '[a](javascript&colon;x())',
        '[a](&#106;avascript:x())',
        '[a]: vbscript:x',
        '![a](data:text/html;base64,xx)',
    ],
)
def test_no_link_in_markdown_executes_anything(text):
    rendered = html.unescape(safe_markdown(text).replace('\\:', ':'))
    assert not re.search(r'(?i)(javascript|vbscript|data):', rendered)


def test_ordinary_markdown_stays_as_it_is():
    text = 'a < b & c, 1<2, [x](y.png) `z`, the data: 5 rows, https://example.org/?a=1&b=2\n| a |'
    assert safe_markdown(text) == text


def test_cells_are_read_of_old_and_new_notebooks(tmp_path):
    path = write_notebook(to_notebook(session(), 'Analyst'), tmp_path / 'a.ipynb')
    cells = read_notebook(path)
    assert cells[3] == NotebookCell('code', 'print(1)\n2')
    assert 'exported' not in cells[0].source
    old = nbformat.v3.new_notebook(
        worksheets=[nbformat.v3.new_worksheet(cells=[nbformat.v3.new_code_cell('x = 1')])]
    )
    (tmp_path / 'old.ipynb').write_text(json.dumps(old))
    assert read_notebook(tmp_path / 'old.ipynb') == [NotebookCell('code', 'x = 1')]


def test_a_byte_order_mark_is_no_reason_to_refuse_a_notebook(tmp_path):
    text = json.dumps(to_notebook(session(), 'Analyst'))
    (tmp_path / 'a.ipynb').write_text(text, 'utf-8-sig')
    assert read_notebook(tmp_path / 'a.ipynb')[3] == NotebookCell('code', 'print(1)\n2')


def test_what_utf_8_cannot_hold_is_replaced(tmp_path):
    notebook = to_notebook([AgentMessage(sender='user', content='a \ud800 b')], 'Analyst')
    cell = read_notebook(write_notebook(notebook, tmp_path / 'a.ipynb'))[-1]
    assert cell == NotebookCell('markdown', '**user:** a \ufffd b')


NO_NOTEBOOKS = [
    *('', 'no json', '[]', '{}', '{"nbformat": 4, "cells": 5}', '\x00', '[' * 100_000),
    '{"nbformat": 4, "nbformat_minor": {}, "metadata": {}, "cells": []}',
]


@pytest.mark.parametrize('text', NO_NOTEBOOKS, ids=range(len(NO_NOTEBOOKS)))
def test_what_is_no_notebook_is_not_opened(tmp_path, text):
    (tmp_path / 'a.ipynb').write_text(text)
    with pytest.raises(ValueError, match=r'a\.ipynb is no notebook, so it was not opened'):
        read_notebook(tmp_path / 'a.ipynb')


def test_the_extra_is_named_when_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, 'nbformat', None)
    with pytest.raises(ExtraMissing, match='notebook'):
        to_notebook([], 'Analyst')


@pytest.mark.kernel
def test_an_exported_notebook_runs_from_top_to_bottom(tmp_path):
    nbclient = pytest.importorskip('nbclient')
    cells = (
        "import pandas as pd\ntable = pd.read_csv('a.csv')\ntable",
        'table.nope',
        f'import base64\nfrom IPython.display import Image\nImage(base64.b64decode({_PIXEL!r}))',
        'int(table.b.sum())',
    )
    (tmp_path / 'a.csv').write_text('a,b\n1,2\n3,4\n')
    messages = [AgentMessage(sender='user', content='Sum?')]
    with Interpreter(backend='local', unsafe=True) as interpreter:
        interpreter.upload(tmp_path / 'a.csv')
        for cell in cells:
            asked = reply(f'```python\n{cell}\n```')
            messages += [asked, interpreter(asked)]
    notebook = nbformat.from_dict(to_notebook([*messages, reply('6')], 'Analyst'))
    before = [[o.output_type for o in cell.outputs] for cell in notebook.cells if 'outputs' in cell]
    assert before == [['execute_result'], ['error'], ['execute_result'], ['execute_result']]
    assert 'image/png' in notebook.cells[4].outputs[0].data
    nbclient.NotebookClient(
        notebook, timeout=60, resources={'metadata': {'path': tmp_path}}
    ).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == 'code']
    assert [[o.output_type for o in cell.outputs] for cell in code] == before
    assert code[-1].outputs[0].data['text/plain'] == '6'


_PIXEL = (
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E'
    'rkJggg=='
)
