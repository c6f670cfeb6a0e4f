"""Head and tail within a number of tokens, and how much is missing."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagent.view.tokens import counted, estimate_tokens, fit, left_out

MISSING = re.compile(r'\n?\[\.\.\. ([\d,]+) characters? left out(?:; [^\]]*)? \.\.\.\]\n')


def words(text):
    return text.split()


def test_the_estimate_counts_words_and_chinese_characters():
    assert [estimate_tokens(t) for t in ('', 'a', 'abcd', 'abcde', '你好', 'ab你好')] == [
        0,
        1,
        1,
        2,
        2,
        3,
    ]


def test_a_text_that_fits_is_not_changed():
    assert fit('a b c', 3, words) == 'a b c'
    assert fit('abcd' * 10, 10) == 'abcd' * 10
    assert fit(['ab', 7, 'cd'], 100) == 'ab' + left_out(7) + 'cd'
    assert fit('', 1) == ''


def test_head_and_tail_end_at_lines_and_the_rest_is_counted():
    text = ''.join(f'line {n}\n' for n in range(1_000))
    cut = fit(text, 64)
    (count,) = MISSING.findall(cut)
    start, end = MISSING.sub('\0', cut).split('\0')
    assert text.startswith(start)
    assert text.endswith(end)
    assert (start[:7], end[-9:], end[:4]) == ('line 0\n', 'line 999\n', 'line')
    assert start.splitlines()[-1] == text.splitlines()[len(start.splitlines()) - 1]
    assert int(count.replace(',', '')) == len(text) - len(start + '\n') - len(end)
    assert estimate_tokens(cut) <= 64


def test_the_file_with_all_of_it_is_named():
    assert '; all of it is in .outputs/a.txt ...]' in fit('x' * 1_000, 40, whole='.outputs/a.txt')


@given(
    st.lists(st.one_of(st.text('ab \n你', max_size=300), st.integers(1, 10**6)), max_size=6),
    st.integers(30, 120),
    st.sampled_from([None, words, len]),
)
def test_what_is_missing_is_always_counted_exactly(pieces, tokens, tokenizer):
    cut = fit(pieces, tokens, tokenizer)
    shown = MISSING.sub('', cut)
    missing = sum(int(n.replace(',', '')) for n in MISSING.findall(cut))
    total = sum(len(p) if isinstance(p, str) else p for p in pieces)
    # A line feed before the mark belongs to it or to the text.
    assert abs(len(shown) + missing - total) <= len(MISSING.findall(cut))
    assert fit(pieces, tokens, tokenizer) == cut
    if all(isinstance(p, str) for p in pieces):
        assert counted(tokenizer, cut) <= tokens + (60 if tokenizer is len else 0)


@pytest.mark.parametrize('tokens', [1, 10, 23])
def test_there_is_always_room_for_the_mark(tokens):
    assert fit('x' * 500, tokens) == left_out(500)
