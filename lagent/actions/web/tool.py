"""What every tool that asks a web service does in the same way."""

import functools
import os
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from lagent.actions.base_action import BaseAction
from lagent.actions.web.client import HttpClient, HttpLimits
from lagent.actions.web.errors import WebError
from lagent.schema import ActionReturn

P = ParamSpec('P')
T = TypeVar('T')
Tool = TypeVar('Tool', bound=BaseAction)


def web_api(
    method: Callable[Concatenate[Tool, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Tool, P], Coroutine[Any, Any, T | ActionReturn]]:
    """Turn the web errors of an API into results of its tool, with the state that fits."""

    @functools.wraps(method)
    async def call(self: Tool, /, *args: P.args, **kwargs: P.kwargs) -> T | ActionReturn:
        try:
            return await method(self, *args, **kwargs)
        except WebError as error:
            return ActionReturn(type=self.name, errmsg=str(error), state=error.state)

    return call


def required_key(key: str | None, *variables: str, name: str = 'api_key') -> str:
    """The key of a service.

    Args:
        key: what the caller gave; it beats the environment.
        variables: environment variables that may hold it.
        name: of the parameter.

    Returns:
        The key.

    Raises:
        ValueError: there is none.
    """
    for found in (key, *(os.environ.get(variable) for variable in variables)):
        if found:
            return found
    places = ' or '.join(f'${variable}' for variable in variables)
    raise ValueError(f'A key is needed: pass `{name}`{places and f" or set {places}"}.')


def service_client(
    timeout: float, proxy: Any = None, attempts: int = 2, backoff: float = 0.5
) -> HttpClient:
    """A client for the endpoint of a service.

    Args:
        timeout: seconds of one attempt.
        proxy: see `HttpClient`.
        attempts: attempts in all.
        backoff: seconds before the second attempt, about.
    """
    limits = HttpLimits(timeout=timeout, attempts=attempts, backoff=backoff)
    return HttpClient(limits, proxy=proxy)
