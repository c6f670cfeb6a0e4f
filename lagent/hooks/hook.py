"""The base class of hooks, and of what hooks are registered with."""

import itertools
from collections.abc import Hashable, Iterable, MutableMapping
from typing import Any

from lagent.schema import AgentMessage
from lagent.utils import create_object

_ids = itertools.count()


class Hook:
    """Sees messages before and after an agent or a tool gets them; this one does nothing.

    A method may edit the messages it is given, or return what is to be used instead; nothing (or
    anything false) leaves them as they are. For asynchronous agents and executors the methods may
    be coroutines.
    """

    def before_agent(
        self, agent: Any, message: list[AgentMessage], session_id: Hashable
    ) -> AgentMessage | Iterable[AgentMessage] | None:
        """Called with the messages for an agent, before they are remembered.

        Args:
            agent: the agent.
            message: copies of its messages.
            session_id: the session.

        Returns:
            The message or messages to use instead, or None.
        """

    def after_agent(
        self, agent: Any, message: AgentMessage, session_id: Hashable
    ) -> AgentMessage | None:
        """Called with an agent's answer, after it is remembered.

        Args:
            agent: the agent.
            message: a copy of its answer.
            session_id: the session.

        Returns:
            The message to give to the caller instead, or None.
        """

    def before_action(
        self, executor: Any, message: AgentMessage, session_id: Hashable
    ) -> AgentMessage | None:
        """Called with the message that asks for a tool call or for code to be run.

        Args:
            executor: the executor or interpreter.
            message: a copy of the message.
            session_id: the session.

        Returns:
            The message to use instead, or None.
        """

    def after_action(
        self, executor: Any, message: AgentMessage, session_id: Hashable
    ) -> AgentMessage | None:
        """Called with the result of the tool call or of the code.

        Args:
            executor: the executor or interpreter.
            message: the message with the result.
            session_id: the session.

        Returns:
            The message to give to the caller instead, or None.
        """


class RemovableHandle:
    """Takes a hook out of the register that it was put into.

    Args:
        hooks_dict: the register.

    Attributes:
        id: the hook's key in the register.
    """

    def __init__(self, hooks_dict: MutableMapping[int, Any]) -> None:
        self.id = next(_ids)
        self._hooks = hooks_dict

    def remove(self) -> None:
        """Remove the hook; more than once is harmless."""
        self._hooks.pop(self.id, None)


class Hookable:
    """Something that hooks can be registered with.

    Args:
        hooks: a hook, the configuration dict of one, or several of either.
    """

    def __init__(
        self, hooks: Hook | dict[str, Any] | Iterable[Hook | dict[str, Any]] | None = None
    ) -> None:
        self._hooks: dict[int, Any] = {}
        for hook in [hooks] if isinstance(hooks, Hook | dict) else hooks or ():
            self.register_hook(hook)

    def register_hook(self, hook: Hook | dict[str, Any]) -> RemovableHandle:
        """Add a hook; hooks are called in the order in which they were added.

        Args:
            hook: the hook, or its configuration dict.

        Returns:
            A handle that removes it.
        """
        handle = RemovableHandle(self._hooks)
        self._hooks[handle.id] = create_object(hook)
        return handle
