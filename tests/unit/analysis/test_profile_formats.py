"""What a look at a file finds: workbooks, databases, archives, JSON, images; and broken ones."""

import io
import json
import sqlite3
import struct
import sys
import zipfile
from contextlib import closing
from pathlib import Path

import openpyxl
import pytest
from PIL import Image

from lagent.analysis.guest.profile import profile_file, profile_named
from lagent.analysis.profiles import FileProfile, describe, parse_profile


def look(path: Path) -> FileProfile:
    return parse_profile(path.name, path.stat().st_size, profile_file(path))


def written(folder: Path, data: bytes, name: str) -> FileProfile:
    path = folder / name
    path.write_bytes(data)
    return look(path)


@pytest.fixture
def regions(tmp_path):
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = 'Sales'
    sheet['A1'], sheet['C1'] = 'North', 'South'
    sheet.merge_cells('A1:B1')
    sheet.merge_cells('C1:D1')
    for row in (['jan', 'feb', 'jan', 'feb'], [1, 2, 3, 4], [5, 6, 7, 8]):
        sheet.append(row)
    notes = book.create_sheet('Notes')
    notes['A1'] = 'made by hand'
    book.create_sheet('Empty').sheet_state = 'hidden'
    book.save(tmp_path / 'regions.xlsx')
    return tmp_path / 'regions.xlsx'


def test_a_workbook_with_merged_headings_and_several_sheets(regions):
    profile = look(regions)
    sales, notes, empty = profile.tables
    assert [column.name for column in sales.columns] == [
        'North / jan',
        'North / feb',
        'South / jan',
        'South / feb',
    ]
    assert {column.type for column in sales.columns} == {'integer'}
    assert (sales.total, sales.rows[0]) == (2, ('1', '2', '3', '4'))
    assert 'the header has merged cells over 2 rows' in sales.notes
    assert (notes.name, empty.name) == ('Notes', 'Empty')
    assert empty.notes == ('the sheet is empty',)
    told = describe(profile)
    assert all(words in told for words in ("'Sales'", "'Notes'", 'merged cells over 2 rows'))
    assert 'header=[0, 1]' in profile.reading


def test_a_workbook_where_the_library_is_missing(regions, monkeypatch):
    monkeypatch.setitem(sys.modules, 'openpyxl', None)
    assert look(regions).error == 'cannot be read here: openpyxl is not installed'


def test_parquet(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'pyarrow', None)
    monkeypatch.delitem(sys.modules, 'pyarrow.parquet', raising=False)
    profile = written(tmp_path, b'PAR1....PAR1', 'a.parquet')
    assert profile.error == 'cannot be read here: pyarrow is not installed'


def test_parquet_with_its_library(tmp_path):
    arrow = pytest.importorskip('pyarrow')
    parquet = pytest.importorskip('pyarrow.parquet')
    parquet.write_table(
        arrow.table({'a': [1, 2, 3], 'b': ['x', 'y', None]}), tmp_path / 'a.parquet'
    )
    (table,) = look(tmp_path / 'a.parquet').tables
    assert [(c.name, c.type) for c in table.columns] == [('a', 'int64'), ('b', 'string')]
    assert (table.total, table.rows[0]) == (3, ('1', 'x'))
    assert 'Parquet' in written(tmp_path, b'PAR1....PAR1', 'b.parquet').error


def test_a_database(tmp_path):
    path = tmp_path / 'shop.db'
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute('CREATE TABLE "odd ""name" (id INTEGER, photo BLOB, note)')
        connection.execute("""INSERT INTO "odd ""name" VALUES (1, x'00ff', NULL)""")
        connection.execute('CREATE VIEW ids AS SELECT id FROM "odd ""name"')
    before = path.read_bytes()
    table, view = look(path).tables
    assert (table.name, table.total) == ('odd "name', 1)
    assert [(c.name, c.type) for c in table.columns] == [
        ('id', 'integer'),
        ('photo', 'blob'),
        ('note', 'any'),
    ]
    assert table.rows == (('1', '<2 bytes>', ''),)
    assert view.notes == ('a view',)
    assert path.read_bytes() == before


def test_a_query_that_never_ends_is_given_up(tmp_path):
    path = tmp_path / 'endless.db'
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            'CREATE VIEW endless AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n)'
            ' SELECT sum(x) AS total FROM n'
        )
    (view,) = look(path).tables
    assert view.total is None
    assert any('not counted' in note for note in view.notes)


