"""Copies of models that have loaded what can not be copied, or is too large for it."""

import copy
from typing import Any, ClassVar, NoReturn, Self

from lagent.errors import ConfigError


class SharesEngine:
    """A model whose copies use the engine that it has loaded; their parameters are their own.

    Closing one of them closes the engine for all.

    Attributes:
        _shared: the names of the attributes that are not copied.
    """

    _shared: ClassVar[tuple[str, ...]]

    def __copy__(self) -> Self:
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied = memo[id(self)] = object.__new__(type(self))
        for name, value in self.__dict__.items():
            copied.__dict__[name] = value if name in self._shared else copy.deepcopy(value, memo)
        return copied

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise ConfigError(
            f'A {type(self).__name__} has loaded its model into this process, so it can not be '
            'pickled. Make it where it is used, as from a configuration dict: '
            f"{{'type': '{type(self).__module__}.{type(self).__qualname__}', ...}}."
        )
