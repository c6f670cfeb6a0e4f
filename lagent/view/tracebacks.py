"""A traceback of IPython, cut to the user's own frames."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from lagent.utils.counts import many

_RULER = re.compile(r'-{20,}\Z')
_HEAD = re.compile(r'(?P<name>[\w.]+) +Traceback \(most recent call last\)\Z')
_FRAME = re.compile(r'(?:Cell|Input) In ?\[\d+\]|File (?P<path>[^\n]+?)(?::\d+|, line \d+)(?:,|\Z)')
_LIBRARY = re.compile(
    r'(?:^|/)(?:site-packages|dist-packages|lib/python[\d.]+|lib-dynload)/|^<|\.pyx$|\.pxi$'
    r'|^/opt/sandbox/'
)
_PACKAGE = re.compile(
    r'(?:(?:site|dist)-packages|lib/python[\d.]+(?!/(?:site|dist)-packages))/([\w-]+)'
)
_CHAINED = (
    'The above exception was the direct cause of the following exception:',
    'During handling of the above exception, another exception occurred:',
)
_FIRST, _LAST = 3, 6  # of the user's own frames, where there are more


@dataclass(eq=False)
class _Frame:
    """A place in a traceback and the lines that are shown of it."""

    lines: list[str]
    package: str = ''  # '' for the user's own code


@dataclass
class _Part:
    """One exception of a chain."""

    frames: list[_Frame] = field(default_factory=list)
    message: list[str] = field(default_factory=list)


def users_frames(trace: str) -> str:
    """A traceback without the frames of libraries.

    What is kept: the user's frames with the lines around the one that failed, a note for each run
    of library frames, the exceptions and how they are chained. A text of another form is given
    back as it is.

    Args:
        trace: the clean text of a traceback.

    Returns:
        The shorter text.
    """
    lines = trace.splitlines()
    if not any(_HEAD.match(line.strip()) for line in lines):
        return trace
    shown: list[str] = []
    for link, part in _chain(lines):
        if link:
            shown += ['', link, '']
        shown += _shown(part)
    return '\n'.join(shown)


def _chain(lines: list[str]) -> Iterator[tuple[str, _Part]]:
    link = ''
    block: list[str] = []
    for line in lines:
        if line in _CHAINED:
            yield link, _parse(block)
            link, block = line, []
        else:
            block.append(line)
    yield link, _parse(block)


def _parse(lines: list[str]) -> _Part:
    part = _Part()
    name = next((match['name'] for line in lines if (match := _HEAD.match(line))), None)
    in_message = False
    for line in lines:
        if _RULER.match(line) or _HEAD.match(line):
            continue
        # The exception's own line is at the margin; what follows it is its message.
        if name and (line == name or line.startswith(f'{name}:')) and not in_message:
            in_message = True
        if in_message:
            part.message.append(line)
        elif match := _FRAME.match(line):
            part.frames.append(_Frame([line], _package(match['path'])))
        elif part.frames:
            part.frames[-1].lines.append(line)
        elif line.strip():
            part.message.append(line)
    while part.message and not part.message[-1].strip():
        part.message.pop()
    return part


def _package(path: str | None) -> str:
    if path is None or not _LIBRARY.search(path):
        return ''
    if path.startswith('/opt/sandbox/'):  # where the image has what runs the kernel
        return 'the sandbox'
    found = _PACKAGE.search(path)
    return found[1] if found else path.strip('<>').split('/')[0].split('.')[0]


def _shown(part: _Part) -> Iterator[str]:
    own = [frame for frame in part.frames if not frame.package]
    dropped = set(map(id, own[_FIRST:-_LAST] if len(own) > _FIRST + _LAST else ()))
    packages: list[str] = []
    told = False
    for frame in [*part.frames, None]:
        if frame is not None and frame.package:
            packages.append(frame.package)
            continue
        if packages:
            yield _note(packages)
            packages = []
        if id(frame) in dropped:
            if not told:
                yield f'[... {many(len(dropped), "frame")} of your code left out ...]'
            told = True
        elif frame is not None:
            yield from _trimmed(frame.lines)
    yield from part.message


def _trimmed(lines: list[str]) -> list[str]:
    kept = list(lines)
    while kept and not kept[-1].strip():
        kept.pop()
    return kept


def _note(packages: list[str]) -> str:
    count = len(packages)
    names = ', '.join(dict.fromkeys(packages))
    return f'[... {many(count, "frame")} inside {names} left out ...]'
