"""Helpers around text, generators and futures."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Generator, Iterable, Iterator
from typing import Any, overload


@overload
def filter_suffix(response: str, suffixes: Iterable[str] | None = None) -> str: ...
@overload
def filter_suffix(response: list[str], suffixes: Iterable[str] | None = None) -> list[str]: ...
def filter_suffix(
    response: str | list[str], suffixes: Iterable[str] | None = None
) -> str | list[str]:
    """Cut a text, or each of several, at the first occurrence of each suffix.

    Args:
        response: the text or texts.
        suffixes: stop words; empty ones are ignored. None leaves the text as it is.

    Returns:
        The text or texts up to the first stop word.
    """
    if isinstance(response, list):
        stops = None if suffixes is None else list(suffixes)
        return [filter_suffix(one, stops) for one in response]
    for suffix in suffixes or ():
        if suffix:
            response = response.partition(suffix)[0]
    return response


def is_module_exist(module_name: str) -> bool:
    """Whether a module can be imported.

    Args:
        module_name: the module's dotted name.

    Returns:
        True when it is installed; it is not imported.
    """
    try:
        return importlib.util.find_spec(module_name) is not None
    except ModuleNotFoundError:
        return False


async def async_as_completed(
    futures: Iterable[asyncio.Future[Any]],
) -> AsyncIterator[asyncio.Future[Any]]:
    """Yield futures in the order in which they are done.

    Args:
        futures: the futures to wait for.

    Yields:
        Each future once it is done.
    """
    pending = set(futures)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for future in done:
            yield future


class GeneratorWithReturn:
    """An iterable over a generator that keeps the generator's return value.

    Attributes:
        ret: the return value, once the generator has ended.
    """

    def __init__(self, generator: Generator[Any, Any, Any]) -> None:
        self.generator = generator
        self.ret: Any = None

    def __iter__(self) -> Iterator[Any]:
        self.ret = yield from self.generator
