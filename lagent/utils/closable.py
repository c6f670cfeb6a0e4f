"""What ``with`` and ``async with`` close."""

from typing import NoReturn, Self


class Closable:
    """Something that is closed by `close`, or at the end of a ``with`` block."""

    def close(self) -> None:
        """Give back what is held; by default nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class AsyncClosable(Closable):
    """Something whose `close` is a coroutine; it is the end of an ``async with`` block."""

    async def close(self) -> None:  # type: ignore[override]  # the awaited face of the same method
        """See `Closable.close`."""

    def __enter__(self) -> NoReturn:
        raise TypeError(
            f'{type(self).__name__} is closed with "async with", by a coroutine; '
            'use "async with" in place of "with"'
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()
