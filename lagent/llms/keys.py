"""API keys that are used in turn."""

import time
from collections.abc import Callable, Mapping

from lagent.errors import ConfigError
from lagent.llms.errors import QuotaExhausted

_PASSED_OVER = 300.0  # seconds; then a key may have been given new quota


class KeyRing:
    """API keys that are used in turn.

    Args:
        keys: one key or several.
        orgs: organizations that are used in turn; as many as there are keys belong to one key each.

    Attributes:
        keys: all of them.
    """

    def __init__(self, keys: str | list[str], orgs: str | list[str] | None = None) -> None:
        self.keys = [keys] if isinstance(keys, str) else list(keys)
        self.orgs = [orgs] if isinstance(orgs, str) else list(orgs or ())
        if not self.keys:
            raise ConfigError('The list of API keys is empty.')
        self._passed_over: dict[str, float] = {}  # until when, on the monotonic clock
        self._turn = -1

    def pass_over(self, key: str) -> None:
        """Use a key for some minutes only where all others have been tried.

        Args:
            key: one that has no quota left.
        """
        self._passed_over[key] = time.monotonic() + _PASSED_OVER

    def next(
        self, held: Callable[[str], float], refused: Mapping[str, QuotaExhausted]
    ) -> tuple[str, str | None]:
        """The next key, and the organization it is used with.

        Args:
            held: for how many seconds a key is held back; one that is not goes first.
            refused: the keys that the same call has tried, and what the provider said to each.

        Raises:
            QuotaExhausted: all keys were refused.
        """
        untried = [key for key in self.keys if key not in refused]
        if not untried:
            *_, last = refused.values()
            many = len(self.keys)
            who = 'The API key has no' if many == 1 else f'None of the {many} API keys has any'
            raise QuotaExhausted(f'{who} quota left. {last}', status=last.status) from last
        now = time.monotonic()
        keys = [key for key in untried if self._passed_over.get(key, now) <= now] or untried
        self._turn += 1
        turn = self._turn % len(keys)
        key = min(keys[turn:] + keys[:turn], key=held)
        if not self.orgs:
            return key, None
        paired = len(self.orgs) == len(self.keys)
        return key, self.orgs[self.keys.index(key) if paired else self._turn % len(self.orgs)]
