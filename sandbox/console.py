"""A session's output on a terminal: live, in order, and without anything a terminal would obey."""

import os
import re
import sys
from pathlib import Path

from sandbox.svg import safe_svg
from sandbox.types import ExecutionResult, Output

_CONTROL = re.compile('[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]')
_COLOUR = re.compile(r'(\x1b\[[0-9;]{0,32}m)')
_PLAIN = '\x1b[0m'
_SUFFIXES = {
    'image/png': '.png',
    'image/jpeg': '.jpg',
    'image/svg+xml': '.svg',
    'application/pdf': '.pdf',
}


def printable(text: str, *, colours: bool = False) -> str:
    """Return a text without control characters, except line feeds and tabs.

    What a kernel says may hold sequences that a terminal obeys, and marks that reverse the order of
    what is shown.

    Args:
        text: Any text.
        colours: Whether sequences that set colours and styles stay.
    """
    text = text.replace('\r\n', '\n').replace('\r', '\n')
    parts = _COLOUR.split(text) if colours else [text]
    return ''.join(part if n % 2 else _CONTROL.sub('', part) for n, part in enumerate(parts))


def is_number(text: str) -> bool:
    """Tell whether a text that came with `SystemExit` is an exit code, or nothing at all."""
    return re.fullmatch(r'|None|-?\d{1,9}', text.strip()) is not None


class LivePrinter:
    """Prints outputs as they come: results and prints to stdout, all else to stderr.

    Args:
        output_dir: Where images are saved as `output-1.png` and so on; None to save none.
        silent: Print nothing; images are saved all the same.
    """

    def __init__(self, output_dir: Path | None = None, *, silent: bool = False) -> None:
        self._output_dir = output_dir
        self._silent = silent
        self._images = 0
        self._line_open = False  # whether standard output is in the middle of a line

    def show(self, output: Output) -> None:
        """Print one output, or the next piece of a stream; an error waits for `finish`."""
        saved = self._save_images(output)
        if output.kind == 'stdout':
            self._print(output.text, to_stdout=True, end='', ansi=output.ansi)
        elif output.kind == 'stderr':
            self._print(output.text, end='', ansi=output.ansi)
        elif output.kind != 'error' and not saved and output.text:
            newline = '\n' if self._line_open else ''
            self._print(newline + output.text, to_stdout=True)

    def finish(self, result: ExecutionResult) -> None:
        """Print what is shown last: the error, the kernel's fate, and what was cut."""
        if result.error is None or result.error.name != 'SystemExit':
            for output in result.outputs:
                if output.kind == 'error':
                    self._print(output.text)
        elif not is_number(result.error.message):  # else the exit code tells of it
            self._print(result.error.message)
        for notice in result.notices:
            self.note(notice)
        if cut := {name: n for name, n in vars(result.truncated).items() if n}:
            counts = ', '.join(f'{n:,} {name.replace("_", " ")}' for name, n in cut.items())
            self.note(f'left out: {counts}')
        if self._images and self._output_dir is None:
            self.note(f'{self._images} image(s) not saved; use --output-dir')

    def note(self, text: str) -> None:
        """Print a line of our own among the output."""
        self._print(f'sandbox: {text}')

    def _save_images(self, output: Output) -> bool:
        images = [(mime, data) for mime, data in output.data.items() if mime in _SUFFIXES]
        for mime, data in images[:1]:  # the others are the same picture in another form
            self._images += 1
            if self._output_dir is not None:
                self._output_dir.mkdir(parents=True, exist_ok=True)
                path = self._output_dir / f'output-{self._images}{_SUFFIXES[mime]}'
                content = data if isinstance(data, bytes) else safe_svg(str(data))
                if content is None:
                    self.note(f'{path.name} not saved: it is no SVG that is safe to open')
                    continue
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
                self.note(f'saved {path}')
        return bool(images)

    def _print(
        self, text: str, *, to_stdout: bool = False, end: str = '\n', ansi: str = ''
    ) -> None:
        text = printable(text + end)
        if self._silent or not text:
            return
        stream = sys.stdout if to_stdout else sys.stderr
        encoding = stream.encoding or 'utf-8'
        in_colour = ansi and stream.isatty() and not os.environ.get('NO_COLOR')
        shown = f'{printable(ansi, colours=True)}{_PLAIN}' if in_colour else text
        stream.write(shown.encode(encoding, 'replace').decode(encoding))
        stream.flush()
        if to_stdout:
            self._line_open = not text.endswith('\n')
