"""What becomes of a run's sandbox when the run goes on in another process."""

import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lagent.actions import given_files, snapshots
from lagent.actions.sandbox_sessions import lasting_name
from lagent.context import current_context, resolve_session
from lagent.flow import Flow, blocking_call, call
from lagent.journal.contract import Record
from lagent.journal.errors import NotRecordable
from lagent.journal.recording import Recording, current_recording
from lagent.positions import effect_id
from lagent.utils.counts import many

Rebuild = Literal['fresh', 'rerun', 'snapshot']


EXECUTE, LOOK = 'execute', 'look'
"""What the program's own cells are called behind the interpreter's name."""
RESTART, CLOSE = 'restart', 'close_session'
"""What throws away what cells have left is called there."""

_NOTHING_GIVEN: dict[str, Any] = {'container': '', 'used': False, 'files': []}
_NO_VARIABLES: dict[str, Any] = {'kept': [], 'lost': [], 'more': 0}
_NO_CELL = '-'  # where a cell's id would stand
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


@dataclass(eq=False, slots=True)
class _Box:
    """What is known of a sandbox in this process.

    Attributes:
        served: runs that have used it.
        given: files that it was given, see `given_files`.
        used: whether code was run in it that may have left something.
        untold: what the next cell has to say.
        is_half_built: whether it was begun to be given what the old one had, and that did not end.
        files: what is known of its files, for snapshots.
        given_files: what is known of the files that it was given.
    """

    served: set[str] = field(default_factory=set)
    given: dict[str, Path | None] = field(default_factory=dict)
    used: bool = False
    untold: News | None = None
    is_half_built: bool = False
    files: snapshots.Files = field(default_factory=snapshots.Files)
    given_files: snapshots.Files = field(default_factory=snapshots.Files)


