r"""Formulas in a model's Markdown: ``\(…\)``, ``\[…\]``, ``$…$`` and ``$$…$$`` become MathML.

A dollar sign is mostly money. As in Pandoc, one opens a formula only where no space follows it, and
closes it only where none precedes it and no digit follows.
"""

from collections.abc import Sequence
from typing import Any

from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markupsafe import escape

TAGS = {
    *('math', 'mrow', 'mi', 'mn', 'mo', 'mtext', 'mspace', 'mfrac', 'msqrt', 'mroot', 'mstyle'),
    *('msub', 'msup', 'msubsup', 'munder', 'mover', 'munderover', 'mmultiscripts', 'mprescripts'),
    *('mtable', 'mtr', 'mtd', 'mpadded', 'mphantom', 'menclose'),
}
ATTRIBUTES = {
    'math': {'display', 'tabindex'},
    'mi': {'mathvariant'},
    'mo': {'stretchy', 'fence', 'form', 'largeop', 'minsize', 'maxsize', 'movablelimits'},
    'mspace': {'width'},
    'mfrac': {'linethickness'},
    'mstyle': {'displaystyle', 'scriptlevel'},
    'mover': {'accent'},
    'mtable': {'columnalign', 'rowlines', 'columnlines'},
    'mtd': {'columnalign'},
    'menclose': {'notation'},
}
"""What the page may have of MathML: nothing that links, loads or carries a style."""

_SHORT = 20  # characters of a formula that fits into any line
_LONGEST = 2_000  # characters of a formula; also how far the end of one is looked for
_DELIMITERS = (('\\(', '\\)', False), ('\\[', '\\]', True), ('$$', '$$', True), ('$', '$', False))


def add_formulas(parser: MarkdownIt) -> None:
    """Let a parser of Markdown know formulas.

    Args:
        parser: the parser.
    """
    parser.inline.ruler.before('escape', 'formula', _inline)
    interrupts = ['paragraph', 'reference', 'blockquote', 'list']
    parser.block.ruler.before('fence', 'formula', _block, {'alt': interrupts})
    parser.add_render_rule('formula', _rendered)


def is_formula(text: str) -> bool:
    """Whether a text is one formula and nothing else.

    Args:
        text: what an output calls LaTeX.

    Returns:
        True where it stands between delimiters.
    """
    text = text.strip()
    found = _formula(text, 0)
    return found is not None and found[1] == len(text)


def _formula(text: str, start: int) -> tuple[str, int, bool] | None:
    """The formula that begins here, where it ends, and whether it has lines of its own."""
    for begin, end, is_display in _DELIMITERS:
        if not text.startswith(begin, start):
            continue
        inside = start + len(begin)
        close = text.find(end, inside, inside + _LONGEST)
        source = text[inside : max(close, inside)]
        if not source.strip() or (begin == '$' and _is_money(text, start, close)):
            return None
        return source, close + len(end), is_display
    return None


def _is_money(text: str, start: int, close: int) -> bool:
    before, after = text[start - 1 : start], text[close + 1 : close + 2]
    is_spaced = text[start + 1].isspace() or text[close - 1].isspace()
    return is_spaced or before.isalnum() or after.isdigit()


def _inline(state: StateInline, silent: bool) -> bool:
    found = _formula(state.src, state.pos)
    if found is None or found[1] > state.posMax:
        return False
    source, state.pos, is_display = found
    if not silent:
        _push(state, source, is_display)
    return True


def _block(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """A formula that has lines of its own, whatever they would be in Markdown."""
    if state.is_code_block(first):
        return False
    start = state.bMarks[first] + state.tShift[first]
    found = _formula(state.src, start)
    if found is None or not found[2]:
        return False
    end = found[1]
    line = next((n for n in range(first, last) if state.eMarks[n] >= end), None)
    if line is None or state.src[end : state.eMarks[line]].strip():
        return False
    if not silent:
        source = state.getLines(first, line + 1, state.blkIndent, False).strip()
        _push(state, source[2:-2], True)
        state.line = line + 1
    return True


def _push(state: StateInline | StateBlock, source: str, is_display: bool) -> None:
    token = state.push('formula', 'math', 0)
    token.content, token.block = source, is_display


def _rendered(_renderer: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    source, is_display = tokens[index].content.strip(), tokens[index].block
    display = 'block' if is_display else 'inline'
    try:
        html = str(convert(source, display=display))
    except Exception:  # noqa: BLE001 - the library has no common class for what it does not understand
        return f'<code>{escape(source)}</code>'
    # It may be wider than the page, and no line of it is broken: then it is scrolled, also by keys.
    is_wide = is_display or len(source) > _SHORT
    opening = f'display="{display}"'
    return html.replace(opening, f'{opening} tabindex="0"', 1) if is_wide else html
