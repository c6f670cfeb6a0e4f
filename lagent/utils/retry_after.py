"""The header by which a server asks to be left alone for a while."""

import email.utils
import math
import time


def parse_retry_after(value: str | None, now: float | None = None) -> float | None:
    """Read a ``Retry-After`` header (RFC 9110, section 10.2.3).

    Args:
        value: seconds, or an HTTP date.
        now: seconds since the epoch; the present when not given.

    Returns:
        Seconds to wait; None when there is nothing to wait for, or the value is nonsense.
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            until = email.utils.parsedate_to_datetime(value).timestamp()
        except (ValueError, OverflowError):
            return None
        seconds = until - (time.time() if now is None else now)
    return seconds if math.isfinite(seconds) and seconds > 0 else None
