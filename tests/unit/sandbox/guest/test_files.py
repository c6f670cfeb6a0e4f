"""The guest's file operations: what they do, and what they refuse."""

import errno
import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def ask(guest_files, open_pair, tmp_path):
    """Have one request carried out below `tmp_path`, and return the answer."""

    def ask(op: str, data: bytes = b'', early: int = 0, **fields: Any) -> dict[str, Any]:
        driver, theirs = open_pair()
        request = {'op': op, **fields}
        serving = threading.Thread(
            target=guest_files.serve, args=(theirs, request, data[:early], str(tmp_path))
        )
        serving.start()
        driver.socket.sendall(data[early:])
        answer = driver.receive()
        serving.join()
        return answer

    return ask


def names(answer: dict[str, Any]) -> list[str]:
    return [entry[0] for entry in answer['entries']]


def test_a_file_goes_in_and_comes_out(guest_files, open_pair, tmp_path, ask):
    data = os.urandom(300_000)
    answer = ask('write', data, early=1000, path='a/b/c.bin', size=len(data))
    status = (tmp_path / 'a/b/c.bin').stat()
    entry = ['a/b/c.bin', len(data), status.st_mtime_ns, 'file', status.st_ino, '']
    assert answer == {'ok': True, 'entry': entry}
    assert (tmp_path / 'a/b/c.bin').read_bytes() == data
    assert sorted(path.name for path in tmp_path.rglob('*')) == ['a', 'b', 'c.bin']

    driver, theirs = open_pair()
    reading = threading.Thread(
        target=guest_files.serve,
        args=(theirs, {'op': 'read', 'path': 'a/b/c.bin', 'max': len(data)}, b'', str(tmp_path)),
    )
    reading.start()
    assert driver.receive() == {'ok': True, 'size': len(data)}
    assert driver.exactly(len(data)) == data
    assert driver.receive() == {'ok': True}
    reading.join()


def test_an_empty_file_is_a_file(tmp_path, ask):
    assert ask('write', path='empty', size=0)['ok']
    assert ask('list', path='', max=5)['entries'][0][:2] == ['empty', 0]


def test_what_was_written_is_told_as_a_listing_tells_it(ask):
    for name, data in (('small', b'data'), ('empty', b''), ('large', bytes(1 << 19))):
        answer = ask('write', data, path=name, size=len(data))
        listed = ask('list', path='', max=9, digests=True)['entries']
        assert answer['entry'] in listed


def test_a_file_that_shrinks_is_filled_up_and_marked(guest_files, open_pair, tmp_path):
    size = 4 << 20
    (tmp_path / 'log').write_bytes(b'x' * size)
    driver, theirs = open_pair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    request = {'op': 'read', 'path': 'log', 'max': size}
    reading = threading.Thread(target=guest_files.serve, args=(theirs, request, b'', str(tmp_path)))
    reading.start()
    assert driver.receive() == {'ok': True, 'size': size}
    os.truncate(tmp_path / 'log', 0)
    assert driver.exactly(size).strip(b'x').strip(b'\0') == b''
    assert driver.receive() == {'ok': False, 'error': 'changed'}
    reading.join()


@pytest.mark.parametrize(
    'path',
    [
        *('/etc/passwd', '../x', 'a/../../x', '.', 'a/.', 'a//b', 'a/', '', 'nul\0', 'x' * 5000),
        *('/'.join('a' * 100), '\ud800', 7, None, ['a']),
    ],
)
@pytest.mark.parametrize('op', ['read', 'write', 'delete'])
def test_a_path_that_is_not_plainly_relative_is_refused(tmp_path, ask, op, path):
    answer = ask(op, b'data', path=path, size=4, max=10)
    assert (answer['ok'], answer['error']) == (False, 'bad_path')
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize('value', [-1, 1.5, '4', None, True, 1 << 80])
def test_a_size_that_is_none_is_refused(ask, value):
    assert ask('write', path='a', size=value)['error'] == 'bad_request'
    assert ask('list', path='', max=value)['error'] == 'bad_request'


