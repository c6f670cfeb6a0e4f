import base64
import json

from sandbox.rich import TABLE_MIME
from sandbox.types import (
    ErrorInfo,
    ExecutionResult,
    FileInfo,
    Outcome,
    Output,
    Timings,
    Truncation,
)

PNG = b'\x89PNG\r\n\x1a\n' + bytes(8)

FULL = ExecutionResult(
    Outcome.TIMEOUT,
    outputs=(
        Output('stdout', 'a\n'),
        Output('stderr', 'careful'),
        Output('stdout', 'b', cut=(1, 7)),
        Output('display', 'x', {'image/png': PNG, 'application/json': {'k': [1, None]}}, {'m': 1}),
        Output('display', data={'image/jpeg': b'\xff\xd8'}, display_id='d', left_out={'a/b': 3}),
        Output('result', '1'),
        Output('result', '2'),
        Output('error', 'trace'),
    ),
    error=ErrorInfo('ValueError', 'bad', 'trace'),
    state_preserved=False,
    notices=('n',),
    execution_count=3,
    truncated=Truncation(stdout_chars=7, bytes=3),
    artifacts=(FileInfo('a.txt', 2, 1.5),),
    timings=Timings(0.1, 0.2, 0.3),
    exit_code=None,
    signal=9,
    steps=('interrupt', 'kill', 'restart'),
    text_limit=500,
)


def test_a_result_survives_json():
    again = ExecutionResult.from_dict(json.loads(json.dumps(FULL.to_dict())))
    assert again == FULL
    assert again.text == FULL.text


def test_an_empty_result_survives_json():
    empty = ExecutionResult(Outcome.OK)
    assert ExecutionResult.from_dict(json.loads(json.dumps(empty.to_dict()))) == empty


def test_what_a_result_offers_at_a_glance():
    assert FULL.stdout == 'a\nb'
    assert FULL.stderr == 'careful'
    assert FULL.result == '2'
    assert FULL.images == [PNG, b'\xff\xd8']
    assert not FULL.ok
    assert ExecutionResult(Outcome.OK).ok
    assert ExecutionResult(Outcome.OK).result is None


def test_an_error_unpacks():
    name, message, traceback = FULL.error
    assert (name, message, traceback) == ('ValueError', 'bad', 'trace')


def test_a_truncation_is_true_when_something_is_missing():
    assert not Truncation()
    assert Truncation(outputs=1)


def test_a_result_is_told_in_a_line():
    assert repr(FULL) == '<ExecutionResult timeout (ValueError), 8 outputs, 2 images, 0.30 s>'
    assert repr(ExecutionResult(Outcome.OK)) == '<ExecutionResult ok, 0.00 s>'
    assert repr(FULL.outputs[3]) == "<Output display: 'x', image/png, application/json>"
    assert len(repr(Output('stdout', 'x' * 100_000))) < 100


def test_a_notebook_shows_a_result_but_no_html_of_the_cell():
    svg = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script><path d="M0 0"/></svg>'
    table = {
        'kind': 'frame',
        'columns': [{'name': 'a<b', 'dtype': 'int64', 'nulls': 0}],
        'rows': [[1]],
        'labels': [['<i>']],
        'index': [''],
        'total_rows': 1,
        'total_columns': 1,
    }
    result = ExecutionResult(
        Outcome.OK,
        (
            Output('stdout', '<script>alert(1)</script>'),
            Output('display', 'html', {'text/html': '<script>alert(1)</script>'}),
            Output('display', '<Figure>', {'image/png': PNG}),
            Output('display', 'drawing', {'image/svg+xml': svg}),
            Output('display', 'unsafe', {'image/svg+xml': '<svg'}),
            Output('result', 'frame', {TABLE_MIME: table}),
        ),
        notices=('<b>',),
    )
    bundle = result._repr_mimebundle_(include=None, exclude=None)
    assert bundle['text/plain'] == repr(result)
    notice, stdout, html, png, drawing, unsafe, frame = bundle['text/html'].splitlines()
    assert notice == '<p><em>&lt;b&gt;</em></p>'
    assert stdout == '<pre>&lt;script&gt;alert(1)&lt;/script&gt;</pre>'
    assert (html, unsafe) == ('<pre>html</pre>', '<pre>unsafe</pre>')
    assert png == f'<img src="data:image/png;base64,{base64.b64encode(PNG).decode()}">'
    shown = base64.b64decode(drawing.split(',')[1].removesuffix('">'))
    assert b'path' in shown
    assert b'script' not in shown
    assert frame == (
        '<table><tr><th></th><th>a&lt;b</th></tr><tr><th>&lt;i&gt;</th><td>1</td></tr></table>'
        '<p>1 row, 1 column</p>'
    )
