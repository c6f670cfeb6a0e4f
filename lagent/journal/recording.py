"""The journal's place in the chain of an effect: what is known is given back, the rest recorded."""

import time
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, Literal

from lagent._variables import reset
from lagent.context import RunContext
from lagent.effects import Effect, Ended, Stage, intercept, is_not_begun, publish_replayed
from lagent.errors import (
    CONTROL_ERRORS,
    EffectRejected,
    JournalError,
    LagentError,
    NotDone,
    OutcomeUnknown,
    RunSuspended,
)
from lagent.flow import Flow, blocking_call, call
from lagent.journal.codec import Decoder, Encoder
from lagent.journal.contract import Journal, Record, Run, Status
from lagent.journal.difference import diverged, text_of
from lagent.journal.error_tracker import ErrorTracker
from lagent.journal.errors import NothingToDecide
from lagent.journal.failures import decode_error, encode_error
from lagent.journal.history import MAIN, THREAD, Asker, Entry, History, asker, pause
from lagent.journal.intents import IntentEncoder, PendingEffect
from lagent.journal.lease import LEASE, Heartbeat, release_owner
from lagent.journal.redact import Redactor
from lagent.journal.redacted import warn_redacted
from lagent.journal.validation import records_of
from lagent.positions import Scope, came_before, current_scope, entered, passed

OnUnknown = Literal['tell', 'suspend']
Approver = Callable[[Effect, RunContext], str | None]
"""Why an effect needs a yes before it is done; None if it needs none."""


