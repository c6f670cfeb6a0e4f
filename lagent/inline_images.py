"""Images in a terminal: in it where it can show them, else as files.

What a terminal obeys is written here and only here. The bytes of an image come from the sandbox:
they go out in Base64 (kitty's graphics protocol, iTerm2's ``OSC 1337``), or as pixels that were
encoded anew (DEC sixel). Which of them a terminal understands is told from the environment; the
terminal is not asked, since its answer would come in between what the user types.
"""

import base64
import importlib.util
import io
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.text import Text

from lagent.console import printable

Protocol = Literal['kitty', 'iterm2', 'sixel']

_MAX_BYTES = 8 << 20
_MAX_PIXELS = 16_000_000
_MAX_WIDTH = 800  # pixels of a sixel image
_MAX_HEIGHT = 600
_COLORS = 128
_CHUNK = 4096  # characters of Base64 in one sequence of kitty's
_SUFFIXES = {'image/png': '.png', 'image/jpeg': '.jpg'}
_PNG = b'\x89PNG\r\n\x1a\n'
_JPEG = b'\xff\xd8\xff'


def protocol(environment: Mapping[str, str]) -> Protocol | None:
    """How the terminal shows images.

    Args:
        environment: the environment variables.

    Returns:
        The protocol, or None where it has none that is known, also inside of tmux and screen.
    """
    term, program = environment.get('TERM', ''), environment.get('TERM_PROGRAM', '')
    if 'TMUX' in environment or term.startswith(('tmux', 'screen', 'dumb')):
        return None
    if 'KITTY_WINDOW_ID' in environment or term in ('xterm-kitty', 'xterm-ghostty'):
        return 'kitty'
    if program in ('iTerm.app', 'WezTerm') or environment.get('LC_TERMINAL') == 'iTerm2':
        return 'iterm2'
    if term.startswith(('foot', 'mlterm', 'contour')) and _can_encode():
        return 'sixel'
    return None


def encoded(image: bytes, how: Protocol) -> str | None:
    """What makes a terminal show an image.

    Args:
        image: a PNG or JPEG; from anybody.
        how: what the terminal understands.

    Returns:
        The escape sequences; None for what is too large, or is no image that can be shown so.
    """
    if len(image) > _MAX_BYTES:
        return None
    if how == 'sixel':
        return _sixel(image) if image.startswith((_PNG, _JPEG)) and _can_encode() else None
    if image.startswith(_PNG):
        if not _is_small(image):
            return None
    elif not image.startswith(_JPEG) or how == 'kitty':  # which knows PNG only
        return None
    return _kitty(image) if how == 'kitty' else _iterm2(image)


