"""What hostile code tries from inside a live kernel, and what comes of it."""

import ast
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox import Sandbox, SandboxPolicy
from sandbox.backends.engine import engine
from sandbox.policy import MIB

pytestmark = pytest.mark.docker

Run = Callable[[str], object]


@pytest.fixture(scope='module')
def box() -> Iterator[Sandbox]:
    policy = SandboxPolicy(memory=512 * MIB, disk=64 * MIB, tmp=32 * MIB, shm=32 * MIB, pids=64)
    with Sandbox(policy=policy) as box:
        yield box


@pytest.mark.parametrize(
    'path',
    [
        *('/x', '/etc/passwd', '/opt/sandbox/kernel.py', '/opt/venv/x', '/usr/bin/x', '/run/x'),
        *('/proc/sys/kernel/hostname', '/proc/sysrq-trigger', '/sys/x', '/sys/fs/cgroup/x'),
    ],
)
def test_nothing_outside_the_workspace_can_be_written(attempt, path):
    assert attempt(f'open({path!r}, "w")') in ('EROFS', 'EACCES', 'EPERM', 'ENOENT')


@pytest.mark.parametrize(
    'deed',
    [
        'open("/run/k/x", "w")',
        'os.mkdir("/run/k/x")',
        'os.unlink("/run/k/connection.json")',
        'os.rename("/run/k/ctl", "/run/k/ctl2")',
        'os.chmod("/run/k", 0o777)',
        'open("/run/k/connection.json", "a")',
        'os.setxattr("/run/k", "user.x", b"x")',
        'socket.socket(socket.AF_UNIX).bind("/run/k/x")',
    ],
)
def test_the_folder_of_sockets_is_sealed(attempt, deed):
    assert attempt(deed) in ('EACCES', 'EPERM', 'EOPNOTSUPP')


def test_the_folder_holds_the_sockets_and_nothing_else(run):
    assert run('import os; sorted(os.listdir("/run/k"))') == [
        *('connection.json', 'ctl', 's-1', 's-2', 's-3', 's-4', 's-5')
    ]


def test_a_new_kernel_neither_reads_nor_makes_what_code_can_write():
    plant = (
        'import pathlib\nprofile = pathlib.Path.home() / ".ipython/profile_default"\n'
        '(profile / "startup").mkdir(parents=True)\n'
        "deed = \"import sys; sys.planted = open('/run/k/x', 'w')\\n\"\n"
        '(profile / "startup/0.py").write_text(deed)\n'
        '(profile / "ipython_config.py").write_text(deed)\n'
        'pathlib.Path("trio.py").write_text(deed)'
    )
    with Sandbox() as box:
        assert box.execute('import os; sorted(os.listdir(os.environ["HOME"]))').result == (
            "['.config']"
        )
        assert box.execute(plant).ok
        box.restart()
        result = box.execute(
            'import os, sys; ("x" in os.listdir("/run/k"), hasattr(sys, "planted"))'
        )
    assert result.result == '(False, False)', result.text


def test_a_link_cannot_lead_a_new_kernel_to_the_folder_of_sockets():
    with Sandbox() as box:
        assert box.execute(
            'import os, shutil\nos.chdir(os.environ["HOME"])\n'
            'shutil.rmtree(".config", ignore_errors=True)\nos.symlink("/run/k", ".config")'
        ).ok
        box.restart()
        result = box.execute('import os; "matplotlib" in os.listdir("/run/k")')
    assert result.result == 'False', result.text


def test_the_supervisor_turns_the_code_away(run):
    assert (
        run(
            'import socket\nwith socket.socket(socket.AF_UNIX) as s:\n'
            '    s.connect("/run/k/ctl")\n    s.settimeout(5)\n    answer = s.recv(1)\nanswer'
        )
        == b''
    )


@pytest.mark.parametrize(
    ('host', 'port'),
    [('169.254.169.254', 80), ('172.17.0.1', 22), ('1.1.1.1', 53), ('10.0.0.1', 80)],
)
def test_there_is_no_network(attempt, host, port):
    assert attempt(f'socket.create_connection(({host!r}, {port}), timeout=3)') == 'ENETUNREACH'


