"""SVG of a kernel: drawings stay, and nothing of it is executed or loaded."""

import io
from xml.parsers import expat

import matplotlib as mpl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from sandbox.svg import MOST_CHARACTERS, safe_svg

OPEN = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
HOSTILE = [
    '<script>alert(1)</script>',
    '<script href="https://example.org/x.js"/>',
    '<rect onload="alert(1)" onclick="alert(1)" width="1"/>',
    '<foreignObject><p xmlns="http://www.w3.org/1999/xhtml"><b>alert(1)</b></p></foreignObject>',
    '<x:script xmlns:x="http://www.w3.org/1999/xhtml">alert(1)</x:script>',
    '<a href="javascript:alert(1)"><text>x</text></a>',
    '<a xlink:href=" java&#10;script:alert(1)"><text>x</text></a>',
    '<use href="https://example.org/a.svg#x"/>',
    '<use xlink:href="data:image/svg+xml;base64,AAAA#x"/>',
    '<image href="https://example.org/a.png"/>',
    '<image xlink:href="data:image/svg+xml;base64,AAAA"/>',
    '<style>@import url(https://example.org/a.css);</style>',
    '<rect style="fill: url(https://example.org/a.svg#x)"/>',
    '<rect style="background: \\75rl(https://example.org/a.png)"/>',
    '<rect fill="url(//example.org/a.svg#x)"/>',
    '<rect style="fill: image-set(&quot;https://example.org/a.png&quot; 1x)"/>',
    '<set attributeName="href" to="javascript:alert(1)"/>',
    '<animate attributeName="xlink:href" values="javascript:alert(1)"/>',
    '<filter><feImage href="https://example.org/a.png"/></filter>',
    '<metadata><script>alert(1)</script></metadata>',
    '<handler xmlns="http://www.w3.org/2000/svg">alert(1)</handler>',
    '<?xml-stylesheet href="https://example.org/a.css"?>',
    '<!-- <script>alert(1)</script> --><![CDATA[<script>alert(1)</script>]]>',
]


def opened(svg):
    """All elements with their attributes, as a reader of XML sees them."""
    found = []
    parser = expat.ParserCreate('utf-8', ' ')
    parser.StartElementHandler = lambda name, attributes: found.append((name, attributes))
    parser.Parse(svg.encode(), True)
    return found


@pytest.mark.parametrize('inner', HOSTILE)
def test_nothing_is_executed_or_loaded(inner):
    safe = safe_svg(f'{OPEN} onload="alert(1)">{inner}<path d="M 0 0"/></svg>')
    assert 'example.org' not in safe
    for name, attributes in opened(safe):
        assert name.removeprefix('http://www.w3.org/2000/svg ') in (
            *('svg', 'rect', 'path', 'use', 'image'),
        )
        assert not [key for key in attributes if key.startswith('on') or 'href' in key]
    assert safe.endswith('<path d="M 0 0"></path></svg>')


def test_a_drawing_of_matplotlib_stays():
    figure = Figure()
    axes = figure.subplots()
    axes.plot([1, 2, 3])
    axes.imshow([[1, 2], [3, 4]])
    axes.set_title('sales & <costs>')
    file = io.StringIO()
    with mpl.rc_context({'svg.fonttype': 'none'}):
        figure.savefig(file, format='svg')
    drawn = file.getvalue()
    safe = safe_svg(drawn)
    for element in ('path', 'text', 'use', 'image', 'clipPath'):
        tag = f'http://www.w3.org/2000/svg {element}'
        assert [a for n, a in opened(safe) if n == tag] == [a for n, a in opened(drawn) if n == tag]
    assert 'sales &amp; &lt;costs&gt;' in safe
    assert safe_svg(safe) == safe


@pytest.mark.parametrize(
    'text',
    [
        '',
        'no xml',
        '<html><script>alert(1)</script></html>',
        '<svg/>',
        f'{OPEN}><g></svg>',
        f'<!DOCTYPE svg [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>{OPEN}>&b;</svg>',
        f'<!DOCTYPE svg [<!ENTITY a SYSTEM "file:///etc/passwd">]>{OPEN}>&a;</svg>',
        OPEN + ' ' * MOST_CHARACTERS + '/>',
    ],
)
def test_what_is_no_drawing_is_refused(text):
    assert safe_svg(text) is None


def test_depth_costs_nothing():
    assert safe_svg(f'{OPEN}>' + '<g>' * 100_000 + '</g>' * 100_000 + '</svg>')


@pytest.mark.parametrize(
    ('attributes', 'kept'),
    [
        ('href="#a" xlink:href="#b"', '#a'),
        ('xlink:href="#b" href="#a"', '#a'),
        ('xlink:href="#b"', '#b'),
        ('href="https://example.org/a.svg#x" xlink:href="#b"', None),
    ],
)
def test_a_reference_is_written_once(attributes, kept):
    safe = safe_svg(f'{OPEN}><use {attributes}/></svg>')
    [(_, written)] = opened(safe)[1:]
    assert written.get('http://www.w3.org/1999/xlink href') == kept


def nested(levels, reference):
    groups = [f'<g id="a0">{"<rect/>" * 10}</g>']
    groups += [f'<g id="a{n}">{reference.format(n - 1) * 10}</g>' for n in range(1, levels)]
    return f'{OPEN}><defs>{"".join(groups)}</defs>{reference.format(levels - 1)}</svg>'


@pytest.mark.parametrize(
    'reference',
    [
        '<use xlink:href="#a{}"/>',
        '<use href=" #a{} "/>',
        '<rect mask="url(#a{})"/>',
        '<rect style="fill: url( \'#a{}\' )"/>',
        '<use href="#%61{}"/>',
    ],
)
def test_references_do_not_multiply_without_bound(reference):
    drawn = {levels: nested(levels, reference) for levels in (3, 12)}
    assert safe_svg(drawn[3])
    assert len(drawn[12]) < 6_000
    assert safe_svg(drawn[12]) is None


def test_many_references_to_a_small_mark_are_a_plot():
    marks = '<use xlink:href="#m" x="1" y="2"/>' * 100_000
    assert safe_svg(f'{OPEN}><defs><path id="m"/></defs>{marks}</svg>')
    large = '<rect/>' * 10_000
    marks = '<use xlink:href="#m"/>' * 1_000
    assert safe_svg(f'{OPEN}><g id="m">{large}</g>{marks}</svg>') is None


def test_a_chain_of_references_is_drawn_from_each_of_its_links():
    links = [f'<g id="a{n}"><use href="#a{n + 1}"/></g>' for n in range(10_000)]
    assert safe_svg(f'{OPEN}>{"".join(links[:900])}</svg>')
    assert safe_svg(f'{OPEN}>{"".join(links)}</svg>') is None


def test_circles_of_references_are_refused():
    assert safe_svg(f'{OPEN}><g id="a"><use href="#a"/></g></svg>') is None
    assert safe_svg(f'{OPEN} id="a"><g><use href="#a"/></g></svg>') is None
    assert safe_svg(f'{OPEN}><g id="a"/><g id="a"><use href="#a"/></g></svg>')


@given(st.lists(st.sampled_from([*HOSTILE, '<g>', '</g>', 'x', '\ud800', ']]>', '&lt;'])))
def test_whatever_is_written_is_safe_and_whole(parts):
    safe = safe_svg(f'{OPEN}>{"".join(parts)}</svg>')
    if safe is not None:
        assert safe_svg(safe) == safe
        assert 'example.org' not in safe