class Resumption:
    """Keeps, in the run's journal, which sandbox a run uses; and sees when it is another one.

    A note is made before the first cell is begun, one before a sandbox is used, and one before the
    first cell is sent to it. So a run whose note says that cells were sent nowhere has sent none;
    one that was sent is in the sandbox that the note says, or was lost with an earlier one; and the
    sandbox that is used is whole unless the note says otherwise. Another note has what the session
    had when the run began, and the files that it was given.

    Args:
        name: the interpreter's name.
        survives: whether its sandboxes survive this process.
        rebuild: what is done when the sandbox of an earlier attempt is gone; see `Interpreter`.
        open_box: gives a session's sandbox, if there is one.
    """

    def __init__(
        self,
        name: str,
        survives: bool,
        rebuild: Rebuild,
        open_box: Callable[[Hashable], Any],
    ) -> None:
        self._name, self._survives, self._rebuild = name, survives, rebuild
        self._open_box = open_box
        self._boxes: weakref.WeakKeyDictionary[Any, _Box] = weakref.WeakKeyDictionary()
        self._ran: weakref.WeakKeyDictionary[Recording, dict[str, _Cell]] = (
            weakref.WeakKeyDictionary()
        )
        self._opened: weakref.WeakKeyDictionary[Recording, set[str]] = weakref.WeakKeyDictionary()
        self._pasts: weakref.WeakKeyDictionary[Recording, dict[Hashable, list[Record | None]]] = (
            weakref.WeakKeyDictionary()
        )

    def _key(self, what: Literal['sandbox', 'given', 'snapshot']) -> str:
        """The name of a note about the current session."""
        name = lasting_name(session := resolve_session(None))
        if name is None:
            raise NotRecordable(
                f'A recorded run uses a session that is a {type(session).__name__}, '
                'which another process could not tell from other ones. Nothing was done: name '
                'sessions by texts, numbers, bytes, UUIDs, or tuples of them.'
            )
        return f'{what}/{self._name}/{name}'

    def _noted(self, recording: Recording) -> dict[str, Any]:
        return recording.noted(self._key('sandbox')) or {}

    def _about(self, box: Any) -> _Box:
        return self._boxes.setdefault(box, _Box())

    def open(self) -> Flow[None]:
        """Note what the session has when a run begins: its sandbox, and what that was given."""
        recording = current_recording()
        if recording is None:
            return
        key, opened = self._key('given'), self._opened.setdefault(recording, set())
        if key in opened or recording.is_resumed:
            return
        opened.add(key)
        box = self._open_box(resolve_session(None))
        about = None if box is None else self._about(box)
        if about is None or not (about.used or about.given):
            return
        about.served.add(recording.run.id)
        if about.given:
            yield from self._keep_given(recording, box, about.used)
        else:
            note = {'container': box.container_id, 'used': True, 'files': []}
            yield from blocking_call(recording.note, key, note)
        if self._rebuild == 'snapshot' and about.used:
            self._due(recording)[self._key('snapshot')] = _Cell(box, None, True)
            yield from self.keep()

    def gave(self, box: Any, sources: Mapping[str, Any]) -> Flow[None]:
        """Note that a sandbox was given files.

        Args:
            box: the sandbox.
            sources: paths there, and where each came from: a path of the host, or bytes.
        """
        about, recording = self._about(box), current_recording()
        for path, source in sources.items():
            about.given[path] = None if isinstance(source, bytes) else Path(source).absolute()
        if recording is not None and sources:
            noted = recording.noted(self._key('given')) or _NOTHING_GIVEN
            yield from self._keep_given(recording, box, noted['used'])

    def _keep_given(self, recording: Recording, box: Any, used: bool) -> Flow[None]:
        about = self._about(box)
        files = yield from given_files.keep(box, about.given_files, about.given)
        note = {'container': box.container_id, 'used': used, 'files': files}
        yield from blocking_call(recording.note, self._key('given'), note)

    def announce(self) -> Flow[None]:
        """Note, before a cell is begun, whether its sandbox is one that survives."""
        recording = current_recording()
        yield from self.open()
        if recording is None or not (self._survives or self._rebuild == 'rerun'):
            if recording is not None and self._noted(recording).get('survives'):
                yield from self._note(recording, survives=False)
            return
        noted = self._noted(recording)
        if noted.get('survives') not in (False, self._survives):
            yield from self._note(recording, survives=self._survives)

    def _note(self, recording: Recording, **changes: Any) -> Flow[None]:
        note = {'container': '', **self._noted(recording), **changes}
        yield from blocking_call(recording.note, self._key('sandbox'), note)

    def prepare(self, box: Any, timeout: float | None) -> Flow[None]:
        """Prepare a sandbox for something that is no cell; the next cell says what there is.

        Args:
            box: the sandbox.
            timeout: see `begin`.
        """
        news = yield from self._begun(box, timeout, None)
        if news is not None:
            self._about(box).untold = news

    def begin(self, box: Any, timeout: float | None) -> Flow[News | None]:
        """Prepare a sandbox for the next cell of a run.

        Args:
            box: the sandbox.
            timeout: the wall clock of each cell that is run again.

        Returns:
            What there is to tell with the cell.
        """
        return (yield from self._begun(box, timeout, effect_id()))

    def _begun(self, box: Any, timeout: float | None, cell: str | None) -> Flow[News | None]:
        recording = current_recording()
        if recording is None:
            return None
        about, noted = self._about(box), self._noted(recording)
        if recording.run.id in about.served:  # if it was lost meanwhile, the session tells of it
            yield from self._uses(recording, box, cell)
            untold, about.untold = about.untold, None
            if untold is not None:
                yield from self._due_to(recording, untold, cell)
            return untold or self.news_of(recording, cell)
        about.served.add(recording.run.id)
        try:
            if getattr(box, 'adopted', False) and noted.get('container') == box.container_id:
                yield from self._uses(recording, box, cell)
                return (yield from self._left_untold(recording, cell))
            if recording.is_resumed:
                return (yield from self._built(recording, box, timeout, cell))
            yield from self._uses(recording, box, cell)
            return (yield from self._rebuilt(recording, box, timeout))
        except BaseException:
            about.served.discard(recording.run.id)
            raise

    def _uses(self, recording: Recording, box: Any, cell: str | None) -> Flow[None]:
        """Note, where it is another one than before, which sandbox is used, and sent cells."""
        noted = self._noted(recording)
        place = {'container': box.container_id} | _sent_to(box, cell)
        if noted and noted | place != noted:
            yield from self._note(recording, **place)

    def _built(
        self, recording: Recording, box: Any, timeout: float | None, cell: str | None
    ) -> Flow[News | None]:
        """Note that a sandbox is half built for as long as it is."""
        noted = self._noted(recording)
        try:
            if noted:
                half = cell or _NO_CELL
                yield from self._note(recording, container=box.container_id, half_built=half)
            news = yield from self._rebuilt(recording, box, timeout)
            if noted:
                told = None if news is None else [*news, cell]
                place = _sent_to(box, cell)
                yield from self._note(recording, half_built='', news=told, **place)
        except BaseException:
            self._about(box).is_half_built = True
            raise
        return news

    def is_half_built(self, box: Any) -> bool:
        """Whether a sandbox has some of what the old one had, and nobody knows how much of it."""
        recording, about = current_recording(), self._about(box)
        if recording is None or recording.run.id in about.served:  # it is being built
            return False
        noted = self._noted(recording) if getattr(box, 'adopted', False) else {}
        is_left_so = noted.get('half_built') and noted['container'] == box.container_id
        return about.is_half_built or bool(is_left_so)

    def _due_to(self, recording: Recording, news: News, cell: str | None) -> Flow[None]:
        """Note which cell has something to tell, in case that its end is seen by another process.

        Args:
            recording: the run.
            news: what there is to tell.
            cell: the cell's id; None for the next one.
        """
        if self._noted(recording).get('survives'):
            yield from self._note(recording, news=[*news, cell])

    def _left_untold(self, recording: Recording, cell: str | None) -> Flow[News | None]:
        """What an earlier process has not told any more."""
        news, due_to = self._news(recording)
        if news is None or due_to not in (None, cell):
            return None
        yield from self._due_to(recording, news, cell)
        return news

    def news_of(self, recording: Recording, cell: str | None) -> News | None:
        """What a cell that an earlier process has sent has to tell."""
        news, due_to = self._news(recording)
        return news if cell is not None and due_to == cell else None

    def _news(self, recording: Recording) -> tuple[News | None, str | None]:
        """What is noted by `_due_to`: the news, and the cell."""
        *news, due_to = self._noted(recording).get('news') or (None,)
        return (News(*news) if news else None), due_to

    def _rebuilt(self, recording: Recording, box: Any, timeout: float | None) -> Flow[News | None]:
        """Give a new sandbox what the old one had, as far as that is wanted and possible."""
        past = self._past(recording)
        before = [cell for cell in past if cell is not None]
        given = recording.noted(self._key('given')) or _NOTHING_GIVEN
        if given['container'] is not None and given['container'] == box.container_id:
            return None
        files = yield from given_files.restore(box, given['files'], self._about(box).given)
        for path in files.there:
            self._about(box).given.setdefault(path, None)
        if not before and not given['used']:
            return News(files.words, is_lost=True) if files.lost else None
        is_sole = len(recording.names_noted(f'sandbox/{self._name}/')) == 1
        if self._rebuild == 'snapshot' and (note := recording.noted(self._key('snapshot'))):
            news = yield from self._restore(recording, box, before, note)
            files = files._replace(there=[])  # the snapshot tells
        elif self._rebuild == 'rerun' and before and is_sole:
            news = yield from self._run_again(recording, box, past, timeout)
            if given['used']:
                words = f'{news.notice}; what was run before this question is lost'
                news = News(words, is_lost=True)
        else:
            is_restarted = bool(past) and past[-1] is None
            what = 'files' if is_restarted else 'variables, imports and files'
            news = News(
                f'the program was interrupted{_after(before)}, and this one ran in a new '
                f'sandbox: {what} from before it are lost',
                is_lost=True,
            )
        notice = f'{news.notice.rstrip(".")}. {files.words}' if files.words else news.notice
        return News(notice, news.is_lost or bool(files.lost))

    def _run_again(
        self, recording: Recording, box: Any, past: list[Record | None], timeout: float | None
    ) -> Flow[News]:
        failed = 0
        for cell in past:
            if cell is None:
                yield from call(box.restart)
                continue
            result = yield from call(box.execute, recording.decode(cell.body), timeout=timeout)
            failed += not result.ok
        failures = f'; {failed} of them failed this time' if failed else ''
        cells = len(past) - past.count(None)
        return News(
            f'the program was interrupted and its sandbox is gone: the {many(cells, "cell")} '
            f'before this one ran again in a new sandbox{failures}',
            is_lost=False,
        )

    def _past(self, recording: Recording) -> list[Record | None]:
        """The cells of earlier attempts, and None for each restart of the session.

        What was before the session was closed is not among them. Cells don't say which session they
        ran in, and are taken for this one's.
        """
        session = lasting_name(resolve_session(None))
        pasts = self._pasts.setdefault(recording, {})
        if session not in pasts:
            past = pasts[session] = []
            cells = (self._name, f'{self._name}.{EXECUTE}')
            ends = {f'{self._name}.{method}': method for method in (RESTART, CLOSE)}
            for effect in recording.effects():
                if effect.name in cells:
                    past.append(effect)
                elif effect.name in ends and recording.decode(effect.body) == session:
                    _throw_away(past, ends[effect.name])
        return pasts[session]

    def is_left(self) -> bool:
        """Whether a sandbox may be left to the session, which is in no manager until asked for."""
        recording = current_recording()
        if recording is None or not self._survives:
            return False
        given = recording.noted(self._key('given')) or _NOTHING_GIVEN
        noted = self._noted(recording)
        is_noted = noted.get('survives') and noted['container']
        return bool(is_noted or given['container'])

    def threw_away(self, method: str) -> Flow[None]:
        """Note, inside of its effect, that the session was restarted or closed.

        Args:
            method: `RESTART` or `CLOSE`.
        """
        recording = current_recording()
        if recording is None:
            return
        _throw_away(self._past(recording), method)
        copied = recording.noted(snapshot := self._key('snapshot'))
        if method == RESTART:
            if copied is not None:
                yield from blocking_call(recording.note, snapshot, copied | _NO_VARIABLES)
            return
        self._due(recording).pop(snapshot, None)
        if copied is not None:
            yield from blocking_call(recording.note, snapshot, None)
        if recording.noted(given := self._key('given')) is not None:
            yield from blocking_call(recording.note, given, None)
        if self._noted(recording).get('container'):
            yield from self._note(recording, container='', sent_to='', news=None)

    def ran(self, box: Any, state_preserved: bool) -> None:
        """Remember, inside the effect of a cell, that a snapshot is due.

        Args:
            box: the sandbox.
            state_preserved: whether the cell has left the variables there.
        """
        recording = current_recording()
        self._about(box).used = True
        if recording is not None and self._rebuild == 'snapshot':
            cell = _Cell(box, effect_id(), state_preserved)
            self._due(recording)[self._key('snapshot')] = cell

    def _due(self, recording: Recording) -> dict[str, _Cell]:
        return self._ran.setdefault(recording, {})

    def keep(self) -> Flow[None]:
        """Take the snapshot that is due, once the result of the cell is recorded."""
        recording = current_recording()
        if recording is None:
            return
        key = self._key('snapshot')
        cell = self._ran.get(recording, {}).pop(key, None)
        if cell is None:
            return
        try:
            note = {'behind': 0, 'why': '', **(yield from self._copied(cell))}
        except snapshots.NoSnapshot as error:
            self._tell(cell.box, error.news)
            note = recording.noted(key) or {**snapshots.EMPTY, 'behind': 0}
            note |= {'behind': note['behind'] + 1, 'why': error.why}
            if not cell.state_preserved:
                note |= _NO_VARIABLES
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
        files = self._about(cell.box).files
        note, news = yield from snapshots.keep(cell.box, files, seconds)
        self._tell(cell.box, news)
        return note

    def _tell(self, box: Any, news: tuple[str, ...]) -> None:
        if news:
            self._about(box).untold = News(' '.join(news), is_lost=True)

    def _restore(
        self, recording: Recording, box: Any, before: list[Any], note: dict[str, Any]
    ) -> Flow[News]:
        ids = [f'{recording.run.id}:{cell.position}' for cell in before]
        after = ids[ids.index(note['cell']) + 1 :] if note['cell'] in ids else ids
        behind = len(after) + note['behind']
        restored, is_all = yield from snapshots.restore(box, note)
        cells = f'; what the last {behind} of them did is not in it' if behind else ''
        why = f' ({note["why"]})' if behind and note['why'] else ''
        restored = f'. {restored}' if restored else ''
        return News(
            f'the program was interrupted{_after(before)} and its sandbox is gone: this '
            f'cell ran in a new one, with a snapshot of the old one{cells}{why}{restored}',
            is_lost=not is_all or behind > 0,
        )

    def sandbox_of(self, recording: Recording) -> str | None:
        """The container that cells were last sent to; `''` for none, None if not known."""
        noted = self._noted(recording)
        return str(noted.get('sent_to', '')) if noted.get('survives') else None

    def was_not_sent(self, recording: Recording, cell: str) -> bool:
        """Whether a cell was surely not sent: none was, or its sandbox was still being built."""
        is_half_built = self._survives and self._noted(recording).get('half_built') == cell
        return is_half_built or self.sandbox_of(recording) == ''


def _throw_away(past: list[Record | None], method: str) -> None:
    if method == CLOSE:
        past.clear()
    else:
        past.append(None)


def _sent_to(box: Any, cell: str | None) -> dict[str, str]:
    return {} if cell is None else {'sent_to': box.container_id}


def _after(before: list[Any]) -> str:
    return f' after {many(len(before), "cell")}' if before else ''
