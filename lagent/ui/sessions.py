"""All sessions of the page."""

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lagent.dialogue import Dialogue
from lagent.ui.changes import Changes
from lagent.ui.session import Refused, Session

MOST_SESSIONS = 12


class Sessions:
    """All sessions of a page.

    Args:
        analyst: answers in all of them.
        files: files that each session starts with.
    """

    def __init__(self, analyst: Any, files: Iterable[Path] = ()) -> None:
        self.changes = Changes()
        self._analyst, self._files = analyst, list(files)
        self._lock = threading.Lock()
        self._sessions: dict[int, Session] = {}
        self._count = 0
        self._changed = 0
        self.open()

    def open(self) -> Session:
        """Begin a session.

        Returns:
            The session.

        Raises:
            Refused: there are as many as there may be.
        """
        with self._lock:
            if len(self._sessions) >= MOST_SESSIONS:
                raise Refused(f'There may be {MOST_SESSIONS} sessions. Close one first.')
            self._count += 1
            dialogue = Dialogue(self._analyst, self._files, f'ui-{self._count}')
            session = Session(self._count, dialogue, self.changes)
            self._sessions[session.number] = session
            self._changed = self.changes.add()
            return session

    def get(self, number: int) -> Session | None:
        """A session by its number."""
        return self._sessions.get(number)

    def last_change(self) -> int:
        """The change that sessions were last begun or ended by."""
        with self._lock:
            return self._changed

    def all(self) -> list[Session]:
        """All that are open, in the order in which they were begun."""
        with self._lock:
            return list(self._sessions.values())

    def close(self, session: Session) -> None:
        """End a session; after the last one a new one begins.

        Args:
            session: the session.
        """
        session.close()
        with self._lock:
            self._sessions.pop(session.number, None)
            self._changed = self.changes.add()
            is_last = not self._sessions
        if is_last:
            self.open()

    def close_all(self) -> None:
        """End all sessions, so that the program can end."""
        for session in self.all():
            session.close()
