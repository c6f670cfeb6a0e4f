"""Characters that a text from a sandbox must not bring to a model, a terminal or a log."""

import re

_CONTROLS = re.compile(
    r'[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]'
)


def without_controls(text: str) -> str:
    """Replace what cannot be seen.

    Args:
        text: any text.

    Returns:
        The text with U+FFFD for control characters other than tab and line feed, for other ends of
        lines, marks that turn the direction of writing, and halves of surrogate pairs.
    """
    return _CONTROLS.sub('\ufffd', text)
