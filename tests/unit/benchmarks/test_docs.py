"""docs/performance.md shows what docs/performance.json holds: both come from one run."""

import re

from benchmarks import report
from benchmarks.report import DOCS, Results


def test_the_tables_are_those_of_the_figures():
    page = DOCS.read_text(encoding='utf-8')
    results = Results.from_json(DOCS.with_suffix('.json').read_text(encoding='utf-8'))
    assert report.filled(page, results) == page


def test_the_plots_are_there():
    shown = re.findall(r'!\[[^]]*\]\((images/[^)]+)\)', DOCS.read_text(encoding='utf-8'))
    assert len(shown) == 4
    assert all((DOCS.parent / name).is_file() for name in shown)
