"""The two forms a reply can have, from bytes to texts: one document, or server-sent events."""

from collections.abc import Iterator


class EventDecoder:
    """Takes the body of an event stream in pieces of any size and gives the data of its events.

    It is used in place of the SDK's reader because the end mark of a stream has to be told apart
    from a connection that closed, and because each byte is looked at once, however long a line is.
    """

    def __init__(self) -> None:
        self._line: list[bytes] = []  # pieces of the line that has not ended
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[str]:
        """Take the next piece.

        Args:
            piece: bytes, cut anywhere: inside a line, a line end or a character.

        Yields:
            The data of each event that is complete now.
        """
        # A line ends in \n or \r\n. A lone \r, which the format allows, nobody sends.
        first, *others = piece.split(b'\n')
        self._line.append(first)
        for start in others:
            line, self._line = b''.join(self._line), [start]
            yield from self._take(line.removesuffix(b'\r'))

    def close(self) -> Iterator[str]:
        """End the stream.

        Yields:
            The data of a last event whose closing blank line was not sent.
        """
        yield from self._take(b''.join(self._line))
        yield from self._take(b'')

    def _take(self, line: bytes) -> Iterator[str]:
        if not line:
            if self._data:
                yield '\n'.join(self._data)
                self._data = []
        elif line.startswith(b'data:'):
            text = line.removeprefix(b'data:').decode('utf-8', 'replace')
            self._data.append(text.removeprefix(' '))


class WholeDecoder:
    """The same for a body that is one document."""

    def __init__(self) -> None:
        self._body = bytearray()

    def feed(self, piece: bytes) -> Iterator[str]:
        """Take the next piece; nothing is complete before the end."""
        self._body += piece
        return iter(())

    def close(self) -> Iterator[str]:
        """End the body and give all of it."""
        return iter([self._body.decode('utf-8', 'replace')])
