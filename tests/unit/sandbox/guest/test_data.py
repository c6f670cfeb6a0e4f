"""Whatever a frame or a figure holds, what the guest reads of it is what the host takes."""

import importlib
import json
import math
import sys
import types
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from sandbox.image import guest_folder
from sandbox.kernel.mime import decode
from sandbox.rich import CHART_MIME, TABLE_MIME, read_chart, read_table


def guest(name: str) -> Any:
    """Import one of the guest's modules that import others."""
    package = types.ModuleType('guest_package')
    package.__path__ = [str(guest_folder())]
    sys.modules.setdefault(package.__name__, package)
    return importlib.import_module(f'{package.__name__}.{name}')


tables, charts, values = guest('tables'), guest('charts'), guest('values')
ODD = [
    *(None, True, 0, -1, 2**53, 10**5_000, 0.5, math.nan, math.inf, 'x', 'é' * 300, '\ud800', b'b'),
    *(pd.NA, pd.NaT, pd.Timestamp('2024-02-29'), pd.Timedelta('1h'), pd.Period('2024-02')),
    *(np.int64(3), np.float32(0.5), np.bool_(True), np.datetime64('2024-02-29', 'ns')),
    *(np.longdouble(1), np.arange(5), [1, 2], (1,), {'a': [1]}, {1}, frozenset(), 1 + 2j, object),
    *(pd.DataFrame({'a': [1]}), range(10**9)),
]


def through(read: Any, mime: str, shown: Any) -> Any:
    """What the host makes of what is sent."""
    sent = json.loads(json.dumps(shown, allow_nan=False))
    kept, _ = decode(mime, sent, 0)
    value = read(kept)
    assert value is not None
    return value


@pytest.mark.parametrize(
    'frame',
    [
        pd.DataFrame(),
        pd.DataFrame(index=range(3)),
        pd.DataFrame(columns=['a', 'b']),
        pd.DataFrame([[1, 2]], columns=['same', 'same']),
        pd.DataFrame({('a', 1): [1], ('a', 2): [2]}),
        pd.DataFrame({0: [1], None: [2], pd.Timestamp('2024'): [3]}),
        pd.DataFrame({'c': pd.Categorical([0, None])}),
        pd.DataFrame({'n': [1, 2]}, index=pd.IntervalIndex.from_breaks([0, 1, 2])),
        pd.DataFrame({'s': pd.arrays.SparseArray([0, 1])}),
        pd.DataFrame({'n': [1, 2]}, index=pd.period_range('2024', periods=2, freq='D')),
        pd.DataFrame({'i': pd.array([1, None], 'Int64'), 'b': pd.array([True, None], 'boolean')}),
        pd.DataFrame({'z': pd.date_range('2024', periods=2, tz='Asia/Tokyo')}),
        pd.DataFrame(np.zeros((3, 500))),
        pd.DataFrame({'x' * 500: ['y' * 500] * 200}),
        pd.DataFrame({n: ['\U0001f600' * 300] * 200 for n in range(50)}),
        pd.DataFrame({'n': [1]}, index=pd.MultiIndex.from_product([[0]] * 11)),
        pd.DataFrame({'a': [1, 2]}, index=pd.Index([(1, 2), (3, 4)], tupleize_cols=False)),
    ],
)  # fmt: skip
def test_a_frame_is_a_table(frame: pd.DataFrame) -> None:
    shown = tables.pandas_frame(frame)
    assert len(json.dumps(shown)) < 128 * 1024
    table = through(read_table, TABLE_MIME, shown)
    assert (table.total_rows, table.total_columns) == frame.shape
    if frame.shape[1]:
        nulls = [int(count) for count in frame.isna().sum().iloc[:50]]
        assert [column.nulls for column in table.columns] == nulls
        through(read_table, TABLE_MIME, tables.pandas_series(frame.iloc[:, 0]))


@given(st.lists(st.sampled_from(ODD), max_size=20))
def test_whatever_is_in_a_frame_it_is_a_table(cells: list[Any]) -> None:
    frame = pd.DataFrame({'a': pd.Series(cells, dtype=object), 'n': range(len(cells))})
    table = through(read_table, TABLE_MIME, tables.pandas_frame(frame))
    assert [row[1] for row in table.rows] == list(range(len(cells)))
    assert all(isinstance(row[0], str | int | float | None) for row in table.rows)


@pytest.mark.parametrize(
    ('value', 'expected'),
    [
        (True, True),
        (2**53 - 1, 2**53 - 1),
        (2**53, str(2**53)),
        pytest.param(10**5_000, '<int>', id='long'),
        (math.nan, None),
        (-math.inf, '-inf'),
        (pd.NA, None),
        (pd.NaT, None),
        (np.float64('nan'), None),
        (np.datetime64('2024-02-29', 'ns'), '2024-02-29T00:00:00.000000000'),
        (np.int64(3), 3),
        (b'abc', "b'abc'"),
        ([0] * 1_000_000, '[0, 0, 0, 0, 0, 0, ...]'),
        ('x' * 10_000_000, 'x' * 200),
    ],
)
def test_a_value_is_plain_and_short(value: Any, expected: Any) -> None:
    assert values.plain(value) == expected


NUMBERS = st.lists(st.floats(width=32) | st.integers(-10, 10), min_size=1, max_size=300)


@pytest.mark.filterwarnings('ignore')  # of matplotlib, about what it is made to draw
@settings(max_examples=30)
@given(NUMBERS, st.sampled_from(['plot', 'scatter', 'bar', 'barh', 'step', 'stem', 'fill_between']))
def test_whatever_is_drawn_it_is_a_chart(numbers: list[float], how: str) -> None:
    figure = Figure()
    axes = figure.subplots()
    getattr(axes, how)(range(len(numbers)), numbers)
    chart = through(read_chart, CHART_MIME, charts.figure(figure))
    (plot,) = chart.axes
    if how == 'fill_between':
        assert (plot.kind, plot.series, plot.unread) == ('unknown', (), 1)
        return
    assert plot.series[0].points == len(numbers)
    assert len(plot.series[0].x) == min(len(numbers), 200)


@pytest.mark.parametrize('count', [1, 2, 200, 201, 10_000])
def test_places_are_spread_evenly(count: int) -> None:
    found = values.places(count, 200)
    assert len(set(found)) == len(found) == min(count, 200)
    assert (found[0], found[-1]) == (0, count - 1)
    assert found == sorted(found)
