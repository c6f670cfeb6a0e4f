import json
import re

from hypothesis import given
from hypothesis import strategies as st

from sandbox.kernel.text import Terminal, coloured, plain

NASTY = st.text(st.sampled_from('ab\n\r\b\x1b[]0;mK\x07\\\x9b\ud800é'), max_size=60)
ANY = st.text(st.characters(codec=None), max_size=200)


def shown(pieces: list[str]) -> str:
    terminal = Terminal()
    return ''.join(map(terminal.feed, pieces)) + terminal.flush()


@given(st.lists(NASTY, max_size=8))
def test_any_way_of_cutting_a_stream_shows_the_same(pieces):
    assert shown(pieces) == shown([''.join(pieces)])


@given(ANY | NASTY)
def test_what_comes_out_is_clean(text):
    for result in (plain(text), shown([text])):
        result.encode()
        json.dumps(result, ensure_ascii=False).encode()
        assert '\x1b' not in result
        assert '\x9b' not in result


@given(st.text(st.sampled_from('abé\n\t ')))
def test_plain_text_is_left_alone(text):
    assert plain(text) == text
    assert shown([text]) == text


@given(ANY | NASTY)
def test_only_colours_are_kept_for_a_terminal(text):
    kept = coloured(text)
    without = re.sub(r'\x1b\[[0-9;]{0,32}m', '', kept)
    assert '\x1b' not in without
    assert '\x9b' not in kept
    kept.encode()
