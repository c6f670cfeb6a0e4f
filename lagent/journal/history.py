"""What a journal says of the effects of a run, for a run that goes the same way again."""

import asyncio
import itertools
import sys
import threading
import weakref
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from lagent.journal.contract import Record
from lagent.positions import Scope

_SLACK = 1.0  # seconds

MAIN, THREAD = 0, -1
"""Who asks: the task or thread that the run belongs to; or some thread, which may be a pool's."""

TASK = 'task/'
"""Begins the names of notes that say which task, by its number, has asked for an effect."""

Asker = int | asyncio.Task[Any]


@dataclass(slots=True)
class Entry:
    """The records of one effect.

    Attributes:
        intent: the first record that says what was going to be done, or what a decision was needed
            for.
        begun: whether it was begun.
        outcome: the last result or error, after which it was not begun again.
        survived: of an error, whether the run went on after it.
        requests: the last request of each reason.
        decisions: what was decided about each of them.
        edited: the decision to do something else instead, if there is one.
    """

    intent: Record
    begun: bool = False
    outcome: Record | None = None
    survived: bool = False
    requests: dict[str, Record] = field(default_factory=dict)
    decisions: dict[str, dict[str, Any]] = field(default_factory=dict)
    edited: dict[str, Any] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the same thing happens again without anything being done.

        An error that the run survived is history. One that ended it is what resuming is for.
        """
        if self.outcome is None or self.was_cut_off:
            return False
        return self.outcome.type == 'result' or self.survived or bool(self.outcome.body['final'])

    @property
    def was_cut_off(self) -> bool:
        """Whether it was cancelled, such as by a timeout of the code around it."""
        outcome = self.outcome
        return outcome is not None and outcome.type == 'error' and bool(outcome.body.get('cut'))

    @property
    def seconds_to_a_cut(self) -> float | None:
        """How long it is waited for to be cancelled once more, where the run went on after that."""
        if not (self.was_cut_off and self.survived and self.outcome):
            return None
        return 2 * (self.outcome.elapsed or 0.0) + _SLACK

    @property
    def is_unknown(self) -> bool:
        """Whether it may have happened, in whole or in part, without anything that says so."""
        if self.is_over:
            return False
        return self.begun and (self.outcome is None or not self.outcome.body['harmless'])

    @property
    def was_done(self) -> bool:
        """Whether it ended otherwise than by a refusal, or by an error before it was begun."""
        if self.outcome is None:
            return False
        body = self.outcome.body
        return self.outcome.type != 'error' or not (body['final'] or body['harmless'])

    @property
    def payload(self) -> Any:
        """What was asked for, encoded: what somebody has put in the place of the intent's."""
        if self.edited is not None:
            return self.edited['payload']
        body = self.intent.body
        return body['payload'] if self.intent.type == 'request' else body


