"""Gives what a cassette holds in the place of what a run asks the world for."""

from asyncio import CancelledError
from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from lagent.context import RunContext
from lagent.effects import Effect, publish_replayed
from lagent.errors import JournalError
from lagent.flow import Flow, call
from lagent.journal.cassette import Cassette, Interaction
from lagent.journal.cassette_recorder import steady
from lagent.journal.codec import TAG, Decoder, Encoder, canonical, digest_of
from lagent.journal.difference import differing, pretty
from lagent.journal.errors import BadCassette, NotReadable, NotRecorded, OutputsDiffer, Unused
from lagent.journal.failures import decode_error, encode_error
from lagent.journal.history import pause
from lagent.journal.normalise import Normaliser
from lagent.journal.redact import Redactor

_LONGEST_TIMEOUT = 60.0  # seconds that a call which was cut off is waited for to be cut off again


class CassettePlayer:
    """The interceptor that plays a cassette; see `lagent.effects.Interceptor`.

    A call is known by what it asks for: kind, name and payload after the normalisers. A cell of
    code is known by the cells before it in its session as well, as its result depends on them. Of
    several recordings that are the same the first one is given first. A call that was cancelled, as
    by a timeout of the code around it, lasts until it is cancelled again.

    Args:
        path: the cassette, for errors.
        cassette: what it holds.
        normalisers: applied to what is recorded and what is asked before they are compared.
        redactor: takes secrets out of what is asked.
        strict: execute cells again, and compare what they give.
    """

    def __init__(
        self,
        path: Path,
        cassette: Cassette,
        normalisers: Sequence[Normaliser],
        redactor: Redactor,
        *,
        strict: bool = False,
    ) -> None:
        self._path, self._cassette, self._strict = path, cassette, strict
        self._normalisers, self._redactor = normalisers, redactor
        self._decoder = Decoder(self._blob)
        self._lock = Lock()
        self._last: dict[tuple[Hashable, str], str] = {}
        self._waiting: dict[str, deque[int]] = defaultdict(deque)
        self._asked: list[Any] = []
        self._differences: list[str] = []
        self._over: JournalError | None = None
        self._index()

    def __call__(self, effect: Effect, context: RunContext, flow: Flow[Any]) -> Flow[Any]:
        """Give what is recorded of an effect.

        Raises:
            NotRecorded: nothing is.
            BadCassette: it can't be read.
        """
        if effect.kind not in self._cassette.kinds:
            return (yield from flow)
        with self._known_only():
            interaction = self._take(effect, context.session_id)
        if interaction.outcome == 'cut' and interaction.body == CancelledError.__name__:
            yield from call(pause, _LONGEST_TIMEOUT)
        with self._known_only():
            known = self._outcome(interaction)
        failed = interaction.outcome == 'raised'
        if self._strict and effect.kind == 'kernel':
            yield from self._again(interaction, flow)
        else:
            publish_replayed(effect, context, 0.0, known, failed=failed)
        if failed:
            raise known
        return known

    @contextmanager
    def _known_only(self) -> Iterator[None]:
        """One call at a time; after the first that is not recorded, none."""
        with self._lock:
            if self._over is not None:
                raise self._over
            try:
                yield
            except JournalError as error:
                # Code that catches whatever it can must not go on with what is not recorded.
                self._over = error
                raise

    @property
    def over(self) -> JournalError | None:
        """The error that ended the replay, also where the code has caught it."""
        return self._over

    def check_end(self) -> None:
        """Refuse to end a replay that was not what is recorded.

        Raises:
            NotRecorded: a call was not recorded, and the code has caught the error.
            OutputsDiffer: cells gave something else when they were executed again.
        """
        if self._over is not None:
            raise self._over
        if self._differences:
            raise OutputsDiffer(self._path, self._differences)

    def unused(self) -> Unused | None:
        """The error that says what was recorded and not asked for; None if all was."""
        left = self._left()
        return Unused(self._path, [self._line(number) for number in left]) if left else None

    def _index(self) -> None:
        keys: list[str] = []
        for number, interaction in enumerate(self._cassette.effects, start=1):
            try:
                asked = self._normal(interaction.asked, self._cassette.blobs)
                before = keys[interaction.follows - 1] if interaction.follows else ''
                keys.append(_key(interaction.kind, interaction.name, asked, before))
            except (ValueError, RecursionError, KeyError) as error:
                reason = f"'asked' can't be read: {error}"
                raise BadCassette(self._path, interaction.line, reason) from error
            self._asked.append(asked)
            if not interaction.within:
                self._waiting[keys[-1]].append(number)
        self._known = set(self._waiting)

    def _take(self, effect: Effect, session: Hashable) -> Interaction:
        encoder = Encoder(self._redactor, plain=True)
        tree = steady(encoder.encode(effect.payload))
        asked = self._normal(tree, encoder.blobs)
        name = self._redactor.text(effect.name)
        place = (session, name)
        before = self._last.get(place, '') if effect.kind == 'kernel' else ''
        key = _key(effect.kind, name, asked, before)
        if not self._waiting[key]:
            brief = _brief(effect.kind, name, asked)
            raise NotRecorded(self._path, brief, self._why(effect, name, asked, key))
        if effect.kind == 'kernel':
            self._last[place] = key
        return self._cassette.effects[self._waiting[key].popleft() - 1]

    def _why(self, effect: Effect, name: str, asked: Any, key: str) -> str:
        if key in self._known:
            return 'It is recorded, but not as often as it was made.'
        left = self._left()
        if not left:
            return 'All that is recorded was asked for already.'
        calls = {number: self._cassette.effects[number - 1] for number in left}
        for number, interaction in calls.items():
            same = interaction.kind == effect.kind and interaction.name == name
            if same and self._asked[number - 1] == asked:
                return f'The same code is in {self._line(number)}\nOther cells ran before it there.'
        nearest = next((number for number in left if calls[number].kind == effect.kind), left[0])
        reason = f'What is recorded comes next: {self._line(nearest)}'
        if calls[nearest].kind != effect.kind:
            return reason
        lines = differing(pretty(self._asked[nearest - 1]), pretty(asked))
        return '\n'.join([reason, *(f'  {line}' for line in lines)])

    def _left(self) -> list[int]:
        return sorted(number for numbers in self._waiting.values() for number in numbers)

    def _line(self, number: int) -> str:
        recorded = self._cassette.effects[number - 1]
        brief = _brief(recorded.kind, recorded.name, self._asked[number - 1])
        return f'line {recorded.line}: {brief}'

    def _outcome(self, interaction: Interaction) -> Any:
        if interaction.outcome == 'cut':
            raise BadCassette(
                self._path,
                interaction.line,
                'this call was cut off when it was recorded '
                f'({str(interaction.body)[:80]}), and has no result',
            )
        decode = self._decoder.decode
        if interaction.outcome == 'raised':
            decode = partial(decode_error, decoder=self._decoder)
        try:
            return decode(interaction.body)
        except Exception as error:
            # Whoever has written the file may have written anything, for codecs of anybody.
            raise BadCassette(self._path, interaction.line, f"it can't be read: {error}") from error

    def _again(self, interaction: Interaction, flow: Flow[Any]) -> Flow[None]:
        """Execute a cell, and compare what it gives with what is recorded."""
        encoder = Encoder(self._redactor)
        try:
            result = yield from flow
        except JournalError:
            raise
        except Exception as error:  # noqa: BLE001 - it is compared with what is recorded
            now = 'raised', encode_error(error, encoder)
        else:
            now = 'gave', steady(encoder.encode(result))
        before = self._shown(interaction.outcome, interaction.body, self._cassette.blobs)
        after = self._shown(*now, encoder.blobs)
        if before != after:
            lines = [f'  {line}\n' for line in differing(before, after)]
            brief = _brief(interaction.kind, interaction.name, interaction.asked)
            self._differences.append(f'line {interaction.line}: {brief}\n{"".join(lines)}')

    def _shown(self, outcome: str, body: Any, blobs: Mapping[str, bytes]) -> str:
        body = self._normal(body, blobs)
        if isinstance(body, dict) and body.get(TAG) == 'cell':
            # The count is that of the kernel, which may have been another one then.
            shown = {key: value for key, value in body['v'].items() if key != 'execution_count'}
        else:
            shown = {outcome: body}
        return pretty(shown)

    def _normal(self, tree: Any, blobs: Mapping[str, bytes]) -> Any:
        tree = _whole(tree, blobs)
        for normaliser in self._normalisers:
            tree = normaliser(tree)
        return tree

    def _blob(self, digest: str) -> bytes:
        try:
            return self._cassette.blobs[digest]
        except KeyError:
            raise NotReadable(f'there is no blob {digest!r}') from None


