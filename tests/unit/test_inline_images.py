"""Images in a terminal: which terminals, what is written, and what hostile bytes become."""

import base64
import io
import re

import pytest
from rich.console import Console

from lagent.inline_images import Pictures, encoded, protocol
from sandbox import Output

Image = pytest.importorskip('PIL.Image')


def image(format_='PNG', size=(12, 8), color=(255, 0, 0), noise=False):
    made = Image.effect_noise(size, 90) if noise else Image.new('RGB', size, color)
    file = io.BytesIO()
    made.save(file, format_)
    return file.getvalue()


def console(**options):
    return Console(file=io.StringIO(), width=80, color_system=None, **options)


@pytest.mark.parametrize(
    ('environment', 'expected'),
    [
        ({'TERM': 'xterm-kitty'}, 'kitty'),
        ({'TERM': 'xterm-256color', 'KITTY_WINDOW_ID': '1'}, 'kitty'),
        ({'TERM': 'xterm-ghostty'}, 'kitty'),
        ({'TERM': 'xterm-256color', 'TERM_PROGRAM': 'iTerm.app'}, 'iterm2'),
        ({'TERM': 'xterm-256color', 'LC_TERMINAL': 'iTerm2'}, 'iterm2'),
        ({'TERM': 'foot'}, 'sixel'),
        ({'TERM': 'xterm-256color'}, None),
        ({'TERM': 'dumb', 'TERM_PROGRAM': 'iTerm.app'}, None),
        ({'TERM': 'xterm-kitty', 'TMUX': '/tmp/x'}, None),
        ({'TERM': 'screen-256color', 'KITTY_WINDOW_ID': '1'}, None),
        ({}, None),
    ],
)
def test_terminals(environment, expected):
    assert protocol(environment) == expected


def test_kitty_gets_the_png_in_chunks_and_is_told_not_to_answer():
    png = image(size=(120, 90), noise=True)
    chunks = re.findall('\x1b_G([^;]*);([^\x1b]*)\x1b\\\\', encoded(png, 'kitty'))
    assert len(chunks) > 1
    assert all(len(text) <= 4096 for _, text in chunks)
    assert base64.b64decode(''.join(text for _, text in chunks)) == png
    assert chunks[0][0] == 'a=T,f=100,q=2,m=1'
    assert [keys for keys, _ in chunks[1:]] == ['m=1'] * (len(chunks) - 2) + ['m=0']


@pytest.mark.parametrize('format_', ['PNG', 'JPEG'])
def test_iterm2_gets_the_file(format_):
    data = image(format_)
    found = re.fullmatch(
        '\x1b]1337;File=inline=1;size=(\\d+);[^:]*:([^\x07]*)\x07', encoded(data, 'iterm2')
    )
    assert int(found[1]) == len(data)
    assert base64.b64decode(found[2]) == data


def test_sixels_are_the_pixels():
    half = Image.new('RGB', (10, 8), 'white')
    half.paste((255, 0, 0), (0, 0, 5, 8))
    file = io.BytesIO()
    half.save(file, 'PNG')
    head, colors, pixels = decoded(encoded(file.getvalue(), 'sixel'))
    assert head == (10, 8)
    for (x, y), color in pixels.items():
        expected = (100, 0, 0) if x < 5 else (100, 100, 100)
        assert colors[color] == expected, (x, y)
    assert len(pixels) == 80


def decoded(text):
    """Reads sixels as the VT340's manual says."""
    body = re.fullmatch('\x1bP0;1q(.*)\x1b\\\\', text)[1]
    width, height = re.match(r'"1;1;(\d+);(\d+)', body).groups()
    colors = {
        int(number): tuple(int(part) for part in parts.split(';'))
        for number, parts in re.findall(r'#(\d+);2;(\d+;\d+;\d+)', body)
    }
    body = re.sub(r'^"[\d;]+|#\d+;2;\d+;\d+;\d+', '', body)
    pixels, x, y, color = {}, 0, 0, None
    for token in re.findall(r'#\d+|!\d+.|.', body):
        if token == '$':
            x = 0
        elif token == '-':
            x, y = 0, y + 6
        elif token.startswith('#'):
            color = int(token[1:])
        else:
            end = x + (int(token[1:-1]) if token.startswith('!') else 1)
            rows = [row for row in range(6) if (ord(token[-1]) - 63) >> row & 1]
            pixels |= {(column, y + row): color for column in range(x, end) for row in rows}
            x = end
    return (int(width), int(height)), colors, pixels


@pytest.mark.parametrize(
    ('data', 'how'),
    [
        (b'\x1b[2J\x1b]0;title\x07', 'kitty'),
        (b'\x1b[2J\x1b]0;title\x07', 'iterm2'),
        (b'\x1b[2J\x1b]0;title\x07', 'sixel'),
        (b'', 'kitty'),
        (b'\x89PNG\r\n\x1a\n', 'kitty'),
        (b'\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x7f\xff\xff\xff\x7f\xff\xff\xff', 'iterm2'),
        (b'\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x7f\xff\xff\xff\x7f\xff\xff\xff', 'sixel'),
        (b'\xff\xd8\xff broken', 'sixel'),
        (b'\xff\xd8\xff', 'kitty'),
        (b'\x89PNG\r\n\x1a\n' + b'x' * (9 << 20), 'kitty'),
    ],
)
def test_what_is_no_small_image_is_not_shown(data, how):
    assert encoded(data, how) is None


def test_bytes_of_the_sandbox_can_not_end_a_sequence():
    png = image() + b'\x1b\\\x07\x1b[2J'
    for how in ('kitty', 'iterm2', 'sixel'):
        assert '\x1b[' not in encoded(png, how)


def test_an_image_that_can_not_be_shown_is_saved_beside_what_is_there(tmp_path):
    terminal = console()
    pictures = Pictures(terminal, None, tmp_path / 'new')
    for color in ((1, 2, 3), (4, 5, 6)):
        assert pictures.show_output(Output('display', data={'image/png': image(color=color)}))
    assert [path.name for path in sorted((tmp_path / 'new').iterdir())] == [
        'plot-1.png',
        'plot-2.png',
    ]
    assert (tmp_path / 'new' / 'plot-2.png').read_bytes() == image(color=(4, 5, 6))
    assert 'plot-2.png' in terminal.file.getvalue()
    assert not pictures.show_output(Output('result', text='1'))


def test_an_image_is_shown_where_it_can_be(tmp_path):
    terminal = console()
    pictures = Pictures(terminal, 'kitty', tmp_path)
    assert pictures.show_output(Output('display', data={'image/png': image()}))
    assert terminal.file.getvalue() == f'{encoded(image(), "kitty")}\n'
    assert list(tmp_path.iterdir()) == []
    path = tmp_path / 'odd\x1b[2Jname.jpg'
    path.write_bytes(image('JPEG'))
    pictures.show_file(path)  # which kitty can't show
    assert 'oddname.jpg' in terminal.file.getvalue()


def test_nothing_is_written_into_pipes(monkeypatch, tmp_path):
    monkeypatch.setenv('TERM', 'xterm-kitty')
    monkeypatch.delenv('TMUX', raising=False)
    output = Output('display', data={'image/png': image()})
    for terminal, images, sequences in (
        (console(), 'auto', 0),
        (console(force_terminal=True), 'auto', 1),
        (console(force_terminal=True), 'none', 0),
        (console(), 'iterm2', 1),
    ):
        Pictures.of(terminal, images, tmp_path).show_output(output)
        assert terminal.file.getvalue().count('\x1b') >= sequences
        assert ('\x1b' in terminal.file.getvalue()) == bool(sequences)