def test_there_is_no_name_service_and_only_loopback(run):
    assert run('import socket; [name for _, name in socket.if_nameindex()]') == ['lo']
    assert (
        run(
            'import socket\ntry:\n    socket.getaddrinfo("example.org", 80); found = True\n'
            'except socket.gaierror:\n    found = False\nfound'
        )
        is False
    )


@pytest.mark.parametrize(
    ('family', 'kind'),
    [('AF_VSOCK', 1), ('AF_ALG', 5), ('AF_PACKET', 3), ('AF_CAN', 3), ('AF_BLUETOOTH', 1)],
)
def test_exotic_sockets_cannot_be_made(attempt, family, kind):
    assert attempt(f'socket.socket(socket.{family}, {kind}, 0)') == 'EPERM'


X86_CALLS = {
    'ptrace': 101, 'mount': 165, 'umount2': 166, 'pivot_root': 155, 'chroot': 161, 'setuid': 105,
    'setgid': 106, 'setns': 308, 'unshare': 272, 'bpf': 321, 'perf_event_open': 298,
    'userfaultfd': 323, 'add_key': 248, 'keyctl': 250, 'process_vm_readv': 310,
    'process_vm_writev': 311, 'io_uring_setup': 425, 'init_module': 175, 'kexec_load': 246,
    'reboot': 169, 'open_by_handle_at': 304, 'kcmp': 312, 'pidfd_getfd': 438, 'vmsplice': 278,
    'iopl': 172, 'swapon': 167, 'settimeofday': 164, 'shmget': 29, 'fsopen': 430,
}  # fmt: skip


@pytest.mark.skipif(platform.machine() != 'x86_64', reason='the numbers are those of x86-64')
def test_dangerous_system_calls_are_refused(run):
    answers = run(
        'import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\n'
        f'calls = {X86_CALLS!r}\n'
        '{name: (libc.syscall(number, 0, 0, 0, 0, 0, 0), errno.errorcode[ctypes.get_errno()])\n'
        ' for name, number in calls.items()}'
    )
    assert answers == dict.fromkeys(X86_CALLS, (-1, 'EPERM'))


@pytest.mark.skipif(platform.machine() != 'x86_64', reason='the numbers are those of x86-64')
@pytest.mark.parametrize('flag', [0x10000000, 0x20000000, 0x40000000, 0x00020000, 0x02000000])
def test_clone_makes_no_namespaces(run, flag):
    assert run(
        'import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n'
        f'pid = libc.syscall(56, {flag} | 17, 0, 0, 0, 0)\n'
        'if pid == 0:\n    os._exit(0)\n(pid, ctypes.get_errno())'
    ) == (-1, 1)


def test_the_code_is_nobody_and_can_become_nothing(run):
    status = run(
        'lines = [line.rstrip().split(":\\t", 1) for line in open("/proc/self/status")]\n'
        'dict(line for line in lines if len(line) == 2)'
    )
    assert isinstance(status, dict)
    assert status['Uid'].split() == ['65532'] * 4
    assert status['Gid'].split() == ['65532'] * 4
    for capabilities in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'):
        assert int(status[capabilities], 16) == 0
    assert status['NoNewPrivs'] == '1'
    assert status['Seccomp'] == '2'
    assert (
        run(
            'import subprocess\nsubprocess.run("find / -xdev -perm /6000 -type f", shell=True,'
            ' capture_output=True, text=True).stdout'
        )
        == ''
    )


