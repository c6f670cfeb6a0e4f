"""Stop words: cut a text at the first of them, also when it comes in pieces."""

from collections.abc import Iterable


def cut_at_stop(text: str, stops: Iterable[str] | None) -> tuple[str, str | None]:
    """Cut a text at its first stop word.

    Args:
        text: the text.
        stops: stop words; empty ones are ignored.

    Returns:
        The text before the stop word, and the stop word; the whole text and None without one.
    """
    found = [(at, stop) for stop in stops or () if stop and (at := text.find(stop)) >= 0]
    if not found:
        return text, None
    at, stop = min(found, key=lambda item: item[0])
    return text[:at], stop


class StopCutter:
    """Cuts a text that comes in pieces, and holds back what may be the start of a stop word.

    Attributes:
        stopped: the stop word that was found, or None.
    """

    def __init__(self, stops: Iterable[str] | None = None) -> None:
        self._stops = [stop for stop in stops or () if stop]
        self._held = ''
        self.stopped: str | None = None

    def feed(self, piece: str) -> str:
        """Take the next piece.

        Args:
            piece: any part of the text.

        Returns:
            What can be shown now; nothing once a stop word was found.
        """
        if self.stopped is not None:
            return ''
        text, self.stopped = cut_at_stop(self._held + piece, self._stops)
        if self.stopped is not None:
            self._held = ''
            return text
        keep = self._undecided(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """End the text.

        Returns:
            What was held back: it did not become a stop word.
        """
        rest, self._held = self._held, ''
        return rest

    def _undecided(self, text: str) -> int:
        longest = max((len(stop) - 1 for stop in self._stops), default=0)
        for length in range(min(longest, len(text)), 0, -1):
            tail = text[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
