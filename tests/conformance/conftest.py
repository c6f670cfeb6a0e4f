"""Black-box tests of the API that code written against InternLM's lagent uses.

They use public names only and scripted models. `test_fixed_bugs.py` holds the right values where
InternLM's version is wrong. Some run code: that happens in the back end that the environment names
(`LAGENT_SANDBOX_BACKEND`), Docker by default.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lagent.actions import cells

HERE = Path(__file__).parent
RUNS_CODE = (
    *('b46', 'b59', 'b60', 'b61', 'b62', 'b63', 'b64', 'b65', 'b66', 'b67', 'b68', 'b69'),
    *('b71', 'b72', 'b73', 'b74', 'b75'),
)

# The tests import their helpers, and the served agents are found, by plain names.
sys.path.insert(0, str(HERE))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE not in item.path.parents:
            continue
        # InternLM's API warns where ours need not; a dump of an unknown session is one case.
        item.add_marker(pytest.mark.filterwarnings('default'))
        if item.name.startswith(tuple(f'test_{name}' for name in RUNS_CODE)):
            item.add_marker('docker')


@pytest.fixture(autouse=True, scope='module')
def no_sandbox_is_left() -> Iterator[None]:
    """The tests leave most of their interpreters to the collector; others count containers."""
    yield
    cells._close_the_rest()


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some tools create folders under the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('OPENAI_API_KEY', 'sk-conformance')
    monkeypatch.setenv('NO_PROXY', '127.0.0.1,localhost')
