"""What a look at a compressed file finds: what is inside, however it was named."""

import bz2
import gzip
import io
import lzma
import random
import tarfile
from pathlib import Path

import pandas as pd
import pytest

from lagent.analysis.guest import compressed
from lagent.analysis.guest.profile import profile_file
from lagent.analysis.profiles import FileProfile, describe, parse_profile

SALES = b'region;amount\nnorth;1,5\nsouth;2,5\n'
PACKERS = {'gzip': gzip.compress, 'bz2': bz2.compress, 'xz': lzma.compress}


def written(folder: Path, data: bytes, name: str) -> FileProfile:
    path = folder / name
    path.write_bytes(data)
    return parse_profile(path.name, path.stat().st_size, profile_file(path))


@pytest.mark.parametrize(
    ('kind', 'name'),
    [('gzip', 's.csv.gz'), ('bz2', 's.csv.bz2'), ('xz', 's.csv.xz'), ('gzip', 's.csv')],
)
def test_a_compressed_table_is_told_like_the_table_and_read_by_the_call_that_is_given(
    tmp_path, monkeypatch, kind, name
):
    profile = written(tmp_path, PACKERS[kind](SALES), name)
    assert (profile.kind, profile.compression, profile.delimiter) == ('table', kind, ';')
    assert profile.tables[0].total == 2
    assert f'compressed with {kind}' in describe(profile)
    monkeypatch.chdir(tmp_path)
    table = eval(profile.reading, {'pd': pd})
    assert table['amount'].tolist() == [1.5, 2.5]


def test_the_size_is_that_of_the_compressed_file(tmp_path):
    data = gzip.compress(SALES * 1_000)
    assert written(tmp_path, data, 's.csv.gz').size == len(data)


@pytest.mark.parametrize('name', ['rows.jsonl.gz', 'rows.jsonl'])
def test_compressed_json_lines_are_read_by_the_call_that_is_given(tmp_path, monkeypatch, name):
    profile = written(tmp_path, gzip.compress(b'{"a": 1}\n{"a": 2}\n'), name)
    monkeypatch.chdir(tmp_path)
    assert eval(profile.reading, {'pd': pd})['a'].tolist() == [1, 2]


def test_of_what_is_large_inside_only_the_beginning_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(compressed, 'COUNTED_BYTES', 2 * 1024 * 1024)
    bomb = gzip.compress(b'a,b\n' + b'1,2\n' * 20_000_000)
    profile = written(tmp_path, bomb, 'bomb.csv.gz')
    assert profile.kind == 'table'
    assert profile.tables[0].total is None
    assert 'only the first 2 MiB of what is inside were looked at' in profile.notes


def test_a_file_that_breaks_off_is_told_as_far_as_it_goes(tmp_path):
    noise = random.Random(7).randbytes(60_000).hex().encode()
    whole = gzip.compress(b'a,b\n' + b''.join(b'%b,2\n' % noise[n : n + 9] for n in range(90_000)))
    profile = written(tmp_path, whole[: len(whole) // 2], 'cut.csv.gz')
    assert profile.kind == 'table'
    assert profile.tables[0].total is None
    assert any('damaged or cut' in note for note in profile.notes)


@pytest.mark.parametrize('magic', [b'\x1f\x8b', b'BZh', b'\xfd7zXZ\x00'])
def test_what_only_looks_compressed_is_said_to_be_broken(tmp_path, magic):
    assert 'could not be unpacked' in (written(tmp_path, magic + b'no more', 'a.gz').error or '')


@pytest.mark.parametrize('name', ['files.tar', 'files.tar.gz', 'files.tgz'])
def test_a_tape_archive_lists_its_members_and_leaves_them_packed(tmp_path, name):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w:gz' if name.endswith('gz') else 'w') as archive:
        for member in ('a.csv', '../../etc/escape'):
            info = tarfile.TarInfo(member)
            info.size = 3
            archive.addfile(info, io.BytesIO(b'abc'))
    profile = written(tmp_path, out.getvalue(), name)
    assert profile.kind == 'archive'
    assert 'a.csv (3 bytes)' in profile.notes
    assert '../../etc/escape (3 bytes)' in profile.notes
    assert not (tmp_path.parent.parent / 'etc').exists()
    assert profile.reading == ''


def test_a_compressed_workbook_is_given_no_call_that_would_not_work(tmp_path):
    pd.DataFrame({'a': [1]}).to_excel(tmp_path / 'b.xlsx', index=False)
    profile = written(tmp_path, gzip.compress((tmp_path / 'b.xlsx').read_bytes()), 'b.xlsx.gz')
    assert (profile.kind, profile.reading) == ('workbook', '')
