"""One memory a session."""

import copy
from collections.abc import Hashable, Sequence
from typing import Any

from lagent.context import DEFAULT_SESSION
from lagent.memory.base_memory import Memory
from lagent.schema import AgentMessage
from lagent.utils import create_object


class MemoryManager:
    """The memories of all sessions of one agent.

    Attributes:
        cfg: configuration of a session's memory.
        memory_map: the memories by session.
    """

    def __init__(self, cfg: dict[str, Any] | Memory) -> None:
        self.cfg = cfg
        # A memory that is given as an object serves session 0; the others start from a copy of it.
        self._given = cfg if isinstance(cfg, Memory) else None
        self._prototype = copy.deepcopy(self._given)
        self.memory_map: dict[Hashable, Memory] = {}

    def create_instance(self, session_id: Hashable) -> Memory:
        """Give a session an empty memory.

        Args:
            session_id: the session.

        Returns:
            The new memory.
        """
        memory = self._new(session_id)
        self.memory_map[session_id] = memory
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
        return self.memory_map.get(session_id)

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
            # Two threads may come here at once for an agent that two others share.
            target = self.memory_map.setdefault(session_id, self._new(session_id))
        target.add(memory, **kwargs)

    def reset(self, session_id: Hashable = 0) -> None:
        """Forget a session.

        Args:
            session_id: the session; one that is unknown is no error.
        """
        self.memory_map.pop(session_id, None)
