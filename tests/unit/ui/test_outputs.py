"""Kernel outputs and growing texts: what the page shows of them, and how much is kept."""

import pytest

from lagent.analysis.sanitize import safe_html, styled_html
from lagent.ui.outputs import Grid, Html, Media, Shown, chart_words
from lagent.ui.text import Growing, shown
from lagent.view import ModelView
from sandbox import ExecutionResult, Output
from sandbox.rich import (
    CHART_MIME,
    TABLE_MIME,
    Chart,
    ChartAxes,
    ChartAxis,
    ChartSeries,
    Column,
    Table,
)

PNG = b'\x89PNG\r\n\x1a\n' + bytes(100)


def seen(output):
    media = Media()
    return Shown.of(output, media, Html(media, Media()))


@pytest.mark.parametrize(
    ('text', 'expected'),
    [
        ('a\r\nb\n', 'a\nb\n'),
        ('10%\r50%\r100%\nnext', '100%\nnext'),
        ('10%\r50%\r', '50%'),
        ('\x1b[31mred\x1b[0m', 'red'),
        ('a\x00b\u202ec', 'abc'),
        ('half \ud800', 'half '),
    ],
)
def test_a_text_is_its_last_state_without_control_characters(text, expected):
    assert shown(text) == expected


def test_a_long_text_keeps_both_ends_and_says_what_is_missing():
    text = shown(f'begin{"x" * 1_000}end', limit=100)
    assert text.startswith('begin')
    assert text.endswith('end')
    growing = Growing(100)
    for _ in range(1_000):
        growing.add('0123456789')
    assert len(str(growing)) < 200
    assert str(growing).startswith('0123456789')
    assert ' characters not shown …' in str(growing)
    head, note, tail = str(growing).split('\n')
    assert len(head) + int(note.split()[1].replace(',', '')) + len(tail) == 10_000


def test_media_are_kept_once_and_the_oldest_go_first():
    media = Media(limit=250)
    first = media.keep('image/png', b'a' * 100)
    assert media.keep('image/png', b'a' * 100) == first
    second = media.keep('image/png', b'b' * 100)
    media.keep('image/png', b'a' * 100)  # seen again
    third = media.keep('image/png', b'c' * 100)
    assert media.get(second) is None
    assert media.get(first) == ('image/png', b'a' * 100)
    assert media.get(third) is not None
    assert media.keep('image/png', bytes(300)) is None
    assert media.keep('text/html', b'a' * 100) != first
    media.clear()
    assert media.get(third) is None


def test_an_image_is_kept_beside_and_has_words():
    media = Media()
    output = Output('display', 'Figure with 1 axes', {'image/png': PNG, 'text/html': '<b>x</b>'})
    found = Shown.of(output, media, Html(media, Media()))
    assert media.get(found.image) == ('image/png', PNG)
    assert (found.text, found.table, found.frame) == ('Figure with 1 axes', None, None)
    svg = Output('display', '', {'image/svg+xml': '<svg/>'})
    assert Shown.of(svg, media, Html(media, Media())).text == 'plot'


def test_html_is_cleaned_for_the_page_and_keeps_its_styles_beside_it():
    media = Media()
    html = '<table id=told onclick=x()><tr><td style="color:red">1</td></tr></table>'
    html += '<script>x()</script>'
    tables = Media()
    found = Shown.of(Output('result', '1', {'text/html': html}), media, Html(media, tables))
    assert tables.get(found.table) == (
        'text/html',
        b'<table><tbody><tr><td>1</td></tr></tbody></table>',
    )
    assert media.get(found.frame) == (
        'text/html',
        b'<table id="told"><tbody><tr><td style="color:red">1</td></tr></tbody></table>',
    )
    frame = '<table class="dataframe"><tr><td>1</td></tr></table>'
    output = Output('result', '1', {'text/html': frame})
    assert Shown.of(output, media, Html(media, tables)).frame is None


def test_what_a_cell_leaves_of_its_html_is_bounded():
    media, tables = Media(), Media()
    html = Html(media, tables)
    outputs = [
        Output('display', str(at), {'text/html': f'{"&" * 40_000}{at}'}) for at in range(100)
    ]
    found = [Shown.of(output, media, html) for output in outputs]
    kept = {each.table for each in found if each.table}
    assert kept
    assert sum(len(tables.get(name)[1]) for name in kept) <= 1_000_000
    left_out = [each for each in found if not each.table]
    assert all('is too large to be shown' in each.notes[0] for each in left_out)
    assert left_out[-1].text == '99'


