"""Tells where a program is given ``[redacted]`` in the place of what it had before."""

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from lagent.journal.codec import TAG
from lagent.journal.secret_fields import REDACTED

_log = logging.getLogger(__name__)
_MOST = 5  # places that are named


def warn_redacted(tree: Any, blob: Callable[[str], bytes], run_id: str, what: str) -> None:
    """Log a warning if something that is given back is not what it was.

    Args:
        tree: it, encoded.
        blob: gives the bytes of a digest.
        run_id: the run.
        what: what is given back, in words.
    """
    places = list(islice(_places(tree, blob, ''), _MOST + 1))
    if places:
        more = ', …' if len(places) > _MOST else ''
        _log.warning(
            'Run %r: %s is given back with %s in %s%s; the code after it sees that and no secret.',
            run_id,
            what,
            REDACTED,
            ', '.join(place or 'its text' for place in places[:_MOST]),
            more,
        )


def _places(tree: Any, blob: Callable[[str], bytes], path: str) -> Iterator[str]:
    if isinstance(tree, str):
        if REDACTED in tree:
            yield path
    elif isinstance(tree, list):
        for number, item in enumerate(tree):
            yield from _places(item, blob, f'{path}[{number}]')
    elif isinstance(tree, dict):
        tag = tree.get(TAG)
        if isinstance(digest := tree.get('blob'), str) and tag in ('text', 'bytes'):
            if REDACTED.encode() in blob(digest):
                yield path
            return
        for key, value in tree.items():
            # Of what an encoded value is made of, only the names of its own parts are told.
            is_own = tag is not None and key in (TAG, 'v', 't', 'fields', 'items')
            within = path if is_own else f'{path}.{key}'.lstrip('.')
            if REDACTED in key:
                yield within
            yield from _places(value, blob, within)
