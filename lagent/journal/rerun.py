"""A recorded run once more, from its journal alone: nothing is done, and nothing is written."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

from lagent._variables import reset
from lagent.context import RunContext
from lagent.effects import Effect, Stage, intercept, offline, publish_replayed
from lagent.errors import JournalError, RunSuspended
from lagent.flow import Flow, blocking_call, call
from lagent.journal.cassette import KINDS
from lagent.journal.codec import Decoder, Encoder
from lagent.journal.contract import Journal, Run
from lagent.journal.difference import differing, diverged, pretty, summary, text_of
from lagent.journal.errors import (
    Diverged,
    EndedOtherwise,
    NotCaptured,
    RecordedFailure,
    Unfinished,
)
from lagent.journal.failures import decode_error, encode_error
from lagent.journal.history import History, pause
from lagent.journal.intents import IntentEncoder
from lagent.journal.recording import unrecorded
from lagent.journal.redact import Redactor
from lagent.journal.validation import records_of
from lagent.positions import Scope, current_scope, entered, passed

_rerunning: ContextVar[bool] = ContextVar('lagent_rerunning', default=False)


@contextmanager
def nothing_done() -> Iterator[None]:
    """Refuse whatever asks the world inside of the block; models are made without their keys.

    Raises:
        NotCaptured: something is asked for that no journal holds.
    """
    token = _rerunning.set(True)
    try:
        with offline(KINDS), intercept(_refuse, Stage.CASSETTE):
            yield
    finally:
        reset(_rerunning, token)


def is_rerunning() -> bool:
    """Whether the calling code is part of a run that only its journal answers."""
    return _rerunning.get()


def _refuse(effect: Effect, _context: RunContext, _flow: Flow[Any]) -> Flow[Any]:
    yield from ()
    raise NotCaptured(
        f'A run is answered by its journal alone, and {effect.name!r} is asked for outside of it. '
        'The journal has what was done within the run; what a session had before comes from there '
        "as well. Leave this out where lagent.effects.is_offline('kernel')."
    )


class Rerun:
    """The interceptor that answers every effect of a recorded run, and does none.

    It never calls what does an effect, so there is no way past it to a model or a sandbox.

    Args:
        journal: where the run is recorded; it is only read.
        run: the run.
        redactor: takes out of what is asked what was taken out of what is recorded.
    """

    def __init__(self, journal: Journal, run: Run, redactor: Redactor | None = None) -> None:
        self.run, self._journal = run, journal
        self._redactor = redactor or Redactor()
        self._kept: set[str] = set()
        self._intents = IntentEncoder(self._redactor, self._kept)
        self._decoder = Decoder(journal.blob)
        self._history = History(records_of(journal, run.id))
        self._over: JournalError | RunSuspended | None = None

    @contextmanager
    def active(self) -> Iterator[None]:
        """Answer the effects of the ``with`` block."""
        with (
            unrecorded(),
            nothing_done(),
            intercept(self, Stage.JOURNAL),
            entered(Scope(self.run.id)),
        ):
            yield

    def __call__(self, effect: Effect, context: RunContext, flow: Flow[Any]) -> Flow[Any]:
        """Give what is known of an effect; see `lagent.effects.Interceptor`.

        Raises:
            Diverged: the journal says that something else was done here.
            Unfinished: the journal does not say how it ended.
            RunSuspended: the run waits for a decision about it.
        """
        if self._over is not None:
            raise self._over
        try:
            return (yield from self._answer(effect, context))
        except (JournalError, RunSuspended) as error:
            # Code that catches whatever it can must not go on with what is not known.
            self._over = error
            raise

    def check_end(self) -> None:
        """Refuse to end otherwise than after all that is recorded.

        Raises:
            Diverged: an effect is recorded that was not asked for.
            Unfinished: an effect has no outcome, and the code has caught the error.
            RunSuspended: likewise, for one that waits for a decision.
        """
        self._check_end(None)

    def check_answer(self, answer: Any) -> None:
        """Compare what the run gives with what it gave.

        Args:
            answer: what it gives now.

        Raises:
            EndedOtherwise: it is something else.
            Unfinished: the journal does not say what it gave.
        """
        outcome = self._outcome()
        if 'error' in outcome:
            raise EndedOtherwise(self._words(outcome), self._text(answer))
        recorded = self._decoder.decode(outcome['answer'])
        if self._compared(recorded) != self._compared(answer):
            before, after = self._text(recorded), self._text(answer)
            if before == after:  # what differs is not in the words
                before, after = pretty(self._compared(recorded)), pretty(self._compared(answer))
            raise EndedOtherwise(before, after, differing(before, after))

    def check_failure(self, error: Exception) -> None:
        """Compare the failure of a run with how it ended.

        Args:
            error: what its code has raised now.

        Raises:
            Diverged: it came earlier, or the run did not end with it.
            Unfinished: the journal does not say how it ended.
        """
        now = _failure(encode_error(error, Encoder(self._redactor)), error)
        self._check_end(f'the run fails with {now}')
        outcome = self._outcome()
        before = self._words(outcome)
        if 'error' not in outcome or before != now:
            raise EndedOtherwise(before, now)

    def _check_end(self, ending: str | None) -> None:
        if self._over is not None:
            raise self._over
        entry = self._history.left_over()
        if entry is not None:
            recorded = summary(entry.intent, partial(self._text_of, {}))
            raise Diverged(entry.intent.position, recorded, ending)

    def _answer(self, effect: Effect, context: RunContext) -> Flow[Any]:
        scope = current_scope() or Scope(self.run.id)
        asked, blobs = self._intents.record(effect)
        text = partial(self._text_of, blobs)
        position, entry = self._history.take(scope, asked.digest)
        passed(scope, position)
        if entry is None and self.run.status != 'done':
            raise self._unfinished(position, summary(asked, text))
        if entry is None or entry.intent.digest != asked.digest:
            recorded = None if entry is None else entry.intent
            raise diverged(position, recorded, asked, text)
        self._kept.update(blobs)  # the journal has what is asked for as it was recorded
        outcome = entry.outcome
        if outcome is None:
            if waiting := [entry.requests[why] for why in entry.requests.keys() - entry.decisions]:
                request = f'{effect.kind} call {effect.name!r} ({waiting[0].body["words"]})'
                raise RunSuspended(self.run.id, position, request)
            raise self._unfinished(position, summary(asked, text))
        if entry.was_cut_off:
            yield from call(pause, entry.seconds_to_a_cut or 0.0)
            raise self._unfinished(position, summary(asked, text))
        self._history.replayed(position)
        failed = outcome.type == 'error'
        decode = partial(decode_error, decoder=self._decoder) if failed else self._decoder.decode
        known = yield from blocking_call(decode, outcome.body)
        publish_replayed(effect, context, outcome.elapsed or 0.0, known, failed=failed)
        if failed:
            raise known
        return known

    def _unfinished(self, position: str, asked: str | None) -> Unfinished:
        return Unfinished(self.run.id, self.run.status, f'effect {position} ({asked})')

    def _outcome(self) -> dict[str, Any]:
        if self.run.status not in ('done', 'failed') or not self.run.outcome:
            raise Unfinished(self.run.id, self.run.status, 'the end of the run')
        outcome: dict[str, Any] = self.run.outcome
        return outcome

    def _words(self, outcome: dict[str, Any]) -> str:
        if (error := outcome.get('error')) is not None:
            return f'{error["type"]}: {self._decoder.decode(error["words"])}'
        return self._text(self._decoder.decode(outcome['answer']))

    def _compared(self, answer: Any) -> Any:
        """What makes an answer: not what a stream or a program says about it besides."""
        fields = ('sender', 'content', 'formatted', 'type')
        told = {name: getattr(answer, name) for name in fields if hasattr(answer, name)} or answer
        return Encoder(self._redactor, plain=True).encode(told)

    def _text(self, answer: Any) -> str:
        return pretty(getattr(answer, 'content', answer))

    def _text_of(self, blobs: Mapping[str, bytes], body: Any) -> str:
        return text_of(body, blobs, self._journal.blob)


def _failure(tree: dict[str, Any], error: Exception) -> str:
    if isinstance(error, RecordedFailure):
        return str(error)
    return f'{tree["type"]}: {error}'