def test_what_a_session_leaves_of_its_html_is_bounded():
    media, tables = Media(), Media(limit=500_000)
    for at in range(20):
        output = Output('display', '', {'text/html': f'{"&" * 10_000}{at}'})
        last = Shown.of(output, media, Html(media, tables))
    assert sum(len(data) for _, data in tables._kept.values()) <= 500_000
    assert tables.get(last.table) is not None


def test_data_that_the_text_says_too_is_not_said_to_be_left_out():
    output = Output('result', 'a  b', left_out={TABLE_MIME: 1_000, CHART_MIME: 9, 'text/html': 7})
    assert output.missing == {'text/html': 7}
    assert seen(output).notes == ('text/html, 7 bytes, is too large and was left out',)
    result = ExecutionResult(outcome='ok', outputs=(output,))
    for text in (result.text, ModelView().text([result])):
        assert 'text/html left out: 7 bytes' in text
        assert 'lagent' not in text


def test_html_is_cleaned_once(monkeypatch):
    cleaned = []
    monkeypatch.setattr(
        'lagent.ui.outputs.safe_html', lambda html: cleaned.append(html) or safe_html(html)
    )
    media = Media()
    html = Html(media, Media())
    output = Output('display', '1', {'text/html': '<i>1</i>'})
    assert Shown.of(output, media, html) == Shown.of(output, media, html)
    assert cleaned == ['<i>1</i>']


def test_what_is_too_large_is_said():
    output = Output('display', 'x', {'image/png': bytes(17 << 20)}, left_out={'text/html': 5_000})
    found = seen(output)
    assert found.image is None
    assert any('17,825,792 bytes' in note for note in found.notes)
    assert any('5,000 bytes' in note for note in found.notes)


@pytest.mark.parametrize(
    'html',
    [
        '<iframe src="http://secret.evil.example/"></iframe>',
        '<iframe srcdoc="<iframe src=http://evil.example/>"></iframe>',
        '<a href="http://evil.example/">a</a>',
        '<img src="http://evil.example/a.png"><img src="//evil.example/"><img src="a.png">',
        '<link rel="dns-prefetch" href="//evil.example"><base href="http://evil.example/">',
        '<meta http-equiv="refresh" content="0;url=http://evil.example/">',
        '<form action="http://evil.example/"><input formaction="http://evil.example"></form>',
        '<object data="http://evil.example"></object><embed src="http://evil.example">',
        '<svg><foreignObject><iframe src="http://evil.example"/></foreignObject></svg>',
        '<video src="http://evil.example" poster="http://evil.example"></video>',
        '<td background="http://evil.example"></td><body background="http://evil.example">',
    ],
)
def test_what_names_a_host_does_not_reach_a_frame(html):
    assert 'evil' not in styled_html(f'<b>x</b>{html}')


def test_styles_and_images_that_are_there_reach_a_frame():
    html = '<style>.a{color:red}</style><b class="a">x</b><img src="data:image/png;base64,AAAA">'
    assert styled_html(html) == html


def test_a_data_frame_is_shown_by_its_data():
    columns = (Column('city', 'object', 0), Column('n', 'float64', 1))
    rows = (('<b>A</b>', 0.1 + 0.2), ('B', None))
    grid = Grid.of(Table('frame', columns, rows, ((0,), (1,)), ('',), 1_000, 2))
    assert grid.heads == (('', 'index', True), ('city', 'object', False), ('n', 'float64', True))
    assert grid.rows == (('0', '<b>A</b>', '0.3'), ('1', 'B', ''))
    assert grid.words == '1,000 rows × 2 columns; the first 2 × 2 are shown'
    assert grid.levels == 1


def test_a_figure_has_words_for_those_who_do_not_see_it():
    x, y = ChartAxis('month', 'linear', ()), ChartAxis('revenue', 'linear', ())
    bars = ChartSeries('bar', '2026', (1,), (2,), 1)
    chart = Chart('Shops', (ChartAxes('bar', 'North', x, y, (bars,), 0, 0),), 0)
    assert chart_words(chart) == 'Shops; bar plot: North: revenue against month: 2026'
    assert chart_words(None) == ''


def test_markdown_and_formulas_are_shown_by_their_sources():
    about = 'IPython.core.display.Markdown object'
    found = seen(Output('display', about, {'text/markdown': '**b**\x1b[0m'}))
    assert found.markdown == '**b**'
    assert seen(Output('display', about, {'text/latex': '$x$'})).markdown == '$x$'
    tabular = r'\begin{tabular}{l} a \end{tabular}'
    assert seen(Output('display', about, {'text/latex': tabular})).text == tabular
