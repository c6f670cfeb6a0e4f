"""Shows a run in a terminal as it happens: the reply, the code, its output, and the times."""

import re
from collections.abc import Callable
from typing import Any

from markdown_it import MarkdownIt
from rich.ansi import AnsiDecoder
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, Group
from rich.control import Control
from rich.markdown import Markdown
from rich.markup import escape
from rich.segment import ControlType
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from lagent.effects import Event
from lagent.utils.counts import many

# Models and kernels may print terminal control sequences, characters that show a text in another
# order than it has, and lone surrogates, which can't be written; only line feeds and tabs pass.
_CONTROL = re.compile(
    r'\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x00-\x08\x0b-\x1f\x7f-\x9f]'
    r'|[\u202a-\u202e\u2066-\u2069\ud800-\udfff]'
)
_COLOUR = re.compile(r'(\x1b\[[0-9;]{0,32}m)')
_STYLES = {'stderr': 'yellow', 'error': 'red', 'result': 'bold'}
_WHOLE_ROWS, _FIRST_ROWS, _MOST_CELL = 20, 10, 40  # of a data frame
_MAY_BE_BLOCK = re.compile(r'\s*(?:[`~|].*)?')
_ROW = re.compile(r'\s*\|')
_WORDS = re.compile(r'.*\s', re.DOTALL)
_WORD = re.compile(r'\s+|\S+')
_FENCE = re.compile(r'\s*(`{3,}|~{3,})\s*([\w+-]*)')


def printable(text: str) -> str:
    """A text without anything that a terminal would obey.

    Args:
        text: any text.

    Returns:
        The text without control characters (but for line feeds and tabs), escape sequences, marks
        that turn the direction of writing, and lone surrogates.
    """
    return _CONTROL.sub('', text.replace('\r\n', '\n').replace('\r', '\n'))


def markdown(text: str) -> Markdown:
    """Markdown as a terminal shows it; HTML in it, which rich would leave out, is text.

    Args:
        text: a model's text, without control characters.

    Returns:
        What a console prints.
    """
    shown = Markdown(text, hyperlinks=False)
    parser = MarkdownIt('commonmark', {'html': False}).enable(['strikethrough', 'table'])
    shown.parsed = parser.parse(text)
    return shown


class ReplyWriter:
    """Prints a growing Markdown reply line by line, the code in it highlighted.

    On a terminal prose appears word by word, and tables when they are whole.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._pending = ''
        self._column: int | None = None  # where the words end that are printed of the pending line
        self._rows: list[str] = []
        self._fence: str | None = None
        self._language = ''

    def feed(self, chunk: str) -> None:
        """Print the lines that a chunk completes.

        Args:
            chunk: the next piece of the reply.
        """
        *lines, self._pending = (self._pending + chunk).split('\n')
        for line in lines:
            self._print(printable(line))
        if self.console.is_terminal and self._fence is None:
            self._print_begun()

    def close(self) -> None:
        """Print what is left of the reply."""
        if self._pending or self._column is not None:
            self._print(printable(self._pending))
        self._print_table()
        self._pending, self._fence = '', None

    def _print_begun(self) -> None:
        if self._column is None and _MAY_BE_BLOCK.fullmatch(self._pending):
            return
        # An escape sequence is known for one as a whole only.
        if '\x1b' not in self._pending and (words := _WORDS.match(self._pending)):
            self._pending = self._pending[words.end() :]
            self._print_table()
            self._print_words(printable(words[0]))

    def _print_words(self, text: str) -> None:
        self._column = self._column or 0
        for word in _WORD.findall(text):
            width = cell_len(word)
            if self._column and not word.isspace() and self._column + width > self.console.width:
                self.console.print()
                self._column = 0
            self._column += width
            self.console.print(Text(word), end='', soft_wrap=True)

    def _print_table(self) -> None:
        if self._rows:
            self.console.print(markdown('\n'.join(self._rows)))
            self._rows = []

    def _print(self, line: str) -> None:
        if self._column is not None:
            self._print_words(line)
            self._column = None
            self.console.print()
            return
        if self.console.is_terminal and self._fence is None:
            if _ROW.match(line):
                self._rows.append(line)
                return
            self._print_table()
        mark = _FENCE.match(line)
        if self._fence is None and mark:
            self._fence, self._language = mark[1], mark[2] or 'text'
            self.console.print(Text(line, style='dim'))
        elif self._fence is not None and mark and mark[1].startswith(self._fence) and not mark[2]:
            self._fence = None
            self.console.print(Text(line, style='dim'))
        elif self._fence is not None:
            self.console.print(
                Syntax(line, self._language, background_color='default', word_wrap=True)
            )
        else:
            self.console.print(Text(line))


class StreamWriter:
    """Prints what a kernel's streams print; on a terminal in colours, a progress bar on one line.

    Args:
        console: where to print.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._returned = False  # whether the next text goes over the line that is there
        self._decoder = AnsiDecoder()  # a colour holds until another one comes

    def feed(self, output: Any) -> None:
        """Print the next piece.

        Args:
            output: a `sandbox.Output` of the kind stdout or stderr.
        """
        if not self.console.is_terminal:
            self.console.print(output_text(output), end='')
            return
        style = _STYLES.get(output.kind, '')
        for piece in re.split(r'(\n|\r)', (output.ansi or output.text).replace('\r\n', '\n')):
            if piece == '\r':
                self._returned = True
            elif piece == '\n':
                self._returned = False
                self.console.print()
            elif text := self._coloured(piece):
                if self._returned:
                    # Ours, not the kernel's: rich writes these.
                    back = (ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))
                    self.console.control(Control(*back))
                    text = text[: self.console.width - 1]  # what wraps could not be gone over
                self._returned = False
                text.stylize_before(style)
                self.console.print(text, end='', soft_wrap=True)

    def _coloured(self, text: str) -> Text:
        parts = enumerate(_COLOUR.split(text))
        return self._decoder.decode_line(
            ''.join(part if n % 2 else printable(part) for n, part in parts)
        )


