"""What a cell gives back: `ExecutionResult` and its parts. Plain frozen values, JSON and back."""

import base64
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Self

from sandbox.counts import many
from sandbox.rich import CHART_MIME, DATA_MIMES, TABLE_MIME, Chart, Table, read_chart, read_table

OutputKind = Literal['stdout', 'stderr', 'result', 'display', 'error']
FileKind = Literal['file', 'dir', 'link', 'other']


class Outcome(StrEnum):
    """How a cell ended."""

    OK = 'ok'
    ERROR = 'error'
    """The code raised; see `ExecutionResult.error`."""
    TIMEOUT = 'timeout'
    """The cell's wall clock ran out."""
    INTERRUPTED = 'interrupted'
    """`interrupt()` ended the cell."""
    OOM = 'oom'
    """The kernel was killed because the sandbox ran out of memory."""
    KERNEL_DIED = 'kernel_died'
    """The kernel process ended: a crash, a signal, `os._exit`."""
    SANDBOX_LOST = 'sandbox_lost'
    """The container or process around the kernel is gone, and its files with it."""
    UNKNOWN = 'unknown'
    """The kernel's answer says nothing about how the cell ended."""


class ErrorInfo(NamedTuple):
    """The exception that ended a cell; unpacks as `name, message, traceback` (clean text)."""

    name: str
    message: str
    traceback: str


@dataclass(frozen=True, repr=False)
class Output:
    """One output of a cell.

    Attributes:
        kind: `stdout` and `stderr` (what was printed), `result` (the value of the last
            expression), `display` (what was displayed) or `error` (the traceback).
        text: Plain text. Where it was cut, a line in it says how many characters are left out.
        data: MIME type to representation: text, JSON values, and `bytes` for images and PDF.
        metadata: The kernel's metadata of the representations.
        display_id: Name under which the kernel may update this output.
        left_out: MIME type to size in bytes of representations that were over a limit.
        cut: Where in `text` the line about a cut stands, and how many characters it stands for.
        ansi: For a terminal: `text` with its colours (SGR, and no other code), if it has any. Only
            pieces of streams have it, as they arrive.
    """

    kind: OutputKind
    text: str = ''
    data: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    display_id: str | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    cut: tuple[int, int] | None = None
    ansi: str = ''

    def __repr__(self) -> str:
        parts = [reprlib.repr(self.text)] if self.text else []
        return f'<Output {self.kind}: {", ".join([*parts, *self.data])}>'

    @property
    def missing(self) -> dict[str, int]:
        """What of `left_out` is to be told: not data that says what the output itself says."""
        return {mime: size for mime, size in self.left_out.items() if mime not in DATA_MIMES}

    @property
    def table(self) -> Table | None:
        """The data frame or series that is shown, as data, or None."""
        return read_table(self.data.get(TABLE_MIME))

    @property
    def chart(self) -> Chart | None:
        """The matplotlib figure that is shown, as data, or None."""
        return read_chart(self.data.get(CHART_MIME))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-safe form; bytes as `{'base64': text}`."""
        return {
            'kind': self.kind,
            'text': self.text,
            'data': {
                mime: {'base64': base64.b64encode(value).decode('ascii')}
                if isinstance(value, bytes)
                else {'value': value}
                for mime, value in self.data.items()
            },
            'metadata': dict(self.metadata),
            'display_id': self.display_id,
            'left_out': dict(self.left_out),
            'cut': self.cut and list(self.cut),
            'ansi': self.ansi,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Rebuild what `to_dict` gave."""
        data = {
            mime: base64.b64decode(entry['base64']) if 'base64' in entry else entry['value']
            for mime, entry in values['data'].items()
        }
        cut = values['cut'] and tuple(values['cut'])
        return cls(**{**values, 'data': data, 'cut': cut})


@dataclass(frozen=True)
class Truncation:
    """Exactly what was left out of a result; all zero when nothing was.

    Attributes:
        stdout_chars: Characters cut from the middle of standard output.
        stderr_chars: Characters cut from the middle of standard error.
        text_chars: Characters cut from plain texts of results and displays, and tracebacks.
        outputs: Outputs over the number that is kept.
        bytes: Bytes of representations (html, images, ...) and messages over a limit.
        messages: Kernel messages that were malformed, forged or over the size limit.
        files: Whether more files than are looked at may have changed (1) or not (0).
    """

    stdout_chars: int = 0
    stderr_chars: int = 0
    text_chars: int = 0
    outputs: int = 0
    bytes: int = 0
    messages: int = 0
    files: int = 0

    def __bool__(self) -> bool:
        return any(getattr(self, f.name) for f in fields(self))


@dataclass(frozen=True)
class Timings:
    """Seconds: waiting for earlier calls and for its turn, running, and both with all the rest."""

    queued: float = 0.0
    running: float = 0.0
    total: float = 0.0


@dataclass(frozen=True)
class FileInfo:
    """A file of the session.

    Attributes:
        path: Relative to the workspace, with `/` between its parts.
        size: Bytes.
        modified: Unix time in seconds.
        kind: `file`, `dir`, `link` or `other`.
    """

    path: str
    size: int
    modified: float
    kind: FileKind = 'file'


