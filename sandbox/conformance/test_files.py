"""Files in and out of a workspace that hostile code has been at."""

import json
from pathlib import Path

import pytest

from sandbox import FileRefused, Sandbox
from sandbox.conformance.expectation import (
    MakeBox,
    expectation,
)

NAMES = [
    *('Umsätze – März 2025 (final).csv', "it's $HOME; 100%.csv", 'データ.csv', 'a b/c d.txt'),
    # Two names each: by case, and by the two ways to write an accent.
    *('Data.csv', 'data.csv', 'caf\u00e9.csv', 'cafe\u0301.csv'),
]
HOSTILE = """
import os, socket
os.symlink('/etc/passwd', 'link')
os.symlink('/etc', 'folder')
os.mkfifo('pipe')
socket.socket(socket.AF_UNIX).bind('socket')
open('line\\nfeed', 'w').write('x')
open(b'raw\\xff', 'w').write('x')
open('plain', 'w').write('x')
os.mkdir('d')
os.link('plain', 'd/hard')
"""


@expectation(22)
def test_names_come_back_as_they_were_given(make: MakeBox) -> None:
    box = make()
    for name in NAMES:
        assert box.upload(name.encode(), name=name).path == name
    assert [info.path for info in box.files()] == sorted(NAMES)
    listed = box.execute(
        'import os, json\nprint(json.dumps(sorted(os.path.relpath(os.path.join(d, f), ".")'
        ' for d, _, fs in os.walk(".") for f in fs)))'
    )
    assert listed.outcome == 'ok'
    assert json.loads(listed.stdout) == sorted(NAMES)
    for name in NAMES:
        assert box.execute(f'print(open({name!r}).read())').stdout == f'{name}\n'
        assert box.read(name) == name.encode()


@expectation()
def test_bytes_are_not_touched(make: MakeBox, tmp_path: Path) -> None:
    data = 'Stadt;Umsatz\nKöln;1.234,50\n'.encode('cp1252') + bytes(range(256))
    box = make()
    box.upload(data, name='umsatz.csv')
    assert box.execute("print(open('umsatz.csv', 'rb').read(15))").stdout == f'{data[:15]!r}\n'
    assert box.download('umsatz.csv', to=tmp_path).read_bytes() == data


@expectation(22, needs='files')
@pytest.mark.parametrize(
    'name', ['../../tmp/esc.txt', '/etc/abs.txt', 'a\\..\\b.txt', '', 'nul\0.txt']
)
def test_names_that_would_leave_the_workspace(shared: Sandbox, name: str, tmp_path: Path) -> None:
    with pytest.raises(FileRefused) as caught:
        shared.upload(b'x', name=name)
    assert repr(name) in str(caught.value)
    with pytest.raises(FileRefused):
        shared.download(name, to=tmp_path)
    assert shared.files() == []


@expectation()
def test_artifacts_are_what_the_cell_made_or_changed(make: MakeBox) -> None:
    box = make()
    box.upload(b'1', name='given.txt')
    box.upload(b'1', name='same.txt')
    code = (
        "open('new.txt', 'w').write('ab')\nopen('given.txt', 'a').write('2')\n"
        "open('same.txt').read()"
    )
    result = box.execute(code)
    assert [(info.path, info.size) for info in result.artifacts] == [
        ('given.txt', 2),
        ('new.txt', 2),
    ]
    assert 'new.txt (2 bytes)' in result.text
    assert box.execute('1').artifacts == ()


@expectation(22)
def test_hostile_files_are_listed_safely_and_not_followed(make: MakeBox, tmp_path: Path) -> None:
    box = make()
    assert box.execute(HOSTILE).error is None
    kinds = {info.path: info.kind for info in box.files()}
    assert kinds['link'] == kinds['folder'] == 'link'
    assert kinds['pipe'] == kinds['socket'] == 'other'
    assert kinds['raw\\xff'] == kinds['line\nfeed'] == kinds['plain'] == 'file'
    for name in ('link', 'folder/hostname', 'pipe', 'socket', 'd', 'missing', 'line\nfeed'):
        with pytest.raises(FileRefused):
            box.download(name, to=tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileRefused, match='link'):
        box.upload(b'x', name='folder/new')
    assert box.read('d/hard') == b'x'
    box.delete('link')
    assert 'link' not in {info.path for info in box.files()}
    assert Path('/etc/passwd').exists()


@expectation(16)
def test_a_huge_file_is_refused_by_its_size(make: MakeBox) -> None:
    box = make(max_file_bytes=1_000)
    box.execute("open('big', 'wb').write(bytes(1001))")
    with pytest.raises(FileRefused, match='larger'):
        box.read('big')


@expectation(needs='files')
def test_delete_takes_folders_with_all_they_hold(make: MakeBox) -> None:
    box = make()
    box.upload(b'x', name='d/e/f')
    box.delete('d')
    assert box.files() == []


@expectation()
def test_a_file_may_be_uploaded_while_a_cell_runs(make: MakeBox) -> None:
    box = make()
    code = (
        "import time, os\nprint('on', flush=True)\n"
        "while not os.path.exists('flag'): time.sleep(0.01)\nprint(open('flag').read())"
    )
    result = None
    for event in box.stream(code):
        if event.output and event.output.text == 'on\n':
            box.upload(b'now', name='flag')
        result = event.result
    assert result is not None
    assert result.stdout == 'on\nnow\n'


@expectation(needs='files')
def test_an_empty_file(make: MakeBox, tmp_path: Path) -> None:
    box = make()
    box.upload(b'', name='empty')
    assert box.read('empty') == b''
    assert box.download('empty', to=tmp_path).stat().st_size == 0
