"""Wide data frames, shortened by columns and rows; what is no such table is left alone."""

import pandas as pd
import pytest

from lagent.view.tables import is_cut, is_wrapped, missing, short_table
from sandbox import Column, Table


def frame(rows, columns):
    return pd.DataFrame({f'column{n}': range(rows) for n in range(columns)})


def test_a_wide_table_keeps_its_first_and_last_columns_and_rows():
    table = frame(200, 60)
    with pd.option_context('display.max_columns', 20, 'display.width', 80):
        assert is_wrapped(repr(table))
    assert (
        short_table(table._repr_html_(), 6, 7)
        == """\
     column0  column1  ...  column58  column59
  0        0        0  ...         0         0
  1        1        1  ...         1         1
  2        2        2  ...         2         2
...      ...      ...  ...       ...       ...
198      198      198  ...       198       198
199      199      199  ...       199       199
[200 rows x 60 columns]"""
    )


def test_a_table_that_fits_is_whole():
    html = pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})._repr_html_()
    assert short_table(html, 12, 21) == '   a  b\n0  1  x\n1  2  y\n[2 rows x 2 columns]'


def test_long_cells_and_line_feeds_are_shortened():
    html = pd.DataFrame({'a': ['word\nword ' * 20], 'b': [1]})._repr_html_()
    assert 'word word word word w...' in short_table(html, 12, 21) or '...' in short_table(
        html, 12, 21
    )


@pytest.mark.parametrize(
    'html',
    [
        '<table><tr><td>1</td></tr></table>',
        '<table class="dataframe"><tr><td>1</td><td>2</td></tr><tr><td>1</td></tr></table>',
        '<table class="dataframe"><tr><td colspan="2">1</td><td>2</td></tr></table>',
        '<table class="dataframe">',
        '<table class="dataframe"><tr><td><tr>1',
        'class="dataframe"<td>x</td></table></tr>',
        'class="dataframe"' + '<table><tr><td>' * 1_000,
        'x' * 2_000_000,
        'class="dataframe"<![<![',
        frame(3, 3).groupby('column0').agg(['mean', 'sum'])._repr_html_(),
    ],
)  # fmt: skip
def test_another_table_is_left_to_its_text(html):
    assert short_table(html, 12, 21) is None


def test_a_forged_shape_is_harmless():
    html = frame(2, 2)._repr_html_() + '9' * 10_000 + ' rows × 1 columns'
    assert short_table(html, 12, 21)


def described(columns, nulls):
    named = tuple(Column(f'column{n}', 'int64', nulls.get(n, 0)) for n in range(min(columns, 50)))
    return Table('frame', named, (), (), ('',), 200, columns)


def test_columns_that_are_not_shown_are_named():
    html = frame(200, 12)._repr_html_()
    text = short_table(html, 6, 7, described(12, {3: 2, 11: 1_000}))
    assert text.splitlines()[-3:] == [
        '[200 rows x 12 columns]',
        '[not shown: ' + ', '.join(f'column{n} (int64)' for n in range(2, 10)) + ']',
        '[missing: column3: 2, column11: 1,000]',
    ]
    whole = short_table(html, 13, 7, described(12, {}))
    assert whole.endswith('\n[200 rows x 12 columns]')


def test_names_are_bounded_and_the_rest_is_counted():
    text = short_table(frame(9, 70)._repr_html_(), 6, 7, described(70, {}))
    last = text.splitlines()[-1]
    assert last.startswith('[not shown: column2 (int64), ')
    assert last.endswith(', column21 (int64), and 46 more]')


def test_missing_values_are_told_of_tables_that_are_cut():
    assert missing(described(3, {1: 5})) == '[missing: column1: 5]'
    assert missing(described(3, {})) == ''
    assert missing(described(3, {1: None})) == ''
    assert is_cut(repr(frame(200, 2)))
    assert not is_cut(repr(frame(2, 2)))


def table_of(data):
    """What the kernel would say of a data frame, as far as the view reads it."""
    names = [str(name) for name in data.columns]
    dtypes = [str(dtype) for dtype in data.dtypes]
    columns = tuple(map(Column, names[:50], dtypes[:50], [0] * 50))
    index = tuple(str(name or '') for name in data.index.names)
    return Table('frame', columns, (), (), index, *data.shape)


def below(data, columns=12, rows=21):
    text = short_table(data._repr_html_(), columns, rows, table_of(data))
    return [line for line in text.splitlines() if line.startswith('[')]


def test_the_shape_is_exact_where_the_index_has_a_name_or_several_levels():
    grouped = frame(6, 14).assign(g=list('abcabc')).groupby('g').mean()
    assert below(grouped) == [
        '[3 rows x 14 columns]',
        '[not shown: ' + ', '.join(f'column{n} (float64)' for n in range(5, 9)) + ']',
    ]
    several = frame(30, 60)
    several.index = pd.MultiIndex.from_tuples([(n, -n) for n in range(30)], names=['a', 'b'])
    shape, hidden = below(several)
    assert shape == '[30 rows x 60 columns]'
    assert hidden.startswith('[not shown: column4 (int64), ')
    assert hidden.endswith(', and 31 more]')


def test_columns_are_known_by_their_place_not_by_their_names():
    alike = frame(2, 30).rename(columns=lambda name: f'a_very_long_name_of_a_{name}')
    shape, hidden = below(alike)
    assert shape == '[2 rows x 30 columns]'
    assert hidden == '[not shown: ' + ', '.join(['a_very_long_name_of_a... (int64)'] * 20) + ']'
    same = frame(2, 15).rename(columns=lambda _: 'same')
    assert below(same)[1:] == ['[not shown: ' + ', '.join(['same (int64)'] * 5) + ']']


def test_columns_without_a_known_name_are_counted():
    with pd.option_context('display.max_columns', None):
        assert below(frame(9, 200), 121) == ['[9 rows x 200 columns]', '[not shown: 81 columns]']
