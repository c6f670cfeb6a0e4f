"""The session itself: what holds even where nothing is run."""

import os
from pathlib import Path

import pytest

from sandbox import FileRefused, PolicyError, Sandbox, SandboxClosed, SandboxPolicy
from sandbox.backends import Backend
from sandbox.conformance.expectation import MakeBox, expectation


@expectation(needs='files')
def test_a_cell_without_output_is_ok(make: MakeBox) -> None:
    """A cell that prints nothing says so, and is a success."""
    result = make().execute('pass')
    assert (result.outcome, result.stdout, result.text) == ('ok', '', '[no output]')


@expectation(needs='files')
def test_a_stream_ends_with_the_result(make: MakeBox) -> None:
    """The last event of a stream, and no other, carries the result."""
    events = list(make().stream('pass'))
    assert [event.kind for event in events].count('result') == 1
    assert events[-1].result is not None


@expectation(40, needs='files')
def test_closing_may_be_repeated(make: MakeBox) -> None:
    """A session is closed once and for all, however often it is asked."""
    box = make()
    box.start()
    box.close()
    box.close()
    assert box.closed


@expectation(40, needs='files')
@pytest.mark.parametrize('call', ['execute', 'start', 'files', 'restart', 'read', 'delete'])
def test_a_closed_session_refuses_every_call(make: MakeBox, call: str) -> None:
    """No call starts a closed session again."""
    box = make()
    box.close()
    arguments = ['x'] if call in ('execute', 'read', 'delete') else []
    with pytest.raises(SandboxClosed):
        getattr(box, call)(*arguments)


@expectation(needs='files')
@pytest.mark.parametrize('timeout', [0.0, -1.0, float('inf'), float('nan')])
def test_a_cell_has_a_finite_time(make: MakeBox, timeout: float) -> None:
    """A timeout is positive and finite."""
    with pytest.raises(PolicyError):
        make().execute('pass', timeout=timeout)


@expectation(27, needs='files')
def test_a_new_session_has_no_files(backend: Backend) -> None:
    """What one session leaves, the next one of the same name does not find."""
    for _ in range(2):
        with Sandbox(backend=backend, id='the same') as box:
            assert box.files() == []
            box.upload(b'x', name='secret')


@expectation(needs='files')
def test_files_go_in_and_come_out(make: MakeBox, tmp_path: Path) -> None:
    """Bytes come back as they were given, from a path and from memory."""
    data = bytes(range(256)) * 5_000
    source = tmp_path / 'source.bin'
    source.write_bytes(data)
    box = make()
    assert box.upload(source).size == len(data)
    box.upload(b'small', name='sub/dir/small')
    assert box.read('source.bin') == data
    assert box.download('sub/dir/small', to=tmp_path / 'new').read_bytes() == b'small'
    assert [info.path for info in box.files()] == ['source.bin', 'sub/dir/small']
    assert [info.path for info in box.files('sub')] == ['sub/dir/small']


@expectation(16, needs='files')
def test_a_file_over_the_limit_is_refused_before_it_is_sent(make: MakeBox) -> None:
    """An upload that is too large changes nothing."""
    box = make(max_file_bytes=1_000)
    box.upload(bytes(1_000), name='f')
    with pytest.raises(FileRefused, match='max_file_bytes'):
        box.upload(bytes(1_001), name='f')
    assert box.read('f') == bytes(1_000)


@expectation(22, needs='files')
def test_only_regular_files_of_the_host_are_uploaded(make: MakeBox, tmp_path: Path) -> None:
    """A pipe, a folder, a device and a missing file are refused at once."""
    os.mkfifo(tmp_path / 'pipe')
    box = make()
    for path in (tmp_path / 'pipe', tmp_path, Path(os.devnull), tmp_path / 'missing'):
        with pytest.raises(FileRefused):
            box.upload(path, name='f')
    with pytest.raises(FileRefused, match='name'):
        box.upload(b'bytes have none')
    assert box.files() == []


@expectation(22, needs='files')
def test_a_download_never_replaces_a_folder_or_follows_a_link(
    make: MakeBox, tmp_path: Path
) -> None:
    """What lies in the target's place is replaced, or refused, but never written through."""
    box = make()
    box.upload(b'new', name='f')
    victim, out = tmp_path / 'victim', tmp_path / 'out'
    victim.write_bytes(b'old')
    out.mkdir()
    (out / 'f').symlink_to(victim)
    assert box.download('f', to=out).read_bytes() == b'new'
    assert victim.read_bytes() == b'old'
    (tmp_path / 'other' / 'f').mkdir(parents=True)
    with pytest.raises(FileRefused, match='folder'):
        box.download('f', to=tmp_path / 'other')


@expectation(22, needs='files')
def test_what_is_not_there_is_said_to_be_missing(make: MakeBox, tmp_path: Path) -> None:
    """Reading, downloading, listing and deleting nothing is refused with the reason."""
    box = make()
    for attempt in (
        lambda: box.read('missing'),
        lambda: box.download('missing', to=tmp_path),
        lambda: box.files('missing'),
        lambda: box.delete('missing'),
    ):
        with pytest.raises(FileRefused, match='no such file'):
            attempt()
    assert list(tmp_path.iterdir()) == []


@expectation(16, needs='files')
def test_a_listing_is_whole_or_refused(make: MakeBox) -> None:
    """A workspace with more files than a listing names is not shown in part."""
    box = make(max_files=3)
    for number in range(3):
        box.upload(b'x', name=f'f{number}')
    assert len(box.files()) == 3
    box.upload(b'x', name='f3')
    with pytest.raises(FileRefused, match='more files'):
        box.files()


@expectation(needs='files')
def test_the_policy_is_that_of_the_session(make: MakeBox) -> None:
    """A session keeps the policy that it was made with, and the policy cannot be loosened."""
    box = make(timeout=7.0)
    assert box.policy == SandboxPolicy(timeout=7.0)
    with pytest.raises(PolicyError):
        box.policy.tighten(timeout=8.0)


@expectation()
def test_an_unstarted_sandbox_starts_by_itself(backend: Backend) -> None:
    """The first call that needs it starts the sandbox; until then there is none."""
    box = Sandbox(backend=backend)
    try:
        assert (box.container_id, box.pid) == (None, None)
        assert box.execute('1 + 1').result == '2'
        assert (box.container_id or box.pid) is not None
    finally:
        box.close()


@expectation(19, needs='env')
def test_only_the_variables_of_the_policy_are_passed_on(
    make: MakeBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host's environment stays with the host, even where nothing else is kept apart."""
    monkeypatch.setenv('SECRET_TOKEN', 'hunter2')
    result = make(env={'GIVEN': 'yes'}).execute(
        "import os\nprint(os.environ.get('GIVEN'), 'SECRET_TOKEN' in os.environ)"
    )
    assert result.stdout == 'yes False\n'
