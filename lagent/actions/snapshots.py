"""Copies of a session's variables and files, kept in a run's journal for when its sandbox is gone.

What comes from the sandbox is cut into pieces here and never read: only a sandbox unpickles it.
"""

import json
import time
from collections.abc import Container, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from lagent.actions import snapshot_guest
from lagent.flow import Flow, call
from sandbox import FileRefused, SandboxError

MIB = 2**20
MOST_BYTES, MOST_OF_ONE = 32 * MIB, 16 * MIB
"""Bytes that are kept of all variables, and of one."""
MOST_FILES, MOST_FILE_BYTES = 200, 16 * MIB
SECONDS = 5.0
"""How long keeping, or restoring, variables may take; files have the same time again."""

_FILE = '.lagent-snapshot'
_MOST_TOLD = MIB  # bytes of what a sandbox says of its entries
_SLACK = 5.0  # seconds for the cell to begin and to end
_SHOWN, _LONGEST = 30, 160  # names of one kind in a notice, and characters of each
_KINDS = ('module', 'source', 'value')

Note = dict[str, Any]
EMPTY: Note = {
    'kept': [],
    'lost': [],
    'more': 0,
    'files': [],
    'lost_files': [],
    'more_files': 0,
}


class NoSnapshot(Exception):
    """The sandbox gave no snapshot.

    Attributes:
        why: what went wrong.
        news: what the sandbox had to say of its own state.
    """

    def __init__(self, why: str, news: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.why, self.news = why, news


class Files:
    """Reads the files of a session, those that have changed since the last time."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[tuple[int, float], Note]] = {}

    def keep(
        self, box: Any, only: Container[str] | None = None
    ) -> Flow[tuple[list[Note], list[str]]]:
        """Read what there is room for.

        Args:
            box: the sandbox.
            only: read these paths; all by default.

        Returns:
            The files; and the paths of those that are left out.
        """
        deadline = time.monotonic() + SECONDS
        before, self._seen = self._seen, {}
        left, lost = MOST_FILE_BYTES, []
        try:
            infos = yield from call(box.files)
        except FileRefused as error:
            return [], [f'all ({error.message})']
        for info in infos:
            if only is not None and info.path not in only:
                continue
            known = (info.size, info.modified)
            is_too_much = info.size > left or len(self._seen) == MOST_FILES
            if info.kind != 'file' or is_too_much or time.monotonic() > deadline:
                lost.append(info.path)
                continue
            if info.path in before and before[info.path][0] == known:
                entry = before[info.path][1]
            else:
                try:
                    data = yield from call(box.read, info.path, max_bytes=left)
                except FileRefused:
                    lost.append(info.path)
                    continue
                entry = {'path': info.path, **_sealed(data)}
            self._seen[info.path] = (known, entry)
            left -= len(entry['data'])
        return [entry for _, entry in self._seen.values()], lost


def keep(box: Any, files: Files, seconds: float = SECONDS) -> Flow[tuple[Note, tuple[str, ...]]]:
    """Copy the variables and files of a sandbox.

    Args:
        box: the sandbox.
        files: what is known of its files.
        seconds: how long pickling the variables may take.

    Returns:
        What to write down, and what the sandbox had to say of its own state.

    Raises:
        NoSnapshot: it gave none.
    """
    most = max(0, min(MOST_BYTES, box.policy.max_file_bytes - _MOST_TOLD))
    limits = f"'save', {_FILE!r}, {seconds!r}, {most}, {MOST_OF_ONE}"
    answer, news = yield from _exchange(box, b'', limits, seconds, most + _MOST_TOLD)
    try:
        kept, lost, more = _parsed(answer)
        there, gone = yield from files.keep(box)
    except NoSnapshot as error:
        raise NoSnapshot(error.why, news) from None
    except SandboxError as error:
        raise NoSnapshot(error.message, news) from None
    told = gone[: snapshot_guest.MOST]
    about_files = {'files': there, 'lost_files': told, 'more_files': len(gone) - len(told)}
    return {'kept': kept, 'lost': lost, 'more': more, **about_files}, news


def restore(box: Any, note: Note) -> Flow[tuple[str, bool]]:
    """Put a copy into a new sandbox.

    Args:
        box: the sandbox.
        note: what `keep` has given, read from a journal.

    Returns:
        What was restored and what was not, in words; and whether all of it was.
    """
    lost_files, files = set(note['lost_files']), []
    for entry in note['files']:
        if not is_whole(entry):
            lost_files.add(entry['path'])
            continue
        try:
            yield from call(box.upload, entry['data'], name=entry['path'])
            files.append(entry['path'])
        except FileRefused:
            lost_files.add(entry['path'])
    if lost_files:  # those that every new sandbox is given are there
        lost_files -= {info.path for info in (yield from call(box.files))}
    whole = [entry for entry in note['kept'] if is_whole(entry)]
    lost = list(note['lost'])
    lost += [
        {**entry, 'reason': 'it held a secret, which the journal does not keep'}
        for entry in note['kept']
        if not is_whole(entry)
    ]
    failed = yield from _load(box, whole)
    is_back = {name for entry in whole for name in entry['names']}
    is_back -= {name for entry in failed for name in entry['names']}
    lost += failed
    words = [
        listed('Restored', [e for e in _told(whole) if e.partition(' ')[0] in is_back]),
        listed('Not restored', _told(lost), note['more']),
        listed('Files restored', files),
        listed('Files lost', sorted(lost_files), note['more_files']),
    ]
    is_all = not (lost or lost_files or note['more'] or note['more_files'])
    return ' '.join(filter(None, words)), is_all


def _load(box: Any, entries: list[Note]) -> Flow[list[Note]]:
    """Make variables again; return those that could not be, with reasons."""
    if not entries:
        return []
    about = [{**entry, 'data': '', 'size': len(entry['data'])} for entry in entries]
    text = json.dumps({'kept': about}).encode()
    data = b''.join(entry['data'] for entry in entries) + text + len(text).to_bytes(8, 'big')
    try:
        answer, _ = yield from _exchange(
            box, data, f"'restore', {_FILE!r}, {SECONDS!r}", SECONDS, _MOST_TOLD
        )
        return _parsed(answer)[1]
    except NoSnapshot as error:
        return [{**entry, 'reason': error.why} for entry in entries]


def _exchange(
    box: Any, data: bytes, arguments: str, seconds: float, most: int
) -> Flow[tuple[bytes, tuple[str, ...]]]:
    """Give the guest's half a file, and read what it has made of it."""
    source = f'{_guest_source()}\nmain({arguments})\n'
    code = f"exec(compile({source!r}, '<snapshot>', 'exec'), {{'__name__': 'snapshot'}})"
    news: tuple[str, ...] = ()
    try:
        yield from call(box.upload, data, name=_FILE)
        result = yield from call(box.execute, code, timeout=seconds + _SLACK)
        news = () if result.state_preserved else result.notices
        if not result.ok:
            said = result.error.name if result.error else result.outcome.value
            raise NoSnapshot(f'the sandbox could not do it ({said[:100]})', news)
        answer = yield from call(box.read, _FILE, max_bytes=most)
        yield from call(box.delete, _FILE)
    except SandboxError as error:
        raise NoSnapshot(error.message, news) from None
    return answer, news


def _guest_source() -> str:
    return Path(snapshot_guest.__file__).read_text()


def _parsed(answer: bytes) -> tuple[list[Note], list[Note], int]:
    """The entries of a snapshot, with their data, and those that are left out; it is hostile."""
    size = int.from_bytes(answer[-8:], 'big')
    end = len(answer) - 8
    if not 0 < size <= min(end, _MOST_TOLD):
        raise NoSnapshot('the sandbox gave no snapshot')
    try:
        tree = json.loads(answer[end - size : end])
        kept, lost = [_entry(each) for each in tree['kept']], list(map(_lost, tree['lost']))
        sizes = [int(each['size']) for each in tree['kept']]
        more = max(0, int(tree['more']))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        raise NoSnapshot('the sandbox gave something else than a snapshot') from None
    most = snapshot_guest.MOST
    if min(sizes, default=0) < 0 or sum(sizes) != end - size or max(len(kept), len(lost)) > most:
        raise NoSnapshot('the sandbox gave a snapshot whose sizes are wrong')
    start = 0
    for entry, length in zip(kept, sizes, strict=True):
        entry.update(_sealed(answer[start : start + length]))
        start += length
    return kept, lost, more


def _entry(tree: Any) -> Note:
    if tree['kind'] not in _KINDS:
        raise ValueError
    return {**_named(tree), 'kind': tree['kind']}


def _lost(tree: Any) -> Note:
    return {**_named(tree), 'reason': _text(tree['reason'])}


def _named(tree: Any) -> Note:
    if not isinstance(tree['names'], list) or not tree['names']:
        raise ValueError
    return {'names': [_text(name) for name in tree['names']], 'type': _text(tree['type'])}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return _printable(value[: snapshot_guest.LONGEST])


def _printable(text: str) -> str:
    return ''.join(c if c.isprintable() else ' ' for c in text)


def _sealed(data: bytes) -> Note:
    # Journals replace secrets: what is not as it was when it is read must not be used.
    return {'data': data, 'digest': sha256(data).hexdigest()}


def is_whole(entry: Note) -> bool:
    """Whether data that was read from a journal is what was written."""
    return bool(sha256(entry['data']).hexdigest() == entry['digest'])


def _told(entries: Iterable[Note]) -> Iterator[str]:
    for entry in entries:
        why = f': {entry["reason"]}' if 'reason' in entry else ''
        for name in entry['names']:
            yield f'{name} ({entry["type"]}{why})'


def listed(title: str, items: Iterable[str], more: int = 0) -> str:
    """A sentence with some names, as many as a model needs to see; ``''`` for none."""
    listed = [_printable(item[:_LONGEST]) for item in items]
    more += len(listed[_SHOWN:])
    if not listed and not more:
        return ''
    rest = [f'and {more:,} more'] if more else []
    return f'{title}: {", ".join([*listed[:_SHOWN], *rest])}.'
