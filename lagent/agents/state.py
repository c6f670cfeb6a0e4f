"""What a tree of agents remembers of a session, and how it is kept in a file."""

import json
from collections.abc import Mapping
from typing import Any, Self

VERSION = 1
"""Version of the format. InternLM's lagent writes the same one, without saying so."""


class StateDict(dict[str, list[dict[str, Any]]]):
    """The dumped messages of each layer, by ``<dotted path>.memory``; a plain dict in all else.

    Attributes:
        version: the format in which the messages are written.
    """

    version: int = VERSION

    def to_json(self, **options: Any) -> str:
        """The state as a text that says its version.

        Args:
            options: see `json.dumps`.

        Returns:
            A JSON object with ``version`` and ``state``.
        """
        return json.dumps({'version': self.version, 'state': self}, **options)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote, or the JSON of the bare dict.

        Args:
            text: the JSON.

        Returns:
            The state.

        Raises:
            ValueError: it is no JSON, or a later version of lagent wrote it.
            TypeError: it is no JSON object.
        """
        loaded = json.loads(text)
        if not isinstance(loaded, dict):
            raise TypeError(f'a state is a JSON object, not {type(loaded).__name__}')
        is_bare = loaded.keys() != {'version', 'state'}
        state = cls(loaded if is_bare else loaded['state'])
        if not is_bare:
            state.version = loaded['version']
        cls.check_version(state)
        return state

    @staticmethod
    def check_version(state: Mapping[str, Any]) -> None:
        """Refuse a state that this version of lagent can't read.

        Args:
            state: a state; one without a version is InternLM's.

        Raises:
            ValueError: a later version of lagent wrote it.
        """
        version = getattr(state, 'version', VERSION)
        if version != VERSION:
            raise ValueError(
                f'The state has the format {version!r}, this version of lagent reads {VERSION}. '
                'Nothing was changed; load it with the version that wrote it.'
            )
