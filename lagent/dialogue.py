"""A conversation with a data analyst, without the face that shows it: a terminal, or a web page."""

from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from lagent.effects import Event


class Dialogue:
    """What a user can do in one session of a data analyst, and what to stop means in it.

    A turn is stopped in two steps: the first interrupts the running cell, and the model is told;
    where none is running, or the second time, the turn ends. To know which, the dialogue subscribes
    to the events of its turns.

    Args:
        analyst: answers.
        files: files that the session starts with, again after a reset.
        session_id: the analyst's session; its default one by default.
    """

    def __init__(
        self, analyst: Any, files: Iterable[Path] = (), session_id: Hashable | None = None
    ) -> None:
        self.analyst, self.initial_files = analyst, list(files)
        self._session = session_id
        self._runs, self._used = False, False

    def __call__(self, event: Event) -> None:
        """Take notice of an event.

        Args:
            event: what happened.
        """
        if event.effect.kind == 'kernel' and not event.replayed:
            self._runs = event.type in ('begin', 'delta')

    def begin(self) -> None:
        """Forget what was stopped in an earlier turn."""
        self._runs, self._used = False, False

    def ask(self, question: str) -> Any:
        """Have a question answered.

        Args:
            question: what the user wants to know.

        Returns:
            The answer, an `AgentMessage`.
        """
        return self.analyst(question, session_id=self._session)

    def stop(self) -> Literal['cell', 'turn']:
        """Say what is to be stopped now.

        Returns:
            ``'cell'`` where the running cell is to be interrupted, with `interrupt`; ``'turn'``
            where the turn is to end.
        """
        if not self._runs or self._used:
            return 'turn'
        self._used = True
        return 'cell'

    def interrupt(self) -> None:
        """Interrupt the running cell; one that can't be interrupted ends by its own limits."""
        from lagent.actions.interpreter import SandboxError

        with suppress(SandboxError):
            self.analyst.interpreter.interrupt(session_id=self._session)

    def upload(self, paths: Iterable[Path] | Mapping[str, Path]) -> list[Any]:
        """Give files to the session.

        Args:
            paths: the files, or names in the session for them.

        Returns:
            The `FileProfile` of each.
        """
        profiles: list[Any] = self.analyst.upload(paths, session_id=self._session)
        return profiles

    def files(self) -> list[Any]:
        """The files of the session.

        Returns:
            A `FileInfo` for each.
        """
        infos: list[Any] = self.analyst.files(session_id=self._session)
        return infos

    def made(self) -> list[str]:
        """The names of the files that code has made or changed, and that are still there."""
        return [each.path for each in self.analyst.artifacts(session_id=self._session)]

    def download(self, name: str, folder: Path) -> Path:
        """Copy a file of the session into a folder, under the folders of its own name.

        Args:
            name: the file.
            folder: where to.

        Returns:
            The copy.

        Raises:
            SandboxError: there is no such file, or its name leads out of the folder; nothing was
                written then.
        """
        to = folder / PurePosixPath(name).parent
        path: Path = self.analyst.interpreter.download(name, to, session_id=self._session)
        return path

    def undo(self) -> str | None:
        """Take back the last question; variables and files stay as the code has left them.

        Returns:
            The question; None if there was none.
        """
        question = self.analyst.undo(session_id=self._session)
        return None if question is None else str(question.content)

    def reset(self) -> None:
        """Forget the conversation, the variables and the files; see `initial_files`."""
        self.analyst.reset(*([] if self._session is None else [self._session]))

    def export(self, path: Path) -> Path:
        """Write the session as a Jupyter notebook.

        Args:
            path: the notebook.

        Returns:
            The path.
        """
        written: Path = self.analyst.export(path, session_id=self._session)
        return written


def made_for(answer: Any) -> list[dict[str, Any]]:
    """The files that were made for an answer.

    Args:
        answer: the message.

    Returns:
        Path, size, kind and preview of each.
    """
    info = answer.extra_info if isinstance(answer.extra_info, dict) else {}
    return list(info.get('artifacts', ()))
