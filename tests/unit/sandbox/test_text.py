import pytest

from sandbox.kernel.text import MAX_LINE, Terminal, clean, coloured, plain


def shown(*pieces: str) -> str:
    terminal = Terminal()
    return ''.join(map(terminal.feed, pieces)) + terminal.flush()


@pytest.mark.parametrize(
    ('raw', 'text'),
    [
        ('\x1b[31mred\x1b[0m', 'red'),
        ('\x1b]0;title\x07x', 'x'),
        ('\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\', 'link'),
        ('\x9b1mC1\x9b0m', 'C1'),
        ('a\x1b(Bb', 'ab'),
        ('cut \x1b', 'cut '),
        ('cut \x1b[1;3', 'cut '),
        ('cut \x9b3', 'cut '),
        ('a\ud800b', 'a\ufffdb'),
        ('日本 é', '日本 é'),
    ],
)
def test_terminal_codes_and_surrogates_are_removed(raw, text):
    assert plain(raw) == text
    assert shown(raw) == text


def test_clean_leaves_valid_text_alone():
    assert clean('a\x00é\U0001f600') == 'a\x00é\U0001f600'


@pytest.mark.parametrize(
    ('pieces', 'text'),
    [
        (['10%\r20%\r100%\n'], '100%\n'),
        (['10%', '\r20%', '\r', '100%', '\n'], '100%\n'),
        (['hello\rJ\n'], 'Jello\n'),
        (['hello\r\x1b[Kbye\n'], 'bye\n'),
        (['a\r\nb\r\n'], 'a\nb\n'),
        (['a\r', '\nb'], 'a\nb'),
        (['abc\b\bX\n'], 'aXc\n'),
        (['\b\bX'], 'X'),
        (['abcdef\rXY\b\b\bZ\n'], 'ZYcdef\n'),
        (['abc\b', '\x1b[K', 'XYZ\rQ'], 'QbXYZ'),
        (['one\n', 'two\rT'], 'one\nTwo'),
        (['\x1b', '[31m', 'x'], 'x'),
        (['\x1b]0;never ended'], '0;never ended'),
    ],
)
def test_a_terminal_line(pieces, text):
    assert shown(*pieces) == text


def test_finished_lines_come_out_at_once():
    terminal = Terminal()
    assert terminal.feed('one\ntwo') == 'one\n'
    assert terminal.feed('\rT') == ''
    assert terminal.flush() == 'Two'


def test_a_line_without_an_end_is_not_held_back_for_ever():
    terminal = Terminal()
    out = terminal.feed('x' * 1_000_000)
    assert len(out) == 1_000_000 - MAX_LINE
    assert len(terminal.flush()) == MAX_LINE


def test_many_moves_on_a_long_line():
    wide = '\U0001f600'
    assert shown(wide * MAX_LINE + f'\b{wide}' * 100_000) == wide * MAX_LINE


def test_colours_are_kept_and_no_other_code():
    assert coloured('a\x1b[1;31mb\x1b[0m') == 'a\x1b[1;31mb\x1b[0m'
    assert coloured('\x1b[2J\x1b]0;t\x07\x1b[31mx\x1b[5n\x9b31m') == '\x1b[31mx'
    assert coloured('\x1b\x1b[0K]0;title\x07\x1b[32mx') == ']0;title\x07\x1b[32mx'
    assert coloured('\x1b[2Jplain') == coloured('plain') == ''
    assert coloured(f'\x1b[{"1;" * 40}mx') == ''
    assert coloured('\x1b[31mx\x1b[3') == '\x1b[31mx'
