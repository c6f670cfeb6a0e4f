"""A model's Markdown as HTML in which nothing runs, nothing is loaded, and no link is a trap.

HTML in the Markdown is text. Code is highlighted with classes, formulas are MathML. An image or a
link of the session's own files leads to the page's download of them; an image of anywhere else is a
link, since loading it would tell a stranger what is talked about. What comes out is cleaned once
more by nh3.
"""

import functools
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from lagent.ui import formulas

Linked = Callable[[str], str | None]
"""Gives the address of a file of the session, by what a model calls it; None if it is none."""

_TAGS = {
    *('p', 'br', 'hr', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'ul', 'ol', 'li', 'blockquote'),
    *('table', 'thead', 'tbody', 'tr', 'th', 'td', 'strong', 'em', 's', 'code', 'pre', 'span'),
    *('a', 'img', 'div'),
    *formulas.TAGS,
}
_ATTRIBUTES = {
    'a': {'href', 'target', 'download'},
    'img': {'src', 'alt', 'loading'},
    'pre': {'tabindex'},
    'span': {'class'},
    'td': {'class'},
    'th': {'class'},
    'div': {'class', 'tabindex', 'role', 'aria-label'},
    'ol': {'start'},
    **formulas.ATTRIBUTES,
}
# Many lexers take the square of the length, or more, for code that is made for it: so only those
# that were measured, and how many characters of each take no more than about a second.
_HIGHLIGHTED = {
    **dict.fromkeys(('python', 'pycon', 'sql', 'json', 'yaml', 'html', 'xml', 'css'), 8_000),
    **dict.fromkeys(('toml', 'diff'), 8_000),
    **dict.fromkeys(('bash', 'r', 'javascript'), 2_000),
}
_ALIASES = {
    'py': 'python',
    'python3': 'python',
    'yml': 'yaml',
    'sh': 'bash',
    'shell': 'bash',
    'js': 'javascript',
}
_PICTURES = ('.png', '.jpg', '.jpeg', '.gif', '.webp')
_REL = 'noopener noreferrer nofollow'


def code_html(code: str, language: str = 'python') -> Markup:
    """Code with classes for its parts.

    Args:
        code: the code.
        language: its language; others than usual ones, and long code, are shown as text.

    Returns:
        HTML.
    """
    name = _ALIASES.get(language.lower(), language.lower())
    is_usual = len(code) <= _HIGHLIGHTED.get(name, 0)
    lexer = get_lexer_by_name(name if is_usual else 'text', stripnl=False)
    html: str = highlight(code, lexer, HtmlFormatter(nowrap=True))
    block = Markup('<div class="code"><pre tabindex="0"><code>{}</code></pre></div>')
    return block.format(Markup(html))  # noqa: S704 - Pygments has escaped it


def code_css() -> str:
    """The style sheet of `code_html`, for light and dark screens."""
    light = HtmlFormatter(style='xcode').get_style_defs('.code')
    dark = HtmlFormatter(style='github-dark').get_style_defs('.code')
    return f'{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n'


def markdown_html(text: str, linked: Linked) -> Markup:
    """A model's Markdown as HTML.

    Args:
        text: any text.
        linked: see `Linked`.

    Returns:
        HTML that may stand in the page.
    """
    parser = _parser()
    tokens = parser.parse(text)
    for token in tokens:
        if (align := str(token.attrs.pop('style', ''))) and token.type in ('th_open', 'td_open'):
            token.attrs['class'] = align.rpartition(':')[2]
        if token.children:
            token.children = _tamed(token.children, linked)
    html = parser.renderer.render(tokens, parser.options, {})
    return Markup(  # noqa: S704 - this is what the cleaning is for
        nh3.clean(
            html,
            tags=_TAGS,
            attributes=_ATTRIBUTES,
            url_schemes={'http', 'https', 'mailto'},
            link_rel=_REL,
        )
    )


@functools.cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt('commonmark', {'html': False}).enable(['table', 'strikethrough'])
    formulas.add_formulas(parser)
    parser.add_render_rule('fence', _fence)
    parser.add_render_rule('code_block', _fence)
    parser.add_render_rule('table_open', _table_open)
    parser.add_render_rule('table_close', _table_close)
    return parser


def _fence(
    _renderer: RendererHTML, tokens: list[Token], index: int, _options: Any, _environment: Any
) -> str:
    token = tokens[index]
    language = token.info.split()[0] if token.info.split() else 'text'
    return str(code_html(token.content, language))


def _table_open(*_: Any) -> str:
    # It is scrolled where it is wider than the page.
    return '<div class="wide" tabindex="0" role="group" aria-label="Table"><table>\n'


def _table_close(*_: Any) -> str:
    return '</table></div>\n'


def _tamed(tokens: list[Token], linked: Linked) -> list[Token]:
    """The tokens of a paragraph, with links and images as the page may have them."""
    tamed: list[Token] = []
    open_links: list[bool] = []
    for token in tokens:
        if token.type == 'image':
            tamed.append(_image(token, linked))
        elif token.type == 'link_open':
            target = str(token.attrs.get('href', ''))
            own, is_outside = linked(target), _is_outside(target)
            open_links.append(bool(own or is_outside))
            if own:
                token.attrs = {'href': own, 'download': ''}
            elif is_outside:
                token.attrs = {'href': target, 'target': '_blank'}
            else:
                continue
            tamed.append(token)
        elif token.type != 'link_close' or (open_links and open_links.pop()):
            tamed.append(token)
    return tamed


def _image(token: Token, linked: Linked) -> Token:
    source = str(token.attrs.get('src', ''))
    words = escape(token.content or source)
    own = linked(source)
    html = Token('html_inline', '', 0)
    if own and source.lower().endswith(_PICTURES):
        html.content = f'<img src="{escape(own)}&amp;show=1" alt="{words}" loading="lazy">'
    elif own:
        html.content = f'<a href="{escape(own)}" download="">{words}</a>'
    elif _is_outside(source):
        html.content = f'<a href="{escape(source)}" target="_blank">{words} (image elsewhere)</a>'
    else:
        html.content = str(words)
    return html


def _is_outside(target: str) -> bool:
    try:
        parts = urlsplit(target)
    except ValueError:
        return False
    return (parts.scheme in ('http', 'https') and bool(parts.netloc)) or parts.scheme == 'mailto'


def own_name(target: str) -> str:
    """What a model's link calls a file of the session.

    Args:
        target: where the link leads.

    Returns:
        The path in the workspace.
    """
    name = unquote(target).removeprefix('sandbox:')
    for folder in ('/mnt/data/', '/workspace/', './'):
        name = name.removeprefix(folder)
    return name