class Recording:
    """One attempt to execute a recorded run, which holds the run's lease.

    Args:
        journal: where the run is recorded.
        run: the run.
        owner: who executes it, see `lagent.journal.lease`.
        approval: says which effects need a yes; the run is suspended before them.
        on_unknown: what happens to an effect that was begun, of which nobody knows whether it
            ended, and that must not be done twice: ``'tell'`` raises `OutcomeUnknown`, which tools
            and interpreters tell the model; ``'suspend'`` leaves it to a person.
        redactor: takes secrets out of what is written.

    Attributes:
        run: the run, as it was when the attempt began.
    """

    def __init__(
        self,
        journal: Journal,
        run: Run,
        owner: str,
        *,
        approval: Approver | None = None,
        on_unknown: OnUnknown = 'tell',
        redactor: Redactor | None = None,
    ) -> None:
        self.journal, self.run = journal, run
        self._owner, self._approval, self._on_unknown = owner, approval, on_unknown
        self._redactor = redactor or Redactor()
        self._decoder = Decoder(journal.blob)
        self._history = History(records_of(journal, run.id), (run.outcome or {}).get('ended_by'))
        self._errors = ErrorTracker()
        self._over: LagentError | None = None
        self._kept: set[str] = set()
        self._main: Any = None
        self._has_done = False
        self._intents = IntentEncoder(self._redactor, self._kept)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Record the effects of the ``with`` block, and keep the lease meanwhile."""
        heartbeat = Heartbeat(self._renew)
        self._main = asker()
        token = _recording.set(self)
        try:
            with intercept(self, Stage.JOURNAL), entered(Scope(self.run.id)):
                yield
        finally:
            heartbeat.stop()
            reset(_recording, token)

    def __call__(self, effect: Effect, context: RunContext, flow: Flow[Any]) -> Flow[Any]:
        """Perform an effect, or give what is known of it; see `lagent.effects.Interceptor`.

        Raises:
            Diverged: the journal says that something else was done here.
            RunSuspended: the effect needs a decision.
            OutcomeUnknown: it was begun in an earlier attempt, and nothing says how it ended.
            EffectRejected: somebody decided that it must not be done.
            NotRecordable: the payload or the result can't be written.
            JournalUnavailable: the journal can't be written.
        """
        if _recording.get() is not self:
            return (yield from flow)  # it belongs to a run inside of this one, which records it
        if self._over is not None:
            raise self._over
        try:
            return (yield from self._through(effect, context, flow))
        except (JournalError, RunSuspended) as error:
            # Code that catches whatever it can must not do things that nothing records.
            self._over = error
            raise

    def _through(self, effect: Effect, context: RunContext, flow: Flow[Any]) -> Flow[Any]:
        asked, blobs = self._intents.record(effect)
        scope, who = current_scope() or Scope(self.run.id), self._asker()
        position, entry = self._history.take(scope, asked.digest, who)
        pending = PendingEffect(
            effect, context, position, asked, blobs, self._history.number_of(who)
        )
        self._errors.went_on(pending.number, came_before(self.run.id))
        passed(scope, position)
        if entry is not None:
            if entry.intent.digest != asked.digest:
                text = partial(self._text_of, blobs)
                raise diverged(position, entry.intent, asked, text, done=self._has_done)
            if entry.is_over:
                return (yield from self._replay(pending, entry))
            if (seconds := entry.seconds_to_a_cut) is not None:
                yield from call(pause, seconds)
            if entry.is_unknown:
                found = yield from self._find_out(pending, entry)
                if found is not None:
                    return found.result
        decisions = {} if entry is None else entry.decisions
        approval = None if effect.aside else self._approval
        needs = None if approval is None else approval(effect, context)
        if needs is not None or 'approval' in decisions:
            flow = yield from self._decided(pending, entry, 'approval', needs or '', flow)
        if 'unknown' in decisions:
            flow = yield from self._decided(pending, entry, 'unknown', '', flow)
        return (yield from self._perform(pending, flow))

    def note(self, name: str, value: Any) -> None:
        """Keep something about the run, for another attempt; waits for the disk.

        Args:
            name: what it is; a later note of that name takes its place.
            value: anything that can be written.
        """
        encoder = Encoder(self._redactor)
        record = Record(type='note', position=name, time=time.time(), body=encoder.encode(value))
        self._append([record], encoder.blobs)
        self._history.notes[name] = record.body

    def noted(self, name: str) -> Any:
        """What was last noted under a name, in this attempt or an earlier one; None for nothing."""
        return self._decoder.decode(self._history.notes.get(name))

    def names_noted(self, prefix: str) -> list[str]:
        """The names of all notes that begin so."""
        return [name for name in self._history.notes if name.startswith(prefix)]

    @property
    def is_resumed(self) -> bool:
        """Whether effects were recorded in earlier attempts."""
        return bool(self._history.entries)

    def effects(self) -> list[Record]:
        """What was done in earlier attempts, in order: intents, with the payload that was used."""
        return [
            replace(entry.intent, body=entry.payload)
            for entry in self._history.entries.values()
            if entry.was_done
        ]

    def decode(self, tree: Any) -> Any:
        """The value of a record's body, an opening or an outcome."""
        return self._decoder.decode(tree)

    def check_end(self) -> None:
        """Refuse to end a run that has not done all that its journal says, or may not go on.

        Raises:
            Diverged: an effect is recorded that was not asked for.
            RunSuspended: an effect needs a decision, and the code has caught the error.
            JournalError: the journal failed, and the code has caught the error.
        """
        if self._over is not None:
            raise self._over
        entry = self._history.left_over()
        if entry is not None:
            text, intent = partial(self._text_of, {}), entry.intent
            raise diverged(intent.position, intent, None, text, done=self._has_done)

    def release(self, status: Status, outcome: Any = None, state: Any = None) -> None:
        """Say how the attempt has ended, and give the lease back; waits for the disk.

        Args:
            status: how.
            outcome: the answer, or the exception.
            state: what the agent remembers, with an answer.
        """
        encoder = Encoder(self._redactor)
        if isinstance(outcome, BaseException):
            ended_by = self._errors.that_ended(outcome)
            tree = {'error': encode_error(outcome, encoder), 'ended_by': ended_by}
        else:
            tree = {'answer': encoder.encode(outcome), 'state': encoder.encode(state)}
        self.journal.release(self.run.id, self._owner, status, tree, encoder.blobs)
        release_owner(self._owner)

    def abandon(self) -> None:
        """Say that nothing more is done here, where the journal can't be told."""
        release_owner(self._owner)

    def _asker(self) -> Asker:
        who = asker()
        if who == self._main:
            return MAIN
        return THREAD if isinstance(who, int) else who

    def _renew(self) -> None:
        self.journal.renew(self.run.id, self._owner, time.time() + LEASE)

    def _append(
        self, records: list[Record], blobs: dict[str, bytes], *, durable: bool = True
    ) -> None:
        # A conversation brings its images along with every call.
        new = {digest: data for digest, data in blobs.items() if digest not in self._kept}
        self.journal.append(
            self.run.id, self._owner, time.time() + LEASE, records, new, durable=durable
        )
        self._kept.update(new)

    def _text_of(self, blobs: Mapping[str, bytes], body: Any) -> str:
        return text_of(body, blobs, self.journal.blob)

    def _replay(self, pending: PendingEffect, entry: Entry) -> Flow[Any]:
        outcome = entry.outcome
        assert outcome is not None, 'only what is over is replayed'
        self._history.replayed(pending.position)
        failed = outcome.type == 'error'
        known = yield from blocking_call(self._known, pending, outcome, failed)
        publish_replayed(
            pending.effect, pending.context, outcome.elapsed or 0.0, known, failed=failed
        )
        if failed:
            self._errors.add(known, outcome, pending.number)
            raise known
        return known

    def _known(self, pending: PendingEffect, outcome: Record, failed: bool) -> Any:
        effect = pending.effect
        what = f'effect {pending.position} ({effect.kind} {outcome.name})'
        warn_redacted(outcome.body, self.journal.blob, self.run.id, what)
        return decode_error(outcome.body, self._decoder) if failed else self.decode(outcome.body)

    def _find_out(self, pending: PendingEffect, entry: Entry) -> Flow[Ended | None]:
        """What became of an effect that was begun; None if it is to be done (again)."""
        effect = pending.effect
        if effect.inquire is not None:
            found = yield from effect.inquire(f'{self.run.id}:{pending.position}')
            if isinstance(found, Ended):
                yield from self._conclude(pending, found.result)
                publish_replayed(effect, pending.context, 0.0, found.result)
                return found
            if found == 'not_begun':
                return None
        if effect.repeatable or entry.decisions.get('unknown'):
            return None
        if self._on_unknown == 'suspend':
            raise (
                yield from self._request(pending, 'unknown', 'it was begun and may have happened')
            )
        raise (
            yield from self._not_done(
                pending,
                OutcomeUnknown(
                    f'It is not known whether this {effect.kind} call ({effect.name}) happened: '
                    'the program was interrupted after it was begun. It was not done again. Find '
                    'out what the state is before you repeat it.'
                ),
            )
        )

    def _decided(
        self, pending: PendingEffect, entry: Entry | None, why: str, words: str, flow: Flow[Any]
    ) -> Flow[Flow[Any]]:
        """The flow that was decided on, for an effect that needs a decision."""
        decision = None if entry is None else entry.decisions.get(why)
        if decision is None:
            raise (yield from self._request(pending, why, words))
        verdict = decision['verdict']
        if verdict == 'reject':
            reason = self.decode(decision['reason'])
            words = f'Not done: it was rejected. {reason}'.strip()
            raise (yield from self._not_done(pending, EffectRejected(words)))
        if verdict == 'edit':
            if pending.effect.edited is None:
                raise NothingToDecide(
                    f'The {pending.effect.kind} call at {pending.position} can not be edited.'
                )
            return pending.effect.edited(self.decode(decision['payload']))
        return flow

    def _request(self, pending: PendingEffect, why: str, words: str) -> Flow[RunSuspended]:
        body = {
            'why': why,
            'words': words,
            'payload': pending.asked.body,
            'editable': pending.effect.edited is not None,
        }
        records = [pending.record('request', body), *pending.task]
        yield from blocking_call(self._append, records, pending.blobs)
        request = f'{pending.effect.kind} call {pending.effect.name!r} ({words})'
        return RunSuspended(self.run.id, pending.position, request)

    def _not_done(self, pending: PendingEffect, error: NotDone) -> Flow[NotDone]:
        """Record that an effect is never done."""
        yield from self._fail(pending, error)
        publish_replayed(pending.effect, pending.context, 0.0, error, failed=True)
        return error

    def _perform(self, pending: PendingEffect, flow: Flow[Any]) -> Flow[Any]:
        # A machine that forgets the intent of what is repeatable does it again, as it would anyway.
        yield from blocking_call(
            self._append,
            [pending.record('intent', pending.asked.body), *pending.task],
            pending.blobs,
            durable=not pending.effect.repeatable,
        )
        pending.started, self._has_done = time.monotonic(), True
        with entered(Scope(self.run.id, pending.position)):
            try:
                result = yield from flow
            except (Exception, CancelledError) as error:
                if not isinstance(error, JournalError):
                    yield from self._fail(pending, error)
                raise
        yield from self._conclude(pending, result)
        return result

    def _conclude(self, pending: PendingEffect, result: Any) -> Flow[None]:
        encoder = Encoder(self._redactor)
        record = pending.record('result', encoder.encode(result), _usage(result))
        yield from blocking_call(self._append, [record], encoder.blobs)

    def _fail(self, pending: PendingEffect, error: BaseException) -> Flow[None]:
        encoder = Encoder(self._redactor)
        tree = encode_error(error, encoder) | {
            'final': isinstance(error, NotDone),
            'harmless': is_not_begun(error) or isinstance(error, CONTROL_ERRORS),
            'cut': isinstance(error, CancelledError),
        }
        record = pending.record('error', tree)
        self._errors.add(error, record, pending.number)
        yield from blocking_call(self._append, [record], encoder.blobs)


_recording: ContextVar[Recording | None] = ContextVar('lagent_recording', default=None)


def current_recording() -> Recording | None:
    """The recording that the calling code is part of.

    Returns:
        The recording, or None when nothing is recorded.
    """
    return _recording.get()


@contextmanager
def unrecorded() -> Iterator[None]:
    """Keep what the ``with`` block does out of the recording that the calling code is part of."""
    token = _recording.set(None)
    try:
        yield
    finally:
        reset(_recording, token)


def _usage(result: Any) -> dict[str, int]:
    """The tokens that a model's reply, or a list of replies, says it cost."""
    total: dict[str, int] = {}
    for one in result if isinstance(result, list) else [result]:
        said = getattr(one, 'usage', None)
        if is_dataclass(said) and not isinstance(said, type):
            for each in fields(said):
                if isinstance(value := getattr(said, each.name), int):
                    total[each.name] = total.get(each.name, 0) + value
    return total
