"""The fixture `sandbox`: a session of its own for each test, gone with the test.

Override `sandbox_options` to say what it may use and what isolates it::

    @pytest.fixture(scope='session')
    def sandbox_options():
        return {'policy': SandboxPolicy(memory=512 * 2**20), 'backend': 'bubblewrap'}
"""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope='session')
def sandbox_options() -> dict[str, Any]:
    """What `sandbox` is made with: the arguments of `sandbox.Sandbox`. Override it."""
    return {}


@pytest.fixture
def sandbox(sandbox_options: dict[str, Any]) -> Iterator[Any]:
    """A fresh `sandbox.Sandbox`. A test that can't have one fails, and says why."""
    from sandbox.session import Sandbox

    with Sandbox(**sandbox_options) as box:
        yield box