class History:
    """The effects of a run by their position.

    Args:
        records: the run's records, in order.
        ended_by: errors that ended the run, whatever other tasks did after them: times by position.
    """

    def __init__(
        self, records: Iterable[Record], ended_by: Mapping[str, float] | None = None
    ) -> None:
        self.entries: dict[str, Entry] = {}
        self.notes: dict[str, Any] = {}
        self.tasks: dict[str, int] = {}
        self._known: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._scopes: dict[str, list[str]] = defaultdict(list)
        self._lock = Lock()
        self._taken: set[str] = set()
        self._replayed: set[str] = set()
        intents: list[Record] = []
        for record in records:
            self._read(record)
            if record.type in ('intent', 'request'):
                intents.append(record)
        for position, entry in self.entries.items():
            if entry.outcome is not None and entry.outcome.type == 'error':
                if (ended_by or {}).get(position) == entry.outcome.time:
                    continue
                entry.survived = any(
                    later.seq > entry.outcome.seq and _comes_after(position, later.position)
                    for later in intents
                )
        self._numbers = itertools.count(1 + max(self.tasks.values(), default=MAIN))
        self._concurrent = {path for path in self._scopes if self._ran_side_by_side(path)}

    def _read(self, record: Record) -> None:
        position = record.position
        if record.type == 'note':
            if position.startswith(TASK):
                self.tasks[position.removeprefix(TASK)] = record.body
            else:
                self.notes[position] = record.body
            return
        if record.type in ('intent', 'request') and position not in self.entries:
            self.entries[position] = Entry(record)
            self._scopes[_scope_of(position)].append(position)
        entry = self.entries[position]
        if record.type == 'intent':
            entry.begun, entry.outcome = True, None
            entry.decisions.pop('unknown', None)  # it was for doing it again once
        elif record.type == 'request':
            entry.requests[record.body['why']] = record
            entry.decisions.pop(record.body['why'], None)
        elif record.type == 'decision':
            entry.decisions[record.body['why']] = record.body
            if record.body['verdict'] == 'edit':
                entry.edited = record.body
        else:
            entry.outcome = record

    def take(self, scope: Scope, digest: str, asker: Asker = MAIN) -> tuple[str, Entry | None]:
        """The position of an effect that is asked for now, and what is known of it.

        Effects of one scope come in the order in which they are recorded. Only where some of them
        ran at the same time is that no difference, and each is known by what it asks for. What is
        not known then is new, unless the task that asks, or the run itself, has something left to
        ask for that is recorded.

        Args:
            scope: the scope of the effect.
            digest: what it asks for.
            asker: the task that asks.

        Returns:
            The position; and the entry that is recorded there, whose digest is another one if the
            run takes another way.
        """
        with self._lock:
            position = scope.next()
            while position in self._taken:
                position = scope.next()
            entry = self.entries.get(position)
            is_it = entry is not None and entry.intent.digest == digest
            if not is_it and scope.path in self._concurrent:
                position, entry = self._elsewhere(scope, position, digest, asker)
            self._taken.add(position)
            if not isinstance(asker, int) and self.tasks.get(position, MAIN) > MAIN:
                self._known[asker] = self.tasks[position]
            return position, entry

    def replayed(self, position: str) -> None:
        """Note that an effect, and with it all that was done for it, is not done again."""
        self._replayed.add(position)

    def left_over(self) -> Entry | None:
        """The first effect that is recorded and was not asked for this time."""
        for position, entry in self.entries.items():
            if position not in self._taken and not any(
                _is_within(position, above) for above in self._replayed
            ):
                return entry
        return None

    def _ran_side_by_side(self, path: str) -> bool:
        """Whether one effect of a scope began before another one, begun earlier, had ended."""
        end = 0
        for position in self._scopes[path]:
            entry = self.entries[position]
            if entry.intent.seq < end:
                return True
            end = entry.outcome.seq if entry.outcome else sys.maxsize
        return False

    def _elsewhere(
        self, scope: Scope, position: str, digest: str, asker: Asker
    ) -> tuple[str, Entry | None]:
        left = [other for other in self._scopes[scope.path] if other not in self._taken]
        for other in left:
            if self.entries[other].intent.digest == digest:
                return other, self.entries[other]
        before = [other for other in left if self._comes_before(other, asker)]
        if before:
            return before[0], self.entries[before[0]]
        while position in self.entries or position in self._taken:
            position = scope.next()
        return position, None  # it was not begun yet: it gets a place of its own

    def _comes_before(self, position: str, asker: Asker) -> bool:
        """Whether what is recorded there must be asked for before anything new is."""
        task = self.tasks.get(position, MAIN)
        if asker in (MAIN, THREAD):
            return task == MAIN
        return task == self._known.get(asker, MAIN)

    def number_of(self, asker: Asker) -> int:
        """What a task is called in the journal."""
        if isinstance(asker, int):
            return asker
        with self._lock:
            if asker not in self._known:
                self._known[asker] = next(self._numbers)
            return self._known[asker]


def asker() -> asyncio.Task[Any] | int:
    """The task that the calling code is part of; without one, its thread."""
    try:
        return asyncio.current_task() or threading.get_ident()
    except RuntimeError:
        return threading.get_ident()


def pause(seconds: float) -> Any:
    """Wait for a task to be cancelled; where there is no task, that can't come."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return None
    return asyncio.sleep(seconds)


def _scope_of(position: str) -> str:
    return position.rpartition('.')[0]


def _comes_after(error: str, later: str) -> bool:
    """Whether an effect is one that the code behind an error came to."""
    if later == error:
        return False
    path = _scope_of(later)
    while not _is_within(error, path):
        if not path.endswith(']'):
            return False  # it belongs to an effect whose own beginning says it, if anything does
        group = path.rpartition('[')[0]
        if error.startswith(f'{group}['):
            return False  # what was done at the same time says nothing
        path = _scope_of(group) if group.endswith('+') else group
    return True


def _is_within(position: str, path: str) -> bool:
    return path == '' or position.startswith((f'{path}.', f'{path}['))