def test_no_link_is_followed(tmp_path, tmp_path_factory, ask):
    outside = tmp_path_factory.mktemp('outside')
    (outside / 'secret').write_text('secret')
    (tmp_path / 'folder').symlink_to(outside)
    (tmp_path / 'file').symlink_to(outside / 'secret')

    assert ask('read', path='folder/secret', max=99)['ok'] is False
    assert ask('read', path='file', max=99)['error'] == 'is_link'
    assert ask('write', b'x', path='folder/new', size=1)['ok'] is False
    assert ask('delete', path='folder/secret')['ok'] is False
    assert ask('list', path='folder', max=9)['ok'] is False
    listing = ask('list', path='', max=9)
    assert [(entry[0], entry[3]) for entry in listing['entries']] == [
        ('file', 'link'),
        ('folder', 'link'),
    ]
    # To write over a link or to delete it concerns the link itself.
    assert ask('write', b'x', path='file', size=1)['ok']
    assert ask('delete', path='folder')['ok']
    assert (tmp_path / 'file').read_text() == 'x'
    assert [path.name for path in outside.iterdir()] == ['secret']
    assert (outside / 'secret').read_text() == 'secret'


def test_only_regular_files_are_read(tmp_path, ask):
    os.mkfifo(tmp_path / 'pipe')
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / 's'))
        (tmp_path / 'folder').mkdir()
        for name in ('pipe', 's', 'folder'):
            assert ask('read', path=name, max=99)['error'] == 'not_a_file', name


def test_a_file_above_the_limit_is_not_read(tmp_path, ask):
    os.truncate(os.open(tmp_path / 'sparse', os.O_CREAT | os.O_WRONLY), 1 << 40)
    answer = ask('read', path='sparse', max=1 << 20)
    assert (answer['error'], answer['actual']) == ('too_large', 1 << 40)


def test_what_is_not_there_is_not_found(ask):
    assert ask('read', path='a', max=1)['error'] == 'not_found'
    assert ask('delete', path='a')['error'] == 'not_found'
    assert ask('list', path='a', max=1)['error'] == 'not_found'


def test_a_folder_is_not_replaced_by_a_file(tmp_path, ask):
    (tmp_path / 'a').mkdir()
    assert ask('write', b'x', path='a', size=1)['error'] == 'is_directory'
    assert list(tmp_path.rglob('*')) == [tmp_path / 'a']


def test_a_full_disk_is_told_after_the_data_was_taken(monkeypatch, tmp_path, ask):
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, 'No space left on device')

    monkeypatch.setattr(os, 'write', full)
    answer = ask('write', bytes(2 << 20), path='big', size=2 << 20)
    monkeypatch.undo()
    assert (answer['ok'], answer['error']) == (False, 'no_space')
    assert list(tmp_path.iterdir()) == []


def test_data_that_breaks_off_leaves_nothing(guest_files, open_pair, tmp_path):
    driver, theirs = open_pair()
    driver.socket.sendall(b'half')
    driver.socket.shutdown(socket.SHUT_WR)
    guest_files.serve(theirs, {'op': 'write', 'path': 'a', 'size': 8}, b'', str(tmp_path))
    assert driver.receive()['error'] == 'bad_request'
    assert list(tmp_path.iterdir()) == []


def test_delete_removes_trees(tmp_path, ask):
    (tmp_path / 'a/b').mkdir(parents=True)
    (tmp_path / 'a/b/c').write_text('x')
    assert ask('delete', path='a')['ok']
    assert list(tmp_path.iterdir()) == []


def test_a_listing_is_cut_and_says_so_and_spares_what_is_on_top(tmp_path, ask):
    (tmp_path / 'a').mkdir()
    for number in range(30):
        (tmp_path / 'a' / f'{number}').touch()
    (tmp_path / 'z').touch()
    answer = ask('list', path='', max=10)
    assert answer['more'] is True
    assert len(answer['entries']) == 10
    assert names(answer)[:2] == ['a', 'z']
    whole = ask('list', path='', max=32)
    assert (len(whole['entries']), whole['more']) == (32, False)