@dataclass(frozen=True, repr=False)
class ExecutionResult:
    """What running one cell gave. User code never raises: its failure is told here.

    Attributes:
        outcome: How the cell ended.
        outputs: Everything it put out, in order.
        error: The exception that ended it, if one did.
        state_preserved: Whether variables and imports from before this cell are still there.
        notices: What happened to the kernel or the sandbox, and what was lost by it.
        execution_count: The kernel's number of this cell.
        truncated: Exactly what was left out.
        artifacts: Files that the cell created or changed. Small ones are compared by content, large
            ones by size and time.
        full_output: Files of the session that hold the whole of a text that is cut here.
        timings: How long it took.
        exit_code: Exit code of the kernel process, where it ended by one.
        signal: Number of the signal that ended the kernel process, where one did.
        steps: What was done about a cell that would not end: `interrupt`, `kill`, `restart`.
        text_limit: Length of `text` in characters, as long as notices leave room for the rest.
    """

    outcome: Outcome
    outputs: tuple[Output, ...] = ()
    error: ErrorInfo | None = None
    state_preserved: bool = True
    notices: tuple[str, ...] = ()
    execution_count: int | None = None
    truncated: Truncation = Truncation()
    artifacts: tuple[FileInfo, ...] = ()
    full_output: tuple[FileInfo, ...] = ()
    timings: Timings = Timings()
    exit_code: int | None = None
    signal: int | None = None
    steps: tuple[str, ...] = ()
    text_limit: int = 8_000

    def __repr__(self) -> str:
        ended = f'{self.outcome} ({self.error.name})' if self.error else str(self.outcome)
        counts = [(len(self.outputs), 'output'), (len(self.images), 'image')]
        told = [many(count, what) for count, what in counts if count]
        return f'<ExecutionResult {", ".join([ended, *told])}, {self.timings.total:.2f} s>'

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Show it in a notebook: its images, tables and texts; never the cell's own HTML."""
        from sandbox.notebook_view import as_html

        return {'text/plain': repr(self), 'text/html': as_html(self)}

    @property
    def ok(self) -> bool:
        """Whether the cell ran to its end without an exception."""
        return self.outcome is Outcome.OK

    @property
    def stdout(self) -> str:
        """All that was printed to standard output."""
        return ''.join(output.text for output in self.outputs if output.kind == 'stdout')

    @property
    def stderr(self) -> str:
        """All that was printed to standard error."""
        return ''.join(output.text for output in self.outputs if output.kind == 'stderr')

    @property
    def result(self) -> str | None:
        """Text of the value of the last expression, or None."""
        texts = [output.text for output in self.outputs if output.kind == 'result']
        return texts[-1] if texts else None

    @property
    def images(self) -> list[bytes]:
        """The PNG and JPEG images, in order."""
        return [
            image
            for output in self.outputs
            for mime in ('image/png', 'image/jpeg')
            if isinstance(image := output.data.get(mime), bytes)
        ]

    @property
    def tables(self) -> list[Table]:
        """The data frames and series that were shown, in order."""
        return [table for output in self.outputs if (table := output.table) is not None]

    @property
    def charts(self) -> list[Chart]:
        """The matplotlib figures that were shown, in order."""
        return [chart for output in self.outputs if (chart := output.chart) is not None]

    @property
    def text(self) -> str:
        """What a model is shown: notices whole, the rest cut to `text_limit`, cuts counted."""
        from sandbox.kernel.render import model_text

        return model_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-safe form from which `from_dict` makes an equal result."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            **values,
            'outcome': self.outcome.value,
            'outputs': [output.to_dict() for output in self.outputs],
            'error': self.error and self.error._asdict(),
            'notices': list(self.notices),
            'truncated': vars(self.truncated).copy(),
            'artifacts': [vars(info).copy() for info in self.artifacts],
            'full_output': [vars(info).copy() for info in self.full_output],
            'timings': vars(self.timings).copy(),
            'steps': list(self.steps),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Rebuild what `to_dict` gave."""
        return cls(
            **{
                **values,
                'outcome': Outcome(values['outcome']),
                'outputs': tuple(map(Output.from_dict, values['outputs'])),
                'error': values['error'] and ErrorInfo(**values['error']),
                'notices': tuple(values['notices']),
                'truncated': Truncation(**values['truncated']),
                'artifacts': tuple(FileInfo(**info) for info in values['artifacts']),
                'full_output': tuple(FileInfo(**info) for info in values['full_output']),
                'timings': Timings(**values['timings']),
                'steps': tuple(values['steps']),
            }
        )


@dataclass(frozen=True)
class ExecutionEvent:
    """One event of `stream()`.

    Attributes:
        kind: `output`, or `result` for the last event.
        output: The output as it arrived; of a stream, the next piece of it.
        result: The whole result, in the last event.
        clear: The cell asked that what it has put out so far be cleared.
    """

    kind: Literal['output', 'result']
    output: Output | None = None
    result: ExecutionResult | None = None
    clear: bool = False
