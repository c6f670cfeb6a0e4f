"""One memory a session."""

import copy
import threading
from collections.abc import Hashable, Sequence
from typing import Any

from lagent.context import DEFAULT_SESSION, Flag, current_context
from lagent.memory.base_memory import Memory
from lagent.schema import AgentMessage
from lagent.utils import create_object

# One for all managers, which are copied and pickled with their agents; nothing waits inside of it.
# The collector may end an abandoned stream, which uses its memory, inside of it.
_using = threading.RLock()


class MemoryManager:
    """The memories of all sessions of one agent.

    Attributes:
        cfg: configuration of a session's memory.
        max_sessions: how many sessions are kept, None for all. Beyond that a new session takes the
            place of the one that was used least recently; those that a run works with always stay.
        memory_map: the memories by session.

    Raises:
        ValueError: `max_sessions` is less than 1.
    """

    def __init__(self, cfg: dict[str, Any] | Memory, max_sessions: int | None = None) -> None:
        if max_sessions is not None and max_sessions < 1:
            raise ValueError(f'max_sessions must be at least 1, got {max_sessions}')
        self.cfg = cfg
        self.max_sessions = max_sessions
        # A memory that is given as an object serves session 0; the others start from a copy of it.
        self._given = cfg if isinstance(cfg, Memory) else None
        self._prototype = copy.deepcopy(self._given)
        self.memory_map: dict[Hashable, Memory] = {}
        # The sessions in the order of their last use, each with the ends of the runs that used it.
        self._used: dict[Hashable, set[Flag]] = {}

    def __repr__(self) -> str:
        sessions = len(self.memory_map)
        return f'{type(self).__name__}(sessions={sessions}, max_sessions={self.max_sessions})'

    def __getstate__(self) -> dict[str, Any]:
        # A copy takes part in no run.
        return {**vars(self), '_used': {session: set() for session in self._used}}

    def create_instance(self, session_id: Hashable) -> Memory:
        """Give a session an empty memory.

        Args:
            session_id: the session.

        Returns:
            The new memory.
        """
        memory = self._new(session_id)
        with _using:
            self.memory_map[session_id] = memory
            self._use(session_id)
        return memory

    def _new(self, session_id: Hashable) -> Memory:
        if self._prototype is None:
            memory: Memory = create_object(self.cfg)
        elif session_id == DEFAULT_SESSION and self._given is not None:
            memory, self._given = self._given, None
        else:
            memory = copy.deepcopy(self._prototype)
        return memory

    def get(self, session_id: Hashable = 0) -> Memory | None:
        """The memory of a session.

        Args:
            session_id: the session.

        Returns:
            Its memory, or None when it has none.
        """
        if self.max_sessions is None:
            return self.memory_map.get(session_id)
        with _using:
            memory = self.memory_map.get(session_id)
            if memory is not None:
                self._use(session_id)
        return memory

    def get_memory(self, session_id: Hashable = 0, **kwargs: Any) -> list[AgentMessage]:
        """The messages of a session.

        Args:
            session_id: the session.
            kwargs: see `Memory.get_memory`.

        Returns:
            The messages; none for a session that has no memory.
        """
        memory = self.get(session_id)
        return [] if memory is None else memory.get_memory(**kwargs)

    def add(
        self,
        memory: str | AgentMessage | Sequence[str | AgentMessage] | None,
        session_id: Hashable = 0,
        **kwargs: Any,
    ) -> None:
        """Remember messages in a session, which is created when it is new.

        Args:
            memory: see `Memory.add`.
            session_id: the session.
            kwargs: passed on to the memory class's `add`.
        """
        target = self.get(session_id)
        if target is None:
            created = self._new(session_id)
            with _using:
                # Two threads may come here at once for an agent that two others share.
                target = self.memory_map.setdefault(session_id, created)
                self._use(session_id)
        target.add(memory, **kwargs)

    def reset(self, session_id: Hashable = 0) -> None:
        """Forget a session.

        Args:
            session_id: the session; one that is unknown is no error.
        """
        with _using:
            self.memory_map.pop(session_id, None)
            self._used.pop(session_id, None)

    def _use(self, session_id: Hashable) -> None:
        """Note that a session is used, and drop others that are too many; under the lock."""
        if self.max_sessions is None:
            return
        run = current_context()
        runs = {ended for ended in self._used.pop(session_id, ()) if not ended.is_set()}
        self._used[session_id] = runs if run is None else {*runs, run.ended}
        if len(self.memory_map) <= self.max_sessions:
            return
        # Sessions from before there was a bound have not been noted: they are the oldest.
        unnoted = [session for session in self.memory_map if session not in self._used]
        for session in [*unnoted, *self._used]:
            if len(self.memory_map) <= self.max_sessions:
                return
            runs = self._used.get(session, set())
            if session != session_id and all(ended.is_set() for ended in runs):
                self.memory_map.pop(session, None)
                self._used.pop(session, None)
