"""What a journal keeps, and what a store of journals must be able to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Status = Literal['running', 'suspended', 'ready', 'failed', 'done']
RecordType = Literal['intent', 'result', 'error', 'request', 'decision', 'note']


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A recorded run, without its records.

    Attributes:
        id: its unique name.
        status: ``'running'`` (or its process has died), ``'suspended'`` (it waits for a decision),
            ``'ready'`` (all decisions are there), ``'failed'`` (resuming tries again what failed)
            or ``'done'``.
        title: what it is about, in one line.
        created: Unix time in seconds.
        updated: Unix time of the last change.
        opening: what it began with, encoded: messages, options, session, and the agent's state.
        outcome: the answer or what it failed with, encoded; None as long as there is neither.
        factory: ``module:function`` that makes the agent again, where that is known.
        owner: who executes it, see `lagent.journal.lease`; ``''`` for nobody.
        expires: Unix time up to which that counts.
    """

    id: str
    status: Status = 'running'
    title: str = ''
    created: float = 0.0
    updated: float = 0.0
    opening: Any = None
    outcome: Any = None
    factory: str = ''
    owner: str = ''
    expires: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One line of a run's history; lines are only added.

    Attributes:
        type: ``'intent'`` before an effect, ``'result'`` or ``'error'`` after it; ``'request'`` for
            a decision that the run waits for, ``'decision'`` for what was decided; ``'note'`` for
            what an extension keeps about the run.
        position: the effect, see `lagent.positions`; of a note its name.
        time: Unix time in seconds.
        kind: the effect's kind.
        name: the effect's name.
        digest: SHA-256 of the effect's kind, name and encoded payload.
        body: encoded: the payload, the result, the exception, the decision, or the note.
        elapsed: seconds that the effect took.
        usage: tokens that it cost, by name.
        seq: its number in the run, from 1; the store gives it.
    """

    type: RecordType
    position: str
    time: float
    kind: str = ''
    name: str = ''
    digest: str = ''
    body: Any = None
    elapsed: float | None = None
    usage: Mapping[str, int] = field(default_factory=dict)
    seq: int = 0


class Journal(Protocol):
    """A store of runs. Its methods wait, may be called from any thread, and are all or nothing.

    What a method was given is durable when it returns. Blobs are bytes by their SHA-256 digest;
    one that is there already is not written again.
    """

    def begin(self, run: Run, blobs: Mapping[str, bytes]) -> None:
        """Add a run, under its owner's lease.

        Raises:
            RunLocked: there is a run of that id.
        """

    def run(self, run_id: str) -> Run:
        """A run.

        Raises:
            NoSuchRun: there is none of that id.
        """

    def runs(
        self, status: Status | None = None, limit: int = 100, *, prefix: str = ''
    ) -> list[Run]:
        """The latest runs, newest first, without their openings and outcomes.

        Args:
            status: only runs of this status.
            limit: how many there may be.
            prefix: only runs whose ids begin so.
        """

    def records(self, run_id: str, after: int = 0) -> list[Record]:
        """The records of a run with a number above `after`, in order."""

    def blob(self, digest: str) -> bytes:
        """The bytes of a digest.

        Raises:
            NotReadable: they are not there.
        """

    def acquire(self, run_id: str, owner: str, expires: float) -> Run:
        """Take the lease of a run that nobody holds, or whose holder is gone.

        Raises:
            NoSuchRun: there is none of that id.
            RunLocked: somebody holds it.
        """

    def renew(self, run_id: str, owner: str, expires: float) -> None:
        """Hold a lease for longer.

        Raises:
            LeaseLost: it is somebody else's by now.
        """

    def append(
        self,
        run_id: str,
        owner: str,
        expires: float,
        records: Sequence[Record],
        blobs: Mapping[str, bytes],
        *,
        durable: bool = True,
    ) -> None:
        """Add records to a run under its lease, which is renewed.

        With `durable=False` they need to survive the process, and not a machine that loses power.

        Raises:
            LeaseLost: the lease is somebody else's by now; nothing was added.
        """

    def release(
        self, run_id: str, owner: str, status: Status, outcome: Any, blobs: Mapping[str, bytes]
    ) -> None:
        """Say how the attempt has ended, and give the lease back.

        Raises:
            LeaseLost: it is somebody else's by now; nothing was changed.
        """

    def decide(
        self, run_id: str, request: int, decision: Record, blobs: Mapping[str, bytes]
    ) -> None:
        """Add a decision to a run that nobody executes, which becomes ready if it was the last.

        Args:
            run_id: the run.
            request: number of the record that asks for the decision.
            decision: the record.
            blobs: its blobs.

        Raises:
            NothingToDecide: somebody executes the run, it has ended, or this was decided already.
        """

    def prune(self, before: float, statuses: Sequence[Status] = ('done',)) -> int:
        """Remove runs that nobody executes, and the blobs that only they use.

        Args:
            before: Unix time of the last change that a run may have had.
            statuses: which runs.

        Returns:
            How many runs were removed.
        """

    def close(self) -> None:
        """Let go of files and connections."""
