"""What an expectation is: a test, the failure modes it stands for, and what it needs."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from sandbox import AsyncSandbox, ErrorInfo, ExecutionResult, Sandbox

MakeBox = Callable[..., Sandbox]
MakeAsyncBox = Callable[..., AsyncSandbox]
Destroy = Callable[[Sandbox], None]
Test = TypeVar('Test', bound=Callable[..., None])

SWALLOW = """
import time
print('working', flush=True)
while True:
    try:
        time.sleep(60)
    except BaseException:
        pass
"""
"""A cell that no interrupt ends."""


def expectation(*modes: int, needs: str | tuple[str, ...] = 'code') -> Callable[[Test], Test]:
    """Mark a test as an expectation of every back end.

    Args:
        *modes: Numbers of the failure modes (see `modes.py`) that it stands for.
        needs: What the back end must do for it to make sense: `'files'` keep files, `'code'` run
            code, `'isolation'` keep code apart from the host, `'oom'` end no more than a process
            when memory runs out, or the name of a policy field that it must enforce. All but
            `'files'` imply `'code'`.
    """
    named = (needs,) if isinstance(needs, str) else needs
    return pytest.mark.expectation(modes=modes, needs=named)


def error_of(result: ExecutionResult) -> ErrorInfo:
    """Return the error of a cell that must have one."""
    assert result.error is not None, result.text
    return result.error
