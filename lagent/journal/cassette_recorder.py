"""Records what a run asks the world for, and what it gave, into a cassette."""

from collections.abc import Hashable, Sequence
from contextvars import ContextVar
from threading import Lock
from typing import Any

from lagent._variables import reset
from lagent.context import RunContext
from lagent.effects import Effect
from lagent.flow import Flow
from lagent.journal.cassette import Cassette, Interaction
from lagent.journal.codec import TAG, Encoder, written
from lagent.journal.failures import encode_error
from lagent.journal.redact import Redactor
from lagent.journal.secret_fields import REDACTED

_within: ContextVar[int] = ContextVar('lagent_interaction', default=0)


class CassetteRecorder:
    """The interceptor that records; see `lagent.effects.Interceptor`.

    Args:
        kinds: kinds of effects that are recorded.
        redactor: takes secrets out of what is written.

    Attributes:
        cassette: what was recorded so far.
    """

    def __init__(self, kinds: Sequence[str], redactor: Redactor) -> None:
        self.cassette = Cassette(tuple(kinds))
        self._redactor = redactor
        self._lock = Lock()
        self._cells: dict[tuple[Hashable, str, int], int] = {}

    def __call__(self, effect: Effect, context: RunContext, flow: Flow[Any]) -> Flow[Any]:
        """Perform an effect and record it."""
        if effect.kind not in self.cassette.kinds:
            return (yield from flow)
        asked = self._encode(effect.payload, plain=True)
        name = self._redactor.text(effect.name)
        interaction = Interaction(effect.kind, name, asked, within=_within.get())
        token = _within.set(self._add(interaction, context.session_id))
        try:
            result = yield from flow
        except Exception as error:
            encoder = Encoder(self._redactor)
            interaction.outcome, interaction.body = 'raised', encode_error(error, encoder)
            self.cassette.blobs.update(encoder.blobs)
            raise
        except BaseException as error:
            interaction.body = type(error).__name__
            raise
        finally:
            reset(_within, token)
        interaction.outcome, interaction.body = 'gave', self._encode(result)
        return result

    def finished(self) -> Cassette:
        """What was recorded, with the list of what was not."""
        self.cassette.not_captured = _not_captured(self.cassette)
        return self.cassette

    def _add(self, interaction: Interaction, session: Hashable) -> int:
        with self._lock:
            self.cassette.effects.append(interaction)
            number = len(self.cassette.effects)
            if interaction.kind == 'kernel':
                key = (session, interaction.name, interaction.within)
                interaction.follows = self._cells.get(key, 0)
                self._cells[key] = number
            return number

    def _encode(self, value: Any, *, plain: bool = False) -> Any:
        encoder = Encoder(self._redactor, plain=plain)
        tree = steady(encoder.encode(value))
        self.cassette.blobs.update(encoder.blobs)
        return tree


def steady(tree: Any) -> Any:
    """An encoded value without what differs from recording to recording: how long things took.

    Args:
        tree: what an `Encoder` gave.

    Returns:
        The same without it; completions and results of cells can be read without it, too.
    """
    if isinstance(tree, list):
        return [steady(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.get(TAG) == 'completion':
        return {TAG: 'completion', 'v': _without(tree['v'], 'latency')}
    if tree.get(TAG) == 'cell':
        return {TAG: 'cell', 'v': _timeless(_without(tree['v'], 'timings'))}
    if tree.get(TAG) == 'object' and tree['t'] == 'sandbox.types:FileInfo':
        return {**tree, 'fields': {**tree['fields'], 'modified': 0.0}}
    return {key: steady(value) for key, value in tree.items()}


def _timeless(cell: dict[str, Any]) -> dict[str, Any]:
    files: dict[str, Any] = {
        key: [{**file, 'modified': 0.0} for file in cell[key]]
        for key in ('artifacts', 'full_output')
        if key in cell
    }
    return {**cell, **files}


def _without(values: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name}


_ALWAYS = {
    'model': 'models: how long replies took, and in which pieces they came',
    'tool': 'tools: what they changed outside of the program',
    'kernel': (
        'sandboxes: variables, contents of files, in which pieces output came, and all times'
    ),
}


def _not_captured(cassette: Cassette) -> list[str]:
    found = {effect.kind for effect in cassette.effects}
    words = [text for kind, text in _ALWAYS.items() if kind in found]
    words += [
        f'{kind} calls: they are done again' for kind in _ALWAYS if kind not in cassette.kinds
    ]
    if any(REDACTED in written([effect.asked, effect.body]) for effect in cassette.effects) or any(
        REDACTED.encode() in data for data in cassette.blobs.values()
    ):
        words.append(f'secrets: {REDACTED} stands in their place')
    words += [
        f'effect {number}: it was cut off by {effect.body}'
        for number, effect in enumerate(cassette.effects, start=1)
        if effect.outcome == 'cut'
    ]
    return words