class Pictures:
    """Shows images that a run makes.

    Args:
        console: the terminal.
        how: what it understands; None to save images and print their paths.
        folder: where to save them; by default a temporary folder of the user's own.
    """

    def __init__(
        self, console: Console, how: Protocol | None = None, folder: Path | None = None
    ) -> None:
        self._console, self._how, self._folder = console, how, folder

    @classmethod
    def of(cls, console: Console, images: str, folder: Path | None = None) -> 'Pictures':
        """Those of a terminal.

        Args:
            console: the terminal.
            images: a protocol, ``'none'``, or ``'auto'`` to tell it from the environment.
            folder: see the class.

        Returns:
            What shows them.
        """
        if images == 'auto':
            return cls(console, protocol(os.environ) if console.is_terminal else None, folder)
        return cls(console, None if images == 'none' else images, folder)  # type: ignore[arg-type]

    @property
    def folder(self) -> Path:
        """Where images are saved; made when it is asked for."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix='lagent-'))
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder

    def show_output(self, output: Any) -> bool:
        """Show the image of a kernel's output.

        Args:
            output: a `sandbox.Output`.

        Returns:
            Whether it has one.
        """
        for mime, suffix in _SUFFIXES.items():
            if isinstance(image := output.data.get(mime), bytes):
                if not self._show(image):
                    self._tell(self._saved(image, suffix))
                return True
        return False

    def show_file(self, path: Path) -> None:
        """Show an image that lies in a file.

        Args:
            path: the file.
        """
        if (
            self._how is None
            or path.stat().st_size > _MAX_BYTES
            or not self._show(path.read_bytes())
        ):
            self._tell(path)

    def _show(self, image: bytes) -> bool:
        if self._how is None or (sequences := encoded(image, self._how)) is None:
            return False
        self._console.file.write(f'{sequences}\n')
        self._console.file.flush()
        return True

    def _tell(self, path: Path) -> None:
        self._console.print(Text(f'  image {printable(str(path))}', style='green'), soft_wrap=True)

    def _saved(self, image: bytes, suffix: str) -> Path:
        for number in count(1):
            path = self.folder / f'plot-{number}{suffix}'
            try:
                with path.open('xb') as file:
                    file.write(image)
            except FileExistsError:
                continue
            return path
        raise AssertionError('there are as many names as numbers')


def _kitty(image: bytes) -> str:
    text = base64.b64encode(image).decode('ascii')
    chunks = [text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK)]
    # q=2: the terminal must not answer, or the answer would be read as typed.
    heads = ['a=T,f=100,q=2,'] + [''] * (len(chunks) - 1)
    last = len(chunks) - 1
    return ''.join(
        f'\x1b_G{head}m={int(number < last)};{chunk}\x1b\\'
        for number, (head, chunk) in enumerate(zip(heads, chunks, strict=True))
    )


def _iterm2(image: bytes) -> str:
    text = base64.b64encode(image).decode('ascii')
    return f'\x1b]1337;File=inline=1;size={len(image)};preserveAspectRatio=1:{text}\x07'


def _is_small(png: bytes) -> bool:
    """Whether a PNG's header says that it has no more pixels than a terminal should be given."""
    if len(png) < 24 or png[12:16] != b'IHDR':
        return False
    width, height = (int.from_bytes(png[at : at + 4]) for at in (16, 20))
    return 0 < width * height <= _MAX_PIXELS


def _can_encode() -> bool:
    return importlib.util.find_spec('PIL') is not None


def _sixel(image: bytes) -> str | None:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(image), formats=('PNG', 'JPEG')) as opened:
            if opened.width * opened.height > _MAX_PIXELS:
                return None
            rgba = opened.convert('RGBA')
    except Exception:  # noqa: BLE001 - the file is anybody's, and what Pillow raises is not told
        return None
    rgba.thumbnail((_MAX_WIDTH, _MAX_HEIGHT))
    page = Image.new('RGBA', rgba.size, 'white')
    page.alpha_composite(rgba)
    indexed = page.convert('RGB').quantize(_COLORS)
    palette = indexed.getpalette() or []
    colors = ''.join(
        f'#{index};2;{";".join(str(round(part * 100 / 255)) for part in palette[at : at + 3])}'
        for index, at in enumerate(range(0, len(palette), 3))
    )
    bands = '-'.join(_bands(indexed.tobytes(), indexed.width))
    return f'\x1bP0;1q"1;1;{indexed.width};{indexed.height}{colors}{bands}\x1b\\'


def _bands(pixels: bytes, width: int) -> Iterator[str]:
    """Each six rows of pixels, color by color: a character says which of six pixels are set."""
    for start in range(0, len(pixels), 6 * width):
        columns: dict[int, bytearray] = {}
        for offset, color in enumerate(pixels[start : start + 6 * width]):
            row, column = divmod(offset, width)
            columns.setdefault(color, bytearray(width))[column] |= 1 << row
        yield '$'.join(
            f'#{color}{_repeated("".join(chr(63 + each) for each in bits))}'
            for color, bits in columns.items()
        )


def _repeated(text: str) -> str:
    return re.sub(r'(.)\1{3,}', lambda found: f'!{len(found[0])}{found[1]}', text)
