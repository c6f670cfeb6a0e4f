"""What hostile code tries from inside, and must not get."""

import ast
import platform

import pytest

from sandbox import Sandbox
from sandbox.conformance.expectation import MakeBox, expectation

GET_NO_NEW_PRIVILEGES = 39
X86 = pytest.mark.skipif(platform.machine() != 'x86_64', reason='the numbers are those of x86-64')
CALLS = {
    'mount': 165, 'umount2': 166, 'pivot_root': 155, 'setns': 308, 'unshare': 272, 'bpf': 321,
    'perf_event_open': 298, 'userfaultfd': 323, 'add_key': 248, 'keyctl': 250, 'init_module': 175,
    'kexec_load': 246, 'reboot': 169, 'open_by_handle_at': 304, 'io_uring_setup': 425,
    'process_vm_writev': 311, 'ptrace': 101, 'swapon': 167, 'settimeofday': 164,
}  # fmt: skip
UNREACHABLE = ('ENETUNREACH', 'EHOSTUNREACH', 'EAFNOSUPPORT', 'EACCES', 'EPERM', 'EADDRNOTAVAIL')
NEW_NAMESPACES = [0x10000000, 0x20000000, 0x40000000, 0x00020000, 0x02000000]


def value(box: Sandbox, code: str) -> object:
    """Run a cell and return the value of its last expression."""
    result = box.execute(code)
    assert result.ok, result.text
    return ast.literal_eval(result.result or 'None')


def sockets_folder(box: Sandbox) -> str:
    """Return the folder that the host and the guest share; skip where they share none."""
    found = value(
        box,
        'import os\n[os.path.dirname(word) for word in open("/proc/self/net/unix").read().split() '
        'if word.endswith("/ctl")]',
    )
    if not found:
        pytest.skip('no socket and no folder is shared with the host')
    assert isinstance(found, list)
    return str(found[0])


def failure(box: Sandbox, code: str) -> object:
    """Run statements and return the name of the error number they fail with, or None."""
    body = '\n'.join(f'    {line}' for line in code.splitlines())
    return value(
        box,
        f'import errno, os, socket\ntry:\n{body}\n    failed = None\n'
        'except OSError as error:\n    failed = errno.errorcode[error.errno]\nfailed',
    )


@expectation(20, needs='isolation')
@pytest.mark.parametrize(
    'path', ['/x', '/etc/passwd', '/usr/bin/x', '/proc/sys/kernel/hostname', '/proc/sysrq-trigger']
)
def test_nothing_outside_can_be_written(shared: Sandbox, path: str) -> None:
    """The root file system and the system's switches are read-only."""
    assert failure(shared, f'open({path!r}, "w")') in ('EROFS', 'EACCES', 'EPERM', 'ENOENT')


@expectation(20, needs='isolation')
@pytest.mark.parametrize('path', ['/var/run/docker.sock', '/run/docker.sock', '/etc/shadow'])
def test_nothing_that_opens_the_host_can_be_read(shared: Sandbox, path: str) -> None:
    """There is no engine's socket, and no file of root's can be read."""
    assert failure(shared, f'open({path!r})') in ('ENOENT', 'EACCES', 'ENOTDIR')


@expectation(20, needs='isolation')
def test_devices_are_harmless(shared: Sandbox) -> None:
    """There are no disks, no memory and no kernel log among the devices."""
    found = value(shared, 'import os, stat; [n for n in os.listdir("/dev") '
                  'if stat.S_ISBLK(os.lstat(f"/dev/{n}").st_mode)]')  # fmt: skip
    assert found == []
    for name in ('mem', 'kmem', 'kmsg', 'fuse', 'kvm'):
        read = f'open("/dev/{name}", "rb", buffering=0).read(1)'
        assert failure(shared, read) in ('ENOENT', 'EACCES', 'EPERM')


@expectation(20, needs='isolation')
def test_the_code_is_nobody(shared: Sandbox) -> None:
    """No root, no capability, no way to gain any, and a filter of system calls."""
    status = value(
        shared,
        'import ctypes\n'
        'lines = [line.rstrip().split(":\\t", 1) for line in open("/proc/self/status")]\n'
        'found = dict(line for line in lines if len(line) == 2)\n'
        f'{{**found, "gains": ctypes.CDLL(None).prctl({GET_NO_NEW_PRIVILEGES}, 0, 0, 0, 0)}}',
    )
    assert isinstance(status, dict)
    assert '0' not in status['Uid'].split() + status['Gid'].split()
    for capabilities in ('CapInh', 'CapPrm', 'CapEff'):
        assert int(status[capabilities], 16) == 0
    assert int(status.get('CapAmb', '0'), 16) == 0  # not every kernel tells
    assert (status['gains'], status['Seccomp']) == (1, '2')


