"""Numbers of things in words."""


def many(count: int, noun: str, nouns: str = '') -> str:
    """Say how many there are.

    Args:
        count: how many.
        noun: what, in the singular.
        nouns: the plural, where it is not the singular with an s.

    Returns:
        Such as ``'1 file'``, ``'0 files'``, ``'1,200 files'``.
    """
    return f'{count:,} {noun if count == 1 else nouns or f"{noun}s"}'
