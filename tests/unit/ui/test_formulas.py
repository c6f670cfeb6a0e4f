r"""Formulas in Markdown: which text is one, and what becomes of it."""

import re
import time

import pytest

from lagent.ui.formulas import is_formula
from lagent.ui.markdown import markdown_html


def html(text):
    return str(markdown_html(text, lambda target: None))


def words(found):
    return re.sub(r'<[^>]*>', '', found).strip()


@pytest.mark.parametrize(
    'text', [r'so \(x^2\).', 'so $x^2$.', r'**so** \(x^2\)', '- so $x^2$', '| so $x^2$ |\n|---|']
)
def test_a_formula_in_a_line(text):
    assert '<math display="inline"><mrow><msup><mi>x</mi><mn>2</mn></msup></mrow></math>' in html(
        text
    )


@pytest.mark.parametrize(
    'text',
    [
        '\\[\nx\n= 1\n- 2\n\\]',
        '$$x = 1 - 2$$',
        'so\n$$\nx = 1\n- 2\n$$\n',
        '- so\n\n  \\[\n  x = 1\n  - 2\n  \\]',
        '> \\[\n> x = 1\n> - 2\n> \\]',
        'so \\[x = 1 - 2\\] it is',
    ],
)
def test_a_formula_with_lines_of_its_own_is_not_read_as_markdown(text):
    found = html(text)
    assert '<math display="block" tabindex="0">' in found
    assert 'x=1−2' in words(found)
    assert '<h' not in found
    assert found.count('<li>') == text.count('- so')


@pytest.mark.parametrize(
    'text',
    [
        'between $5 and $10',
        '$1,200 (up from $900)',
        '$5/$10, US$5-6, A$7',
        'set $HOME and $PATH',
        'a $ sign and a $ sign',
        '$5',
        '$$',
        '$$ $$',
        r'\(\)',
        r'\( never closed',
        '\\[ never\n\nclosed',
        '$' + 'x' * 3_000 + '$',
    ],
)
def test_money_and_what_is_not_closed_is_text(text):
    assert '<math' not in html(text)


def test_code_and_escapes_are_left_alone():
    assert html('`$x$`') == '<p><code>$x$</code></p>\n'
    assert '<math' not in html('```\n$$\nx\n$$\n```')
    assert html(r'\$x\$') == '<p>$x$</p>\n'
    assert '<math' not in html('    $$\n    x\n    $$')


@pytest.mark.parametrize('text', [r'$\frac{$', r'\(\begin{x}\)', r'$x^a^b$'])
def test_what_is_no_tex_is_shown_as_it_is(text):
    found = html(text)
    assert found.startswith('<p><code>')
    assert words(found) in text


def test_nothing_runs_links_or_has_a_style():
    found = html(
        r'$\href{javascript:alert(1)}{y}\style{color:red}{x}\class{a}{z}$ '
        r'$\text{<img src=x onerror=alert(1)>}$ $\color{red}{x}\text{</mtext></math><b>}$'
    )
    tags = set(re.findall(r'<(\w+)', found))
    assert tags <= {'p', 'math', 'mrow', 'mi', 'mtext', 'mstyle'}
    assert not re.search(r'href|style=|class|onerror|color', found)


@pytest.mark.parametrize(
    'text', [r'\(' * 50_000, '$' * 100_000, '$a ' * 30_000, '\\[\n' * 30_000, '$$\n' * 30_000]
)
def test_hostile_text_takes_bounded_time(text):
    started = time.monotonic()
    html(text)
    assert time.monotonic() - started < 30


def test_what_is_one_formula():
    assert is_formula('$\\displaystyle x^{2}$')
    assert is_formula(' $$x$$\n')
    assert is_formula('\\[x\\]')
    assert not is_formula('$x$ and $y$')
    assert not is_formula('\\begin{tabular}{l} a \\end{tabular}')
    assert not is_formula('')


def test_what_may_be_wider_than_the_page_can_be_scrolled_by_keys():
    long = '$x = ' + ' + '.join('abcdefgh') + '$'
    assert 'tabindex="0"' in html(long)
    assert 'tabindex' not in html('$x$')