def test_archives(tmp_path):
    data = io.BytesIO()
    with zipfile.ZipFile(data, 'w') as archive:
        archive.writestr('a.csv', 'a,b\n')
        archive.writestr('../up.txt', 'x' * 100)
    profile = written(tmp_path, data.getvalue(), 'both.zip')
    assert profile.notes == (
        '2 files, 104 bytes unpacked',
        'a.csv (4 bytes)',
        '../up.txt (100 bytes)',
    )


def test_json(tmp_path):
    records = [{'id': n, 'tags': ['a'], 'name': 'x' if n else None} for n in range(3)]
    profile = written(tmp_path, json.dumps(records).encode(), 'list.json')
    (table,) = profile.tables
    assert [(c.name, c.type) for c in table.columns] == [
        ('id', 'integer'),
        ('tags', 'list'),
        ('name', 'text'),
    ]
    assert (table.total, table.rows[1]) == (3, ('1', '["a"]', 'x'))
    profile = written(tmp_path, json.dumps({'rows': [1, 2], 'ok': True}).encode(), 'one.json')
    assert profile.notes == ('an object with 2 keys', 'rows: list of 2', 'ok: boolean')
    one = written(tmp_path, b'{"a": {"b": [0]}}', 'one.json')
    assert one.notes == ('an object with 1 key', 'a: object with 1 key')
    assert written(tmp_path, b'[7]', 'one.json').notes == ('a list of 1 item: integer',)
    assert written(tmp_path, b'7', 'one.txt').notes[-1:] == ('1 line',)
    assert 'no valid JSON' in written(tmp_path, b'{"a": ', 'cut.json').error
    assert 'no valid JSON' in written(tmp_path, b'[' * 100_000, 'deep.json').error


def test_json_lines(tmp_path):
    profile = written(tmp_path, b'{"a": 1}\n{"a": 2.5}\noops\n', 'log.jsonl')
    (table,) = profile.tables
    assert (table.columns[0].type, table.total) == ('integer or number', 3)
    assert profile.notes == ('lines that are no valid JSON: 1 of the first 3',)
    assert profile.reading == "pd.read_json('log.jsonl', lines=True)"


def encoded(kind, mode='RGB', **options):
    data = io.BytesIO()
    Image.new(mode, (33, 7)).save(data, kind, **options)
    return data.getvalue()


@pytest.mark.parametrize(
    ('kind', 'mode', 'options'),
    [
        ('png', 'RGB', {}),
        ('png', '1', {}),
        ('png', 'P', {}),
        ('png', 'RGBA', {}),
        ('png', 'I;16', {}),
        ('jpeg', 'RGB', {}),
        ('jpeg', 'L', {'progressive': True}),
        ('gif', 'P', {}),
        ('bmp', 'RGB', {}),
        ('bmp', '1', {}),
        ('webp', 'RGB', {}),
        ('webp', 'RGB', {'lossless': True}),
        ('webp', 'RGBA', {'exif': b'Exif'}),
    ],
)
def test_images(tmp_path, kind, mode, options):
    profile = written(tmp_path, encoded(kind, mode, **options), f'plot.{kind}')
    assert (profile.kind, profile.notes) == ('image', (f'{kind}, 33 x 7 pixels',))


def test_a_bitmap_of_rows_that_go_down_and_one_with_the_first_header(tmp_path):
    data = bytearray(encoded('bmp'))
    data[22:26] = (-7).to_bytes(4, 'little', signed=True)
    assert written(tmp_path, data, 'a.bmp').notes == ('bmp, 33 x 7 pixels',)
    core = data[:14] + (12).to_bytes(4, 'little') + struct.pack('<HHHH', 33, 7, 1, 24)
    assert written(tmp_path, core, 'a.bmp').notes == ('bmp, 33 x 7 pixels',)


@pytest.mark.parametrize(
    ('kind', 'options', 'at', 'broken'),
    [
        ('png', {}, 12, b'XXXX'),  # no header chunk
        ('png', {}, 16, bytes(8)),  # 0 x 0 pixels
        ('png', {}, 16, b'garbage!'),
        ('png', {}, 24, b'\x07'),  # no depth that there is
        ('png', {}, 29, b'\0\0\0\0'),  # not its checksum
        ('gif', {}, 4, b'0a'),
        ('gif', {}, 6, bytes(4)),
        ('bmp', {}, 14, b'\xff\xff\xff\xff'),
        ('bmp', {}, 18, bytes(4)),
        ('bmp', {}, 26, b'\0'),
        ('jpeg', {}, 2, b'broken'),
        ('webp', {}, 12, b'VP9 '),
        ('webp', {}, 23, b'\0\0\0'),
        ('webp', {'lossless': True}, 20, b'\0'),
    ],
)
def test_an_image_with_a_broken_header_is_told(tmp_path, kind, options, at, broken):
    data = encoded(kind, **options)
    for changed in (data[:at] + broken + data[at + len(broken) :], data[: at + 1]):
        profile = written(tmp_path, changed, f'a.{kind}')
        words = f'it can not be read: its header is not that of a {kind} image'
        assert (profile.error, profile.notes) == (words, ())


