""".ci/run with stand-ins for what its steps run: what it says at the end, and leaves out."""

import os
import shutil
import stat
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

MAKE = """#!/bin/bash
goal=${*: -1}
echo "$goal with optional=$LAGENT_TEST_OPTIONAL"
[ ! -e "$HERE/$goal.fails" ] || { cat "$HERE/$goal.fails"; exit 2; }
"""
PROGRAMS = {
    'make': MAKE,
    'docker': '#!/bin/bash\ncat "$HERE/runtimes"\n',
    'id': '#!/bin/bash\necho 0\n',
    **dict.fromkeys(('bwrap', 'ip', 'chromium', 'runsc', 'apt-get'), '#!/bin/bash\n'),
}


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


class Machine:
    """A copy of the script where each step can be told to fail."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ('.ci/run', 'scripts/lib.sh'):
            (root / name).parent.mkdir()
            shutil.copy(ROOT / name, root / name)
        for name, text in PROGRAMS.items():
            write_program(root / 'programs' / name, text)
        write_program(root / 'scripts' / 'with-docker.sh', '#!/bin/bash\nexec "$@"\n')
        write_program(root / '.venv' / 'bin' / 'python', '#!/bin/bash\necho "python $*"\n')
        self.runtimes('runc', 'runsc')

    def runtimes(self, *names: str) -> None:
        (self.root / 'runtimes').write_text(' '.join(f'"{name}"' for name in names))

    def fail(self, goal: str, *lines: str) -> None:
        (self.root / f'{goal}.fails').write_text(''.join(f'{line}\n' for line in lines))

    def run(self, **environ: str) -> tuple[int, str, list[str]]:
        """Return the exit code, the output, and the lines of its end."""
        path = f'{self.root}/programs:{os.environ["PATH"]}'
        done = subprocess.run(
            [self.root / '.ci' / 'run'],
            env={'PATH': path, 'HERE': str(self.root), 'LC_ALL': 'C.UTF-8', **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
        )
        _, mark, end = done.stdout.rpartition('=== what failed\n')
        return done.returncode, done.stdout, end.splitlines() if mark else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def summary(output: str) -> dict[str, str]:
    lines = output.rpartition('=== summary\n')[2].splitlines()
    return {line.split()[1]: line.split()[0] for line in lines}


STEPS = ('prepare', 'env', 'lint', 'types', 'wheel', 'test', 'gvisor', 'examples', 'docker')


def test_all_steps_pass(machine: Machine) -> None:
    code, output, failures = machine.run()
    assert (code, failures) == (0, []), output
    assert summary(output) == dict.fromkeys(STEPS, 'ok')
    assert 'test with optional=\n' in output
    assert '--sandbox-backend=runsc' in output


def test_an_engine_without_gvisor_is_said_and_is_no_failure(machine: Machine) -> None:
    machine.runtimes('runc')
    code, output, _ = machine.run(LAGENT_TEST_OPTIONAL='bubblewrap')
    assert code == 0, output
    assert summary(output) == {**dict.fromkeys(STEPS, 'ok'), 'gvisor': 'skipped'}
    assert 'test with optional=bubblewrap,runsc\n' in output
    assert '--sandbox-backend=runsc' not in output


def test_what_failed_is_at_the_end_and_short(machine: Machine) -> None:
    tests = [f'FAILED tests/test_{n}.py::test_it - AssertionError: {"x" * 300}' for n in range(40)]
    machine.fail('test', 'E   noise', 'ERROR    root:pool.py:9 noise', *tests, 'E   more noise')
    machine.fail('lint', 'a/b.py:7:52: RUF043 A pattern', 'Found 1 error.')
    machine.fail('types', 'a/b.py:9: error: A type  [arg-type]', 'Found 1 error in 1 file')
    code, output, end = machine.run()
    assert code == 1
    failures, verdicts = end[: end.index('')], summary(output)
    assert failures[:3] == [
        'lint: a/b.py:7:52: RUF043 A pattern',
        'types: a/b.py:9: error: A type  [arg-type]',
        f'test: {tests[0]}'[:104],
    ]
    assert failures[3:] == [
        *(f'test: {line}'[:104] for line in tests[1:23]),
        '... and 17 more',
    ]
    assert len('\n'.join(end)) < 3_000
    assert verdicts == {
        **dict.fromkeys(STEPS, 'ok'),
        **dict.fromkeys(('lint', 'types', 'test', 'docker'), 'FAILED'),
    }


def test_a_failure_in_unknown_words_is_told_by_its_last_lines(machine: Machine) -> None:
    machine.fail('wheel', *(f'line {n}' for n in range(9)))
    _, _, end = machine.run()
    assert end[: end.index('')] == [f'wheel: line {n}' for n in range(4, 9)]


def test_without_an_environment_nothing_else_is_tried(machine: Machine) -> None:
    machine.fail('env', 'no index')
    code, output, end = machine.run()
    assert code == 1
    assert summary(output) == {'prepare': 'ok', 'env': 'FAILED'}
    assert end[0] == 'env: env with optional='
    assert end[1] == 'env: no index'


@pytest.mark.slow
def test_what_a_step_leaves_running_holds_nobody_up(machine: Machine) -> None:
    write_program(
        machine.root / 'scripts' / 'with-docker.sh', '#!/bin/bash\nsleep 60 &\nexec "$@"\n'
    )
    began = time.monotonic()
    code, output, _ = machine.run()
    assert code == 0, output
    assert time.monotonic() - began < 50
