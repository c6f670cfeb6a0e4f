"""Agents as Ray actors: call them like the agent, anywhere in the cluster."""

from collections.abc import Hashable, Mapping
from typing import Any

from lagent._extras import require
from lagent.distributed.config import read_config
from lagent.schema import AgentMessage


class AgentRayActor:
    """An agent that lives in a Ray actor.

    Args:
        config: the agent's configuration; see `read_config`.
        num_gpus: how many GPUs the actor reserves.

    Raises:
        ExtraMissing: Ray is not installed.

    Attributes:
        agent_actor: the handle of the actor; ``agent_actor.method.remote(...)`` calls a method.
    """

    def __init__(self, config: Mapping[str, Any], num_gpus: float = 0) -> None:
        self._ray = require('ray', 'ray')
        agent_class, arguments = read_config(config)
        actor_class = self._ray.remote(num_gpus=num_gpus)(agent_class)
        self.agent_actor = actor_class.remote(**arguments)

    def __call__(
        self, *message: str | AgentMessage, session_id: Hashable = 0, **kwargs: Any
    ) -> Any:
        """Ask the agent.

        Args:
            message: messages, or texts from the user.
            session_id: the session.
            kwargs: further arguments of the agent's call.

        Returns:
            The answer.
        """
        return self._ray.get(self._ask(message, session_id, kwargs))

    def _ask(self, message: tuple[Any, ...], session_id: Hashable, kwargs: dict[str, Any]) -> Any:
        return self.agent_actor.__call__.remote(*message, session_id=session_id, **kwargs)


class AsyncAgentRayActor(AgentRayActor):
    """An `AgentRayActor` whose call is awaited."""

    async def __call__(
        self, *message: str | AgentMessage, session_id: Hashable = 0, **kwargs: Any
    ) -> Any:
        """See `AgentRayActor.__call__`."""
        return await self._ask(message, session_id, kwargs)