def test_a_listing_goes_in_frames_whatever_the_names(guest_workspace, monkeypatch, tmp_path):
    monkeypatch.setattr(guest_workspace, 'MAX_LISTING', 1_200_000)
    frames = guest_workspace.MAX_FRAME
    for number in range(2000):
        (tmp_path / (f'{number:04}' + '\U0001f600' * 50)).touch()
    workspace = guest_workspace.Workspace(str(tmp_path))
    first, last = workspace.pages('', 100_000, digests=True)
    assert (first['next'], last['more']) == (True, True)
    assert 1500 < len(first['entries']) + len(last['entries']) < 2000
    assert all(len(json.dumps(each)) < frames for each in (first, last))
    monkeypatch.undo()
    answers = list(workspace.pages('', 100_000, digests=True))
    assert answers[-1]['more'] is False
    assert len({entry[0] for answer in answers for entry in answer['entries']}) == 2000


def test_ten_thousand_files_are_listed_with_long_names_and_digests(guest_workspace, tmp_path):
    for number in range(10_000):
        (tmp_path / (f'{number:05}' + '\u6570\u636e' * 20)).touch()
    answers = list(guest_workspace.Workspace(str(tmp_path)).pages('', 10_000, digests=True))
    assert answers[-1]['more'] is False
    assert sum(len(answer['entries']) for answer in answers) == 10_000


def test_names_that_are_not_text_survive(tmp_path, ask):
    Path(os.fsdecode(os.fsencode(tmp_path) + b'/caf\xe9\n')).write_bytes(b'data')
    (name,) = names(ask('list', path='', max=5))
    assert os.fsencode(name) == b'caf\xe9\n'
    assert ask('delete', path=name)['ok']


def test_a_listing_tells_size_time_kind_and_inode(tmp_path, ask):
    file = tmp_path / 'd' / 'f'
    file.parent.mkdir()
    file.write_bytes(b'12345')
    status = file.stat()
    entry = ask('list', path='', max=5)['entries'][1]
    assert entry == ['d/f', 5, status.st_mtime_ns, 'file', status.st_ino]


def test_a_listing_tells_digests_of_small_files(guest_workspace, tmp_path, ask):
    (tmp_path / 'a').write_bytes(b'same')
    (tmp_path / 'b').write_bytes(b'same')
    (tmp_path / 'c').write_bytes(b'else')
    (tmp_path / 'd').write_bytes(bytes(guest_workspace.DIGEST_FILE + 1))
    (tmp_path / 'e').symlink_to('a')
    os.mkfifo(tmp_path / 'f')
    a, b, c, *others = [entry[5] for entry in ask('list', path='', max=9, digests=True)['entries']]
    assert a == b != c
    assert len(a) == 32
    assert others == ['', '', '']
    assert len(ask('list', path='', max=9)['entries'][0]) == 5


def test_digests_cost_a_bounded_amount_of_reading(guest_workspace, tmp_path, ask):
    number = guest_workspace.DIGEST_ALL // guest_workspace.DIGEST_FILE
    for n in range(number + 2):
        (tmp_path / f'{n:03}').write_bytes(bytes(guest_workspace.DIGEST_FILE))
    entries = ask('list', path='', max=99, digests=True)['entries']
    assert [bool(entry[5]) for entry in entries] == [True] * number + [False] * 2


def test_a_quick_listing_gives_up_where_there_is_much(
    guest_files, guest_workspace, tmp_path, monkeypatch
):
    monkeypatch.setattr(guest_workspace, 'QUICK_TIME', 60.0)
    for n in range(guest_workspace.QUICK_ENTRIES):
        (tmp_path / str(n)).touch()
    request = {'op': 'list', 'path': '', 'max': 10_000}
    answer = guest_files.list_quickly(request, str(tmp_path))
    assert (len(answer['entries']), answer['more']) == (guest_workspace.QUICK_ENTRIES, False)
    (tmp_path / 'one more').touch()
    for wanted in (request, {**request, 'max': 10}):
        with pytest.raises(guest_files.RequestError) as caught:
            guest_files.list_quickly(wanted, str(tmp_path))
        assert caught.value.code == 'not_quick'
    (tmp_path / 'one more').unlink()
    with pytest.raises(guest_files.RequestError) as caught:
        guest_files.list_quickly({**request, 'path': 'missing'}, str(tmp_path))
    assert caught.value.code == 'not_found'
    monkeypatch.setattr(guest_workspace, 'QUICK_TIME', -1.0)
    with pytest.raises(guest_files.RequestError):
        guest_files.list_quickly(request, str(tmp_path))
