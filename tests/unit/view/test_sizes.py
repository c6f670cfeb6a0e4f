"""One number is one text, wherever it is shown."""

import pytest

from lagent.view.sizes import size_text


@pytest.mark.parametrize(
    ('size', 'text'),
    [
        (0, '0 bytes'),
        (999, '999 bytes'),
        (1_000, '1 kB'),
        (23_456, '23 kB'),
        (999_499, '999 kB'),
        (999_500, '1.0 MB'),
        (39_000_000, '39.0 MB'),
        (999_949_999, '999.9 MB'),
        (999_950_000, '1.0 GB'),
    ],
)
def test_a_size_in_words(size: int, text: str) -> None:
    assert size_text(size) == text
