"""The text of a result that a model is shown: bounded, of a fixed form, every cut counted."""

import re
from collections.abc import Iterable

from sandbox.counts import many
from sandbox.kernel.mime import image_size
from sandbox.kernel.text import left_out
from sandbox.types import ExecutionResult, FileInfo, Output

_NO_OUTPUT = '[no output]'
_MAX_FILES = 10
_MAX_PATH = 100
_MARK = 64  # room for the line that tells of a cut
_LEAST_BODY = 256
_CONTROLS = re.compile(r'[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]')

Piece = str | int
"""Text, or the number of characters that are missing at this place."""


def model_text(result: ExecutionResult) -> str:
    """Return notices, then outputs in order, files, and the end of the traceback at the end.

    Notices are never cut. The whole has at most `result.text_limit` characters, as long as they
    leave room for the rest, which has always some.
    """
    head = ''.join(f'[notice] {_safe(notice)}\n' for notice in result.notices)
    limit = result.text_limit
    files = _files('full output', result.full_output, limit // 8)
    files += _files('files created or changed', result.artifacts, limit // 8)
    room = max(limit - len(head) - len(files) - 2, min(_LEAST_BODY, limit // 4))
    body: list[Piece] = []
    error: list[Piece] = []
    for output in result.outputs:
        if output.kind == 'error':
            error += _cut_text(output)
        else:
            body += _pieces(output)
    if not body and not error and not head:
        body = [_NO_OUTPUT]
    elif not body and not error:
        head += _NO_OUTPUT + '\n'
    error_room = max(room // 2, room - _length(body) - 1)
    trace = _fit(error, error_room, tail=0.75)
    text = _fit(body, room - len(trace) - (1 if trace else 0), tail=0.5)
    return (head + ''.join(_lines(text, files, trace))).removesuffix('\n')


def _lines(*parts: str) -> Iterable[str]:
    for part in parts:
        if part:
            yield part if part.endswith('\n') else part + '\n'


def _pieces(output: Output) -> list[Piece]:
    """Return what stands for one output, ending in a line feed."""
    pieces: list[Piece] = ['[stderr]\n'] if output.kind == 'stderr' else []
    notes = [_image_note(mime, data) for mime, data in output.data.items() if _is_image(mime)]
    notes += [f'[{mime} left out: {many(size, "byte")}]' for mime, size in output.missing.items()]
    if notes:
        pieces += [f'{note}\n' for note in notes]
    elif output.text:
        pieces += _cut_text(output)
        if not output.text.endswith('\n'):
            pieces.append('\n')
    else:
        pieces += [
            f'[{_safe(mime)}: {many(len(data), "character")}]\n'
            if isinstance(data, str)
            else f'[{_safe(mime)}]\n'
            for mime, data in output.data.items()
        ]
    return pieces


def _cut_text(output: Output) -> list[Piece]:
    if output.cut is None:
        return [_safe(output.text)]
    at, count = output.cut
    after = at + len(left_out(count))
    return [_safe(output.text[:at]), count, _safe(output.text[after:])]


def _is_image(mime: str) -> bool:
    return mime.startswith('image/')


def _image_note(mime: str, data: object) -> str:
    kind = _safe(mime.removeprefix('image/').removesuffix('+xml'))
    size = image_size(data) if isinstance(data, bytes) else None
    pixels = f' {size[0]}x{size[1]}' if size else ''
    length = len(data) if isinstance(data, bytes | str) else 0
    return f'[image: {kind}{pixels}, {_bytes(length)}]'


def _files(what: str, infos: tuple[FileInfo, ...], room: int) -> str:
    """Name so many of the files as there is room for, and count the others."""
    if not infos:
        return ''
    named: list[str] = []
    for info in infos[:_MAX_FILES]:
        named.append(f'{_name(info.path)} ({_bytes(info.size)})')
        if len(', '.join([*named, _more(len(infos))])) > room:
            named.pop()
            break
    if more := len(infos) - len(named):
        named.append(_more(more) if named else f'{more:,}')
    return f'[{what}: {", ".join(named)}]\n'


def _more(count: int) -> str:
    return f'and {count:,} more'


def _name(path: str) -> str:
    safe = _safe(path).replace('\n', '\ufffd').replace('\t', '\ufffd')
    return safe if len(safe) <= _MAX_PATH else f'{safe[:_MAX_PATH]}...'


def _bytes(size: int) -> str:
    if size < 1_000:
        return many(size, 'byte')
    return f'{size / 1_000:.0f} kB' if size < 999_500 else f'{size / 1_000_000:.1f} MB'


def _safe(text: str) -> str:
    return _CONTROLS.sub('\ufffd', text)


def _length(pieces: list[Piece]) -> int:
    return sum(len(p) if isinstance(p, str) else len(left_out(p)) for p in pieces)


def _fit(pieces: list[Piece], limit: int, *, tail: float) -> str:
    """Join the pieces, or keep head and tail and count all that is missing between them."""
    if _length(pieces) <= limit:
        return ''.join(p if isinstance(p, str) else left_out(p) for p in pieces)
    keep = max(limit - _MARK, 0)
    end = _take((p[::-1] if isinstance(p, str) else p for p in reversed(pieces)), int(keep * tail))
    start = _take(pieces, keep - len(end))
    total = sum(len(p) if isinstance(p, str) else p for p in pieces)
    return start + left_out(total - len(start) - len(end)) + end[::-1]


def _take(pieces: Iterable[Piece], room: int) -> str:
    """Return the first characters, at most `room`, and none behind a gap."""
    taken = []
    for piece in pieces:
        if isinstance(piece, int) or room <= 0:
            break
        taken.append(piece[:room])
        room -= len(piece)
    return ''.join(taken)
