"""The `sandbox` command, as far as it needs no container."""

import json

import pytest
import typer
from typer.testing import CliRunner

from sandbox import cli, doctor, image, reaper
from sandbox.errors import BackendUnavailable, ImageMissing
from sandbox.exit_codes import exit_code
from sandbox.image_build import Progress
from sandbox.reaper import Orphan
from sandbox.types import ErrorInfo, ExecutionResult, Outcome


def invoke(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli.app, words)
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize(
    ('text', 'size'),
    [
        ('1024', 1024),
        ('64k', 65_536),
        ('512m', 536_870_912),
        ('512MB', 536_870_912),
        ('1.5GiB', 1_610_612_736),
        (' 2 g ', 2_147_483_648),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert cli.parse_size(text) == size


@pytest.mark.parametrize('text', ['', 'm', '-1', '1t', '1e9', '0x10', '1.g', 'nan'])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        cli.parse_size(text)


@pytest.mark.parametrize(
    ('outcome', 'code'),
    [
        (Outcome.OK, 0),
        (Outcome.ERROR, 1),
        (Outcome.TIMEOUT, 124),
        (Outcome.SANDBOX_LOST, 125),
        (Outcome.UNKNOWN, 125),
        (Outcome.INTERRUPTED, 130),
        (Outcome.OOM, 137),
        (Outcome.KERNEL_DIED, 137),
    ],
)
def test_every_outcome_has_its_exit_code(outcome: Outcome, code: int) -> None:
    assert exit_code(ExecutionResult(outcome)) == code


def test_no_outcome_is_forgotten() -> None:
    assert [exit_code(ExecutionResult(outcome)) for outcome in Outcome]


@pytest.mark.parametrize(
    ('message', 'code'),
    [('', 0), ('None', 0), ('0', 0), ('3', 3), ('-1', 255), ('256', 0), ('no data', 1)],
)
def test_a_script_that_exits_does_so_as_without_a_sandbox(message: str, code: int) -> None:
    error = ErrorInfo('SystemExit', message, '')
    assert exit_code(ExecutionResult(Outcome.ERROR, error=error)) == code


def test_local_needs_consent(tmp_path) -> None:
    script = tmp_path / 'script.py'
    script.write_text('print(1)')
    code, out, err = invoke('run', str(script), '--backend', 'local')
    assert (code, out) == (2, '')
    assert '--unsafe' in err


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        (['missing.py'], 'cannot be read'),
        (['-', '--memory', 'lots'], 'is not a size'),
        (['-', '--memory', '1k'], 'memory must be at least'),
        (['-', '--network', 'half'], '--network'),
        (['-', '--network', 'full', '--allow', 'pypi.org'], '--allow limits'),
        (['-', '--allow', 'https://pypi.org'], "'https://pypi.org' is not a host"),
        (['-', '--allow', '10.0.0.1'], "'10.0.0.1' is not a host"),
        (['-', '--allow', 'pypi.org:0'], 'no valid port'),
        (['-', '--timeout', '0'], '--timeout'),
    ],
)
def test_wrong_usage_is_told_and_runs_nothing(words: list[str], message: str) -> None:
    code, out, err = invoke('run', *words)
    assert (code, out) == (2, '')
    assert message in ' '.join(err.split())


def test_an_error_is_told_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> list[reaper.Container]:
        raise BackendUnavailable('No engine [bold]here[/].\x1b[2J', hint='Start one.')

    monkeypatch.setattr(reaper, 'containers', fail)
    assert invoke('ps') == (125, '', 'No engine [bold]here[/].[2J\nStart one.\n')


def test_build_tells_a_base_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(base: str | None, *, progress: Progress, **_: object) -> str:
        progress('Pulling it')
        raise ImageMissing(f'{base} cannot be pulled', hint='Use another.')

    monkeypatch.setattr(image, 'build_image', fail)
    code, out, err = invoke('build', '--base', 'no:such')
    assert (code, out) == (3, '')
    assert err.split('\n')[-3:] == ['no:such cannot be pulled', 'Use another.', '']


def test_gc_names_what_it_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    removed = [Orphan('container', 'abc'), Orphan('folder', '/run/x')]
    monkeypatch.setattr(reaper, 'collect_garbage', lambda: removed)
    assert invoke('gc') == (0, 'removed container abc\nremoved folder /run/x\n', '')
    code, out, _ = invoke('gc', '--json')
    assert (code, json.loads(out)) == (
        0,
        [{'kind': 'container', 'name': 'abc'}, {'kind': 'folder', 'name': '/run/x'}],
    )
    monkeypatch.setattr(reaper, 'collect_garbage', list)
    assert invoke('gc') == (0, 'nothing to remove\n', '')


def test_gc_does_without_an_engine_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def collect(*, docker: bool = True) -> list[Orphan]:
        if docker:
            raise BackendUnavailable('No Docker engine answers.', hint='Start one.')
        return [Orphan('folder', '/run/x')]

    monkeypatch.setattr(reaper, 'collect_garbage', collect)
    assert invoke('gc') == (
        0,
        'removed folder /run/x\n',
        'Containers were not looked for: No Docker engine answers.\n',
    )


def test_what_the_system_refuses_is_told_and_is_not_the_codes_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> list[reaper.Container]:
        raise PermissionError(13, 'Permission denied', '/out')

    monkeypatch.setattr(reaper, 'containers', fail)
    assert invoke('ps') == (125, '', "[Errno 13] Permission denied: '/out'.\n")


@pytest.mark.parametrize(('status', 'code'), [('ok', 0), ('warning', 0), ('missing', 1)])
def test_doctor_exits_by_whether_a_sandbox_can_start(
    monkeypatch: pytest.MonkeyPatch, status: doctor.Status, code: int
) -> None:
    found = [doctor.Finding('engine', status, 'version [1]', 'do this')]
    monkeypatch.setattr(doctor, 'examine', lambda: found)
    assert invoke('doctor', '--json') == (code, json.dumps([vars(found[0])]) + '\n', '')
    exit_code, out, _ = invoke('doctor')
    assert exit_code == code
    assert out.splitlines()[1].split() == [status, 'engine', 'version', '[1]', 'do', 'this']


def test_build_takes_a_variant_and_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def build(base: str | None, **wishes: object) -> str:
        del wishes['progress']
        asked.append((base, wishes))
        return 'built'

    monkeypatch.setattr(image, 'build_image', build)
    options = ('--variant', 'analysis', '--package', 'a>1', '--package', 'b')
    assert invoke('build', *options) == (0, 'built\n', '')
    assert asked == [(None, {'variant': 'analysis', 'packages': ['a>1', 'b']})]


def test_build_refuses_what_is_no_package() -> None:
    code, out, err = invoke('build', '--package', '-r file')
    assert (code, out) == (2, '')
    assert 'no package of an index' in ' '.join(err.replace('│', ' ').split())
