"""What becomes of a run's sandbox when the run goes on in another process."""

import weakref
from collections.abc import Hashable
from typing import Any, Literal, NamedTuple

from lagent.actions import snapshots
from lagent.actions.sandbox_sessions import SessionNames
from lagent.context import current_context, resolve_session
from lagent.flow import Flow, blocking_call, call
from lagent.journal.recording import Recording, current_recording
from lagent.positions import effect_id

Rebuild = Literal['fresh', 'rerun', 'snapshot']


_LEAST = 0.1  # seconds that a snapshot needs in any case


class News(NamedTuple):
    """What the first cell in a new sandbox has to say.

    Attributes:
        notice: what has happened.
        is_lost: whether variables or files are lost.
    """

    notice: str
    is_lost: bool


class _Cell(NamedTuple):
    """A cell that has run, and of which no snapshot was taken yet."""

    box: Any
    id: str | None
    state_preserved: bool


class Resumption:
    """Keeps, in the run's journal, which sandbox a run uses; and sees when it is another one.

    A note is made before the first cell is begun, and one before the first cell is sent to a
    sandbox. So a run whose note names no sandbox has sent no cell, and a sandbox that the note
    names was there all the time.

    Args:
        name: the interpreter's name.
        survives: whether its sandboxes survive this process.
        rebuild: what is done when the sandbox of an earlier attempt is gone; see `Interpreter`.
    """

    def __init__(self, name: str, survives: bool, rebuild: Rebuild) -> None:
        self._name, self._survives, self._rebuild = name, survives, rebuild
        self._served: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()
        self._files: weakref.WeakKeyDictionary[Any, snapshots.Files] = weakref.WeakKeyDictionary()
        self._untold: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._ran: weakref.WeakKeyDictionary[Recording, dict[str, _Cell]] = (
            weakref.WeakKeyDictionary()
        )

    @property
    def _prefix(self) -> str:
        return f'sandbox/{self._name}/'

    def _key(self, session: Hashable) -> str:
        return self._prefix + SessionNames().of(session)

    def _noted(self, recording: Recording) -> dict[str, Any]:
        return recording.noted(self._key(resolve_session(None))) or {}

    def announce(self) -> Flow[None]:
        """Note, before a cell is begun, whether its sandbox is one that survives."""
        recording = current_recording()
        if recording is None or not (self._survives or self._rebuild == 'rerun'):
            if recording is not None and self._noted(recording).get('survives'):
                yield from self._note(recording, survives=False)
            return
        noted = self._noted(recording)
        if noted.get('survives') not in (False, self._survives):
            yield from self._note(recording, survives=self._survives)

    def _note(self, recording: Recording, **changes: Any) -> Flow[None]:
        note = {'container': '', **self._noted(recording), **changes}
        yield from blocking_call(recording.note, self._key(resolve_session(None)), note)

    def begin(self, box: Any, timeout: float | None) -> Flow[News | None]:
        """Prepare a sandbox for the next cell of a run.

        Args:
            box: the sandbox.
            timeout: the wall clock of each cell that is run again.

        Returns:
            What there is to tell with the cell.
        """
        recording = current_recording()
        if recording is None:
            return None
        noted = self._noted(recording)
        if noted and noted['container'] != box.container_id:
            yield from self._note(recording, container=box.container_id)
        runs = self._served.setdefault(box, set())
        if recording.run.id in runs:  # if it was lost meanwhile, the session tells of it
            untold = self._untold.pop(box, None)
            return None if untold is None else News(untold, is_lost=True)
        runs.add(recording.run.id)
        before = [cell for cell in recording.effects('kernel') if cell.name == self._name]
        if not before or getattr(box, 'adopted', False):
            return None
        try:
            if self._rebuild == 'rerun' and len(recording.names_noted(self._prefix)) == 1:
                return (yield from self._run_again(recording, box, before, timeout))
            if self._rebuild == 'snapshot' and (note := recording.noted(self._snapshot_key())):
                return (yield from self._restore(recording, box, before, note))
        except BaseException:
            runs.discard(recording.run.id)
            raise
        return News(
            f'the program was interrupted after {len(before)} cells, and this one ran in a new '
            'sandbox: variables, imports and files from before it are lost',
            is_lost=True,
        )

    def _run_again(
        self, recording: Recording, box: Any, before: list[Any], timeout: float | None
    ) -> Flow[News]:
        failed = 0
        for cell in before:
            result = yield from call(box.execute, recording.decode(cell.body), timeout=timeout)
            failed += not result.ok
        failures = f'; {failed} of them failed this time' if failed else ''
        return News(
            f'the program was interrupted and its sandbox is gone: the {len(before)} cells before '
            f'this one were run again in a new sandbox{failures}',
            is_lost=False,
        )

    def _snapshot_key(self) -> str:
        return f'snapshot/{self._name}/{SessionNames().of(resolve_session(None))}'

    def ran(self, box: Any, state_preserved: bool) -> None:
        """Remember, inside the effect of a cell, that a snapshot is due.

        Args:
            box: the sandbox.
            state_preserved: whether the cell has left the variables there.
        """
        recording = current_recording()
        if recording is not None and self._rebuild == 'snapshot':
            due = self._ran.setdefault(recording, {})
            due[self._snapshot_key()] = _Cell(box, effect_id(), state_preserved)

    def keep(self) -> Flow[None]:
        """Take the snapshot that is due, once the result of the cell is recorded."""
        recording, key = current_recording(), self._snapshot_key()
        cell = None if recording is None else self._ran.get(recording, {}).pop(key, None)
        if recording is None or cell is None:
            return
        try:
            note = {'behind': 0, 'why': '', **(yield from self._copied(cell))}
        except snapshots.NoSnapshot as error:
            self._tell(cell.box, error.news)
            note = recording.noted(key) or {**snapshots.EMPTY, 'behind': 0}
            note |= {'behind': note['behind'] + 1, 'why': error.why}
            if not cell.state_preserved:
                note |= {'kept': [], 'lost': [], 'more': 0}
        yield from blocking_call(recording.note, key, {**note, 'cell': cell.id})

    def _copied(self, cell: _Cell) -> Flow[dict[str, Any]]:
        context = current_context()
        left = None if context is None else context.seconds_left
        seconds = min(snapshots.SECONDS, snapshots.SECONDS if left is None else left)
        if not cell.state_preserved:
            # The next cell is to be told of the new kernel, and a cell of ours would be told first.
            raise snapshots.NoSnapshot('the variables were lost')
        if seconds < _LEAST:
            raise snapshots.NoSnapshot('the run had no time left for it')
        files = self._files.setdefault(cell.box, snapshots.Files())
        note, news = yield from snapshots.keep(cell.box, files, seconds)
        self._tell(cell.box, news)
        return note

    def _tell(self, box: Any, news: tuple[str, ...]) -> None:
        if news:
            self._untold[box] = ' '.join(news)

    def _restore(
        self, recording: Recording, box: Any, before: list[Any], note: dict[str, Any]
    ) -> Flow[News]:
        ids = [f'{recording.run.id}:{cell.position}' for cell in before]
        after = ids[ids.index(note['cell']) + 1 :] if note['cell'] in ids else ids
        behind = len(after) + note['behind']
        restored, is_all = yield from snapshots.restore(box, note)
        cells = f'; what the last {behind} of them did is not in it' if behind else ''
        why = f' ({note["why"]})' if behind and note['why'] else ''
        return News(
            f'the program was interrupted after {len(before)} cells and its sandbox is gone: this '
            f'cell ran in a new one, with a snapshot of the old one{cells}{why}. {restored}',
            is_lost=not is_all or behind > 0,
        )

    def sandbox_of(self, recording: Recording) -> str | None:
        """The container that the run's cells were sent to; `''` for none, None if not known."""
        noted = self._noted(recording)
        return str(noted['container']) if noted.get('survives') else None
