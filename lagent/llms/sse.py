"""The two forms a reply can have, from bytes to texts: one document, or server-sent events."""

from collections.abc import Iterator

_FIELDS = (b'data:', b'event:', b'id:', b'retry:', b':')  # the last one begins a comment


class BodyDecoder:
    """Takes a body in pieces of any size, and gives the data of its events, or all of it.

    Which form it has is told by what comes: some servers don't stream what they were asked to
    stream, some stream what they were not, and their headers may be wrong.

    It is used in place of the SDK's reader because the end mark of a stream has to be told apart
    from a connection that closed, and because each byte is looked at once, however long a line is.
    """

    def __init__(self) -> None:
        self._line: list[bytes] = []  # pieces of the line that has not ended
        self._data: list[str] = []
        self._body: bytearray | None = bytearray()  # until there is a field of an event

    def feed(self, piece: bytes) -> Iterator[str]:
        """Take the next piece.

        Args:
            piece: bytes, cut anywhere: inside a line, a line end or a character.

        Yields:
            The data of each event that is complete now.
        """
        if self._body is not None:
            self._body += piece
        # A line ends in \n or \r\n. A lone \r, which the format allows, nobody sends.
        first, *others = piece.split(b'\n')
        self._line.append(first)
        for start in others:
            line, self._line = b''.join(self._line), [start]
            yield from self._take(line.removesuffix(b'\r'))

    def close(self) -> Iterator[str]:
        """End the body.

        Yields:
            The data of a last event whose closing blank line was not sent.
        """
        yield from self._take(b''.join(self._line))
        yield from self._take(b'')

    def document(self) -> str | None:
        """The body, once it was closed.

        Returns:
            All of it; None where it was a stream of events.
        """
        return None if self._body is None else self._body.decode('utf-8', 'replace')

    def _take(self, line: bytes) -> Iterator[str]:
        if line.startswith(_FIELDS):
            self._body = None
        if not line:
            if self._data:
                yield '\n'.join(self._data)
                self._data = []
        elif line.startswith(b'data:'):
            text = line.removeprefix(b'data:').decode('utf-8', 'replace')
            self._data.append(text.removeprefix(' '))
