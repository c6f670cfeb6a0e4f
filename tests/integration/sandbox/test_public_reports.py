"""Cells, files and sessions of the kinds that sandboxes are publicly known to trip over.

Most of these kinds are among the expectations of `sandbox.conformance`; here is the rest.
"""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lagent.actions import Interpreter
from lagent.prompts.parsers import CodeParser
from lagent.schema import AgentMessage
from sandbox import Outcome, Sandbox, SandboxManager

MakeBox = Callable[..., Sandbox]
ROOT = Path(__file__).parents[3]


def test_r25_an_old_cell_that_takes_as_long_as_its_grace(make: MakeBox) -> None:
    box = make()
    late = (
        'import time\ntry:\n    time.sleep(30)\nexcept KeyboardInterrupt:\n'
        "    time.sleep(2)\n    print('late cleanup')"
    )
    assert box.execute(late, timeout=1.0).outcome is Outcome.TIMEOUT
    for number in range(3):
        result = box.execute(f"print('fresh', {number})")
        assert (result.outcome, result.stdout) == (Outcome.OK, f'fresh {number}\n')


def test_r29_text_that_is_no_text_reaches_a_message(options: dict[str, object]) -> None:
    cells = ["raise ValueError('bad \\ud8ff name')", "print('a\\udcff b')", '1 + 1']
    with Interpreter(**options) as interpreter:
        said = []
        for code in cells:
            text = f'```python\n{code}\n```\n'
            asked = AgentMessage(content=text, formatted=CodeParser().parse_response(text))
            answer = interpreter(asked)
            assert AgentMessage.model_validate_json(answer.model_dump_json()).content
            said.append(answer.content)
    assert 'ValueError: bad' in said[0]
    assert said[1].startswith('a')
    assert said[2] == '2'


@pytest.fixture
def with_pandas(make: MakeBox) -> Sandbox:
    box = make()
    if not box.execute('import openpyxl, pandas as pd', timeout=60).ok:
        pytest.skip('there is no pandas in this back end')
    return box


def test_r41_a_table_in_the_encoding_of_a_spreadsheet(with_pandas: Sandbox) -> None:
    table = 'Stadt;Umsatz;Notiz\nK\u00f6ln;1.234,50;Gr\u00f6\u00dfe\nM\u00fcnchen;987,00;\u2013\n'
    with_pandas.upload(table.encode('cp1252'), name='umsatz.csv')
    start = with_pandas.execute("print(open('umsatz.csv', 'rb').read(12))")
    assert start.stdout == f'{table.encode("cp1252")[:12]!r}\n'
    result = with_pandas.execute(
        "df = pd.read_csv('umsatz.csv', sep=';', decimal=',', thousands='.', encoding='cp1252')\n"
        "print(list(df), df['Umsatz'].sum())"
    )
    assert result.stdout == "['Stadt', 'Umsatz', 'Notiz'] 2221.5\n"
    assert with_pandas.read('umsatz.csv') == table.encode('cp1252')


REGIONS = """
book = openpyxl.Workbook()
sheet = book.active
for row in (['North', None, 'South', None], ['jan', 'feb'] * 2, [1, 2, 3, 4], [5, 6, 7, 8]):
    sheet.append(row)
sheet.merge_cells('A1:B1')
sheet.merge_cells('C1:D1')
book.create_sheet('Notes').append(['text'])
book.save('regions.xlsx')
"""


def test_r49_a_workbook_with_merged_headers_and_a_second_sheet(with_pandas: Sandbox) -> None:
    made = with_pandas.execute(REGIONS)
    assert [artifact.path for artifact in made.artifacts] == ['regions.xlsx'], made.text
    data = with_pandas.read('regions.xlsx')
    with_pandas.delete('regions.xlsx')
    with_pandas.upload(data, name='regions.xlsx')
    result = with_pandas.execute(
        "sheets = pd.read_excel('regions.xlsx', sheet_name=None, header=None)\n"
        "table = pd.read_excel('regions.xlsx', header=[0, 1])\n"
        "print(list(sheets), table[('North', 'feb')].mean(), table[('South', 'feb')].mean())"
    )
    assert result.stdout == "['Sheet', 'Notes'] 4.0 6.0\n", result.text


@pytest.mark.slow
@pytest.mark.parametrize('backend', ['local', pytest.param('docker', marks=pytest.mark.docker)])
def test_r59_eight_sessions_at_once_and_again(backend: str) -> None:
    for _ in range(2):
        with SandboxManager(backend=backend, unsafe=backend == 'local') as manager:
            with ThreadPoolExecutor(8) as pool:
                boxes = pool.map(manager.session, map(str, range(8)))
            said = [box.execute(f"print('me', {n})").stdout for n, box in enumerate(boxes)]
        assert said == [f'me {number}\n' for number in range(8)]


SECOND_PROGRAM = """
import sys
from sandbox import Sandbox

with Sandbox(id='report', backend=sys.argv[1], unsafe=sys.argv[1] == 'local') as box:
    print(box.execute("'x' in globals()").result)
"""


def test_r61_two_programs_may_use_one_name(options: dict[str, object], backend: str) -> None:
    with Sandbox(id='report', **options) as box:
        box.execute('x = 1')
        done = subprocess.run(
            [sys.executable, '-c', SECOND_PROGRAM, backend],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
            cwd=ROOT,
        )
        assert done.stdout == 'False\n'
        assert box.execute('print(x)').stdout == '1\n'
