"""The guest's supervisor: life and death of the kernel, owners, hostile peers."""

import signal
import struct
from pathlib import Path

import pytest

FAMILY = """
import os, pathlib, signal, time

def run(connection, workspace):
    here = pathlib.Path(workspace)
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            (here / 'grandchild').write_text(f'{os.getpid()}\\n')
            time.sleep(600)
        os._exit(0)
    time.sleep(600)
"""


def kernel_of(owner) -> int:
    """Return the kernel's process id, once it has been forked."""
    while not (pid := owner.ask('status')['pid']):
        pass
    return int(pid)


def ending(statement: str) -> str:
    return f'import os, sys\n\ndef run(connection, workspace):\n    {statement}\n'


def test_an_owner_is_told_that_the_kernel_runs(start_guest):
    with start_guest().connect() as owner:
        answer = owner.ask('own', id=7)
        assert kernel_of(owner) > 0
    del answer['pid']
    assert answer == {'id': 7, 'ok': True, 'kernel': 'running', 'generation': 1, 'oom_kills': 0}


@pytest.mark.parametrize(
    ('statement', 'code', 'number'),
    [
        ('return', 0, None),
        ('os._exit(3)', 3, None),
        ('raise RuntimeError', 1, None),
        ('os.kill(os.getpid(), 9)', None, 9),
        ('os.abort()', None, signal.SIGABRT),
    ],
)
def test_the_end_of_the_kernel_is_reported_with_its_cause(start_guest, statement, code, number):
    # An owner that comes too late for the event is told at once.
    with start_guest(ending(statement)).owned() as owner:
        event = owner.receive()
    assert event['event'] == 'exited'
    assert (event['code'], event['signal']) == (code, number)
    assert event['generation'] == 1


def test_the_end_of_the_kernels_stderr_is_reported(start_guest):
    kernel = ending("os.write(2, b'x' * 50_000 + b'\\xff the cause'); os._exit(1)")
    with start_guest(kernel).owned() as owner:
        log = owner.receive()['log']
    assert log.endswith('x\ufffd the cause')
    assert len(log) == 4096


def test_a_kernel_that_cannot_start_says_why(start_guest):
    with start_guest('import no_such_module\n').owned() as owner:
        assert "No module named 'no_such_module'" in owner.receive()['log']


def test_a_signal_reaches_the_kernels_process_group(start_guest, patience):
    kernel = (
        'import pathlib, signal, time\n\n'
        'def run(connection, workspace):\n'
        "    note = lambda *_: pathlib.Path(workspace, 'got').write_text('SIGINT\\n')\n"
        '    signal.signal(signal.SIGINT, note)\n'
        "    pathlib.Path(workspace, 'ready').write_text('yes\\n')\n"
        '    time.sleep(600)\n'
    )
    guest = start_guest(kernel)
    with guest.owned() as owner:
        patience.line(guest.workspace / 'ready')
        assert owner.ask('signal', signal=2)['ok']
        assert patience.line(guest.workspace / 'got') == 'SIGINT'


@pytest.mark.parametrize('number', [-1, 1000, '9', None, True, 1 << 70])
def test_a_signal_that_does_not_exist_is_refused(start_guest, number):
    with start_guest().owned() as owner:
        kernel_of(owner)
        assert owner.ask('signal', signal=number)['error'] == 'bad_request'
        assert owner.ask('status')['kernel'] == 'running'


def test_kill_ends_all_descendants_and_a_new_kernel_can_start(start_guest, patience):
    guest = start_guest(FAMILY)
    with guest.owned() as owner:
        grandchild = int(patience.line(guest.workspace / 'grandchild'))
        owner.send({'op': 'kill', 'id': 1})
        # Either may come first: a dead process counts as ended before it is reaped.
        event, answer = sorted((owner.receive(), owner.receive()), key=lambda sent: 'id' in sent)
        assert (event['event'], event['signal']) == ('exited', 9)
        assert answer['ok']
        assert owner.ask('status')['kernel'] == 'ended'
        patience.gone(grandchild)
        assert owner.ask('signal', signal=2)['error'] == 'ended'

        started = owner.ask('start')
        assert (started['kernel'], started['generation']) == ('running', 2)
        assert owner.ask('start')['error'] == 'running'


def test_stop_ends_everything(start_guest, patience):
    guest = start_guest(FAMILY)
    with guest.owned() as owner:
        grandchild = int(patience.line(guest.workspace / 'grandchild'))
        assert owner.ask('stop')['ok']
    assert guest.process.wait(60) == 0
    patience.gone(grandchild)


def test_the_kernel_dies_with_its_supervisor(start_guest, patience):
    guest = start_guest()
    with guest.connect() as owner:
        owner.ask('own')
        pid = kernel_of(owner)
    guest.process.kill()
    patience.gone(pid)