class ConsoleView:
    """A subscriber of `lagent.effects` that prints a run's steps.

    Args:
        console: where to print.
        show_code: whether code is printed when it is run, too; the reply that it came from shows it
            already.
        show_image: shows the image of an output, if it has one, and says so; by default there is
            only a note about it.

    Attributes:
        last_reply: the last reply of a model that was shown.
        last_error: the last error that was shown.
    """

    def __init__(
        self,
        console: Console,
        show_code: bool = False,
        show_image: Callable[[Any], bool] | None = None,
    ) -> None:
        self.console = console
        self.show_code = show_code
        self.show_image = show_image
        self.last_reply = ''
        self.last_error: BaseException | None = None
        self._writer = ReplyWriter(console)
        self._stream = StreamWriter(console)
        self._streamed = False
        self._line_open = False

    def __call__(self, event: Event) -> None:
        """Print an event.

        Args:
            event: what happened.
        """
        if event.replayed:
            if event.type == 'begin':
                what = f'{event.effect.kind} {escape(printable(event.effect.name))}'
                self._heading(f'{what} [dim]known from the journal[/]')
            return
        handler = getattr(self, f'_{event.effect.kind}_{event.type}', None)
        if handler is not None:
            handler(event)

    def _heading(self, text: str) -> None:
        self.console.print(f'[bold cyan]●[/] {text}', highlight=False)

    def _footer(self, text: str, style: str = 'dim') -> None:
        self.console.print(Text(f'  {text}', style=style))

    def _failure(self, event: Event) -> None:
        self.last_error = event.data
        self._footer(printable(f'{type(event.data).__name__}: {event.data}'), 'red')

    def _model_begin(self, event: Event) -> None:
        self._streamed = False
        # Of a local model's path the folder's name says enough.
        name = (
            event.effect.name.rpartition('/')[2]
            if event.effect.name.startswith('/')
            else event.effect.name
        )
        self._heading(f'model [dim]{escape(printable(name))}[/]')

    def _model_delta(self, event: Event) -> None:
        self._streamed = True
        self._writer.feed(str(event.data))

    def _model_end(self, event: Event) -> None:
        if not self._streamed:
            self._writer.feed(str(event.data))
        self._writer.close()
        self.last_reply = str(event.data)
        usage = getattr(event.data, 'usage', None)
        tokens = getattr(usage, 'completion_tokens', None)
        counted = f', {many(tokens, "token")}' if tokens else ''
        self._footer(f'{event.elapsed:.1f} s{counted}')

    def _model_error(self, event: Event) -> None:
        self._writer.close()
        self._failure(event)

    def _kernel_begin(self, event: Event) -> None:
        self._stream = StreamWriter(self.console)
        self._heading(f'code runs in {escape(printable(event.effect.name))}')
        if self.show_code:
            code = printable(str(event.effect.payload))
            self.console.print(Syntax(code, 'python', background_color='default', word_wrap=True))

    def _kernel_delta(self, event: Event) -> None:
        output = event.data
        if output.kind in {'stdout', 'stderr'}:
            self._stream.feed(output)
            self._line_open = bool(output.text) and not output.text.endswith('\n')
            return
        self._end_line()
        if self.show_image is not None and self.show_image(output):
            return
        if self.console.is_terminal and output.table is not None and output.table.columns:
            self.console.print(drawn_table(output.table, self.console.width))
        else:
            self.console.print(output_text(output), end='')

    def _end_line(self) -> None:
        if self._line_open and self.console.is_terminal:
            self.console.print()
        self._line_open = False

    def _kernel_end(self, event: Event) -> None:
        result = event.data
        self._end_line()
        for notice in result.notices:
            self._footer(printable(notice), 'yellow')
        for info in result.artifacts:
            self._footer(f'file {printable(info.path)} ({many(info.size, "byte")})', 'green')
        style = 'dim' if result.ok else 'red'
        self._footer(f'{result.outcome}, {event.elapsed:.2f} s', style)

    def _kernel_error(self, event: Event) -> None:
        self._end_line()
        self._failure(event)

    def _tool_begin(self, event: Event) -> None:
        arguments = printable(repr(event.effect.payload))
        self._heading(
            f'tool {escape(printable(event.effect.name))} [dim]{escape(arguments[:200])}[/]'
        )

    def _tool_end(self, event: Event) -> None:
        self._footer(f'{event.elapsed:.2f} s')

    def _tool_error(self, event: Event) -> None:
        self._failure(event)


