"""What a kernel sends as a table or a chart: read where it has the form, and nothing else."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import (
    Chart,
    ChartAxes,
    ChartAxis,
    ChartSeries,
    Column,
    ExecutionResult,
    Outcome,
    Output,
    Table,
)
from sandbox.kernel.collector import Collector
from sandbox.policy import SandboxPolicy
from sandbox.rich import CHART_MIME, TABLE_MIME, read_chart, read_table

TABLE = {
    'kind': 'frame',
    'columns': [
        {'name': 'city', 'dtype': 'object', 'nulls': 1},
        {'name': 'sales', 'dtype': 'float64', 'nulls': None},
    ],
    'index': ['id'],
    'rows': [['Oslo', 1.5], [None, 2]],
    'labels': [[7], [8]],
    'total_rows': 5_000,
    'total_columns': 2,
}
AXIS = {'label': 'n', 'scale': 'log', 'ticks': ['a', 'b']}
SERIES = {'kind': 'bar', 'name': 'up', 'x': ['a', 'b'], 'y': [1, None], 'points': 2}
CHART = {
    'title': 'T',
    'axes': [
        {
            'kind': 'bar',
            'title': 't',
            'x': AXIS,
            'y': AXIS,
            'series': [SERIES],
            'series_left_out': 1,
            'unread': 2,
        }
    ],
    'axes_left_out': 0,
}
AXIS_VALUE = ChartAxis('n', 'log', ('a', 'b'))
SERIES_VALUE = ChartSeries('bar', 'up', ('a', 'b'), (1, None), 2)


def test_a_table_is_read():
    assert Output('result', data={TABLE_MIME: TABLE}).table == Table(
        kind='frame',
        columns=(Column('city', 'object', 1), Column('sales', 'float64', None)),
        rows=(('Oslo', 1.5), (None, 2)),
        labels=((7,), (8,)),
        index=('id',),
        total_rows=5_000,
        total_columns=2,
    )


def test_a_chart_is_read():
    assert Output('display', data={CHART_MIME: CHART}).chart == Chart(
        'T',
        (ChartAxes('bar', 't', AXIS_VALUE, AXIS_VALUE, (SERIES_VALUE,), 1, 2),),
        0,
    )


def test_a_result_has_those_of_its_outputs_and_keeps_them_through_json():
    outputs = (
        Output('stdout', 'x'),
        Output('display', data={CHART_MIME: CHART}),
        Output('display', data={TABLE_MIME: TABLE}),
        Output('result', data={TABLE_MIME: {**TABLE, 'total_rows': 2}}),
    )
    result = ExecutionResult(Outcome.OK, outputs)
    again = ExecutionResult.from_dict(json.loads(json.dumps(result.to_dict())))
    assert [table.total_rows for table in again.tables] == [5_000, 2]
    assert again.charts == result.charts
    assert len(again.charts) == 1
    assert Output('stdout', 'x').table is Output('stdout', 'x').chart is None


@pytest.mark.parametrize(
    ('place', 'value'),
    [
        (('kind',), 'cube'),
        (('kind',), ['frame']),
        (('columns',), None),
        (('columns',), [{'name': 'a', 'dtype': 'int', 'nulls': 0}] * 51),
        (('columns', 0), 'city'),
        (('columns', 0, 'name'), 'x' * 201),
        (('columns', 0, 'dtype'), 1),
        (('columns', 0, 'nulls'), -1),
        (('columns', 0, 'nulls'), True),
        (('rows',), [['Oslo', 1.5]] * 101),
        (('rows', 0), ['Oslo']),
        (('rows', 0), 'ab'),
        (('rows', 0, 0), {'nested': 1}),
        (('rows', 0, 0), 'x' * 201),
        (('rows', 0, 1), 1 << 60),
        (('labels',), [[7]]),
        (('labels', 0), []),
        (('index',), 'id'),
        (('total_rows',), 1),
        (('total_rows',), 1 << 60),
        (('total_columns',), '2'),
        (('total_columns',), 1),
    ],
)
def test_what_is_no_table_is_none(place: tuple[Any, ...], value: Any):
    assert read_table(changed(TABLE, place, value)) is None


@pytest.mark.parametrize(
    ('place', 'value'),
    [
        (('title',), None),
        (('axes',), CHART['axes'] * 17),
        (('axes', 0), []),
        (('axes', 0, 'kind'), 'radar'),
        (('axes', 0, 'x'), None),
        (('axes', 0, 'x', 'ticks'), ['a'] * 101),
        (('axes', 0, 'series'), [SERIES] * 21),
        (('axes', 0, 'series', 0, 'x'), ['a']),
        (('axes', 0, 'series', 0, 'y'), [1, [2]]),
        (('axes', 0, 'series', 0, 'points'), 1),
        (('axes', 0, 'series', 0, 'x'), list(range(201))),
        (('axes', 0, 'unread'), 1.5),
        (('axes_left_out',), -1),
    ],
)
def test_what_is_no_chart_is_none(place: tuple[Any, ...], value: Any):
    assert read_chart(changed(CHART, place, value)) is None


def changed(sent: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    sent = copy.deepcopy(sent)
    inner: Any = sent
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    return sent


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.sampled_from([TABLE, CHART]), st.data())
def test_whatever_is_sent_raises_nothing(form: dict[str, Any], data: st.DataObject):
    key = data.draw(st.sampled_from(sorted(form)))
    sent = {**form, key: data.draw(JSON)}
    read_table(sent)
    read_chart(sent)
    read_table(data.draw(JSON))


def test_data_that_finds_no_room_hides_no_text():
    collector = Collector(SandboxPolicy(output_bytes=1 << 16))
    data = {'text/plain': 'the frame', 'text/html': 'x' * 65_500, TABLE_MIME: TABLE}
    collector.feed('execute_result', {'data': data, 'execution_count': 1})
    result = ExecutionResult(Outcome.OK, collector.outputs(), truncated=collector.truncated())
    assert result.tables == []
    assert list(result.outputs[0].left_out) == [TABLE_MIME]
    assert result.truncated.bytes == result.outputs[0].left_out[TABLE_MIME]
    assert result.text == 'the frame'