def test_no_variable_of_the_host_gets_in(monkeypatch):
    monkeypatch.setenv('AWS_SECRET_ACCESS_KEY', 'hunter2')
    monkeypatch.setenv('HTTP_PROXY', 'http://user:hunter2@proxy.invalid')
    with Sandbox(policy=SandboxPolicy(env={'ASKED_FOR': 'yes'})) as box:
        result = box.execute(
            'import os, glob\n'
            'seen = str(dict(os.environ))\n'
            'for path in glob.glob("/proc/[0-9]*/environ"):\n'
            '    try: seen += open(path).read()\n'
            '    except OSError: pass\n'
            '("hunter2" in seen, os.environ["ASKED_FOR"], sorted(os.environ))'
        )
    leaked, asked, names = ast.literal_eval(result.result or '')
    assert (leaked, asked) == (False, 'yes')
    assert set(names) == {
        *('ASKED_FOR', 'PATH', 'HOME', 'HOSTNAME', 'LANG', 'TERM', 'NO_COLOR', 'PAGER'),
        *('GIT_PAGER', 'MPLBACKEND', 'MPLCONFIGDIR', 'PYTHONNOUSERSITE'),
        *('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'JE_ARROW_MALLOC_CONF', 'PLOTLY_RENDERER'),
    }


def test_nothing_of_the_host_is_mounted(run):
    mounts = run('[line.split()[4] for line in open("/proc/self/mountinfo")]')
    assert isinstance(mounts, list)
    own = {'/', '/run/k', '/workspace', '/tmp', '/home/sandbox'}
    # These the engine makes for every container.
    usual = ('/proc', '/sys', '/dev', '/etc/', '/usr/sbin/docker-init', '/sbin/docker-init')
    assert [each for each in mounts if each not in own and not each.startswith(usual)] == []


def test_a_flood_of_the_container_s_own_output_is_kept_nowhere(box, run):
    with engine() as client:
        before = client.api.inspect_container(box.container_id)
        root = Path(client.info()['DockerRootDir'], 'containers', box.container_id)
    assert before['HostConfig']['LogConfig']['Type'] == 'none'
    assert before['LogPath'] == ''
    written = run(
        'import os\nwritten = 0\n'
        'for path in ("/proc/1/fd/1", "/proc/1/fd/2"):\n'
        '    try:\n'
        '        with open(path, "wb", buffering=0) as stream:\n'
        '            for _ in range(64): written += stream.write(b"x" * (1 << 20))\n'
        '    except OSError as error: print(error)\n'
        'written'
    )
    assert written == 128 * MIB, 'the attack has to reach the engine to show anything'
    if os.geteuid() == 0 and root.is_dir():
        kept = sum(file.stat().st_size for file in root.rglob('*') if file.is_file())
        assert kept < MIB


def test_a_full_disk_is_an_error_of_the_cell(run, attempt):
    assert (
        attempt('with open("big", "wb") as f:\n    for _ in range(10_240): f.write(bytes(1 << 20))')
        == 'ENOSPC'
    )
    size = run('import os; size = os.path.getsize("big"); os.remove("big"); size')
    assert isinstance(size, int)
    assert size <= 64 * MIB
    assert attempt('with open("/tmp/t", "wb") as f:\n    f.write(bytes(33 << 20))') == 'ENOSPC'
    run('os.remove("/tmp/t")')


def test_the_number_and_the_length_of_files_are_limited(run, attempt):
    assert attempt('for n in range(100_000): open(f"/tmp/{n}", "w").close()') == 'ENOSPC'
    run('import subprocess; subprocess.run("rm -rf /tmp/*", shell=True, check=True); None')
    assert attempt('with open("sparse", "wb") as f: f.truncate(1 << 40)') == 'EFBIG'


def test_a_fork_bomb_stops_at_the_limit_and_the_kernel_lives(run):
    forked, failure = run(
        'import errno, os, time\nforked, failure = 0, None\n'
        'try:\n    while True:\n'
        '        if os.fork() == 0:\n            time.sleep(1); os._exit(0)\n'
        '        forked += 1\n'
        'except OSError as error:\n    failure = errno.errorcode[error.errno]\n'
        'for _ in range(forked): os.wait()\n(forked, failure)'
    )  # type: ignore[misc]
    assert failure == 'EAGAIN'
    assert 10 < forked < 64
    assert run('6 * 7') == 42


def test_memory_is_limited(box):
    result = box.execute('waste = [bytearray(1 << 20) for _ in range(4096)]', timeout=60)
    assert result.outcome == 'oom', result.text
    assert box.execute('6 * 7').result == '42'


def test_the_kernels_trade_still_works(run):
    assert run(
        'import multiprocessing, os, subprocess, sqlite3, threading\n'
        'with multiprocessing.get_context("fork").Pool(2) as pool: a = pool.map(abs, [-1, -2])\n'
        'b = subprocess.run(["echo", "x"], capture_output=True).stdout\n'
        'c = sqlite3.connect("x.db").execute("select 1").fetchall()\n'
        'open("run.sh", "w").write("#!/bin/sh\\necho ran\\n"); os.chmod("run.sh", 0o755)\n'
        'd = subprocess.run(["./run.sh"], capture_output=True, text=True).stdout\n'
        '(a, b, c, d)'
    ) == ([1, 2], b'x\n', [(1,)], 'ran\n')
