"""The back end under test, sandboxes on it, and the count at the end."""

import contextlib
import functools
import importlib
import os
from collections.abc import Iterator
from dataclasses import fields

import pytest

from sandbox import AsyncSandbox, Sandbox, SandboxPolicy
from sandbox.backends import Backend, get_backend
from sandbox.backends.bubblewrap import BubblewrapBackend
from sandbox.conformance.expectation import Destroy, MakeAsyncBox, MakeBox
from sandbox.conformance.gvisor import InGvisor
from sandbox.conformance.modes import MODES, NOT_EXPECTED
from sandbox.errors import SandboxError
from sandbox.kernel.machine import KernelMachine
from sandbox.portal import get_portal

BY_DEFAULT = ('docker', 'bubblewrap', 'local', 'fake')
"""Without `runsc`: in gVisor everything takes several times as long, so it is asked for by name."""
_FIELDS = frozenset(field.name for field in fields(SandboxPolicy))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--sandbox-backend`."""
    parser.addoption(
        '--sandbox-backend',
        action='append',
        default=[],
        metavar='NAME',
        help='back end to test: docker, runsc (docker with gVisor), bubblewrap, local, fake, or '
        'package.module:factory',
    )


def pytest_configure(config: pytest.Config) -> None:
    """Say what our markers mean."""
    for line in (
        'expectation(modes, needs): what every back end must do',
        'docker: needs a Docker engine and the kernel image',
        'runsc: needs gVisor as a runtime of that engine',
        'slow: takes more than ten seconds',
    ):
        config.addinivalue_line('markers', line)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each expectation against each back end."""
    if 'backend_name' in metafunc.fixturenames:
        names = asked_for(metafunc.config) or BY_DEFAULT
        marks = {'docker': pytest.mark.docker, 'runsc': pytest.mark.runsc}
        metafunc.parametrize(
            'backend_name',
            [pytest.param(name, marks=marks.get(name, ())) for name in names],
            scope='session',
        )


def asked_for(config: pytest.Config) -> list[str]:
    """Return the back ends that were named; pytest knows no option of a package by `--pyargs`."""
    names: list[str] = config.getoption('--sandbox-backend', default=None) or []
    return names or [name for name in os.environ.get('SANDBOX_BACKEND', '').split(',') if name]


@functools.cache
def made(name: str) -> Backend:
    """Return the back end of a name or a factory; one of each is enough."""
    module, _, factory = name.partition(':')
    if factory:
        backend: Backend = getattr(importlib.import_module(module), factory)()
        return backend
    if name == 'bubblewrap':  # what this machine cannot limit is skipped, the rest expected
        return BubblewrapBackend(accept_unenforced=('cpus', 'memory', 'pids'))
    if name == 'runsc':
        return InGvisor()
    return get_backend(name, unsafe=True)


@functools.cache
def trouble(name: str) -> str:
    """Return why a back end cannot be used on this machine, or nothing."""
    try:
        made(name).check()
    except SandboxError as error:
        return error.message
    return ''


@functools.cache
def gaps(name: str) -> dict[str, str]:
    """Return what a back end does not promise here: fields and more, each with the reason."""
    missing = dict(made(name).unenforced(SandboxPolicy()))
    if name == 'fake':
        missing['code'] = 'answers are scripted, and nothing runs'
    if name == 'runsc':
        missing['oom'] = 'gVisor ends as a whole when memory runs out, which is told'
    if 'uid' in missing:
        missing['isolation'] = missing['uid']
    return missing


@pytest.fixture(scope='session')
def backend(backend_name: str, request: pytest.FixtureRequest) -> Backend:
    """The back end under test."""
    if reason := trouble(backend_name):
        excused = os.environ.get('LAGENT_TEST_OPTIONAL', '').split(',')
        required = os.environ.get('LAGENT_TEST_REQUIRE_ALL') == '1' and backend_name not in excused
        if backend_name in asked_for(request.config) or required:
            pytest.fail(f'{backend_name}: {reason}', pytrace=False)
        pytest.skip(f'{backend_name}: {reason}')
    return made(backend_name)


@pytest.fixture(autouse=True)
def promised(backend_name: str, request: pytest.FixtureRequest) -> None:
    """Skip what needs more than the back end promises here."""
    request.getfixturevalue('backend')  # first of all it has to be usable
    marker = request.node.get_closest_marker('expectation')
    needs = marker.kwargs['needs'] if marker else ()
    wanted = needs if 'files' in needs else ('code', *needs)
    for need in wanted:
        if reason := gaps(backend_name).get(need):
            pytest.skip(f'{backend_name} does not promise {need}: {reason}')


@pytest.fixture(scope='module')
def shared(backend: Backend) -> Iterator[Sandbox]:
    """A sandbox for tests that leave it as they found it."""
    with Sandbox(backend=backend) as box:
        yield box


@pytest.fixture
def make(backend: Backend) -> Iterator[MakeBox]:
    """Make sandboxes for one test; keyword arguments are fields of the policy."""
    with contextlib.ExitStack() as boxes:

        def make(**policy: object) -> Sandbox:
            assert policy.keys() <= _FIELDS
            box = Sandbox(SandboxPolicy(**policy), backend)  # type: ignore[arg-type]
            boxes.callback(box.close)
            return box

        yield make


@pytest.fixture
def amake(backend: Backend) -> MakeAsyncBox:
    """Make asynchronous sandboxes; the test closes them."""

    def make(**policy: object) -> AsyncSandbox:
        return AsyncSandbox(SandboxPolicy(**policy), backend)  # type: ignore[arg-type]

    return make


@pytest.fixture
def destroy() -> Destroy:
    """Take a sandbox away behind its session's back."""

    def destroy(box: Sandbox) -> None:
        machine = box._machine
        assert isinstance(machine, KernelMachine)
        get_portal().call(machine._instance.remove)

    return destroy


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many expectations each back end meets, and which failure modes they stand for."""
    counts: dict[str, dict[str, int]] = {}
    for outcome in ('passed', 'failed', 'error', 'skipped'):
        for report in terminalreporter.stats.get(outcome, []):
            for name, _ in getattr(report, 'user_properties', ()):
                if name.startswith('sandbox-backend:'):
                    found = counts.setdefault(name.partition(':')[2], {})
                    found[outcome] = found.get(outcome, 0) + 1
    if counts:
        terminalreporter.section('sandbox expectations')
    for backend, found in counts.items():
        words = ', '.join(f'{count} {outcome}' for outcome, count in found.items())
        terminalreporter.line(f'{backend}: {words}')


@pytest.fixture(autouse=True)
def counted(backend_name: str, record_property: object) -> None:
    """Remember which back end a test was about."""
    assert callable(record_property)
    record_property(f'sandbox-backend:{backend_name}', '')


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Make sure that every failure mode has its expectation, or a reason to have none."""
    ours = [item for item in items if item.get_closest_marker('expectation')]
    if len(ours) < len(items) or config.option.keyword or len(config.args) > 1:
        return  # a selection
    seen = {
        mode
        for item in ours
        if (marker := item.get_closest_marker('expectation'))
        for mode in marker.kwargs['modes']
    }
    if missing := MODES.keys() - seen - NOT_EXPECTED.keys():
        raise pytest.UsageError(f'no expectation stands for the failure modes {sorted(missing)}')
