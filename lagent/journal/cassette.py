"""The file of a cassette: a line of JSON for each effect, and large texts beside it.

::

    {"cassette":1,"kinds":["model","kernel"],"models":[],"not_captured":["..."]}
    {"kind":"model","name":"gpt-4o","asked":[{"role":"user","content":"..."}],"gave":{...}}
    {"kind":"kernel","name":"interpreter","asked":"print(1)","gave":{...}}
    {"kind":"model","name":"gpt-4o","from":1,"asked":[...],"gave":{...}}

Effects are numbered from 1 as they began. ``from`` says that `asked` begins with all that was asked
in that effect; ``follows`` that a cell ran in the session of that one, after it; ``within`` that an
effect was part of that one. An effect has ``gave``, ``raised`` or ``cut``. Texts of 2 KiB and more
are in the folder ``NAME.blobs`` of ``NAME.jsonl``, each in a file that is named after its SHA-256.
Nothing that differs from recording to recording, such as a duration, is kept.
"""

import fcntl
import json
import os
import re
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from lagent.journal.codec import TAG, digest_of, written
from lagent.journal.errors import BadCassette, SchemaTooNew

VERSION = 1
KINDS = ('model', 'tool', 'kernel')
_LARGEST = 64 * 2**20  # bytes of a cassette or a blob: what is beyond was not written for this
_MOST_ASKED = 4_000_000  # messages of all calls together: each may begin with those of another
_DIGEST = re.compile(r'[0-9a-f]{64}')
_OUTCOMES = ('gave', 'raised', 'cut')


@dataclass(slots=True)
class Interaction:
    """A recorded effect.

    Attributes:
        kind: ``'model'``, ``'tool'`` or ``'kernel'``.
        name: which model, tool or interpreter.
        asked: the payload, encoded.
        outcome: ``'gave'``, ``'raised'``, or ``'cut'`` for one that did not come to its end.
        body: the encoded result or exception, or the name of what cut it off.
        follows: of a cell, the effect that is the cell before it in its session; 0 for none.
        within: the effect that it was part of; 0 for none.
        line: where it stands in the file.
    """

    kind: str
    name: str
    asked: Any
    outcome: str = 'cut'
    body: Any = 'the end of the recording'
    follows: int = 0
    within: int = 0
    line: int = 0


@dataclass(slots=True)
class Cassette:
    """What a cassette holds.

    Attributes:
        kinds: kinds of the effects that are recorded; others are done whenever they are asked for.
        models: name of each model that was made for it, and whether it is awaited.
        not_captured: what a replay does not give back, in words.
        effects: the effects as they began.
        blobs: large texts and bytes by digest.
    """

    kinds: tuple[str, ...]
    models: list[dict[str, Any]] = field(default_factory=list)
    not_captured: list[str] = field(default_factory=list)
    effects: list[Interaction] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)


def blobs_of(path: Path) -> Path:
    """The folder with the large texts of a cassette."""
    is_plain = path.suffix == '.jsonl'
    # Another cassette must not have the same: whoever writes one removes what it does not need.
    return path.with_name(f'{path.stem}.blobs' if is_plain else f'{path.name}-blobs')


def digests_in(tree: Any) -> Iterator[str]:
    """The blobs that an encoded value refers to."""
    if isinstance(tree, list):
        for item in tree:
            yield from digests_in(item)
    elif isinstance(tree, dict):
        if tree.get(TAG) in ('text', 'bytes') and isinstance(tree.get('blob'), str):
            yield tree['blob']
        for value in tree.values():
            yield from digests_in(value)


