"""One table of tests for every back end: `local` everywhere, the others where they can be used."""

import ast
import contextlib
from collections.abc import Callable, Iterator

import pytest

from sandbox import AsyncSandbox, Sandbox, SandboxPolicy

BACKENDS = [
    'local',
    pytest.param('docker', marks=pytest.mark.docker),
    pytest.param('bubblewrap', marks=pytest.mark.bubblewrap),
]


@pytest.fixture(scope='module', params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Name of the back end."""
    return request.param


@pytest.fixture(scope='module')
def options(backend: str) -> dict[str, object]:
    """What `Sandbox(...)` needs for this back end."""
    return {'backend': backend, 'unsafe': backend == 'local'}


@pytest.fixture(scope='module')
def shared(options: dict[str, object]) -> Iterator[Sandbox]:
    """A sandbox for tests that leave it as they found it."""
    with Sandbox(**options) as box:
        yield box


@contextlib.contextmanager
def maker(options: dict[str, object]) -> Iterator[Callable[..., Sandbox]]:
    with contextlib.ExitStack() as boxes:

        def make(**policy: object) -> Sandbox:
            box = Sandbox(SandboxPolicy(**policy), **options)
            boxes.callback(box.close)
            return box

        yield make


@pytest.fixture
def make(options: dict[str, object]) -> Iterator[Callable[..., Sandbox]]:
    """Make sandboxes for one test; keyword arguments are fields of the policy."""
    with maker(options) as make:
        yield make


@pytest.fixture
def make_docker() -> Iterator[Callable[..., Sandbox]]:
    """Make sandboxes in containers; for what the back end `local` cannot limit."""
    with maker({'backend': 'docker'}) as make:
        yield make


@pytest.fixture
def amake(options: dict[str, object]) -> Callable[..., AsyncSandbox]:
    """Make asynchronous sandboxes; the test closes them."""

    def make(**policy: object) -> AsyncSandbox:
        return AsyncSandbox(SandboxPolicy(**policy), **options)

    return make


@pytest.fixture
def run(box: Sandbox) -> Callable[[str], object]:
    """Run a cell in the module's `box` and return the value of its last expression."""

    def run(code: str) -> object:
        result = box.execute(code, timeout=60)
        assert result.ok, result.text
        return ast.literal_eval(result.result or 'None')

    return run


@pytest.fixture
def attempt(run: Callable[[str], object]) -> Callable[[str], object]:
    """Run statements and return the name of the error number they fail with, or None."""

    def attempt(code: str) -> object:
        body = '\n'.join(f'    {line}' for line in code.splitlines())
        return run(
            f'import ctypes, errno, fcntl, os, socket, termios\ntry:\n{body}\n    failure = None\n'
            'except OSError as error:\n    failure = errno.errorcode[error.errno]\nfailure'
        )

    return attempt
