"""Sizes in words, as people and models are shown them."""

from lagent.utils.counts import many


def size_text(size: int) -> str:
    """A number of bytes in words.

    Args:
        size: bytes.

    Returns:
        Such as ``'999 bytes'``, ``'23 kB'``, ``'1.5 MB'`` (of 1,000 and 1,000,000 bytes).
    """
    if size < 1_000:
        return many(size, 'byte')
    if size < 999_500:
        return f'{size / 1e3:.0f} kB'
    return f'{size / 1e6:.1f} MB' if size < 999_950_000 else f'{size / 1e9:.1f} GB'
