"""Context variables whose block may be left in another context than it was entered in."""

from contextvars import ContextVar, Token
from typing import TypeVar

T = TypeVar('T')


def reset(variable: ContextVar[T], token: Token[T]) -> None:
    """Give a context variable its earlier value, where that is still possible.

    Args:
        variable: the variable.
        token: what `set` gave.
    """
    try:  # noqa: SIM105 - `suppress` would take longer than all the rest
        variable.reset(token)
    except ValueError:
        pass  # the collector ends an abandoned stream in whatever context it runs
