"""What an effect asks for as a record; of a conversation that grows only what is new.

A model is asked the whole conversation again with each call. So a long list is written in pieces of
a fixed length, each once by its digest: the list's own encoding names the pieces, and holds only
its last items. Where pieces begin depends on nothing but the place in the list, so that equal lists
are equal records in every process.
"""

import time
from collections.abc import Container
from itertools import chain
from typing import Any, Literal

from lagent.context import RunContext
from lagent.effects import Effect
from lagent.journal.codec import TAG, Encoder, canonical, digest_of
from lagent.journal.contract import Record
from lagent.journal.history import MAIN, TASK
from lagent.journal.redact import Redactor
from lagent.llms.completion import Completion

PIECE = 16  # items; between the bytes of a record and the number of blobs
_MOST_KNOWN = 4_096  # pieces
_TEXTS = {str, Completion}  # written alike where a model is asked

ASIDE = 'aside'
"""The kind of records of what is no effect of an agent, see `lagent.effects.beside`."""


class IntentEncoder:
    """Writes down what effects ask for.

    Args:
        redactor: takes secrets out.
        kept: digests of what the journal has: a piece that is there and was written down before is
            not encoded again.
    """

    def __init__(self, redactor: Redactor, kept: Container[str] = ()) -> None:
        self._redactor, self._kept = redactor, kept
        self._known: dict[Any, str] = {}

    def record(self, effect: Effect) -> tuple[Record, dict[str, bytes]]:
        """The record of an intent, without its position.

        Args:
            effect: the effect.

        Returns:
            The record, and the bytes that it refers to, except those that are kept.

        Raises:
            NotRecordable: the payload can't be written.
        """
        kind = ASIDE if effect.aside else effect.kind
        encoder = Encoder(self._redactor, plain=True)
        payload = effect.payload
        is_long = type(payload) is list and len(payload) > PIECE
        body = self._pieces(payload, encoder) if is_long else encoder.encode(payload)
        name = self._redactor.text(effect.name)
        digest = digest_of(canonical([kind, name, body]).encode())
        record = Record(
            type='intent',
            position='',
            time=time.time(),
            kind=kind,
            name=name,
            digest=digest,
            body=body,
        )
        return record, encoder.blobs

    def _pieces(self, items: list[Any], encoder: Encoder) -> Any:
        end = (len(items) - 1) // PIECE * PIECE  # the last item stays where one can see it
        return {
            TAG: 'pieces',
            'blobs': [
                self._piece(items[start : start + PIECE], encoder) for start in range(0, end, PIECE)
            ],
            'v': [encoder.encode(item) for item in items[end:]],
        }

    def _piece(self, items: list[Any], encoder: Encoder) -> str:
        key = _key(items)
        digest = None if key is None else self._known.get(key)
        if digest is not None and digest in self._kept:
            return digest
        digest = encoder.blob(canonical([encoder.encode(item) for item in items]).encode())
        if key is not None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = digest
        return digest


class PendingEffect:
    """An effect on its way through the journal.

    Args:
        effect: the effect.
        context: the run.
        position: where it stands.
        asked: the record of what it asks for.
        blobs: the bytes that this refers to.
        task: which task asks, see `lagent.journal.history`.

    Attributes:
        number: the task that asks.
        started: when it was begun, on `time.monotonic()`; None as long as it wasn't.
    """

    __slots__ = ('asked', 'blobs', 'context', 'effect', 'number', 'position', 'started')

    def __init__(
        self,
        effect: Effect,
        context: RunContext,
        position: str,
        asked: Record,
        blobs: dict[str, bytes],
        task: int = MAIN,
    ) -> None:
        self.effect, self.context, self.position = effect, context, position
        self.asked, self.blobs = asked, blobs
        self.started: float | None = None
        self.number = task

    @property
    def task(self) -> list[Record]:
        """The note of which task asks for it; none where it is the run's own."""
        if self.number == MAIN:
            return []
        place = f'{TASK}{self.position}'
        return [Record(type='note', position=place, time=time.time(), body=self.number)]

    def record(
        self,
        type_: Literal['intent', 'result', 'error', 'request'],
        body: Any,
        usage: dict[str, int] | None = None,
    ) -> Record:
        """A record about it.

        Args:
            type_: of this type.
            body: what it says, encoded.
            usage: tokens that the effect cost.

        Returns:
            The record.
        """
        is_outcome = self.started is not None and type_ in ('result', 'error')
        return Record(
            type=type_,
            position=self.position,
            time=time.time(),
            kind=self.asked.kind,
            name=self.asked.name,
            digest=self.asked.digest,
            body=body,
            elapsed=time.monotonic() - self.started if is_outcome and self.started else None,
            usage=usage or {},
        )


def _key(items: list[Any]) -> Any:
    """What tells messages of nothing but texts from others; None for anything else."""
    for item in items:
        if type(item) is not dict or not _TEXTS.issuperset(map(type, chain(item, item.values()))):
            return None
    return tuple(tuple(item.items()) for item in items)
