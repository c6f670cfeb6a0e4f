"""The one place that decides what of a cell's result goes back to the model."""

import base64
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lagent.utils.counts import many
from lagent.view.controls import without_controls
from lagent.view.sizes import size_text
from lagent.view.tables import is_cut, is_wrapped, missing, short_table
from lagent.view.tokens import Piece, Tokenizer, counted, fit, left_out
from lagent.view.tracebacks import users_frames

Images = Literal['note', 'content']

_IMAGES = ('image/png', 'image/jpeg')  # what models that see can read
_NO_OUTPUT = '[no output]'
_CHARS_PER_TOKEN = 4
_LEAST = 64  # tokens of a cell that are shown, however many cells there are
_MAX_FILES, _MAX_PATH = 10, 100
_MAX_NOTICE = 1_000
_TABLE_COLUMNS, _TABLE_ROWS = 12, 21
_OBJECT = re.compile(r'<[\w.]+ object(?: at 0x[0-9a-f]+)?>')  # such as IPython's `Markdown(...)`
_TRACE_SHARE = 0.5  # of the room, where both outputs and traceback need more than there is


@dataclass(frozen=True)
class ModelView:
    """Makes of the results of cells the text, or the content parts, that a model is shown.

    Notices about the kernel come first and are never cut; then what was put out, in order; the
    files that were made; and at the end, where a model looks first, the exception with the user's
    own frames. What does not fit loses its middle: the text says exactly how many characters are
    missing and which file holds all of it. An image that a cell puts out twice, as a figure that is
    also its last value, is shown once. The same results always give the same text.

    Attributes:
        tokens: how many tokens the results of one message may have; by default a quarter of the
            characters that the sandbox's policy allows (`model_text_chars`). Notices, and at least
            64 tokens a cell, are shown in any case.
        tokenizer: gives the tokens of a text, or their number, such as ``llm.tokenize``; without
            one they are estimated, see `estimate_tokens`.
        images: ``'note'`` says that there is an image; ``'content'`` gives it to the model, in
            OpenAI's form of content parts, for models that see.
        max_images: how many images of one message are given, the last ones; the others are noted.
        max_image_bytes: size of the largest image that is given.

    Raises:
        ValueError: a number is less than 1, or `images` is something else.
    """

    tokens: int | None = None
    tokenizer: Tokenizer | None = None
    images: Images = 'note'
    max_images: int = 4
    max_image_bytes: int = 4_000_000

    def __post_init__(self) -> None:
        tokens = 1 if self.tokens is None else self.tokens
        if min(tokens, self.max_images, self.max_image_bytes) < 1:
            raise ValueError('tokens, max_images and max_image_bytes are at least 1')
        if self.images not in ('note', 'content'):
            raise ValueError(f"images is 'note' or 'content', not {self.images!r}")

    def content(self, results: Sequence[Any], cells: int = 1, refusal: str = '') -> Any:
        """What the model is shown of the cells of one message.

        Args:
            results: the `ExecutionResult` of each cell that was run, in order.
            cells: how many cells there were.
            refusal: why the next one was not run, if no error of the last ended them.

        Returns:
            A text; or, where images are given, a list of content parts that begins with it.
        """
        text = self.text(results, cells, refusal)
        images = self._given(results)
        if not images:
            return text
        urls = [f'data:{mime};base64,{base64.b64encode(data).decode()}' for mime, data in images]
        parts = [{'type': 'image_url', 'image_url': {'url': url}} for url in urls]
        return [{'type': 'text', 'text': text}, *parts]

    def text(self, results: Sequence[Any], cells: int = 1, refusal: str = '') -> str:
        """The text of `content`; images are noted in it in any case.

        Args:
            results: see `content`.
            cells: see `content`.
            refusal: see `content`.

        Returns:
            The text.
        """
        if cells == 1 and results:
            return self._cell(results[0], 1)
        done = len(results)
        parts = [
            f'[cell {number} of {cells}: {result.outcome}]\n{self._cell(result, done)}'
            for number, result in enumerate(results, 1)
        ]
        if refusal:
            rest = '' if done + 1 == cells else '\nThe cells after it were not run either.'
            parts.append(f'[cell {done + 1} of {cells}: not run]\n{refusal}{rest}')
        elif done < cells:
            rest = f'Cell {cells} was' if done + 1 == cells else f'Cells {done + 1} to {cells} were'
            parts.append(f'{rest} not run, because cell {done} failed.')
        return '\n\n'.join(parts)

    def _cell(self, result: Any, sharers: int) -> str:
        tokens = (self.tokens or result.text_limit // _CHARS_PER_TOKEN) // sharers
        notices = [
            f'[notice] {without_controls(notice)[:_MAX_NOTICE]}' for notice in result.notices
        ]
        files = [*_files('full output', result.full_output)]
        files += _files('files created or changed', result.artifacts)
        whole = ', '.join(_path(info.path) for info in result.full_output[:_MAX_FILES])
        room = tokens - counted(self.tokenizer, '\n'.join([*notices, *files]))
        pieces = list(_joined(result.outputs, result.truncated.outputs))
        error = [p for o in result.outputs if o.kind == 'error' for p in _trace(o)]
        # Where both are too long each gets its share, and what one doesn't need the other gets.
        room = max(room, _LEAST)
        wanted = counted(self.tokenizer, fit(pieces, room, self.tokenizer))
        trace_room = max(int(room * _TRACE_SHARE), room - wanted)
        trace = fit(error, trace_room, self.tokenizer, tail=0.75, whole=whole)
        left = room - counted(self.tokenizer, trace)
        body = fit(pieces, max(left, _LEAST // 2), self.tokenizer, whole=whole)
        parts = [*notices, body.removesuffix('\n'), *files, trace.removesuffix('\n')]
        if not body and not trace:
            parts.insert(len(notices), _NO_OUTPUT)
        return '\n'.join(part for part in parts if part)

    def _given(self, results: Sequence[Any]) -> list[tuple[str, bytes]]:
        if self.images != 'content':
            return []
        found = [image for result in results for o in result.outputs for image in _images(o.data)]
        once = dict.fromkeys(one for one in found if len(one[1]) <= self.max_image_bytes)
        return list(once)[-self.max_images :]


def _joined(outputs: Iterable[Any], more: int) -> Iterable[Piece]:
    """The pieces of what a cell put out, each on lines of its own."""
    last = ''
    seen: set[tuple[str, bytes]] = set()
    for output in outputs:
        images = _images(output.data)
        if output.kind == 'error' or (images and seen.issuperset(images)):
            continue
        seen.update(images)
        if output.kind == 'stderr' and last != 'stderr':
            yield '[stderr]\n'
        pieces = _pieces(output)
        yield from pieces
        if pieces and not str(pieces[-1]).endswith('\n'):
            yield '\n'
        last = output.kind
    if more:
        yield f'[{many(more, "more output")} left out]\n'


def _pieces(output: Any) -> list[Piece]:
    data: Mapping[str, Any] = output.data
    notes = [_image_note(mime, value) for mime, value in data.items() if mime.startswith('image/')]
    notes += [
        f'[{without_controls(mime)} left out: {many(size, "byte")}]'
        for mime, size in output.missing.items()
    ]
    if notes:
        return ['\n'.join(notes)]
    html = data.get('text/html')
    says_nothing = _OBJECT.fullmatch(output.text) is not None
    if isinstance(html, str) and (says_nothing or is_wrapped(output.text)):
        table = short_table(html, _TABLE_COLUMNS, _TABLE_ROWS, output.table)
        if table is not None:
            return [without_controls(table)]
    source = data.get('text/markdown', data.get('text/latex'))
    if says_nothing and isinstance(source, str):
        return [without_controls(source)]
    if output.text:
        lacking = missing(output.table) if output.table and is_cut(output.text) else ''
        return [*_text(output), f'\n{without_controls(lacking)}'] if lacking else _text(output)
    return ['\n'.join(_unread(mime, value) for mime, value in data.items())] if data else []


def _trace(output: Any) -> list[Piece]:
    return [without_controls(users_frames(output.text))] if output.cut is None else _text(output)


def _text(output: Any) -> list[Piece]:
    if output.cut is None:
        return [without_controls(output.text)]
    at, count = output.cut
    after = output.text[at + len(left_out(count)) :]
    return [without_controls(output.text[:at]), count, without_controls(after)]


def _unread(mime: str, value: Any) -> str:
    length = f': {many(len(value), "character")}' if isinstance(value, str) else ''
    return f'[{without_controls(mime)}{length}]'


def _images(data: Mapping[str, Any]) -> list[tuple[str, bytes]]:
    return [(mime, data[mime]) for mime in _IMAGES if isinstance(data.get(mime), bytes)][:1]


def _image_note(mime: str, data: Any) -> str:
    kind = without_controls(mime.removeprefix('image/').removesuffix('+xml'))
    pixels = ''
    if isinstance(data, bytes) and data[:8] == b'\x89PNG\r\n\x1a\n' and len(data) >= 24:
        width, height = struct.unpack('>II', data[16:24])
        pixels = f' {width}x{height}'
    size = len(data) if isinstance(data, bytes | str) else 0
    return f'[image: {kind}{pixels}, {size_text(size)}]'


def _files(what: str, infos: Sequence[Any]) -> list[str]:
    if not infos:
        return []
    named = [f'{_path(info.path)} ({size_text(info.size)})' for info in infos[:_MAX_FILES]]
    if (more := len(infos) - _MAX_FILES) > 0:
        named.append(f'and {more:,} more')
    return [f'[{what}: {", ".join(named)}]']


def _path(path: str) -> str:
    safe = without_controls(path).replace('\n', '\ufffd').replace('\t', '\ufffd')
    return safe if len(safe) <= _MAX_PATH else f'{safe[:_MAX_PATH]}...'