def test_it_ends_by_itself_when_nobody_comes(start_guest):
    assert start_guest(FAMILY, '--orphan-grace', '0.2').process.wait(60) == 0


def test_it_ends_by_itself_when_its_owner_is_gone(start_guest):
    guest = start_guest(FAMILY, '--orphan-grace', '3')
    with guest.owned() as owner:
        for _ in range(3):
            assert owner.ask('status')['ok']
    assert guest.process.wait(60) == 0


def test_there_is_one_owner_at_a_time(start_guest):
    guest = start_guest()
    with guest.owned(), guest.connect() as second:
        assert second.ask('own', id=2)['error'] == 'owned'
        assert second.is_closed()
    with guest.owned() as next_owner:
        assert next_owner.ask('status')['ok']


@pytest.mark.parametrize('op', ['kill', 'start', 'stop', 'signal', 'status', 'nonsense'])
def test_only_the_owner_may_command(start_guest, op):
    guest = start_guest()
    with guest.connect() as stranger:
        assert stranger.ask(op, signal=9)['error'] == 'bad_request'
    with guest.owned() as owner:
        assert owner.ask('status')['kernel'] == 'running'


def test_code_of_the_same_user_is_turned_away(start_guest):
    guest = start_guest(same_uid=False)
    with guest.connect() as stranger:
        assert stranger.is_closed()


@pytest.mark.parametrize(
    'nonsense',
    [
        b'GET / HTTP/1.1\r\n\r\n',
        struct.pack('>I', 1 << 31),
        struct.pack('>I', 3) + b'[1]',
        struct.pack('>I', 2) + b'{}',
        struct.pack('>I', 8) + b'{"op":1}',
        struct.pack('>I', 4) + b'\xff\xfe\x00\x01',
        struct.pack('>I', 200_000) + b'[' * 200_000,
    ],
    ids=['text', 'huge', 'list', 'no op', 'op', 'not UTF-8', 'deep'],
)
def test_a_peer_that_talks_nonsense_is_dropped_and_nobody_else(start_guest, nonsense):
    guest = start_guest()
    with guest.owned() as owner, guest.connect() as peer:
        peer.socket.sendall(nonsense)
        assert peer.is_closed()
        assert owner.ask('status')['ok']


def test_silent_peers_hold_up_nobody(start_guest):
    guest = start_guest()
    silent = [guest.connect() for _ in range(5)]
    with guest.owned() as owner:
        assert owner.ask('status')['ok']
        with guest.connect() as peer:
            assert peer.ask('list', path='', max=10) == {'ok': True, 'entries': [], 'more': False}
    for peer in silent:
        peer.socket.close()


def test_slow_file_transfers_hold_up_nobody_and_are_counted(start_guest):
    guest = start_guest()
    slow = [guest.connect() for _ in range(8)]
    for number, peer in enumerate(slow):
        peer.send({'op': 'write', 'path': f'f{number}', 'size': 2}, b'a')
    with guest.owned() as owner:
        assert owner.ask('status')['ok']
        with guest.connect() as peer:
            assert peer.ask('list', path='', max=10)['error'] == 'busy'
        for peer in slow:
            peer.socket.sendall(b'b')
            assert peer.receive()['ok']
            peer.socket.close()
    assert (guest.workspace / 'f7').read_bytes() == b'ab'


def test_the_kernel_inherits_no_descriptors_and_leads_its_session(start_guest, patience):
    kernel = (
        'import os, pathlib, signal\n\n'
        'def run(connection, workspace):\n'
        '    links = {n: os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")'
        ' if os.path.exists(f"/proc/self/fd/{n}")}\n'
        '    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler\n'
        '    text = repr((sorted(links), links["0"], os.getsid(0) == os.getpid(), usual))\n'
        "    pathlib.Path(workspace, 'seen').write_text(text + '\\n')\n"
    )
    guest = start_guest(kernel)
    assert patience.line(guest.workspace / 'seen') == "(['0', '1', '2'], '/dev/null', True, True)"


def children_of(pid: int) -> list[str]:
    return Path(f'/proc/{pid}/task/{pid}/children').read_text().split()


def test_the_owner_is_told_a_small_workspace_at_once(start_guest):
    guest = start_guest()
    (guest.workspace / 'f').write_text('x')
    with guest.owned() as owner:
        kernel_of(owner)
        before = children_of(guest.process.pid)
        answer = owner.ask('list', id=7, path='', max=10)
        assert (answer['id'], answer['ok'], answer['more']) == (7, True, False)
        assert [entry[:2] for entry in answer['entries']] == [['f', 1]]
        for n in range(1_000):
            (guest.workspace / str(n)).touch()
        assert owner.ask('list', id=8, path='', max=10_000)['error'] == 'not_quick'
        assert owner.ask('list', id=9, path='..', max=10)['error'] == 'bad_path'
        assert children_of(guest.process.pid) == before