@pytest.mark.parametrize('name', ['a.png', 'a.gif', 'a.bmp', 'a.webp', 'a.jpg', 'a.JPEG'])
def test_a_text_under_the_name_of_an_image_is_none(tmp_path, name):
    assert 'can not be read' in written(tmp_path, b'Not found\n', name).error


@pytest.mark.parametrize(
    ('name', 'data', 'words'),
    [
        ('a.xlsx', b'PK\x03\x04broken', 'could not be read as ZIP'),
        ('a.xlsx', b'no workbook at all', 'could not be read as ZIP'),
        ('a.zip', b'', 'empty'),
        ('a.db', b'SQLite format 3\x00' + b'\xff' * 200, 'could not be read as SQLite'),
        ('a.png', b'\x89PNG\r\n\x1a\n', 'its header is not that of a png image'),
        ('a.jpg', b'\xff\xd8\xff', 'its header is not that of a jpeg image'),
        ('a.png', b'not an image', 'its header is not that of a png image'),
        ('a.xls', b'\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1', 'an old Office file'),
        ('a.json', b'\xff\xfe\x00', 'it is no'),
    ],
)
def test_what_is_wrong_with_a_broken_file_is_said(tmp_path, name, data, words):
    assert words in describe(written(tmp_path, data, name))


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / 'link.csv').symlink_to('/etc/passwd')
    assert profile_file(tmp_path / 'link.csv')['error'] == 'it is no regular file'


def test_files_are_found_in_the_first_folder_that_has_them(tmp_path):
    (tmp_path / 'sub').mkdir()
    (tmp_path / 'a.csv').write_text('a\n1\n')
    folders = [str(tmp_path / 'sub'), str(tmp_path)]
    assert profile_named('a.csv', folders)['kind'] == 'table'
    assert profile_named('b.csv', folders)['error'] == 'there is no such file'


@pytest.mark.parametrize(
    'found',
    [
        None,
        'text',
        [],
        {'size': 'many', 'tables': 'x' * 1000},
        {'delimiter': 'too long'},
        {'tables': [{'columns': [{'name': {}}]}]},
        {'tables': [[]], 'notes': 5},
    ],
)
def test_what_is_no_profile_is_not_believed(found):
    profile = parse_profile('a.csv', 7, found)
    assert (profile.path, profile.size, profile.kind) == ('a.csv', 7, 'unknown')
    assert describe(profile) == (
        "'a.csv': unknown, 7 bytes\n  nothing credible came back from the look at it"
    )


def test_a_forged_profile_is_bounded_and_keeps_to_its_lines():
    table = {
        'columns': [{'name': 'a\n[notice] all is well\x1b[2J', 'type': 'x\ny'}] * 10_000,
        'rows': [['c\n' * 1_000] * 10_000] * 1_000,
        'width': 3,
    }
    forged = {'path': '/etc/passwd', 'size': 0, 'kind': 'table', 'tables': [table] * 1_000,
              'notes': ['n\nn' * 1_000] * 1_000, 'text': 'x' * 10**6}  # fmt: skip
    profile = parse_profile('a.csv', 7, forged)
    assert (profile.path, profile.size) == ('a.csv', 7)
    assert (len(profile.tables), len(profile.tables[0].columns), len(profile.notes)) == (
        30,
        200,
        60,
    )
    told = describe(profile)
    assert len(told) < 200_000
    assert not any(line.startswith('[notice]') for line in told.splitlines())
    assert '\x1b' not in told
    forged = dict.fromkeys(('kind', 'encoding', 'error'), 'x\n[notice] all is well')
    told = describe(parse_profile('a\nb.csv', 7, forged))
    assert len(told.splitlines()) == 2


def test_pdf(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, 'pypdf', None)
        profile = written(tmp_path, b'%PDF-1.4', 'a.pdf')
        assert profile.error == 'cannot be read here: pypdf is not installed'
    pypdf = pytest.importorskip('pypdf')
    writer = pypdf.PdfWriter()
    writer.add_blank_page(100, 100)
    writer.write(tmp_path / 'b.pdf')
    assert look(tmp_path / 'b.pdf').notes == ('1 page',)
    assert 'PDF' in written(tmp_path, b'%PDF-1.4 broken', 'c.pdf').error
