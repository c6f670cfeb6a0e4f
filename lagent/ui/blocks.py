"""What a session's page consists of, in order: questions, replies, cells, files, notes."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from lagent.console import printable
from lagent.ui.outputs import Shown
from lagent.ui.text import Growing

MOST_OUTPUTS = 100


@dataclass(kw_only=True)
class Block:
    """One part of the page.

    Attributes:
        number: its number in the session.
        created: the change with which it was added; see `Changes`.
        changed: the change that it was last changed by.
    """

    kind: ClassVar[str]
    number: int = 0
    created: int = 0
    changed: int = 0

    def frozen(self) -> dict[str, Any]:
        """What it is now, as values that don't change any more."""
        return {**vars(self), 'kind': self.kind}


@dataclass
class Question(Block):
    """What the user has asked."""

    kind = 'question'
    text: str


@dataclass
class Uploaded(Block):
    """Files that the session was given.

    Attributes:
        profiles: the `FileProfile` of each.
    """

    kind = 'uploaded'
    profiles: list[Any]


@dataclass
class Reply(Block):
    """What a model replies.

    Attributes:
        model: its name.
        text: Markdown.
        seconds: how long it took; None while it grows.
        tokens: how many it has, where that is known.
        error: why there is no more of it.
    """

    kind = 'reply'
    model: str
    text: Growing = field(default_factory=Growing)
    seconds: float | None = None
    tokens: int | None = None
    error: str = ''

    @property
    def links(self) -> bool:
        """Whether it may have links."""
        return '](' in str(self.text)

    def frozen(self) -> dict[str, Any]:
        """See `Block.frozen`."""
        return {**super().frozen(), 'text': printable(str(self.text))}


@dataclass
class Cell(Block):
    """Code that is run, and what it puts out.

    Attributes:
        code: its source.
        outputs: what it has put out so far.
        dropped: outputs over the number that is shown.
        outcome: how it ended; ``''`` while it runs.
        seconds: how long it took.
        notices: what happened to the kernel.
        error: why there is no result.
    """

    kind = 'cell'
    code: str
    outputs: list[Shown] = field(default_factory=list)
    dropped: int = 0
    outcome: str = ''
    seconds: float = 0.0
    notices: tuple[str, ...] = ()
    error: str = ''
    _stream: tuple[str, Growing] | None = None

    def add_text(self, kind: str, text: str) -> None:
        """Add a piece of what it prints.

        Args:
            kind: ``'stdout'`` or ``'stderr'``.
            text: the piece.
        """
        if self._stream is None or self._stream[0] != kind:
            self.end_text()
            self._stream = (kind, Growing())
        self._stream[1].add(text)

    def end_text(self) -> None:
        """Know that what comes next does not go on with the text before it."""
        if self._stream is not None:
            kind, growing = self._stream
            self._stream = None
            self.add(Shown.of_text(kind, str(growing)))

    def add(self, shown: Shown) -> None:
        """Add an output.

        Args:
            shown: the output.
        """
        self.end_text()
        if len(self.outputs) < MOST_OUTPUTS:
            self.outputs.append(shown)
        else:
            self.dropped += 1

    def replace(self, outputs: list[Shown]) -> None:
        """Show the outputs of the result, which are more exact than what was seen to arrive.

        Args:
            outputs: all of them.
        """
        self._stream = None
        self.outputs = outputs[:MOST_OUTPUTS]
        self.dropped = len(outputs) - len(self.outputs)

    def frozen(self) -> dict[str, Any]:
        """See `Block.frozen`."""
        outputs = list(self.outputs)
        if self._stream is not None:
            kind, growing = self._stream
            outputs.append(Shown.of_text(kind, str(growing)))
        return {**super().frozen(), 'outputs': outputs}


@dataclass
class Note(Block):
    """What the program says.

    Attributes:
        text: plain text.
        tone: ``'info'``, ``'warning'`` or ``'error'``.
    """

    kind = 'note'
    text: str
    tone: str = 'info'


@dataclass
class Made(Block):
    """The files that were made for an answer.

    Attributes:
        files: path, size, kind and preview of each.
    """

    kind = 'made'
    files: list[dict[str, Any]]
