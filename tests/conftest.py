"""What the tests need of this machine, and what happens where it is not there.

A test marked `docker` needs an engine with the kernel image, one marked `runsc` gVisor as a runtime
of that engine, one marked `bubblewrap` that program and control groups, one marked `model` the
small model, one marked `browser` Chromium and Playwright.
Where they are missing the test is skipped and says why; with `LAGENT_TEST_REQUIRE_ALL=1`, as in CI,
it fails instead, so that nothing is left out unseen, but for markers in `LAGENT_TEST_OPTIONAL`.
"""

import functools
import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# How long one example takes says something about the machine, not about the code.
settings.register_profile('lagent', settings(), deadline=None)
settings.load_profile('lagent')

# A shell starts what it runs in the background with interrupts ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parents[1]
MODEL = ROOT / '.cache' / 'models' / 'SmolLM2-135M-Instruct'
MODELS = 'tests/integration/llms/'
REQUIRE_ALL, OPTIONAL = 'LAGENT_TEST_REQUIRE_ALL', 'LAGENT_TEST_OPTIONAL'


@functools.cache
def missing_docker() -> str:
    from sandbox.errors import SandboxError
    from sandbox.image import find_image

    try:
        find_image()
    except SandboxError as error:
        return error.message
    return ''


@functools.cache
def missing_analysis() -> str:
    from sandbox.errors import SandboxError
    from sandbox.image import find_image

    try:
        find_image(variant='analysis')
    except SandboxError as error:
        return error.message
    return ''


@functools.cache
def missing_runsc() -> str:
    from sandbox.conformance.gvisor import InGvisor
    from sandbox.errors import SandboxError

    try:
        InGvisor().check()
    except SandboxError as error:
        return error.message
    return ''


@functools.cache
def missing_bubblewrap() -> str:
    from sandbox import SandboxError, SandboxPolicy
    from sandbox.backends.bubblewrap import BubblewrapBackend

    backend = BubblewrapBackend()
    try:
        backend.check()
    except SandboxError as error:
        return error.message
    return '; '.join(backend.unenforced(SandboxPolicy()).values())


@functools.cache
def missing_model() -> str:
    if (MODEL / 'model.safetensors').is_file():
        return ''
    return f'there is no model in {MODEL.relative_to(ROOT)}: make model'


def chromium() -> str | None:
    """Path of the browser; None if there is none."""
    names = ('chromium', 'chromium-browser', 'google-chrome')
    return next(filter(None, map(shutil.which, names)), None)


@functools.cache
def missing_browser() -> str:
    if importlib.util.find_spec('playwright') is None:
        return 'Playwright is not installed: pip install playwright'
    return '' if chromium() else 'there is no Chromium: apt install chromium'


@functools.cache
def missing_gpu() -> str:
    try:
        subprocess.run(['nvidia-smi'], capture_output=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return 'there is no GPU'
    return ''


NEEDS = {
    'docker': missing_docker,
    'analysis': missing_analysis,
    'runsc': missing_runsc,
    'bubblewrap': missing_bubblewrap,
    'model': missing_model,
    'browser': missing_browser,
    'gpu': missing_gpu,
}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, missing in NEEDS.items():
        if item.get_closest_marker(marker) and (reason := missing()):
            excused = os.environ.get(OPTIONAL, '').split(',')
            if os.environ.get(REQUIRE_ALL) == '1' and marker not in excused:
                pytest.fail(f'{marker}: {reason}', pytrace=False)
            pytest.skip(f'{marker}: {reason}')


@pytest.hookimpl(optionalhook=True)  # there is none without pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give the tests of a file to one process, and all those of models, which take much memory."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return MODELS if nodeid.startswith(MODELS) else super()._split_scope(nodeid)

    return ByFile(config, log) if config.getoption('dist') == 'loadfile' else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take long: none of the processes is left with one at the end."""
    if 'PYTEST_XDIST_WORKER' in os.environ:
        slow = {item.path for item in items if item.get_closest_marker('slow')}
        items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope='session')
def model_path() -> Path:
    """Folder of the small real model; for tests marked `model`."""
    return MODEL


@pytest.fixture(scope='session')
def chromium_path() -> str:
    """The browser; for tests marked `browser`."""
    path = chromium()
    assert path is not None
    return path


@pytest.fixture(scope='session', autouse=True)
def clean_environment() -> Iterator[None]:
    """No test calls a model behind an API because a key happens to be set."""
    with pytest.MonkeyPatch.context() as patch:
        keys = ('OPENAI_API_KEY', 'ANTHROPIC_API_KEY', 'Claude_API_KEY', 'SENSENOVA_API_KEY')
        for name in ('MODEL', 'OPENAI_BASE_URL', 'ANTHROPIC_BASE_URL', *keys):
            patch.delenv(name, raising=False)
        yield
