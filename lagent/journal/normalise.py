"""What is equal for a cassette: parts of a call that differ from run to run and mean nothing.

A normaliser makes of what an effect asks for, encoded, what is compared. It is applied to the
recording and to the call alike, so it changes nothing that is written or asked.
"""

import re
from collections.abc import Callable
from typing import Any

Normaliser = Callable[[Any], Any]
"""Makes of an encoded payload (JSON's values) another one."""


def each_text(change: Callable[[str], str]) -> Normaliser:
    """A normaliser that changes every text of a payload, however deep; keys stay as they are.

    Args:
        change: makes of a text another one.

    Returns:
        The normaliser.
    """

    def normalise(tree: Any) -> Any:
        if isinstance(tree, str):
            return change(tree)
        if isinstance(tree, list):
            return [normalise(item) for item in tree]
        if isinstance(tree, dict):
            return {key: normalise(value) for key, value in tree.items()}
        return tree

    return normalise


def replacing(pattern: str, by: str) -> Normaliser:
    """A normaliser that replaces what a regular expression matches.

    Args:
        pattern: the expression.
        by: what stands in its place; may refer to groups.

    Returns:
        The normaliser.
    """
    compiled = re.compile(pattern)
    return each_text(lambda text: compiled.sub(by, text))


def without(*names: str) -> Normaliser:
    """A normaliser that leaves out fields, such as a parameter that holds a number of seconds.

    Args:
        names: keys of dicts, at any depth.

    Returns:
        The normaliser.
    """

    def normalise(tree: Any) -> Any:
        if isinstance(tree, list):
            return [normalise(item) for item in tree]
        if isinstance(tree, dict):
            return {key: normalise(value) for key, value in tree.items() if key not in names}
        return tree

    return normalise


_times = replacing(
    r'\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:Z|[+-]\d\d:?\d\d))?)?'
    r'|\b\d\d:\d\d:\d\d(?:[.,]\d+)?',
    '<time>',
)
_ids = replacing(
    r'\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b'
    r'|\b0x[0-9a-fA-F]{6,16}\b'
    r'|\b(?=[0-9a-f]*\d)(?=\d*[a-f])(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64})\b',
    '<id>',
)
_paths = replacing(r'(?<![\w.:/])/(?:[\w.+@~-]+/)+(?=[\w.+@~-])', '<folder>/')


def times(tree: Any) -> Any:
    """The normaliser for dates and times of day, as ISO 8601 writes them."""
    return _times(tree)


def ids(tree: Any) -> Any:
    """The normaliser for UUIDs, addresses of objects, and digests of 32, 40 or 64 hex digits."""
    return _ids(tree)


def paths(tree: Any) -> Any:
    """The normaliser for the folders of absolute paths; the names of the files count."""
    return _paths(tree)
