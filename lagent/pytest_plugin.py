"""Fixtures for tests of agents: `cassette`, `scripted_model` and `ask`.

``--lagent-record=none|once|all`` says what cassettes do: play only (the default), record those that
are missing, or record all of them anew. ``--lagent-strict`` executes their cells again, in real
sandboxes. Nothing of lagent is loaded until a test asks for it.
"""

import hashlib
import os
import re
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

# That of lagent.journal.cassette_context, which is loaded when it is needed.
_RECORD = 'LAGENT_RECORD'
_LONGEST = 100  # characters of a file's name

_failed = pytest.StashKey[bool]()
_environ = pytest.StashKey[str | None]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup('lagent')
    group.addoption(
        '--lagent-record',
        choices=('none', 'once', 'all'),
        help='What cassettes do: play only, record what is missing, or record all anew. '
        f'Default: ${_RECORD}, else none.',
    )
    group.addoption(
        '--lagent-strict',
        action='store_true',
        help='Execute the cells of cassettes again in real sandboxes and compare the outputs.',
    )


def pytest_configure(config: pytest.Config) -> None:
    """Say the mode to cassettes that are not made by the fixture, too."""
    config.addinivalue_line(
        'markers',
        'cassette(path=None, **options): play this cassette, or that of the fixture `cassette`; '
        'options are those of lagent.journal.replay',
    )
    if mode := config.getoption('--lagent-record'):
        config.stash[_environ] = os.environ.get(_RECORD)
        os.environ[_RECORD] = mode


def pytest_unconfigure(config: pytest.Config) -> None:
    """Put the environment back."""
    if _environ in config.stash:
        if (before := config.stash[_environ]) is None:
            os.environ.pop(_RECORD, None)
        else:
            os.environ[_RECORD] = before


def pytest_report_header() -> str | None:
    """Say that cassettes are recorded: models are asked and cost money."""
    mode = os.environ.get(_RECORD, 'none')
    return None if mode == 'none' else f'lagent: cassettes are recorded ({mode})'


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember whether a test has gone wrong, for fixtures that end after it."""
    report = yield
    if report.when != 'teardown':
        item.stash[_failed] = item.stash.get(_failed, False) or not report.passed
    return report


@pytest.fixture
def cassette_options() -> dict[str, Any]:
    """Options of `lagent.journal.replay` for every `cassette`. Override it."""
    return {}


@pytest.fixture
def cassette(request: pytest.FixtureRequest, cassette_options: dict[str, Any]) -> Iterator[Any]:
    """Play the test's cassette, or record it; gives the `lagent.journal.Replay`.

    It is ``cassettes/MODULE/TEST.jsonl`` beside the module, or what the marker `cassette` names.
    Fixtures that make agents should ask for it, so that it is there before them. A test that fails
    or is skipped records nothing.
    """
    from lagent.journal import replay

    marker = request.node.get_closest_marker('cassette')
    named = marker.args[0] if marker and marker.args else None
    path = request.path.parent / (named or _default_path(request))
    options = {**cassette_options, **(marker.kwargs if marker else {})}
    if request.config.getoption('--lagent-strict'):
        options['strict'] = True
    with replay(path, **options) as playing:
        request.node.user_properties.append(('lagent.cassette', _relative(path, request)))
        yield playing
        if request.node.stash.get(_failed, True):
            playing.discard()


@pytest.fixture(autouse=True)
def _marked_cassette(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker('cassette'):
        request.getfixturevalue('cassette')


@pytest.fixture
def scripted_model(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Make a model that gives these replies: ``scripted_model('first', 'second')``.

    ``awaited=True`` makes one for asynchronous agents; other options are those of
    `lagent.llms.ScriptedModel`. A test that leaves replies over fails.
    """
    from lagent.llms import AsyncScriptedModel, ScriptedModel
    from lagent.utils.counts import many

    made: list[tuple[Any, int]] = []

    def make(*replies: Any, awaited: bool = False, **options: Any) -> Any:
        model = (AsyncScriptedModel if awaited else ScriptedModel)(replies, **options)
        made.append((model, len(replies)))
        return model

    yield make
    if not request.node.stash.get(_failed, True):
        for model, count in made:
            assert len(model.calls) >= count, (
                f'{model.path!r} was called {many(len(model.calls), "time")}, and has '
                f'{many(count, "reply", "replies")}'
            )


@pytest.fixture
def ask(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Ask an agent and keep what it does; see `lagent.testing.ask`.

    What the runs have used and the files that they made are properties of the test in the JUnit
    report.
    """
    from lagent.testing import Run, properties, watched

    runs: list[Run] = []

    def asking(agent: Any, *message: Any, **kwargs: Any) -> Any:
        runs.append(Run())
        return watched(runs[-1], agent, message, kwargs)

    yield asking
    if runs:
        request.node.user_properties.extend(properties(runs))


def _default_path(request: pytest.FixtureRequest) -> Path:
    name = request.node.name.removesuffix(']').replace('[', '-', 1)
    name = name if request.cls is None else f'{request.cls.__name__}.{name}'
    plain = re.sub(r'[^\w.-]+', '-', name)
    if plain != name or len(plain) > _LONGEST:
        # Another test must not have the same file.
        digest = hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()
        plain = f'{plain[: _LONGEST - 9]}-{digest[:8]}'
    return Path('cassettes', request.path.stem, f'{plain}.jsonl')


def _relative(path: Path, request: pytest.FixtureRequest) -> str:
    root = request.config.rootpath
    return str(path.relative_to(root) if path.is_relative_to(root) else path)
