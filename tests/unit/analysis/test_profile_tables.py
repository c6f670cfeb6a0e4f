"""What a look at a file finds: tables as text, in any delimiter and encoding."""

import base64
import codecs
from pathlib import Path

import pandas as pd
import pytest

from lagent.analysis.guest.profile import profile_file
from lagent.analysis.profiles import FileProfile, describe, parse_profile


def look(path: Path) -> FileProfile:
    return parse_profile(path.name, path.stat().st_size, profile_file(path))


def written(folder: Path, data: bytes, name: str = 'data.csv') -> FileProfile:
    path = folder / name
    path.write_bytes(data)
    return look(path)


def columns(profile: FileProfile) -> dict[str, str]:
    (table,) = profile.tables
    return {column.name: column.type for column in table.columns}


def test_a_spreadsheet_export_with_semicolons_and_decimal_commas(tmp_path):
    data = base64.b64decode(
        'U3RhZHQ7VW1zYXR6O05vdGl6Ckv2bG47MS4yMzQsNTA7R3L232UKTfxuY2hlbjs5ODcsMDA7lgo='
    )
    profile = written(tmp_path, data, 'umsatz.csv')
    assert (profile.kind, profile.encoding, profile.delimiter) == ('table', 'cp1252', ';')
    assert (profile.decimal, profile.thousands) == (',', '.')
    assert columns(profile) == {'Stadt': 'text', 'Umsatz': 'number', 'Notiz': 'text'}
    assert profile.tables[0].rows[0] == ('Köln', '1.234,50', 'Größe')
    assert 'the encoding is a guess' in profile.notes
    read = {'pd': pd}
    table = eval(profile.reading.replace("'umsatz.csv'", repr(str(tmp_path / 'umsatz.csv'))), read)
    assert table['Umsatz'].sum() == 2221.50


@pytest.mark.parametrize(
    ('encoding', 'told'),
    [
        ('utf-8', 'utf-8'),
        ('utf-8-sig', 'utf-8-sig'),
        ('utf-16', 'utf-16'),
        ('utf-16-le', 'utf-16-le'),
        ('utf-16-be', 'utf-16-be'),
        ('cp1252', 'cp1252'),
    ],
)
@pytest.mark.parametrize('delimiter', [',', ';', '\t', '|'])
def test_any_delimiter_and_encoding(tmp_path, encoding, told, delimiter):
    rows = [['city', 'größe', 'n'], ['Köln', '3.5', '1'], ['Fürth', '4.5', '2']]
    text = ''.join(delimiter.join(row) + '\r\n' for row in rows)
    profile = written(tmp_path, text.encode(encoding), 'data.csv')
    assert (profile.encoding, profile.delimiter) == (told, delimiter)
    assert columns(profile) == {'city': 'text', 'größe': 'number', 'n': 'integer'}
    assert profile.tables[0].total == 2
    call = profile.reading.replace("'data.csv'", repr(str(tmp_path / 'data.csv')))
    assert list(eval(call, {'pd': pd}).columns) == ['city', 'größe', 'n']


@pytest.mark.parametrize(
    ('text', 'encoding'),
    [
        ('城市,销售额\n北京,120\n上海,90\n', 'gb18030'),
        ('都市,ばしょ\nとうきょう,120\nおおさか,90\n', 'cp932'),
    ],
)
def test_eastern_encodings_are_guessed(tmp_path, text, encoding):
    profile = written(tmp_path, text.encode(encoding))
    assert profile.encoding == encoding
    assert profile.tables[0].columns[0].name == text.partition(',')[0]
    assert 'the encoding is a guess' in profile.notes


def test_types_missing_values_and_totals(tmp_path):
    text = (
        'id,when,at,ok,zip,price,mixed,nothing\n'
        '1,2024-01-31,2024-01-31 10:00,yes,01234,"1,234.50",1,\n'
        '2,2024-02-29,2024-02-29T11:30:05Z,no,99999,12,2,\n'
        '3,,,,00001,n/a,x,\n'
    )
    profile = written(tmp_path, text.encode())
    assert columns(profile) == {
        'id': 'integer',
        'when': 'date',
        'at': 'date and time',
        'ok': 'boolean',
        'zip': 'text (digits, some with leading zeros)',
        'price': 'number',
        'mixed': 'text',
        'nothing': 'empty',
    }
    (table,) = profile.tables
    assert [c.missing for c in table.columns] == [0, 1, 1, 1, 0, 1, 0, 3]
    assert (table.total, table.estimated, profile.thousands) == (3, False, ',')


