import asyncio
import errno
import os
from pathlib import Path

import pytest

from sandbox import AsyncSandbox, FakeSandbox, FileRefused, SandboxPolicy
from sandbox import files as files_module
from sandbox.backends.fake import FakeFiles
from sandbox.files import check_name, file_info
from sandbox.kernel.workspace import FileEntry


@pytest.mark.parametrize(
    'name',
    [
        'a',
        'sub/dir/a.bin',
        'Umsätze – März 2025 (final).csv',
        "it's $HOME; 100%.csv",
        'データ.csv',
        '...',
        '.hidden',
        '-rf',
        'a..b',
        'x' * 255,
    ],
)
def test_names_that_are_taken_as_they_are(name):
    assert check_name(name) == name


@pytest.mark.parametrize(
    'name',
    [
        '',
        '.',
        '..',
        '../a',
        '../../tmp/esc.txt',
        'a/../b',
        'a/./b',
        '/etc/abs.txt',
        'a//b',
        'a/',
        'a\\..\\b.txt',
        'a\\b',
        'nul\0.txt',
        'line\nfeed',
        'a\x7f',
        '\ud800',
        'x' * 256,
        'é' * 200,
        '/'.join(['x' * 200] * 6),
        None,
        5,
    ],
)
def test_names_that_are_refused_by_name(name):
    with pytest.raises(FileRefused) as caught:
        check_name(name)
    assert repr(name) in caught.value.message


def test_a_name_that_is_no_utf8_is_listed_safely():
    info = file_info(FileEntry('a\udcff\nb', 1, 1_500_000_000, 'file', 1))
    assert info.path == 'a\\xff\nb'
    assert info.modified == 1.5


@pytest.fixture
def box():
    with FakeSandbox(policy=SandboxPolicy(max_file_bytes=1_000, max_files=3)) as box:
        yield box


def test_bytes_need_a_name(box):
    with pytest.raises(FileRefused, match='name'):
        box.upload(b'x')


def test_a_file_keeps_its_name_or_gets_another(box, tmp_path):
    (tmp_path / 'a b.txt').write_bytes(b'data')
    assert box.upload(tmp_path / 'a b.txt').path == 'a b.txt'
    assert box.upload(str(tmp_path / 'a b.txt'), name='c/d').size == 4
    assert [info.path for info in box.files()] == ['a b.txt', 'c/d']
    assert [info.path for info in box.files('c')] == ['c/d']
    assert box.read('c/d') == b'data'


def test_size_is_checked_before_anything_is_copied(box, tmp_path):
    (tmp_path / 'big').write_bytes(bytes(1_001))
    for source in (bytes(1_001), tmp_path / 'big'):
        with pytest.raises(FileRefused, match='1,001 bytes'):
            box.upload(source, name='big')
    assert box.files() == []
    assert box.upload(bytes(1_000), name='fits').size == 1_000
    assert box.upload(b'', name='empty').size == 0


def test_what_is_not_a_regular_file_is_refused(box, tmp_path):
    os.mkfifo(tmp_path / 'pipe')
    for path in (tmp_path, tmp_path / 'pipe', tmp_path / 'missing', '/dev/null'):
        with pytest.raises(FileRefused, match=str(path)):
            box.upload(path, name='x')


def test_download_stays_in_its_folder(box, tmp_path):
    box.upload(b'data', name='sub/plot.png')
    target = box.download('sub/plot.png', to=tmp_path / 'new' / 'out')
    assert target == tmp_path / 'new' / 'out' / 'plot.png'
    assert target.read_bytes() == b'data'
    assert [path.name for path in target.parent.iterdir()] == ['plot.png']


def test_download_replaces_a_link_and_not_what_it_points_to(box, tmp_path):
    box.upload(b'new', name='a')
    (tmp_path / 'precious').write_bytes(b'old')
    (tmp_path / 'out').mkdir()
    (tmp_path / 'out' / 'a').symlink_to(tmp_path / 'precious')
    box.download('a', to=tmp_path / 'out')
    assert (tmp_path / 'precious').read_bytes() == b'old'
    assert (tmp_path / 'out' / 'a').read_bytes() == b'new'


def test_a_download_that_fails_leaves_nothing(box, tmp_path):
    (tmp_path / 'folder').mkdir()
    box.upload(b'x', name='folder')
    for name in ('missing', 'folder', '../../etc/hostname'):
        with pytest.raises(FileRefused, match=name):
            box.download(name, to=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ['folder']
    with pytest.raises(FileRefused, match=r'File exists|Not a directory'):
        (tmp_path / 'file').write_bytes(b'')
        box.download('folder', to=tmp_path / 'file')


def test_a_listing_is_never_cut_in_silence(box):
    for number in range(4):
        box.upload(b'', name=f'{number}')
    with pytest.raises(FileRefused, match='more files'):
        box.files()


def test_delete(box):
    box.upload(b'x', name='a')
    box.delete('a')
    with pytest.raises(FileRefused, match='no such file'):
        box.delete('a')


def test_a_download_never_touches_the_umask_of_the_process(tmp_path, monkeypatch):
    mask = os.umask(0o027)
    try:
        with FakeSandbox() as box, monkeypatch.context() as patched:
            patched.delattr(os, 'umask')
            box.upload(b'x', name='f')
            path = box.download('f', tmp_path)
        assert path.stat().st_mode & 0o777 == 0o640
        assert list(tmp_path.iterdir()) == [path]
    finally:
        os.umask(mask)


def test_a_reader_may_want_less_than_the_policy_allows() -> None:
    with FakeSandbox() as box:
        box.upload(b'data', name='f')
        assert box.read('f', max_bytes=4) == b'data'
        with pytest.raises(FileRefused, match='larger than'):
            box.read('f', max_bytes=3)


def test_what_the_host_cannot_write_is_refused(box, tmp_path):
    box.upload(b'x', name='f')
    with pytest.raises(FileRefused, match='/proc'):
        box.download('f', to='/proc')


def open_descriptors() -> list[str]:
    return sorted(path.name for path in Path('/proc/self/fd').iterdir())


async def test_a_transfer_that_fails_or_is_cancelled_leaves_nothing_open(tmp_path, monkeypatch):
    open_files = open_descriptors()
    async with AsyncSandbox(backend='fake') as box:
        (tmp_path / 'f').write_bytes(b'x' * 100)
        await box.upload(tmp_path / 'f')
        ended = []

        async def read(*_: object):
            try:
                while True:
                    yield b'x'
            finally:
                ended.append(True)

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, 'No space left on device')

        monkeypatch.setattr(box._machine.files, 'read', read)
        monkeypatch.setattr(files_module, '_write_all', full)
        with pytest.raises(FileRefused, match='No space left') as caught:
            await box.download('f', to=tmp_path / 'new')
        assert ended == [True], caught
        monkeypatch.undo()
        for rounds in range(8):
            for call in (box.upload(tmp_path / 'f'), box.download('f', to=tmp_path / 'new')):
                task = asyncio.create_task(call)
                for _ in range(rounds):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait({task}, timeout=5)
        await asyncio.get_running_loop().shutdown_default_executor()
        assert [path.name for path in (tmp_path / 'new').iterdir() if path.name != 'f'] == []
    assert open_descriptors() == open_files


def test_a_refusal_says_which_limit_was_met():
    class Long(FakeFiles):
        async def list(self, path, limit, *, digests=False):
            return [FileEntry('a', 1, 1, 'file', 1)], True

    with FakeSandbox() as box:
        box._machine.files = Long(box.policy)
        with pytest.raises(FileRefused, match='1 of such long names'):
            box.files()
