"""What holds live sandboxes is not copied, and says what to do instead."""

import copy
import pickle
from typing import Any

import pytest

from sandbox import (
    AsyncSandbox,
    AsyncSandboxManager,
    FakeBackend,
    Sandbox,
    SandboxError,
    SandboxManager,
)


def test_a_subclass_may_say_how_it_is_copied() -> None:
    class Stand(Sandbox):
        def __init__(self) -> None:
            pass  # and so there is nothing to tell of it

        def __del__(self) -> None:
            pass

    with pytest.raises(SandboxError, match='A Stand can be neither copied nor pickled'):
        copy.copy(Stand())
    Stand.__reduce__ = lambda self: (Stand, ())  # type: ignore[method-assign]
    assert isinstance(copy.deepcopy(Stand()), Stand)


@pytest.mark.parametrize('how', [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize('cls', [Sandbox, AsyncSandbox, SandboxManager, AsyncSandboxManager])
def test_a_copy_is_refused_in_words(cls: Any, how: Any) -> None:
    with pytest.raises(SandboxError, match='neither copied nor pickled') as refused:
        how(cls(backend=FakeBackend(), unsafe=True))
    assert f'Make another {cls.__name__} where it is used' in refused.value.hint