def test_line_feeds_inside_quotes_are_no_rows(tmp_path):
    profile = written(tmp_path, b'a,b\n1,"x\ny"\n2,"z"\n')
    assert profile.tables[0].total == 2


def test_titles_before_the_table_and_ragged_rows_are_told(tmp_path):
    text = '\nReport of May\n\ncity,n\nKöln,1\nBonn,2\nUlm,3,extra\nBerlin,4\n'
    profile = written(tmp_path, text.encode())
    assert profile.skip == 3
    assert columns(profile) == {'city': 'text', 'n': 'integer'}
    assert 'rows with another number of fields: 1 of the first 4' in profile.notes


def test_a_table_without_a_header(tmp_path):
    profile = written(tmp_path, b'1,2\n3,4\n')
    assert not profile.header
    assert columns(profile) == {'column 1': 'integer', 'column 2': 'integer'}
    assert profile.tables[0].total == 2
    assert profile.reading == "pd.read_csv('data.csv', header=None)"


def test_one_column_and_only_a_header(tmp_path):
    assert columns(written(tmp_path, b'name\nAda\nBob\n')) == {'name': 'text'}
    profile = written(tmp_path, b'a,b,c\n')
    assert (profile.tables[0].total, len(profile.tables[0].columns)) == (0, 3)


def test_empty_and_binary_and_plain_text(tmp_path):
    assert written(tmp_path, b'').notes == ('the file is empty: 0 bytes',)
    assert written(tmp_path, b'\n\n').notes == ('there are no rows',)
    assert written(tmp_path, bytes(range(256)) * 4, 'x.bin').kind == 'binary'
    profile = written(tmp_path, b'Dear Ada,\nit rains.\n', 'letter.txt')
    assert (profile.kind, profile.notes) == ('text', ('2 lines',))
    assert '| it rains.' in describe(profile)
    assert written(tmp_path, b'a\tb\n1\t2\n3\t4\n', 'table.txt').delimiter == '\t'


def test_a_gigabyte_is_only_looked_at_from_its_beginning(tmp_path):
    path = tmp_path / 'big.csv'
    with path.open('wb') as file:
        file.write(b'id,value\n' + b'1234567,12.345678\n' * 30_000)
        file.truncate(1_000_000_000)
    profile = look(path)
    (table,) = profile.tables
    assert table.estimated
    assert 50_000_000 < table.total < 60_000_000
    assert columns(profile) == {'id': 'integer', 'value': 'number'}
    assert 'about' in describe(profile)


def test_a_cut_character_at_the_end_of_what_is_read_does_not_change_the_encoding(tmp_path):
    for shift in range(3):
        data = b'a,b\n' + b'x' * shift + ('1,漢字\n' * 100_000).encode()
        assert written(tmp_path, data).encoding == 'utf-8'
    data = codecs.BOM_UTF16_LE + ('1,漢字\n' * 100_000).encode('utf-16-le')
    assert written(tmp_path, data).encoding == 'utf-16'


def test_wide_tables_are_told_in_part(tmp_path):
    names = [f'c{n}' for n in range(5_000)]
    profile = written(tmp_path, (','.join(names) + '\n' + ','.join('1' * 5_000)).encode())
    (table,) = profile.tables
    assert (table.width, len(table.columns)) == (5_000, 200)
    assert 'and 4970 more' in describe(profile)


def test_one_sign_is_not_taken_for_both_groups_and_decimals(tmp_path):
    profile = written(tmp_path, b'a;b\n1,5;1,234\n2,25;5,678\n')
    assert (profile.decimal, profile.thousands) == (',', None)
    assert columns(profile) == {'a': 'number', 'b': 'number'}


@pytest.mark.parametrize('name', ['a.md', 'a.py', 'a.txt'])
def test_prose_with_a_comma_is_no_table(tmp_path, name):
    assert written(tmp_path, b'Hello, world', name).kind == 'text'
