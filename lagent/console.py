"""Shows a run in a terminal as it happens: the reply, the code, its output, and the times."""

import re
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax
from rich.text import Text

from lagent.effects import Event

# Models and kernels may print terminal control sequences, characters that show a text in another
# order than it has, and lone surrogates, which can't be written; only line feeds and tabs pass.
_CONTROL = re.compile(
    r'\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x00-\x08\x0b-\x1f\x7f-\x9f]'
    r'|[\u202a-\u202e\u2066-\u2069\ud800-\udfff]'
)
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


class ReplyWriter:
    """Prints a growing Markdown reply line by line, the code in it highlighted."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._pending = ''
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

    def close(self) -> None:
        """Print what is left of the reply."""
        if self._pending:
            self._print(printable(self._pending))
        self._pending, self._fence = '', None

    def _print(self, line: str) -> None:
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


class ConsoleView:
    """A subscriber of `lagent.effects` that prints a run's steps.

    Args:
        console: where to print.
        show_code: whether code is printed when it is run, too; the reply that it came from shows it
            already.
    """

    def __init__(self, console: Console, show_code: bool = False) -> None:
        self.console = console
        self.show_code = show_code
        self._writer = ReplyWriter(console)
        self._streamed = False

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
        usage = getattr(event.data, 'usage', None)
        tokens = getattr(usage, 'completion_tokens', None)
        counted = f', {tokens} tokens' if tokens else ''
        self._footer(f'{event.elapsed:.1f} s{counted}')

    def _model_error(self, event: Event) -> None:
        self._writer.close()
        self._footer(printable(str(event.data)), 'red')

    def _kernel_begin(self, event: Event) -> None:
        self._heading(f'code runs in {escape(printable(event.effect.name))}')
        if self.show_code:
            code = printable(str(event.effect.payload))
            self.console.print(Syntax(code, 'python', background_color='default', word_wrap=True))

    def _kernel_delta(self, event: Event) -> None:
        self.console.print(output_text(event.data), end='')

    def _kernel_end(self, event: Event) -> None:
        result = event.data
        for notice in result.notices:
            self._footer(printable(notice), 'yellow')
        for info in result.artifacts:
            self._footer(f'file {printable(info.path)} ({info.size:,} bytes)', 'green')
        style = 'dim' if result.ok else 'red'
        self._footer(f'{result.outcome}, {event.elapsed:.2f} s', style)

    def _kernel_error(self, event: Event) -> None:
        self._footer(printable(str(event.data)), 'red')

    def _tool_begin(self, event: Event) -> None:
        arguments = printable(repr(event.effect.payload))
        self._heading(
            f'tool {escape(printable(event.effect.name))} [dim]{escape(arguments[:200])}[/]'
        )

    def _tool_end(self, event: Event) -> None:
        self._footer(f'{event.elapsed:.2f} s')

    def _tool_error(self, event: Event) -> None:
        self._footer(printable(str(event.data)), 'red')


def output_text(output: Any) -> Text:
    """A kernel's output as lines for a terminal.

    Args:
        output: a `sandbox.Output`.

    Returns:
        Its text, or a note about an image, indented and in the colour of its kind.
    """
    style = {'stderr': 'yellow', 'error': 'red', 'result': 'bold'}.get(output.kind, '')
    images = [
        f'[{mime}, {len(data):,} bytes]'
        for mime, data in output.data.items()
        if isinstance(data, bytes)
    ]
    body = printable('\n'.join(images) if images else output.text)
    if output.kind in {'stdout', 'stderr'}:
        return Text(body, style=style)
    return Text(body.removesuffix('\n') + '\n', style=style)
