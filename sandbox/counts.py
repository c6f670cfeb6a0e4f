"""Numbers of things in words."""


def many(count: int, noun: str) -> str:
    """Return how many there are, such as `1 row` or `1,200 rows`."""
    return f'{count:,} {noun}{"" if count == 1 else "s"}'
