"""What cells show, from the kernel to the value: every MIME type, tables and charts as data."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sandbox import ChartSeries, Column, ExecutionResult, Output, Sandbox, SandboxPolicy
from sandbox.rich import CHART_MIME, TABLE_MIME

Run = Callable[[str], ExecutionResult]
BUNDLES: dict[str, Any] = {
    'text/html': '<b>bold</b>',
    'text/markdown': '**bold**',
    'text/latex': '$x^2$',
    'image/svg+xml': '<svg xmlns="http://www.w3.org/2000/svg"/>',
    'application/json': {'deep': [1, {'a': None}]},
    'application/javascript': 'alert(1)',
    'application/geo+json': {'type': 'Point', 'coordinates': [1.5, 2]},
    'application/vnd.plotly.v1+json': {'data': [{'y': [1, 2]}], 'layout': {}},
    'application/vnd.vega.v5+json': {'$schema': 'vega', 'marks': []},
    'application/vnd.vegalite.v5+json': {'mark': 'bar', 'data': {'values': [{'a': 1}]}},
    'application/vnd.own+json': ['a', 'list'],
}


@pytest.fixture(scope='module')
def box(options: dict[str, object]) -> Iterator[Sandbox]:
    with Sandbox(SandboxPolicy(timeout=120), **options) as box:
        yield box


@pytest.fixture(scope='module')
def run(box: Sandbox) -> Run:
    def run(code: str) -> ExecutionResult:
        result = box.execute(code)
        assert result.ok, result.text
        return result

    return run


@pytest.fixture(scope='module')
def pandas(run: Run) -> Run:
    if (
        run('import importlib.util; importlib.util.find_spec("matplotlib") is None').result
        == 'True'
    ):
        pytest.skip('there is no matplotlib in this back end')
    run('import numpy as np, pandas as pd\nimport matplotlib.pyplot as plt')
    return run


def shown(result: ExecutionResult) -> list[Output]:
    return [output for output in result.outputs if output.kind in ('result', 'display')]


@pytest.mark.parametrize('mime', BUNDLES)
def test_each_representation_arrives_as_it_was_sent(run: Run, mime: str):
    sent = {'text/plain': 'text', mime: BUNDLES[mime]}
    (output,) = shown(run(f'import json\ndisplay(json.loads({json.dumps(sent)!r}), raw=True)'))
    assert output.data == sent
    again = Output.from_dict(json.loads(json.dumps(output.to_dict())))
    assert again == output


def test_images_arrive_as_bytes(run: Run):
    code = (
        'import base64\n'
        'def image(mime, data):\n'
        '    display({mime: base64.b64encode(data).decode()}, raw=True)\n'
        'image("image/png", b"\\x89PNG\\r\\n\\x1a\\n")\n'
        'image("image/jpeg", b"\\xff\\xd8\\xff")\n'
        'image("image/gif", b"GIF89a")\n'
        'image("application/pdf", b"%PDF-1.7")'
    )
    assert [list(output.data.items()) for output in shown(run(code))] == [
        [('image/png', b'\x89PNG\r\n\x1a\n')],
        [('image/jpeg', b'\xff\xd8\xff')],
        [('image/gif', b'GIF89a')],
        [('application/pdf', b'%PDF-1.7')],
    ]


def test_a_display_is_updated_in_its_place(run: Run):
    result = run(
        "h = display('a', display_id=True)\nprint('between')\nh.update('b')\nh.update('c')"
    )
    assert [(output.kind, output.text) for output in result.outputs] == [
        ('display', "'c'"),
        ('stdout', 'between\n'),
    ]


def test_clear_output_takes_away_what_was_shown(run: Run):
    code = (
        'from IPython.display import clear_output\n'
        "print('old'); display('old'); clear_output(); print('new')\n"
        "display('shown until the next'); clear_output(wait=True); display('last')"
    )
    assert [output.text for output in run(code).outputs] == ["'last'"]


def test_a_progress_bar_is_its_last_state(run: Run):
    bar = "import sys\nfor n in range(101):\n    print(f'\\r{n:3d} %', end='', file=sys.stderr)"
    assert run(bar).stderr == '100 %'


def test_tqdm_is_one_line(run: Run):
    code = (
        'from tqdm import tqdm\n'
        "for n in tqdm(range(300), desc='work', mininterval=0): pass\n"
        "tqdm.write('done')"
    )
    if run('import importlib.util; importlib.util.find_spec("tqdm") is None').result == 'True':
        pytest.skip('there is no tqdm in this back end')
    result = run(code)
    assert result.stdout == 'done\n'
    assert [line.partition(':')[0] for line in result.stderr.splitlines()] == ['work']
    assert '100%' in result.stderr
    assert '300/300' in result.stderr


def test_colours_are_stripped_and_kept_for_a_terminal(box: Sandbox):
    *pieces, last = box.stream("print('\\x1b[2J\\x1b[31mred\\x1b[0m')")
    assert ''.join(piece.output.ansi for piece in pieces if piece.output) == (
        '\x1b[31mred\x1b[0m\n'
    )
    assert last.result is not None
    assert last.result.stdout == last.result.text + '\n' == 'red\n'


def test_a_frame_comes_as_data_too(pandas: Run):
    result = pandas(
        'df = pd.DataFrame({"n": [1, 2, 3], "x": [1.5, None, float("inf")], "s": ["a", None, "c"],'
        ' "big": [2**60] * 3, "t": pd.to_datetime(["2024-02-29"] * 3), "o": [{1}, b"b", pd.NA]})\n'
        'df.index.name = "id"\n'
        'df'
    )
    (output,) = shown(result)
    assert list(output.data) == ['text/plain', 'text/html', TABLE_MIME]
    (table,) = result.tables
    assert (table.kind, table.total_rows, table.total_columns) == ('frame', 3, 6)
    assert [(c.name, c.nulls) for c in table.columns] == [
        *(('n', 0), ('x', 1), ('s', 1), ('big', 0), ('t', 0), ('o', 1))
    ]
    assert [c.dtype for c in table.columns][:2] == ['int64', 'float64']
    assert table.columns[4].dtype.startswith('datetime64')
    assert table.rows == (
        (1, 1.5, 'a', str(2**60), '2024-02-29 00:00:00', '{1}'),
        (2, None, None, str(2**60), '2024-02-29 00:00:00', "b'b'"),
        (3, 'inf', 'c', str(2**60), '2024-02-29 00:00:00', None),
    )
    assert (table.index, table.labels) == (('id',), ((0,), (1,), (2,)))


def test_a_large_frame_is_bounded_and_counted(pandas: Run):
    result = pandas(
        'wide = pd.DataFrame(np.arange(300_000).reshape(5_000, 60) % 7)\n'
        'wide.iloc[10:30, 0] = np.nan\n'
        'display(wide)\n'
        'display(pd.concat([wide] * 3))\n'
        'pd.DataFrame({"s": ["x" * 10_000] * 200, "l": [[0] * 10_000] * 200})'
    )
    wide, wider, long = result.tables
    assert (wide.total_rows, wide.total_columns) == (5_000, 60)
    assert (len(wide.rows), len(wide.columns)) == (100, 50)
    assert (wide.columns[0].nulls, wide.columns[1].nulls) == (20, 0)
    assert wide.rows[1] == tuple(float(n % 7) if n == 60 else n % 7 for n in range(60, 110))
    assert {column.nulls for column in wider.columns} == {None}
    assert len(long.rows[0][0]) == len('x' * 200)
    assert long.rows[0][1] == '[0, 0, 0, 0, 0, 0, ...]'
    for output in shown(result):
        assert len(json.dumps(output.data[TABLE_MIME])) < 64 * 1024


def test_a_series_and_levels_of_an_index_come_as_data_too(pandas: Run):
    result = pandas(
        'sales = pd.DataFrame({"city": ["Oslo", "Rome", "Rome"], "year": [2023, 2023, 2024],'
        ' "sum": [1, 2, 3]})\n'
        'display(sales.groupby(["city", "year"])["sum"].sum())\n'
        'sales.groupby("city").agg({"sum": ["min", "max"]})'
    )
    series, levels = result.tables
    assert series.kind == 'series'
    assert series.columns == (Column('sum', 'int64', 0),)
    assert (series.index, series.rows) == (('city', 'year'), ((1,), (2,), (3,)))
    assert series.labels == (('Oslo', 2023), ('Rome', 2023), ('Rome', 2024))
    assert [column.name for column in levels.columns] == ['sum / min', 'sum / max']


def test_a_frame_that_cannot_be_read_is_shown_all_the_same(pandas: Run):
    result = pandas(
        'class Odd(pd.DataFrame):\n'
        '    @property\n'
        '    def shape(self):\n'
        '        raise RuntimeError("no")\n'
        '    def _repr_html_(self):\n'
        '        return "<i>odd</i>"\n'
        '    def __repr__(self):\n'
        '        return "odd"\n'
        'Odd()'
    )
    (odd,) = shown(result)
    assert odd.data == {'text/plain': 'odd', 'text/html': '<i>odd</i>'}
    assert result.stderr == ''


def test_a_polars_frame_comes_as_data_too(run: Run):
    if run('import importlib.util; importlib.util.find_spec("polars") is None').result == 'True':
        pytest.skip('there is no polars in this back end')
    result = run(
        'import polars as pl\n'
        'f = pl.DataFrame({"a": [1, None], "s": ["x", "y"]})\ndisplay(f)\nf["a"]'
    )
    frame, series = result.tables
    assert [(c.name, c.dtype, c.nulls) for c in frame.columns] == [
        ('a', 'Int64', 1),
        ('s', 'String', 0),
    ]
    assert (frame.rows, frame.labels, frame.index) == (((1, 'x'), (None, 'y')), ((), ()), ())
    assert (series.kind, series.rows, series.total_rows) == ('series', ((1,), (None,)), 2)


def the_series(result: ExecutionResult) -> ChartSeries:
    ((series,),) = ([s for axes in chart.axes for s in axes.series] for chart in result.charts)
    return series


def test_a_figure_comes_as_data_too(pandas: Run):
    result = pandas(
        'figure, (left, right) = plt.subplots(1, 2)\n'
        'figure.suptitle("all")\n'
        'left.plot([1, 2, 3], [4, 5, np.nan], label="up")\n'
        'left.plot([1, 2, 3], [6, 5, 4], label="down")\n'
        'left.axhline(5)\n'
        'left.set(title="lines", xlabel="n", ylabel="m", yscale="log")\n'
        'right.scatter([1, 2], [3, 4])\n'
        'plt.show()'
    )
    (output,) = shown(result)
    assert list(output.data) == ['text/plain', 'image/png', CHART_MIME]
    (chart,) = result.charts
    left, right = chart.axes
    assert (chart.title, left.kind, left.title) == ('all', 'line', 'lines')
    assert (left.x.label, left.x.scale, left.y.label, left.y.scale) == ('n', 'linear', 'm', 'log')
    assert left.series == (
        ChartSeries('line', 'up', (1, 2, 3), (4, 5, None), 3),
        ChartSeries('line', 'down', (1, 2, 3), (6, 5, 4), 3),
    )
    assert left.unread == 1
    assert right.series == (ChartSeries('scatter', '', (1, 2), (3, 4), 2),)
    assert result.images


@pytest.mark.parametrize(
    ('code', 'kind', 'x', 'y'),
    [
        ('plt.bar(["a", "b"], [1, 2])', 'bar', ('a', 'b'), (1, 2)),
        ('plt.barh(["a", "b"], [1, 2])', 'bar', (1, 2), ('a', 'b')),
        ('plt.bar([3, 7], [1, 2])', 'bar', (3, 7), (1, 2)),
        ('plt.hist([0, 1, 1, 4], bins=2)', 'hist', (1, 3), (3, 1)),
        ('plt.pie([1, 3], labels=["a", "b"])', 'pie', ('a', 'b'), (0.25, 0.75)),
        ('plt.imshow(np.eye(3))', 'image', (), ()),
        ('plt.pcolormesh(np.eye(3)); plt.colorbar()', 'image', (), ()),
        ('plt.plot([1, 2], [3, 4], "o")', 'scatter', (1, 2), (3, 4)),
        ('plt.errorbar([1, 2], [3, 4], yerr=1)', 'line', (1, 2), (3, 4)),
        (
            'pd.Series([1, 2], index=["a", "b"]).plot.bar()',
            *('bar', ('a', 'b'), (1, 2)),
        ),
        (
            'pd.Series([1, 2], index=pd.date_range("2024-02-28", periods=2)).plot()',
            *('line', ('2024-02-28', '2024-02-29'), (1, 2)),
        ),
        (
            'plt.plot(pd.date_range("2024-02-28", periods=2), [1, 2])',
            *('line', ('2024-02-28 00:00:00', '2024-02-29 00:00:00'), (1, 2)),
        ),
    ],
)
def test_kinds_of_charts(pandas: Run, code: str, kind: str, x: Any, y: Any):
    result = pandas(f'plt.figure()\n{code}\nplt.show()')
    assert result.charts[0].axes[0].kind == kind
    series = the_series(result)
    assert (series.kind, series.x, series.y) == (kind, x, y)


@pytest.mark.parametrize('code', ['plt.boxplot([[1, 2, 3]])', 'plt.subplot(projection="3d")'])
def test_what_cannot_be_read_is_unknown(pandas: Run, code: str):
    (axes,) = pandas(f'plt.figure()\n{code}\nplt.show()').charts[0].axes
    assert (axes.kind, axes.series) == ('unknown', ())


def test_a_large_figure_is_bounded_and_counted(pandas: Run):
    result = pandas(
        'figure, axes = plt.subplots(4, 5)\n'
        'for each in axes.flat:\n'
        '    each.plot(np.arange(100_001), np.arange(100_001))\n'
        'figure, axes = plt.subplots()\n'
        'for n in range(30): axes.plot([n, n], label="x" * 500)\n'
        'plt.show()'
    )
    many, lines = result.charts
    assert len(many.axes) + many.axes_left_out == 20
    series = many.axes[0].series[0]
    assert (series.x[0], series.x[-1], len(series.x), series.points) == (0, 100_000, 200, 100_001)
    (axes,) = lines.axes
    assert (len(axes.series), axes.series_left_out) == (20, 10)
    assert {len(series.name) for series in axes.series} == {200}
    for output in shown(result):
        assert len(json.dumps(output.data[CHART_MIME])) < 64 * 1024


def test_a_kernel_that_uses_no_library_has_none_loaded(options: dict[str, object]):
    with Sandbox(**options) as box:
        box.execute('1')
        box.execute('[1]; display(object())')
        loaded = box.execute(
            'import sys\n[n for n in ("pandas", "polars", "matplotlib") if n in sys.modules]'
        )
        assert loaded.result == '[]'


def test_a_styled_frame_is_shown_as_html(run):
    code = 'import pandas\npandas.DataFrame({"a": [1, 2]}).style.highlight_max(color="gold")'
    (output,) = run(code).outputs
    assert 'background-color: gold' in output.data['text/html']
