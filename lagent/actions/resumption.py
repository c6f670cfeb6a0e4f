"""What becomes of a run's sandbox when the run goes on in another process."""

import weakref
from collections.abc import Hashable
from typing import Any, Literal, NamedTuple

from lagent.actions.sandbox_sessions import SessionNames
from lagent.context import resolve_session
from lagent.flow import Flow, blocking_call, call
from lagent.journal.recording import Recording, current_recording

Rebuild = Literal['fresh', 'rerun']


class News(NamedTuple):
    """What the first cell in a new sandbox has to say.

    Attributes:
        notice: what has happened.
        is_lost: whether variables and files are lost.
    """

    notice: str
    is_lost: bool


class Resumption:
    """Keeps, in the run's journal, which sandbox a run uses; and sees when it is another one.

    A note is made before the first cell is begun, and one before the first cell is sent to a
    sandbox. So a run whose note names no sandbox has sent no cell, and a sandbox that the note
    names was there all the time.

    Args:
        name: the interpreter's name.
        survives: whether its sandboxes survive this process.
        rebuild: what is done when the sandbox of an earlier attempt is gone.
    """

    def __init__(self, name: str, survives: bool, rebuild: Rebuild) -> None:
        self._name, self._survives, self._rebuild = name, survives, rebuild
        self._served: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()

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
        if recording.run.id in runs:
            return None  # if it was lost meanwhile, the session tells of it
        runs.add(recording.run.id)
        before = [cell for cell in recording.effects('kernel') if cell.name == self._name]
        if not before or getattr(box, 'adopted', False):
            return None
        if self._rebuild == 'rerun' and len(recording.names_noted(self._prefix)) == 1:
            try:
                return (yield from self._run_again(recording, box, before, timeout))
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

    def sandbox_of(self, recording: Recording) -> str | None:
        """The container that the run's cells were sent to; `''` for none, None if not known."""
        noted = self._noted(recording)
        return str(noted['container']) if noted.get('survives') else None
