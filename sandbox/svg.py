"""SVG of a kernel, written anew with nothing in it that a browser executes or loads.

An allow-list: the shapes, texts, gradients and clips of drawings, and the attributes that place and
paint them. Left out with all inside of them are scripts, style sheets, foreign objects, links,
animations (they can set any attribute) and filters (they can load images); references lead to the
drawing itself, or to a bitmap that is in it.
"""

import re
from collections.abc import Mapping
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

MOST_CHARACTERS = 8 << 20

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
_OWN = re.compile(r'#[^\s"\'()\\]*')
_URL = re.compile(r'url\(\s*(["\']?)#[^\s"\'()\\]*\1\s*\)')
_CALL = re.compile(r'(?:rgba?|hsla?|matrix|translate|scale|rotate|skew[XY])\s*\(')
_LOADS = re.compile(r'[\\@(]|/\*')


def safe_svg(svg: str) -> str | None:
    """Write an SVG anew without anything that can be executed or loaded.

    Args:
        svg: Any text.

    Returns:
        What is left of it; None for what is no SVG, is no well-formed XML, declares entities (they
        could make it grow without bound), or is too long.
    """
    if len(svg) > MOST_CHARACTERS:
        return None
    writer = _Writer()
    try:
        writer.parser.Parse(svg.encode('utf-8', 'replace'), True)
    except (expat.ExpatError, _RefusedError):
        return None
    return ''.join(writer.parts)


class _RefusedError(Exception):
    """It is no drawing, or declares entities."""


class _Writer:
    """Writes what is allowed while it is read: without a tree, depth costs nothing."""

    def __init__(self) -> None:
        self.parts: list[str] = []
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
        written = [f'{key}={quoteattr(value)}' for key, value in _kept(local, attributes)]
        if not self._begun:
            written = [f'xmlns="{_SVG}"', f'xmlns:xlink="{_XLINK}"', *written]
        self._begun = True
        self.parts.append(f'<{" ".join([local, *written])}>')

    def _end(self, name: str) -> None:
        if self._hidden:
            self._hidden -= 1
        else:
            self.parts.append(f'</{name.rpartition(" ")[2]}>')

    def _text(self, text: str) -> None:
        if not self._hidden:
            self.parts.append(escape(text))

    def _doctype(self, _name: str, _system: object, _public: object, declares: bool) -> None:
        if declares:
            raise _RefusedError


def _kept(element: str, attributes: Mapping[str, str]) -> list[tuple[str, str]]:
    kept = []
    for name, value in attributes.items():
        if name in ('href', f'{_XLINK} href'):
            if (_BITMAP if element == 'image' else _OWN).fullmatch(value.strip()):
                kept.append(('xlink:href', value))
        elif _ATTRIBUTES.fullmatch(name) and not _LOADS.search(_CALL.sub('', _URL.sub('', value))):
            kept.append((name, value))
    return kept