class MissingCassette:
    """Stands for a cassette that is not there: it refuses the first call, or the end of its block.

    Until then nothing is missing: a test may yet find that it is to be skipped.

    Args:
        error: says so.
        kinds: kinds of effects that it would have.

    Attributes:
        over: the error, once something was missing.
    """

    def __init__(self, error: BadCassette, kinds: Sequence[str]) -> None:
        self.error = error
        self.over: JournalError | None = None
        self._kinds = kinds

    def __call__(self, effect: Effect, context: RunContext, flow: Flow[Any]) -> Flow[Any]:
        """Refuse an effect.

        Raises:
            BadCassette: there is no cassette.
        """
        if effect.kind not in self._kinds:
            return (yield from flow)
        self.over = self.error
        raise self.error

    def check_end(self) -> None:
        """Refuse to end.

        Raises:
            BadCassette: there is no cassette.
        """
        raise self.error

    def unused(self) -> None:
        """Nothing is left."""


def _key(kind: str, name: str, asked: Any, before: str) -> str:
    return digest_of(canonical([kind, name, asked, before]).encode())


def _whole(tree: Any, blobs: Mapping[str, bytes]) -> Any:
    """An encoded value with its large texts in it."""
    if isinstance(tree, list):
        return [_whole(item, blobs) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.get(TAG) == 'text':
        return blobs[tree['blob']].decode('utf-8', 'surrogatepass')
    return {key: _whole(value, blobs) for key, value in tree.items()}


def _brief(kind: str, name: str, asked: Any) -> str:
    """A call in a line; of a conversation its last message."""
    if kind == 'model' and isinstance(asked, list) and asked:
        asked = asked[-1]
    if isinstance(asked, dict) and 'content' in asked:
        asked = asked['content']
    text = ' '.join(pretty(asked).split())
    return f'{kind} {name!r}: {text if len(text) <= 100 else f"{text[:99]}…"}'
