"""SVG of a kernel, written anew with nothing in it that a browser executes or loads.

An allow-list: the shapes, texts, gradients and clips of drawings, and the attributes that place and
paint them. Left out with all inside of them are scripts, style sheets, foreign objects, links,
animations (they can set any attribute) and filters (they can load images); references lead to the
drawing itself, or to a bitmap that is in it. They can multiply what is drawn, so that is counted.
"""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

MOST_CHARACTERS = 8 << 20
MOST_DRAWN = 1_000_000  # a mark for each point of a plot fits; so many are drawn in seconds

_SVG, _XLINK = 'http://www.w3.org/2000/svg', 'http://www.w3.org/1999/xlink'
_ELEMENTS = frozenset(
    (
        *('svg', 'g', 'defs', 'symbol', 'use', 'title', 'desc', 'text', 'tspan', 'image'),
        *('path', 'rect', 'circle', 'ellipse', 'line', 'polyline', 'polygon'),
        *('clipPath', 'mask', 'marker', 'pattern', 'linearGradient', 'radialGradient', 'stop'),
    )
)
_ATTRIBUTES = re.compile(
    r'id|class|style|transform|d|points|version|viewBox|preserveAspectRatio|pathLength|overflow'
    r'|x|y|x1|x2|y1|y2|dx|dy|cx|cy|r|rx|ry|fx|fy|width|height|rotate|offset|orient|refX|refY'
    r'|(?:fill|stroke|font|stop|text|marker|letter|word|dominant|clip)(?:-[a-z]+){1,2}|fill|stroke'
    r'|color|opacity|display|visibility|mask|textLength|lengthAdjust|spreadMethod'
    r'|(?:gradient|pattern|clipPath|mask|marker)[A-Z][A-Za-z]+'
)
_BITMAP = re.compile(r'data:image/(?:png|jpeg);base64,[A-Za-z0-9+/=\s]*')
_OWN = re.compile(r'#([^\s"\'()\\]*)')
_URL = re.compile(r'url\(\s*(["\']?)#([^\s"\'()\\]*)\1\s*\)')
_CALL = re.compile(r'(?:rgba?|hsla?|matrix|translate|scale|rotate|skew[XY])\s*\(')
_LOADS = re.compile(r'[\\@(]|/\*')


def safe_svg(svg: str) -> str | None:
    """Write an SVG anew without anything that can be executed or loaded.

    Args:
        svg: Any text.

    Returns:
        What is left of it; None for what is no SVG, is no well-formed XML, declares entities (they
        could make it grow without bound), is too long, or has references that lead in a circle or
        draw more than `MOST_DRAWN` elements.
    """
    if len(svg) > MOST_CHARACTERS:
        return None
    writer = _Writer()
    try:
        writer.parser.Parse(svg.encode('utf-8', 'replace'), True)
    except (expat.ExpatError, _RefusedError):
        return None
    if not writer.drawn.is_bounded():
        return None
    return ''.join(writer.parts)


class _RefusedError(Exception):
    """It is no drawing, or declares entities."""


class _Writer:
    """Writes what is allowed while it is read: without a tree, depth costs nothing."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.drawn = _Drawn()
        self._hidden = 0  # how many elements are open of which the outermost is left out
        self._begun = False
        self.parser = expat.ParserCreate('utf-8', ' ')
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = self._doctype

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        space, _, local = name.rpartition(' ')
        if not self._begun and (space, local) != (_SVG, 'svg'):
            raise _RefusedError
        if self._hidden or space != _SVG or local not in _ELEMENTS:
            self._hidden += 1
            return
        kept = _kept(local, attributes)
        self.drawn.begin(kept)
        written = [f'{key}={quoteattr(value)}' for key, value in kept.items()]
        if not self._begun:
            written = [f'xmlns="{_SVG}"', f'xmlns:xlink="{_XLINK}"', *written]
        self._begun = True
        self.parts.append(f'<{" ".join([local, *written])}>')

    def _end(self, name: str) -> None:
        if self._hidden:
            self._hidden -= 1
        else:
            self.drawn.end()
            self.parts.append(f'</{name.rpartition(" ")[2]}>')

    def _text(self, text: str) -> None:
        if not self._hidden:
            self.parts.append(escape(text))

    def _doctype(self, _name: str, _system: object, _public: object, declares: bool) -> None:
        if declares:
            raise _RefusedError


class _Drawn:
    """Counts elements as often as they are drawn.

    Each element with an id is a part, and the drawing itself; what is in no other part of it is a
    part's own. Parts lead to the parts that are in them, and to those that they refer to.
    """

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._own = [1]
        self._leads: list[list[int]] = [[]]
        self._refers: list[tuple[int, str]] = []
        self._open = [0]

    def begin(self, attributes: Mapping[str, str]) -> None:
        part = self._open[-1]
        if 'id' in attributes:
            self._leads[part].append(len(self._own))
            part = len(self._own)
            self._own.append(0)
            self._leads.append([])
            self._ids.setdefault(attributes['id'], part)  # of several the first one is meant
        self._own[part] += 1
        self._open.append(part)
        self._refers += [(part, target) for target in _targets(attributes)]

    def end(self) -> None:
        self._open.pop()

    def is_bounded(self) -> bool:
        """Whether no reference leads in a circle, and at most `MOST_DRAWN` elements are drawn."""
        for part, target in self._refers:
            found = self._ids.get(target, self._ids.get(unquote(target)))
            if found is not None:
                self._leads[part].append(found)
        waiting = [0] * len(self._own)
        for parts in self._leads:
            for part in parts:
                waiting[part] += 1
        times = [1, *(0 for _ in waiting[1:])]
        ready, left, drawn = [0], len(self._own), 0
        while ready:
            part = ready.pop()
            left -= 1
            drawn += self._own[part] * times[part]
            if drawn > MOST_DRAWN:
                return False
            for inner in self._leads[part]:
                times[inner] += times[part]
                waiting[inner] -= 1
                if not waiting[inner]:
                    ready.append(inner)
        return not left  # parts in a circle wait for each other


def _targets(attributes: Mapping[str, str]) -> Iterable[str]:
    for name, value in attributes.items():
        if name == 'xlink:href':
            if own := _OWN.fullmatch(value.strip()):
                yield own[1]
        else:
            yield from (found[2] for found in _URL.finditer(value))


def _kept(element: str, attributes: Mapping[str, str]) -> dict[str, str]:
    kept = {}
    for name, value in attributes.items():
        if name in ('href', f'{_XLINK} href'):
            if name != 'href' and 'href' in attributes:
                continue  # browsers take the other one, and XML allows no name twice
            if (_BITMAP if element == 'image' else _OWN).fullmatch(value.strip()):
                kept['xlink:href'] = value
        elif _ATTRIBUTES.fullmatch(name) and not _LOADS.search(_CALL.sub('', _URL.sub('', value))):
            kept[name] = value
    return kept