def drawn_table(table: Any, width: int) -> Group:
    """A data frame as a table for a terminal: its first rows, and the columns that fit.

    Args:
        table: a `sandbox.Table`.
        width: columns of the terminal.

    Returns:
        The table, and below it the shape of the whole.
    """
    most = table.total_rows if table.total_rows <= _WHOLE_ROWS else _FIRST_ROWS
    labelled = zip(table.labels[:most], table.rows[:most], strict=True)
    rows = [(*label, *row) for label, row in labelled]
    heads = [*table.index, *(column.name for column in table.columns)]
    drawn = Table(box=SIMPLE_HEAD, pad_edge=False)
    cells: list[list[Text]] = []
    for at, head in enumerate(heads):
        column = [drawn_cell(row[at]) for row in rows]
        width -= max(cell_len(cell) for cell in (drawn_cell(head), *column)) + 2
        if width < 0 and cells:
            break
        number = all(row[at] is None or isinstance(row[at], int | float) for row in rows)
        drawn.add_column(
            Text(drawn_cell(head)),
            justify='right' if number else 'left',
            style='dim' if at < len(table.index) else '',
            no_wrap=True,
        )
        cells.append([Text(cell) for cell in column])
    for line in zip(*cells, strict=True):
        drawn.add_row(*line)
    shape = f'{many(table.total_rows, "row")} x {many(table.total_columns, "column")}'
    shown = len(rows), max(len(cells) - len(table.index), 0)
    if shown != (table.total_rows, table.total_columns):
        shape += f', {shown[0]:,} x {shown[1]:,} shown'
    return Group(drawn, Text(shape, 'dim'))


def drawn_cell(value: Any) -> str:
    """A value of a data frame in a few characters.

    Args:
        value: a number, a truth value, a text, or None for what is missing.

    Returns:
        One line, shortened where it is long.
    """
    if isinstance(value, float):
        usual = value == 0 or 1e-4 <= abs(value) < 1e15
        return f'{value:.6f}'.rstrip('0').rstrip('.') if usual else f'{value:.6g}'
    text = ' '.join(printable('' if value is None else str(value)).split())
    return text if len(text) <= _MOST_CELL else f'{text[: _MOST_CELL - 3]}...'


def output_text(output: Any) -> Text:
    """A kernel's output as lines for a terminal.

    Args:
        output: a `sandbox.Output`.

    Returns:
        Its text, or a note about an image, indented and in the colour of its kind.
    """
    style = _STYLES.get(output.kind, '')
    images = [
        f'[{mime}, {many(len(data), "byte")}]'
        for mime, data in output.data.items()
        if isinstance(data, bytes)
    ]
    body = printable('\n'.join(images) if images else output.text)
    if output.kind in {'stdout', 'stderr'}:
        return Text(body, style=style)
    return Text(body.removesuffix('\n') + '\n', style=style)
