"""What a sandbox that survives its owner has in its folder, and who may take it over.

::

    <runtime folder>/lagent-<uid>/
        <digest>.lock       locked by the process that has the session of this scope and id
        <random>/           one instance, see rendezvous
            detached        whose session it is, and what it takes to speak with it
            cells           a line for each cell, written before the cell is sent
            orphaned        when a sweep first saw that its owner is dead

A lock ends with its process, however that ends, so of all that want an orphan one has it.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

from sandbox.backends.base import Instance
from sandbox.backends.rendezvous import Rendezvous, runtime_folder
from sandbox.errors import SandboxError
from sandbox.owner import Owner
from sandbox.policy import SandboxPolicy

_SLACK = 15.0  # seconds that an orphan may take to end itself, after its time
_LARGEST = 1 << 20  # bytes of a ledger, then a new one is begun
_LARGEST_RECORD = 1 << 16


@dataclass(frozen=True)
class DetachRecord:
    """What the next owner of an instance needs to know.

    Attributes:
        scope: Scope of the session.
        session: Its id.
        seconds: How long the instance waits.
        made_as: Tells what it was made of and what it may do.
        instance: Container id.
        key: Key of its kernel.
    """

    scope: str
    session: str
    seconds: float
    made_as: str
    instance: str = ''
    key: str = field(default='', repr=False)

    def write(self, place: Rendezvous) -> None:
        """Write it down.

        Raises:
            OSError: It could not be written.
        """
        _write_whole(place.root / 'detached', json.dumps(asdict(self)))

    @classmethod
    def read(cls, place: Rendezvous) -> Self | None:
        """Return that of a folder, or None where there is none."""
        try:
            with (place.root / 'detached').open(encoding='ascii') as file:
                return cls(**json.loads(file.read(_LARGEST_RECORD)))
        except (OSError, ValueError, TypeError):
            return None


class SessionLock:
    """The session of a scope and id is this process' own, until `release` or until it ends."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path, self._descriptor = path, descriptor

    @classmethod
    def take(cls, scope: str, session: str) -> Self | None:
        """Return the lock if nobody has it."""
        digest = hashlib.sha256(json.dumps([scope, session]).encode()).hexdigest()[:24]
        path = runtime_folder() / f'{digest}.lock'
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == os.fstat(descriptor).st_ino:
                    return cls(path, descriptor)
            os.close(descriptor)  # its last holder has just removed it

    def release(self) -> None:
        """Give it back. May be repeated."""
        if self._descriptor >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


@dataclass(frozen=True)
class StartedCell:
    """A cell that was sent, or was about to be.

    Attributes:
        tag: What its sender calls it; None for nothing.
        request: Id of the message that asks for it.
        limit: Its wall clock, in seconds.
        deadline: When that ends, on the machine's monotonic clock.
    """

    tag: str | None
    request: str
    limit: float
    deadline: float


@dataclass(frozen=True)
class Cells:
    """What a ledger says.

    Attributes:
        count: How many cells it names.
        last: The last one.
        tags: The tags of all.
        is_whole: Whether it names every cell that the instance was ever sent.
        is_same_kernel: Whether no kernel was started after the last cell.
    """

    count: int = 0
    last: StartedCell | None = None
    tags: frozenset[str] = frozenset()
    is_whole: bool = True
    is_same_kernel: bool = True


class Ledger:
    """The cells of an instance, in a file that survives the process that writes it."""

    def __init__(self, place: Rendezvous) -> None:
        self._path = place.root / 'cells'

    def begin(self, cell: StartedCell) -> None:
        """Write down that a cell is going to be sent.

        Raises:
            SandboxError: It could not be written, so the cell must not be sent.
        """
        self._append(asdict(cell))

    def new_kernel(self) -> None:
        """Write down that the kernel is going to be replaced.

        Raises:
            SandboxError: It could not be written.
        """
        self._append({'kernel': 'new'})

    def _append(self, line: dict[str, Any]) -> None:
        # What was not written to its end was not sent: the next line does not go on with it.
        data = f'\n{json.dumps(line)}'.encode()
        try:
            with self._path.open('ab') as file:
                if file.tell() + len(data) > _LARGEST:
                    file.truncate(0)
                    data = b'{"cut": true}' + data
                file.write(data)
        except OSError as error:
            raise SandboxError(
                f'What the sandbox is going to do could not be written down, so nothing was run: '
                f'{error}.'
            ) from error

    def read(self) -> Cells:
        """Return what it says."""
        try:
            lines = self._path.read_bytes().split(b'\n')
        except FileNotFoundError:
            return Cells()
        entries = []
        for line in lines:
            with contextlib.suppress(ValueError):
                entries.append(json.loads(line))
        cells = [StartedCell(**entry) for entry in entries if 'request' in entry]
        return Cells(
            count=len(cells),
            last=cells[-1] if cells else None,
            tags=frozenset(cell.tag for cell in cells if cell.tag is not None),
            is_whole=not any('cut' in entry for entry in entries),
            is_same_kernel=bool(entries) and 'kernel' not in entries[-1],
        )


@runtime_checkable
class SupportsDetach(Protocol):
    """An instance that can outlive its owner."""

    def detach(self, record: DetachRecord) -> Ledger:
        """Let it outlive this process; return where its cells are written down.

        Raises:
            OSError: That could not be written.
        """
        ...


@runtime_checkable
class SupportsReattach(Protocol):
    """A back end whose instances can outlive their owner."""

    def made_as(self, policy: SandboxPolicy) -> str:
        """Return what tells the sandboxes of this policy from others that differ inside.

        Raises:
            PolicyError: Sandboxes of this policy cannot outlive their owner.
        """
        ...

    async def reattach(self, place: Rendezvous, record: DetachRecord) -> Instance:
        """Return the instance of a folder that this process owns now.

        Raises:
            SandboxLost: It is gone.
        """
        ...


def orphans_of(scope: str, session: str) -> list[tuple[Rendezvous, DetachRecord]]:
    """Return the instances of a session whose owner died on this run of the machine's kernel.

    The caller has the session's `SessionLock`.
    """
    found = []
    for root in runtime_folder().iterdir():
        place = Rendezvous(root)
        record = DetachRecord.read(place)
        if record is not None and (record.scope, record.session) == (scope, session):
            owner = place.owner()
            if owner is not None and owner.state() == 'dead':
                found.append((place, record))
    return found


def take_over(place: Rendezvous) -> None:
    """Make this process the owner; it has the session's `SessionLock`."""
    _write_whole(place.root / 'owner', f'{Owner.current()}\n')
    (place.root / 'orphaned').unlink(missing_ok=True)


def is_waiting(place: Rendezvous, record: DetachRecord, owner: Owner | None) -> bool:
    """Tell whether an instance whose owner is dead may still be taken over.

    Its time is counted from when that was first seen.
    """
    if owner is None or owner.state() != 'dead':
        return False  # of an earlier run of the machine nothing is left
    mark = place.root / 'orphaned'
    now = time.monotonic()
    try:
        since = float(mark.read_text(encoding='ascii'))
    except (OSError, ValueError):
        since = now
        with contextlib.suppress(OSError):
            _write_whole(mark, repr(now))
    return now - since < record.seconds + _SLACK


def _write_whole(path: Path, text: str) -> None:
    temporary = path.with_name(f'{path.name}.{os.getpid()}')
    temporary.write_text(text, encoding='ascii')
    temporary.chmod(0o600)
    temporary.replace(path)
