import pytest

from benchmarks import plots, report
from benchmarks.harness import Goal, Measurement
from benchmarks.report import Results

PAGE = """# Title
<!-- machine -->
old
<!-- /machine -->
text
<!-- figures -->
<!-- /figures -->
<!-- sessions -->
<!-- /sessions -->
end
"""


@pytest.fixture
def results():
    goal = (Goal('ratio', 1.1),)
    many = tuple(float(n) for n in range(1, 201))
    return Results(
        {'processor': '2 x fast'},
        [
            Measurement('start', 'ms', (3.0, 1.0, 2.0), (2.0, 1.0), 'raw', goal, key='start'),
            Measurement('round trip, async', 'ms', many, many, 'bare', goal, key='round trip'),
            *(
                Measurement(
                    f'{size}: throughput',
                    'cells/s',
                    (size * 10.0,),
                    (size * 20.0,),
                    'one loop',
                    key='sessions: throughput',
                    x=size,
                )
                for size in (1, 10)
            ),
            *(
                Measurement(f'{size}: {p}', 'ms', (5.0,), key=f'sessions: {p}', x=size)
                for size in (1, 10)
                for p in ('p50', 'p99')
            ),
        ],
        quick=True,
    )


def test_figures(results):
    assert report.figures_table(results).splitlines()[2:] == [
        (
            '| start | ms | 2.00 [1.00 - 3.00] | 1.50 [1.00 - 2.00] | raw | 1.33 | ratio <= 1.10 '
            '| missed | 3 |'
        ),
        (
            '| round trip, async | ms | 100 [1.00 - 198 p99, 200] | 100 [1.00 - 198 p99, 200] '
            '| bare | 1.00 | ratio <= 1.10 | reached | 200 |'
        ),
    ]


def test_sessions(results):
    assert report.sessions_table(results).splitlines() == [
        '| live sessions | 1 | 10 |',
        '|---|---|---|',
        '| throughput, cells/s | 10.0 | 100 |',
        '| throughput, ratio to one loop | 0.50 | 0.50 |',
        '| p50, ms | 5.00 | 5.00 |',
        '| p99, ms | 5.00 | 5.00 |',
    ]


def test_json_and_back(results):
    assert Results.from_json(results.to_json()) == results


def test_files(results, tmp_path):
    report.write(results, tmp_path / 'new')
    assert Results.from_json((tmp_path / 'new/latest.json').read_text()) == results
    assert '| quick |' in (tmp_path / 'new/latest.md').read_text()


def test_the_page_is_filled_between_its_marks(results):
    page = report.filled(PAGE, results)
    assert 'old' not in page
    assert '| processor | 2 x fast |' in page
    assert page.startswith('# Title\n<!-- machine -->\n|')
    assert page.endswith('<!-- /sessions -->\nend\n')
    assert report.filled(page, results) == page


def test_a_page_without_a_mark(results):
    with pytest.raises(ValueError, match='figures'):
        report.filled(PAGE.replace('<!-- figures -->', ''), results)


def test_plots(results, tmp_path):
    pytest.importorskip('matplotlib')
    drawn = plots.draw(results.measurements, tmp_path)
    assert [path.name for path in drawn] == [
        *('ratios.png', 'starts.png', 'round-trips.png', 'sessions.png'),
    ]
    assert all(path.read_bytes().startswith(b'\x89PNG') for path in drawn)
    assert plots.draw([], tmp_path) == []