@X86
@expectation(20, needs='isolation')
def test_dangerous_system_calls_are_refused(shared: Sandbox) -> None:
    """Mounts, namespaces, tracing, keys, modules and the like end with an error."""
    answers = value(
        shared,
        'import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n'
        f'{{name: libc.syscall(number, 0, 0, 0, 0, 0, 0) for name, number in {CALLS!r}.items()}}',
    )
    assert answers == dict.fromkeys(CALLS, -1)


@X86
@expectation(20, needs='isolation')
@pytest.mark.parametrize('flag', NEW_NAMESPACES)
def test_no_namespace_can_be_made(shared: Sandbox, flag: int) -> None:
    """A new user namespace would give back every capability."""
    code = (
        'import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n'
        f'pid = libc.syscall(56, {flag} | 17, 0, 0, 0, 0)\n'
        'if pid == 0:\n    os._exit(0)\npid'
    )
    assert value(shared, code) == -1


@expectation(20, needs='isolation')
@pytest.mark.parametrize('family', ['AF_VSOCK', 'AF_PACKET', 'AF_ALG'])
def test_exotic_sockets_cannot_be_made(shared: Sandbox, family: str) -> None:
    """Neither the hypervisor nor raw packets nor the kernel's ciphers can be talked to."""
    assert failure(shared, f'socket.socket(socket.{family}, 3, 0)') is not None


@expectation(21, needs='network')
@pytest.mark.parametrize(
    ('host', 'port'),
    [
        *(('169.254.169.254', 80), ('10.0.0.1', 80), ('172.17.0.1', 22), ('192.168.0.1', 80)),
        *(('1.1.1.1', 53), ('fd00:ec2::254', 80), ('2606:4700::1111', 53)),
    ],
)
def test_there_is_no_network(shared: Sandbox, host: str, port: int) -> None:
    """Metadata services, private networks, the host and the world are out of reach."""
    family = 'AF_INET6' if ':' in host else 'AF_INET'
    code = f's = socket.socket(socket.{family})\ns.settimeout(3)\ns.connect(({host!r}, {port}))'
    answer = failure(shared, code)
    assert answer in UNREACHABLE


@expectation(34, needs='network')
def test_packages_cannot_be_fetched_and_that_is_said_soon(shared: Sandbox) -> None:
    """Without a network an installer fails with an error of its own, within the cell's time."""
    code = (
        'import subprocess, sys\nsubprocess.run([sys.executable, "-m", "pip", "install", '
        '"--retries=0", "--timeout=3", "no-such-package"], capture_output=True).returncode'
    )
    assert value(shared, code) != 0


