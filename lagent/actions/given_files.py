"""Files that a program has given to a session, kept in a run's journal for a new sandbox.

What there is room for is kept as it is in the sandbox. Of a larger file that came from the host's
disk its place there and its digest are kept: it is given again if it is still the same.
"""

import hashlib
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lagent.actions import snapshots
from lagent.flow import Flow, blocking_call, call
from sandbox import FileRefused

Sources = Mapping[str, Path | None]
"""Paths in the sandbox, and of each where it came from; None for bytes of the program."""

_LARGE = 'it is too large to be kept'


class Restored(NamedTuple):
    """What became of them in a new sandbox.

    Attributes:
        there: paths of those that are there.
        lost: the others, each with a reason.
    """

    there: list[str]
    lost: list[str]

    @property
    def words(self) -> str:
        """The same for the model; ``''`` where there is nothing to tell."""
        return ' '.join(
            filter(
                None,
                [
                    snapshots.listed('Files that were given to the session are there', self.there),
                    snapshots.listed('Given files that are lost', self.lost),
                ],
            )
        )


def keep(box: Any, files: snapshots.Files, given: Sources) -> Flow[list[dict[str, Any]]]:
    """What to write down of the files, as they are now.

    Args:
        box: the sandbox.
        files: what is known of their contents.
        given: the files.

    Returns:
        An entry for each that is there.
    """
    kept, left_out = yield from files.keep(box, given)
    entries = [*kept]
    for path in left_out:
        source = given.get(path)
        digest = None if source is None else (yield from blocking_call(_digest, source))
        place = {} if digest is None else {'source': str(source), 'digest': digest}
        entries.append({'path': path, **place})
    return entries


def restore(box: Any, entries: list[dict[str, Any]], there: Container[str]) -> Flow[Restored]:
    """Give the files to a new sandbox.

    Args:
        box: the sandbox.
        entries: what `keep` gave, read from a journal.
        there: paths that this process has given it; what is recorded takes their place.

    Returns:
        What became of them.
    """
    restored = Restored([], [])
    for entry in entries:
        path = entry['path']
        reason = yield from _give(box, entry)
        if reason and ('source' in entry or path not in there):
            restored.lost.append(f'{path} ({reason})')
        else:
            restored.there.append(path)
    return restored


def _give(box: Any, entry: dict[str, Any]) -> Flow[str]:
    """Give one file, or say why not."""
    content: Any = entry.get('data')
    if content is None:
        if 'source' not in entry:
            return _LARGE
        content = Path(entry['source'])
        if (yield from blocking_call(_digest, content)) != entry['digest']:
            return f'{_LARGE}, and {content} is not there or another file now'
    elif not snapshots.is_whole(entry):
        return 'it holds a secret, which the journal does not keep'
    try:
        yield from call(box.upload, content, name=entry['path'])
    except FileRefused as error:
        return error.message
    return ''


def _digest(path: Path) -> str | None:
    try:
        with path.open('rb') as file:
            return hashlib.file_digest(file, 'sha256').hexdigest()
    except OSError:
        return None
