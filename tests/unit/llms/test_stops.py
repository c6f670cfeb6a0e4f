"""Stop words cut a text at the first of them, in one piece or in many."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagent.llms.stops import StopCutter, cut_at_stop


@pytest.mark.parametrize(
    ('text', 'stops', 'expected'),
    [
        ('a STOP b', ['STOP'], ('a ', 'STOP')),
        ('xyz', ['z', 'y'], ('x', 'y')),
        ('abc', ['', 'q'], ('abc', None)),
        ('abc', None, ('abc', None)),
        ('```', ['```'], ('', '```')),
    ],
)
def test_cut(text: str, stops: list[str] | None, expected: tuple[str, str | None]) -> None:
    assert cut_at_stop(text, stops) == expected


def test_what_may_become_a_stop_word_is_held_back() -> None:
    cutter = StopCutter(['<|end|>'])
    assert cutter.feed('so <|e') == 'so '
    assert cutter.feed('lse') == '<|else'
    assert cutter.feed('<|en') == ''
    assert cutter.feed('d|> gone') == ''
    assert (cutter.stopped, cutter.feed('more'), cutter.flush()) == ('<|end|>', '', '')


def test_an_unfinished_stop_word_comes_out_at_the_end() -> None:
    cutter = StopCutter(['STOP'])
    assert cutter.feed('x ST') == 'x '
    assert (cutter.flush(), cutter.stopped) == ('ST', None)


@given(
    st.lists(st.text('ab`', max_size=4), max_size=8),
    st.lists(st.text('ab`', min_size=1, max_size=3), max_size=3),
)
def test_any_cutting_into_pieces_gives_the_same(pieces: list[str], stops: list[str]) -> None:
    cutter = StopCutter(stops)
    shown = ''.join(cutter.feed(piece) for piece in pieces) + cutter.flush()
    text, stop = cut_at_stop(''.join(pieces), stops)
    # Two stop words may overlap: whichever is complete first ends the stream there.
    if stop is None:
        assert (shown, cutter.stopped) == (text, None)
    else:
        assert cutter.stopped in stops
        assert ''.join(pieces).startswith(shown + str(cutter.stopped))
        assert not any(s in shown for s in stops)