def save(path: Path, cassette: Cassette) -> None:
    """Write a cassette in the place of an older one, as a whole or not at all.

    Args:
        path: the file.
        cassette: what it holds.

    Raises:
        OSError: it can't be written; an older one is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        {
            'cassette': VERSION,
            'kinds': list(cassette.kinds),
            'models': cassette.models,
            'not_captured': cassette.not_captured,
        },
        *_lines(cassette.effects),
    ]
    needed = {digest for line in lines for digest in digests_in(line)}
    folder = blobs_of(path)
    with _locked(path.parent):
        if needed:
            folder.mkdir(exist_ok=True)
        for digest in sorted(needed):
            _replace(folder / digest, cassette.blobs[digest])
        _replace(path, b''.join(map(_bytes, lines)))
        if folder.is_dir():
            for old in folder.iterdir():
                if _DIGEST.fullmatch(old.name) and old.name not in needed:
                    old.unlink()
            if not any(folder.iterdir()):
                folder.rmdir()


def load(path: Path) -> Cassette:
    """Read a cassette.

    Args:
        path: the file.

    Returns:
        What it holds.

    Raises:
        BadCassette: it can't be read, is damaged, or of a version before this one.
        SchemaTooNew: a later version of lagent wrote it.
    """
    reading = _Reading(path)
    lines = reading.contents(path, 1).rstrip().splitlines()
    if not lines:
        raise BadCassette(path, 1, 'the file is empty')
    cassette = reading.head(reading.line(1, lines[0]))
    for number, line in enumerate(lines[1:], start=2):
        effect = reading.effect(number, reading.line(number, line), cassette.effects)
        cassette.effects.append(effect)
    cassette.blobs = reading.blobs
    return cassette


def _lines(effects: list[Interaction]) -> Iterator[dict[str, Any]]:
    for index, effect in enumerate(effects):
        line: dict[str, Any] = {'kind': effect.kind, 'name': effect.name}
        if effect.within:
            line['within'] = effect.within
        if effect.follows:
            line['follows'] = effect.follows
        asked, start = effect.asked, _beginning(effects, index)
        if start:
            line['from'] = start
            asked = asked[len(effects[start - 1].asked) :]
        yield {**line, 'asked': asked, effect.outcome: effect.body}


def _beginning(effects: list[Interaction], index: int) -> int:
    """The latest model call whose messages are the first ones of a call; 0 for none."""
    asked = _conversation(effects[index])
    for number in range(index, 0, -1) if asked else ():
        earlier = _conversation(effects[number - 1])
        if earlier and asked[: len(earlier)] == earlier:
            return number
    return 0


def _conversation(effect: Interaction) -> list[Any]:
    return effect.asked if effect.kind == 'model' and isinstance(effect.asked, list) else []


def _bytes(line: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(line, ensure_ascii=False, separators=(',', ':'), allow_nan=False)
        return f'{text}\n'.encode()
    except UnicodeEncodeError:  # half a character: only an escape can stand for it
        return f'{written(line)}\n'.encode()


def _replace(path: Path, data: bytes) -> None:
    new = path.with_name(f'.{path.name}.{os.getpid()}-{threading.get_ident()}')
    try:
        with new.open('xb') as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One writer of a folder at a time: blobs are shared, and removed when nobody needs them."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class _Reading:
    """Reads a file that anybody may have written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.blobs: dict[str, bytes] = {}
        self._asked = 0

    def contents(self, path: Path, line: int) -> bytes:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, 'rb') as file:  # noqa: PTH123 - it is open already
                info = os.fstat(file.fileno())
                if not stat.S_ISREG(info.st_mode):
                    raise BadCassette(self.path, line, f'{path.name} is no file')
                data = file.read(_LARGEST + 1)
        except OSError as error:
            raise BadCassette(self.path, line, f'{path}: {error.strerror}') from error
        if len(data) > _LARGEST:
            raise BadCassette(self.path, line, f'{path.name} is larger than {_LARGEST} bytes')
        return data

    def line(self, number: int, text: bytes) -> dict[str, Any]:
        try:
            tree = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise BadCassette(self.path, number, f'this is not JSON: {error}') from error
        if not isinstance(tree, dict):
            raise BadCassette(self.path, number, 'this is no JSON object')
        return tree

    def head(self, tree: dict[str, Any]) -> Cassette:
        version = tree.get('cassette')
        if not isinstance(version, int) or isinstance(version, bool):
            raise BadCassette(self.path, 1, 'the first line does not say which version it is of')
        if version > VERSION:
            raise SchemaTooNew(
                f'{self.path} is a cassette of version {version}, and this lagent reads version '
                f'{VERSION}. Update lagent, or record it again.'
            )
        if version < VERSION:
            raise BadCassette(
                self.path, 1, f'it is of version {version}, which this lagent can no longer read'
            )
        kinds, models = tree.get('kinds'), tree.get('models', [])
        self._expect(1, 'kinds', isinstance(kinds, list) and all(kind in KINDS for kind in kinds))
        self._expect(1, 'models', isinstance(models, list) and all(map(_is_model, models)))
        words = tree.get('not_captured', [])
        self._expect(1, 'not_captured', isinstance(words, list))
        return Cassette(tuple(cast('list[str]', kinds)), models, words)

    def effect(self, number: int, tree: dict[str, Any], before: list[Interaction]) -> Interaction:
        self._expect(number, 'kind', tree.get('kind') in KINDS)
        self._expect(number, 'name', isinstance(tree.get('name'), str))
        self._expect(number, 'asked', 'asked' in tree)
        outcomes = [outcome for outcome in _OUTCOMES if outcome in tree]
        self._expect(number, 'gave', len(outcomes) == 1)
        body, asked = tree[outcomes[0]], tree['asked']
        if outcomes[0] == 'raised':
            named = isinstance(body, dict) and isinstance(body.get('type'), str) and 'words' in body
            self._expect(number, 'raised', named)
        follows, within = (
            self._reference(number, key, tree, before) for key in ('follows', 'within')
        )
        if start := self._reference(number, 'from', tree, before):
            first = before[start - 1].asked
            self._expect(number, 'from', isinstance(first, list) and isinstance(asked, list))
            self._asked += len(first) + len(asked)
            self._expect(number, 'from', self._asked <= _MOST_ASKED)
            asked = first + asked
        for digest in digests_in([tree['asked'], body]):
            self._blob(number, digest)
        return Interaction(
            tree['kind'], tree['name'], asked, outcomes[0], body, follows, within, number
        )

    def _reference(
        self, number: int, key: str, tree: dict[str, Any], before: list[Interaction]
    ) -> int:
        value = tree.get(key, 0)
        self._expect(number, key, type(value) is int and 0 <= value <= len(before))
        return cast('int', value)

    def _blob(self, number: int, digest: str) -> None:
        if digest in self.blobs:
            return
        self._expect(number, 'blob', _DIGEST.fullmatch(digest) is not None)
        data = self.contents(blobs_of(self.path) / digest, number)
        if digest_of(data) != digest:
            raise BadCassette(self.path, number, f'the blob {digest[:12]}… was changed')
        self.blobs[digest] = data

    def _expect(self, number: int, key: str, right: bool) -> None:
        if not right:
            raise BadCassette(self.path, number, f'{key!r} is missing or wrong')


def _refuse(constant: str) -> Any:
    raise ValueError(f'{constant} is no number')


def _is_model(tree: Any) -> bool:
    return (
        isinstance(tree, dict)
        and isinstance(tree.get('name'), str)
        and isinstance(tree.get('awaited'), bool)
    )
