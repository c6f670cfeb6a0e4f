"""One session of the page: what is in it, and what a user does with it."""

import logging
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lagent.actions.interpreter import SandboxError
from lagent.agents.workspace import HIDDEN
from lagent.dialogue import Dialogue, made_for
from lagent.effects import Stage, intercept, subscribe
from lagent.errors import LagentError, RunCancelled
from lagent.ui.blocks import Block, Made, Note, Question, Reply, Uploaded
from lagent.ui.changes import Changes
from lagent.ui.outputs import Media
from lagent.ui.text import shown
from lagent.ui.turn import Turn

_MOST_BLOCKS = 400
_MOST_FILES = 500
_MOST_WAITING = 200  # files dropped into the page at once, one job each
_MOST_UPLOADED = 8 << 30  # bytes of those that wait
_ALL_TABLES = 4 << 20  # bytes of cleaned HTML, all of which is part of the page
_TITLE = 48
_FULL = 'Too much is waiting in this session. Try again in a moment.'
_INTERRUPTED = 'Interrupted; variables and files are kept.'

_log = logging.getLogger(__name__)


class Refused(LagentError):
    """Something that a user wants is not possible now; its text says why."""

    code = 'refused'
    retryable = True


class Session:
    """One conversation, and its page.

    What it does for long it does on a thread of its own, one thing at a time; all methods return
    at once but for `download` and `export`, and may be called from any thread.

    Args:
        number: its number.
        dialogue: what is done in it.
        changes: counts what changes.
    """

    def __init__(self, number: int, dialogue: Dialogue, changes: Changes) -> None:
        self.number, self.media, self.tables = number, Media(), Media(_ALL_TABLES)
        self._dialogue, self._changes = dialogue, changes
        self._lock = threading.RLock()
        self._blocks: list[Block] = []
        self._next = 1
        self._turn: Turn | None = None
        self._waiting = self._uploaded = 0
        self._worker = ThreadPoolExecutor(1, f'lagent-ui-{number}')
        self._given: set[str] = set()
        self.closed = False
        self.title, self.files, self.is_stopping = '', [], False
        self.dropped = 0
        self._changed = self._rewritten = changes.add()
        if dialogue.initial_files:
            self._submit(self._upload, list(dialogue.initial_files))

    title: str
    """The first question."""
    files: list[tuple[Any, bool]]
    """The `FileInfo` of each file, and whether the user gave it."""

    @property
    def is_busy(self) -> bool:
        """Whether something is done in it."""
        return self._waiting > 0

    @property
    def is_answering(self) -> bool:
        """Whether a question is being answered."""
        return self._turn is not None

    def last_changes(self) -> tuple[int, int]:
        """The changes that anything beside the blocks was last changed by, and the whole log.

        They are read under the lock, as `Changes.add` demands.
        """
        with self._lock:
            return self._changed, self._rewritten

    def since(self, seen: int) -> list[dict[str, Any]]:
        """The blocks that have changed.

        Args:
            seen: the change up to which everything is known.

        Returns:
            What each is now, in order.
        """
        with self._lock:
            return [block.frozen() for block in self._blocks if block.changed > seen]

    # What a user does

    def ask(self, question: str) -> None:
        """Have a question answered.

        Args:
            question: the question.

        Raises:
            Refused: another one is being answered, or too much is waiting.
        """
        with self._lock:
            if self._turn is not None:
                raise Refused('Another question is being answered. Wait for it, or stop it first.')
            self._refuse_full()  # before anything is changed: nothing would change it back
            self._turn = turn = Turn(self._add, self._change, self.media, self.tables)
            self.is_stopping = False
            self._dialogue.begin()
            if not self.title:
                self.title = shown(' '.join(question.split()), 4 * _TITLE)[:_TITLE]
            self._add(Question(text=shown(question)))
            self._submit(self._answer, turn, question)

    def stop(self) -> None:
        """Interrupt the running cell; without one, or asked again, end the turn."""
        with self._lock:
            turn = self._turn
            if turn is None:
                return
            what = self._dialogue.stop()
            self._touch(lambda: setattr(self, 'is_stopping', True))
        if what == 'turn':
            turn.stop()
        else:
            self._note('Interrupting the code; stop again to end the turn.')
            threading.Thread(target=self._dialogue.interrupt, daemon=True).start()

    def upload(self, name: str, path: Path) -> None:
        """Give the session a file, and have it looked at.

        Args:
            name: its name there.
            path: the file, in a folder of its own; both are removed afterwards.

        Raises:
            Refused: too much is waiting.
        """
        size = path.stat().st_size
        with self._lock:
            if self._uploaded + size > _MOST_UPLOADED:
                raise Refused(_FULL)
            self._submit(self._upload_and_remove, name, path, size)
            self._uploaded += size

    def undo(self) -> None:
        """Take back the last question.

        Raises:
            Refused: something else is being done.
        """
        with self._lock:
            self._refuse_busy()
            self._submit(self._undo)

    def reset(self) -> None:
        """Forget the conversation, the variables and the files.

        Raises:
            Refused: something else is being done.
        """
        with self._lock:
            self._refuse_busy()
            self._submit(self._reset)

    def download(self, name: str, folder: Path) -> Path:
        """See `Dialogue.download`."""
        return self._dialogue.download(name, folder)

    def export(self, path: Path) -> Path:
        """See `Dialogue.export`.

        Raises:
            Refused: a turn is under way.
        """
        with self._lock:
            self._refuse_busy()
        return self._dialogue.export(path)

    def close(self) -> None:
        """End what is being done, and remove the memory and the sandbox."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            if self._turn is not None:
                self._turn.stop()
        self._worker.submit(self._forget)
        self._worker.shutdown(wait=False)

    # On the session's thread

    def _answer(self, turn: Turn, question: str) -> None:
        try:
            with (
                subscribe(self._dialogue),
                subscribe(turn),
                intercept(turn.leaving, Stage.LIVE),
            ):
                answer = self._dialogue.ask(question)
        finally:
            turn.close()
            with self._lock:
                self._touch(lambda: setattr(self, '_turn', None))
            if turn.ran:
                with self._told():
                    self._list_files()
        if str(answer.content) != turn.last_reply:
            self._note(str(answer.content), 'error' if answer.type == 'limit' else 'info')
        if made := made_for(answer):
            self._add(Made(files=made))

    def _upload(self, paths: list[Path] | dict[str, Path]) -> None:
        profiles = self._dialogue.upload(paths)
        self._given |= {profile.path for profile in profiles}
        self._add(Uploaded(profiles=profiles))
        self._list_files()

    def _upload_and_remove(self, name: str, path: Path, size: int) -> None:
        try:
            self._upload({name: path})
        finally:
            _remove(path)
            with self._lock:
                self._uploaded -= size

    def _undo(self) -> None:
        question = self._dialogue.undo()
        if question is None:
            self._note('There is no question to take back.')
            return
        with self._lock:
            positions = [
                position
                for position, block in enumerate(self._blocks)
                if isinstance(block, Question)
            ]
            kept = [each for each in self._blocks[positions[-1] :] if isinstance(each, Uploaded)]
            self._rewrite([*self._blocks[: positions[-1]], *kept] if positions else [])
        self._note('The question was taken back; variables and files are as the code left them.')

    def _reset(self) -> None:
        self._dialogue.reset()
        with self._lock:
            self.media.clear()
            self.tables.clear()
            self.title, self.files, self._given = '', [], set()
            self._rewrite([])
        if self._dialogue.initial_files:
            self._upload(list(self._dialogue.initial_files))

    def _forget(self) -> None:
        with suppress(SandboxError):
            self._dialogue.reset()

    def _list_files(self) -> None:
        infos = [
            info
            for info in self._dialogue.files()
            if info.kind == 'file' and not HIDDEN.search(info.path)
        ]
        infos = sorted(infos, key=lambda info: info.path)[:_MOST_FILES]
        files = [(info, info.path in self._given) for info in infos]
        with self._lock:
            self._touch(lambda: setattr(self, 'files', files))
            for block in self._blocks:
                if isinstance(block, Reply) and block.links:  # which may lead to these files
                    block.changed = self._changes.add()

    # Changing the page

    def _submit(self, work: Callable[..., None], *args: Any) -> None:
        with self._lock:
            self._refuse_full()
            self._touch(lambda: setattr(self, '_waiting', self._waiting + 1))
            self._worker.submit(self._work, work, args)

    def _work(self, work: Callable[..., None], args: tuple[Any, ...]) -> None:
        try:
            with self._told():
                work(*args)
        finally:
            with self._lock:
                self._touch(lambda: setattr(self, '_waiting', self._waiting - 1))

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Tell what something failed with, and go on."""
        try:
            yield
        except RunCancelled:
            self._note(_INTERRUPTED)
        except (SandboxError, LagentError, OSError, ValueError) as error:
            self._note(f'{type(error).__name__}: {error}', 'error')
        except Exception as error:  # noqa: BLE001 - told and logged; the page goes on
            _log.exception('a session of the page failed')
            self._note(f'{type(error).__name__}; the log of `lagent ui` says more.', 'error')

    def _refuse_full(self) -> None:
        if self.closed:
            raise Refused('This session is closed.')
        if self._waiting >= _MOST_WAITING:
            raise Refused(_FULL)

    def _refuse_busy(self) -> None:
        if self.is_busy:
            raise Refused('This session is busy. Wait for it, or stop it first.')

    def _note(self, text: str, tone: str = 'info') -> None:
        self._add(Note(text=shown(text), tone=tone))

    def _add(self, block: Block) -> None:
        with self._lock:
            block.number, self._next = self._next, self._next + 1
            self._blocks.append(block)
            block.created = block.changed = self._changes.add()
            if len(self._blocks) > _MOST_BLOCKS:
                self.dropped += len(self._blocks) - _MOST_BLOCKS
                self._rewrite(self._blocks[-_MOST_BLOCKS:])

    def _change(self, block: Block, change: Callable[[], None]) -> None:
        with self._lock:
            change()
            block.changed = self._changes.add()

    def _touch(self, change: Callable[[], None]) -> None:
        change()
        self._changed = self._changes.add()

    def _rewrite(self, blocks: list[Block]) -> None:
        self._blocks = blocks
        self._rewritten = self._changed = self._changes.add()


def scratch_file() -> Path:
    """A path in a new folder that only this user can read; see `Session.upload`."""
    return Path(tempfile.mkdtemp(prefix='lagent-ui-')) / 'file'


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    with suppress(OSError):
        path.parent.rmdir()
