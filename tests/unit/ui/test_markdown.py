"""A model's Markdown: what is left of it in the page."""

from html import escape
from html.parser import HTMLParser

import pytest

from lagent.ui.markdown import code_css, code_html, markdown_html, own_name
from lagent.ui.text import LIVE


def html(text, files=()):
    linked = lambda target: f'/files?name={own_name(target)}' if own_name(target) in files else None  # noqa: E731
    return str(markdown_html(text, linked))


def elements(found):
    """Tags and attributes as a browser finds them."""
    seen = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: seen.append((tag, dict(attributes)))
    parser.feed(found)
    return seen


def test_what_models_write_is_laid_out():
    found = html('# Head\n\n- *a* and **b**\n\n| n | m |\n|---|--:|\n| 1 | 2 |\n\n~~gone~~')
    for words in ('<h1>Head</h1>', '<em>a</em>', '<strong>b</strong>', '<s>gone</s>'):
        assert words in found
    assert '<th class="right">m</th>' in found
    assert 'style' not in found


@pytest.mark.parametrize(
    ('language', 'code'),
    [
        ('toml', "'" * 30_000),
        ('bash', '<<' * 4_000),
        ('cpp', 'a' * 7_000),
        ('Python', 'if a: b\n' * 2_000),
    ],
)
def test_code_that_may_take_long_is_shown_as_text(language, code):
    found = html(f'```{language}\n{code}\n```')
    assert '<span' not in found
    assert escape(code, quote=False) in found


@pytest.mark.parametrize('language', ['py', 'Python', 'sql', 'json', 'yml', 'sh', 'R', 'html'])
def test_usual_languages_are_highlighted(language):
    assert '<span class="' in html(f'```{language}\nselect 1; "a" <b>\n```')


def test_code_has_classes_for_its_parts():
    assert '<span class="k">def</span>' in html('```python\ndef f(): ...\n```')
    assert '&lt;script&gt;' in html('```nonsense-language\n<script>\n```')
    assert '&lt;script&gt;' in html('    <script>')
    assert '&lt;b&gt;' in code_html('<b>', 'no such language')
    assert '@media (prefers-color-scheme: dark)' in code_css()


@pytest.mark.parametrize(
    'text',
    [
        '<script>alert(1)</script>',
        '<img src=x onerror=alert(1)>',
        '[a](javascript:alert(1))',
        '[a](JaVaScRiPt:alert(1))',
        '[a](java&#x0A;script:alert(1))',
        '[a](vbscript:x)',
        '[a](data:text/html,<script>alert(1)</script>)',
        '![a](javascript:alert(1))',
        '![a](data:image/svg+xml;base64,AAAA)',
        '![a](http://evil.example/track.png)',
        '![a](//evil.example/track.png)',
        '[a](//evil.example/)',
        '[a](/s/2/files?name=secret)',
        '[a](../../enter?token=1)',
        '[a]: javascript:alert(1)\n\n[a]',
        '<http://evil.example/"onmouseover="alert(1)>',
        '```html"onload="alert(1)\nx\n```',
        '[a](http://[)',
    ],
)
def test_nothing_runs_and_nothing_is_loaded(text):
    for tag, attributes in elements(html(text, files=['other.png'])):
        assert tag in {'p', 'a', 'div', 'pre', 'code', 'span'}
        assert set(attributes) <= {'href', 'rel', 'target', 'class', 'tabindex'}
        if 'href' in attributes:
            assert attributes['href'].startswith('http://evil.example/')
            assert attributes['rel'] == 'noopener noreferrer nofollow'


def test_links_and_images_of_the_sessions_files_lead_to_them():
    found = html('[t](sandbox:/mnt/data/a.csv) ![p](./p.png) ![d](a.csv)', ['a.csv', 'p.png'])
    assert found.count('href="/files?name=a.csv"') == 2
    assert '<img src="/files?name=p.png&amp;show=1" alt="p" loading="lazy">' in found


def test_an_image_of_elsewhere_is_a_link():
    found = html('![cat](https://pics.example/cat.png)')
    assert 'href="https://pics.example/cat.png"' in found
    assert 'image elsewhere' in found


def test_hostile_texts_take_seconds_at_most():
    for piece in ('>', '[', '*a ', '`', '- ', '|', '![', '&', '<', '\n|'):
        html(piece * (LIVE // len(piece)))