@expectation(19, needs='isolation')
def test_no_variable_of_the_host_gets_in(make: MakeBox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the environment nor any process that can be seen holds the host's secrets."""
    monkeypatch.setenv('AWS_SECRET_ACCESS_KEY', 'hunter2')
    code = (
        'import glob, os\nseen = str(dict(os.environ))\n'
        'for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):\n'
        '    try: seen += open(path).read()\n    except OSError: pass\n'
        '("hunter" + "2" in seen, os.environ["GIVEN"])'
    )
    assert value(make(env={'GIVEN': 'yes'}), code) == (False, 'yes')


@expectation(19, needs='isolation')
def test_processes_of_the_host_cannot_be_seen(shared: Sandbox) -> None:
    """A session sees its own few processes, and can signal no other."""
    assert value(shared, 'import os; len([n for n in os.listdir("/proc") if n.isdigit()]) < 20')
    assert failure(shared, 'os.kill(1, 9)') in (None, 'EPERM', 'ESRCH')
    assert value(shared, '6 * 7') == 42


@expectation(19, needs='isolation')
@pytest.mark.parametrize('order', ['own', 'stop', 'kill', 'start'])
def test_the_code_cannot_give_the_supervisor_orders(shared: Sandbox, order: str) -> None:
    """The supervisor turns the code away, or refuses where host and code are one user to it."""
    code = (
        'import socket\n'
        f'with socket.socket(socket.AF_UNIX) as s:\n    s.connect("{sockets_folder(shared)}/ctl")\n'
        '    s.settimeout(5)\n    answer = b""\n'
        f'    order = b\'{{"op": "{order}"}}\'\n'
        '    try:\n        s.sendall(len(order).to_bytes(4, "big") + order)\n'
        '        while data := s.recv(4096): answer += data\n'
        '    except (BrokenPipeError, ConnectionResetError): pass\nanswer'
    )
    answer = value(shared, code)
    assert isinstance(answer, bytes)
    assert not answer or b'"ok": false' in answer or b'"ok":false' in answer
    assert value(shared, '6 * 7') == 42


@expectation(19, needs='isolation')
@pytest.mark.parametrize(
    'deed',
    [
        'open(folder + "/x", "w")',
        'os.unlink(folder + "/connection.json")',
        'os.chmod(folder, 0o777)',
        'os.rename(folder + "/ctl", folder + "/x")',
    ],
)
def test_the_folder_of_sockets_is_sealed(shared: Sandbox, deed: str) -> None:
    """Nothing that the code does reaches the host's disk through the sockets' folder."""
    prelude = f'folder = {sockets_folder(shared)!r}\n'
    assert failure(shared, prelude + deed) in ('EACCES', 'EPERM', 'EROFS')


@expectation(27)
def test_nothing_that_code_has_left_runs_in_a_new_kernel(make: MakeBox) -> None:
    """Start-up files, configuration and modules of an earlier cell are not the next kernel's."""
    box = make()
    left = value(
        box,
        'import os, pathlib, subprocess, sys\n'
        'home, here = pathlib.Path.home(), pathlib.Path.cwd()\n'
        'folders = [home / ".ipython", home / ".config/ipython", home / ".jupyter"]\n'
        'if "IPYTHONDIR" in os.environ:\n'
        '    folders.append(pathlib.Path(os.environ["IPYTHONDIR"]))\n'
        'plain = "import sys; sys.left = [*getattr(sys, \'left\', []), __file__]\\n"\n'
        'lines = "\\n".join(f"c.InteractiveShellApp.{name}" for name in (\n'
        '    "exec_lines = [\'import sys; sys.left = [1]\']", "extensions = [\'left_behind\']"))\n'
        'names = ["startup/0.py", "ipython_config.py", "ipython_kernel_config.py"]\n'
        'targets = [f / "profile_default" / n for f in folders for n in names]\n'
        'targets += [f / n for f in folders for n in ("jupyter_config.py", *names)]\n'
        'version = f"python{sys.version_info.major}.{sys.version_info.minor}"\n'
        'targets += [home / f".local/lib/{version}/site-packages/usercustomize.py"]\n'
        'modules = ("left_behind", "sitecustomize", "usercustomize", "trio", "curio", "appnope")\n'
        'targets += [here / f"{name}.py" for name in modules]\n'
        'for target in targets:\n'
        '    try: target.parent.mkdir(parents=True, exist_ok=True)\n'
        '    except OSError: continue\n'
        '    target.write_text(plain + ("c = get_config()\\n" + lines\n'
        '                               if "config" in target.name else ""))\n'
        'len([each for each in targets if each.exists()])',
    )
    assert isinstance(left, int)
    assert left > 20
    box.restart()
    assert value(box, 'import sys; getattr(sys, "left", [])') == []


@expectation(22, needs='isolation')
def test_a_new_kernel_follows_no_link_of_the_last_one(make: MakeBox) -> None:
    """Links to the folder of sockets, which is open while it starts, neither harm nor help."""
    box = make()
    folder = f'import os, pathlib, shutil\nfolder = {sockets_folder(box)!r}\n'
    before = value(box, f'{folder}sorted(os.listdir(folder))')
    value(
        box,
        'for name in (".config", ".cache", ".ipython", ".jupyter", ".local"):\n'
        '    link = pathlib.Path.home() / name\n'
        '    shutil.rmtree(link, ignore_errors=True)\n    link.symlink_to(folder)\n',
    )
    box.restart()
    assert value(box, f'{folder}sorted(os.listdir(folder))') == before
