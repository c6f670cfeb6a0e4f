"""`runtime='runsc'`: what the code finds in gVisor, and what it tries to do to the bridge."""

import ast
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from docker.errors import NotFound

from sandbox import Allowlist, Outcome, PolicyNotEnforced, Sandbox, SandboxPolicy
from sandbox.backends.engine import engine

pytestmark = pytest.mark.runsc

POLICY = SandboxPolicy(runtime='runsc')


@pytest.fixture(scope='module')
def box() -> Iterator[Sandbox]:
    with Sandbox(POLICY) as box:
        yield box


def value(box: Sandbox, code: str) -> object:
    result = box.execute(code)
    assert result.ok, result.text
    return ast.literal_eval(result.result or 'None')


def test_the_kernel_that_the_code_sees_is_not_the_hosts(box):
    assert value(box, 'import platform; platform.release()') != os.uname().release
    assert value(box, 'import os; (os.getuid(), os.getgid(), os.getgroups())') == (65532, 65532, [])


def test_it_is_promised_where_the_engine_has_it():
    assert POLICY.enforced_by('docker')['runtime'] == 'enforced'
    with_network = SandboxPolicy(runtime='runsc', network='full').enforced_by('docker')
    assert "only network='none'" in with_network['network']


@pytest.mark.parametrize('network', ['full', Allowlist(['example.org'])])
def test_a_network_is_refused(network):
    box = Sandbox(SandboxPolicy(runtime='runsc', network=network))
    with pytest.raises(PolicyNotEnforced, match='network'):
        box.start()
    box.close()


def test_the_streams_of_the_bridge_are_out_of_reach(box):
    """Else code could speak for the supervisor, or take what the host says to it."""
    code = """
import os
def opened(path):
    got = []
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        try:
            fd = os.open(path, flags | os.O_NONBLOCK)
        except OSError:
            continue
        got.append(os.readlink(f'/proc/self/fd/{fd}'))
        os.close(fd)
    return got
others = [pid for pid in os.listdir('/proc') if pid.isdigit() and int(pid) != os.getpid()]
seen = set()
for pid in others:
    for base in (f'/proc/{pid}', f'/proc/{pid}/task/{pid}'):
        for number in range(32):
            seen.update(opened(f'{base}/fd/{number}'))
for name in ('/dev/stdin', '/dev/stdout', '/dev/stderr', *(f'/dev/fd/{n}' for n in range(3))):
    seen.update(opened(name))
(len(others), sorted(seen))
"""
    others, seen = value(box, code)
    assert others == 2  # the bridge and the supervisor
    assert not [link for link in seen if link.startswith(('host:', 'socket:'))], seen


@pytest.mark.parametrize(
    'deed',
    [
        'os.kill(1, 9)',
        'os.kill(1, 19)',
        'open("/proc/1/mem", "rb")',
        'os.setuid(os.stat("/proc/1").st_uid)',
        'os.setuid(0)',
        'os.setgroups([0])',
        'check(libc.ptrace(16, 1, 0, 0))',
        'check(libc.unshare(0x10000000))',
        'check(libc.syscall(438, 0, 0, 0))',  # pidfd_getfd
    ],
)
def test_the_bridge_cannot_be_harmed(box, deed):
    code = (
        'import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n'
        'def check(result):\n'
        '    if result < 0:\n        raise OSError(ctypes.get_errno(), "refused")\n'
        f'try:\n    {deed}\n    refused = False\nexcept OSError:\n    refused = True\nrefused'
    )
    assert value(box, code) is True
    assert value(box, '6 * 7') == 42


def test_nothing_has_a_capability_or_can_gain_one(box):
    code = (
        'import glob\n[int(line.split()[1], 16) for path in glob.glob("/proc/[0-9]*/status") '
        'for line in open(path) if line.startswith("Cap")]'
    )
    found = value(box, code)
    assert isinstance(found, list)
    assert len(found) >= 3 * 4
    assert not any(found)


def test_what_code_leaves_among_the_sockets_does_not_stop_the_next_kernel():
    code = """
import os, pathlib, shutil
folder = pathlib.Path('/run/k')
for entry in folder.iterdir():
    entry.unlink()
for name in ('s-1', 's-2', 'connection.json'):
    (folder / name).mkdir()
    (folder / name / 'full').touch()
(folder / 's-3').symlink_to('/workspace')
pathlib.Path('/workspace/kept').write_text('kept')
(folder / 's-1').chmod(0)
folder.chmod(0)
os._exit(1)
"""
    with Sandbox(POLICY) as box:
        assert box.execute(code).outcome is Outcome.KERNEL_DIED
        assert box.execute("open('kept').read()").result == "'kept'"


def test_a_folder_of_sockets_that_cannot_be_emptied_costs_the_sandbox():
    code = """
import os
os.chdir('/run/k')
for _ in range(2_000):
    os.mkdir('deep')
    os.chdir('deep')
os._exit(1)
"""
    with Sandbox(POLICY) as box:
        assert box.execute(code).outcome is Outcome.KERNEL_DIED
        result = box.execute('6 * 7')
        assert result.result == '42'
        assert 'this cell ran in a new sandbox' in result.text


def test_orphans_are_found_although_the_bridge_adopts_them():
    code = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            open('/workspace/beat', 'w').write(str(time.time()))
            time.sleep(0.05)
    os._exit(0)
os.wait()
time.sleep(0.5)
os.path.exists('/workspace/beat')
"""
    with Sandbox(POLICY) as box:
        assert value(box, code) is True
        box.restart()
        last = value(box, "open('/workspace/beat').read()")
        assert value(box, "import time; time.sleep(0.5); open('/workspace/beat').read()") == last
        assert value(box, 'import os; len([n for n in os.listdir("/proc") if n.isdigit()])') == 3


def test_a_flood_on_one_channel_does_not_hold_up_orders_on_another(box):
    started = time.monotonic()
    result = box.execute("while True: print('x' * 10_000)", timeout=2)
    assert result.outcome is Outcome.TIMEOUT
    assert result.steps[0] == 'interrupt'
    assert result.truncated.stdout_chars > 0
    assert time.monotonic() - started < 30
    assert value(box, '6 * 7') == 42


def test_large_files_go_both_ways(box, tmp_path):
    source = tmp_path / 'large'
    with source.open('wb') as file:
        for number in range(40):
            file.write(number.to_bytes(1) * (1 << 20))
    assert box.upload(source).size == 40 << 20
    assert box.download('large', to=tmp_path / 'back').read_bytes() == source.read_bytes()
    box.delete('large')


def test_a_sandbox_ends_with_its_host():
    program = (
        'import time\nfrom sandbox import Sandbox, SandboxPolicy\n'
        "box = Sandbox(SandboxPolicy(runtime='runsc'))\nbox.start()\n"
        'print(box._machine.id, flush=True)\ntime.sleep(600)\n'
    )
    with subprocess.Popen([sys.executable, '-c', program], stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        container = host.stdout.readline().decode().strip()
        host.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20  # sooner than `orphan_grace`, since nobody can come back
    with engine() as client, contextlib.suppress(NotFound):
        while time.monotonic() < deadline:
            client.api.inspect_container(container)
            time.sleep(0.1)
        pytest.fail('the container has outlived its owner')
