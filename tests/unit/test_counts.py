"""Numbers of things in words, on this side and in a sandbox."""

import pytest

from lagent.analysis.guest import words
from lagent.utils import counts
from sandbox import counts as sandbox_counts


@pytest.mark.parametrize(
    ('count', 'told'), [(0, '0 files'), (1, '1 file'), (2, '2 files'), (1_200, '1,200 files')]
)
def test_one_is_no_plural(count: int, told: str) -> None:
    assert counts.many(count, 'file') == words.many(count, 'file') == told
    assert sandbox_counts.many(count, 'file') == told


def test_a_plural_of_its_own() -> None:
    told = [counts.many(count, 'reply', 'replies') for count in (0, 1, 2)]
    assert told == ['0 replies', '1 reply', '2 replies']
