"""Numbers of things in words; `lagent.utils.counts`, which is not there in a sandbox."""


def many(count: int, noun: str) -> str:
    """Say how many there are, with a noun whose plural has an s."""
    return f'{count:,} {noun}{"" if count == 1 else "s"}'
