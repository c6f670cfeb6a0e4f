"""scripts/with-docker.sh with stand-ins for Docker and apt, in namespaces of its own.

No engine is touched: the stand-in `dockerd` only waits, and the stand-in `docker` answers while
one runs. In the namespaces the script sees no other engine than the one it started.
"""

import json
import os
import shutil
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HIDE = 'mount -t tmpfs none /run && { [ ! -d /etc/docker ] || mount -t tmpfs none /etc/docker; }'
NAMESPACE = [
    *('unshare', '--pid', '--mount', '--fork', '--kill-child', '--mount-proc'),
    # The socket, pid file and configuration of an engine of this machine are out of sight, too.
    *('bash', '-c', f'{HIDE} && exec "$@"', 'bash'),
]

DOCKER = """#!/bin/bash
case $1 in
    version) grep -qsx dockerd /proc/[0-9]*/comm ;;
    context) echo unix:///var/run/docker.sock ;;
esac
"""
# The script knows a daemon by the name of its program: the stand-in is a copy of `sleep`.
DAEMON = """#!/bin/bash
exec "$(dirname "$0")/bin/dockerd" infinity
"""


def possible() -> bool:
    """Whether this user may make the namespaces."""
    if os.geteuid() != 0 or shutil.which('unshare') is None:
        return False
    return subprocess.run([*NAMESPACE, 'true'], capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(not possible(), reason='needs root, to make namespaces')


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A copy of the scripts, and a folder of programs where no Docker is installed."""
    (tmp_path / 'scripts').mkdir()
    for name in ('lib.sh', 'with-docker.sh'):
        shutil.copy(ROOT / 'scripts' / name, tmp_path / 'scripts' / name)
    programs = tmp_path / 'programs'
    programs.mkdir()
    for folder in ('/usr/sbin', '/usr/bin', '/sbin', '/bin'):
        for program in Path(folder).iterdir():
            target = programs / program.name
            hidden = 'docker' in program.name or program.name in ('apt-get', 'systemctl', 'runsc')
            if not hidden and not target.is_symlink():
                target.symlink_to(program)
    return tmp_path


def install(programs: Path) -> None:
    """Put in place what the packages would bring."""
    (programs / 'bin').mkdir()
    shutil.copy(os.path.realpath('/bin/sleep'), programs / 'bin' / 'dockerd')
    write_program(programs / 'dockerd', DAEMON)
    write_program(programs / 'docker', DOCKER)


def command(machine: Path, *words: str) -> list[str]:
    return [*NAMESPACE, str(machine / 'scripts' / 'with-docker.sh'), *words]


def environment(machine: Path) -> dict[str, str]:
    return {'PATH': str(machine / 'programs'), 'HOME': str(machine), 'LC_ALL': 'C.UTF-8'}


def run(machine: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_inside(machine, command(machine, *words))


def run_around(machine: Path, around: str) -> subprocess.CompletedProcess[str]:
    """Run shell code that itself calls the script."""
    return run_inside(machine, [*NAMESPACE, 'bash', '-c', around])


def run_inside(machine: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, env=environment(machine), capture_output=True, text=True, timeout=60
    )


def test_the_command_runs_while_the_engine_runs(machine: Path) -> None:
    install(machine / 'programs')
    pid_file = machine / '.cache' / 'dockerd.pid'
    script = f'read -r pid _ <{pid_file}; cat /proc/$pid/comm; exit 7'
    done = run(machine, 'bash', '-c', script)
    assert (done.returncode, done.stdout) == (7, 'dockerd\n'), done.stderr
    assert 'starting a Docker engine' in done.stderr
    assert 'stopping the Docker engine' in done.stderr
    assert not pid_file.exists()


def test_gvisor_becomes_a_runtime_of_an_engine_that_is_started_here(machine: Path) -> None:
    install(machine / 'programs')
    telling = DAEMON.replace('exec', 'echo "arguments: $*"\nexec')
    write_program(machine / 'programs' / 'dockerd', telling)
    assert run(machine, 'true').returncode == 0
    assert (machine / '.cache' / 'dockerd.log').read_text() == 'arguments: \n'
    write_program(machine / 'programs' / 'runsc', '#!/bin/bash\n')
    assert run(machine, 'true').returncode == 0
    config = machine / '.cache' / 'dockerd.json'
    told = (machine / '.cache' / 'dockerd.log').read_text()
    assert told == f'arguments: --config-file {config}\n'
    assert json.loads(config.read_text())['runtimes']['runsc'] == {
        'path': str(machine / 'programs' / 'runsc'),
        'runtimeArgs': ['--network=none'],
    }


def test_an_engine_that_runs_is_left_alone(machine: Path) -> None:
    install(machine / 'programs')
    script = str(machine / 'scripts' / 'with-docker.sh')
    around = (
        f'dockerd & sleep 0.3; {script} true; echo status $?; kill -0 $! && echo alive; kill $!'
    )
    done = run_around(machine, around)
    assert done.stdout == 'status 0\nalive\n'
    assert done.stderr == ''


def test_where_docker_is_missing_it_is_installed(machine: Path) -> None:
    log = machine / 'apt.log'
    programs = machine / 'programs'
    staged = machine / 'staged'
    staged.mkdir()
    install(staged)
    write_program(
        programs / 'apt-get', f'#!/bin/bash\necho "$@" >>{log}\ncp -rn {staged}/. {programs}\n'
    )
    done = run(machine, 'true')
    assert done.returncode == 0, done.stderr
    assert log.read_text().splitlines() == [
        'update -q',
        'install -q -y --no-install-recommends docker.io iptables',
    ]
    assert 'there is no Docker engine; this is Debian' in done.stderr
    assert 'stopping the Docker engine' in done.stderr


def test_without_docker_and_apt_it_says_what_to_do(machine: Path) -> None:
    done = run(machine, 'echo', 'ran')
    assert (done.returncode, done.stdout) == (1, '')
    assert 'sudo apt install docker.io' in done.stderr


def test_an_engine_that_dies_while_it_starts_is_told_with_its_log(machine: Path) -> None:
    install(machine / 'programs')
    write_program(machine / 'programs' / 'dockerd', '#!/bin/bash\necho no bridge; exit 1\n')
    done = run(machine, 'echo', 'ran')
    assert (done.returncode, done.stdout) == (1, '')
    assert 'no bridge' in done.stderr
    assert 'did not become ready' in done.stderr


@pytest.mark.parametrize(('sent', 'status'), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_command_and_stops_the_engine(
    machine: Path, sent: signal.Signals, status: int
) -> None:
    install(machine / 'programs')
    started = machine / 'started'
    process = subprocess.Popen(
        command(machine, 'bash', '-c', f': >{started}; exec sleep 60'),
        env=environment(machine),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 30
    while not started.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, sent)  # as a terminal does; `unshare` ignores both while it waits
    _, told = process.communicate(timeout=30)
    assert process.returncode == status, told
    assert 'stopping the Docker engine' in told
    assert not (machine / '.cache' / 'dockerd.pid').exists()


def test_the_engine_of_a_killed_run_is_stopped_by_the_next(machine: Path) -> None:
    install(machine / 'programs')
    (machine / '.cache').mkdir()
    script = str(machine / 'scripts' / 'with-docker.sh')
    around = (
        f'dockerd & sleep 0.3; (exit) & wait $!; echo "$(pgrep -x dockerd) $!" '
        f'>{machine}/.cache/dockerd.pid; {script} true; echo status $?; pgrep -x dockerd'
    )
    done = run_around(machine, around)
    assert done.stdout == 'status 0\n'
    assert 'left its Docker engine' in done.stderr


def test_the_last_of_two_runs_stops_the_engine(machine: Path) -> None:
    """The first one has started it, and ends while the second one uses it."""
    install(machine / 'programs')
    script = str(machine / 'scripts' / 'with-docker.sh')
    around = f"""
        cd {machine}
        mkfifo one two first second
        {script} bash -c 'echo >one; read <first' & one=$!
        read <one
        {script} bash -c 'echo >two; read <second; pgrep -xc dockerd' & two=$!
        read <two
        echo >first; wait $one; echo first $?
        echo >second; wait $two; echo second $?
        pgrep -xc dockerd
    """
    done = run_around(machine, around)
    assert done.stdout == 'first 0\n1\nsecond 0\n0\n', done.stderr
    assert done.stderr.count('stopping the Docker engine') == 1
    assert 'the last of them stops it' in done.stderr
    assert not (machine / '.cache' / 'dockerd.pid').exists()
