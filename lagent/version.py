"""The version of the distribution, and InternLM's helper to read one."""

__version__ = '0.6.0'


def parse_version_info(version_str: str) -> tuple[int | str, ...]:
    """Split a version into comparable parts.

    Args:
        version_str: a version such as ``0.6.0`` or ``0.6.0rc1``.

    Returns:
        The numbers as ints, a release-candidate suffix as ``'rcN'``.
    """
    parts: list[int | str] = []
    for piece in version_str.split('.'):
        number, mark, candidate = piece.partition('rc')
        if number.isdigit():
            parts.append(int(number))
        if mark:
            parts.append(mark + candidate)
    return tuple(parts)


version_info = parse_version_info(__version__)
