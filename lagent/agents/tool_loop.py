"""The loop of InternLM's agents: a model asks for tools and sees results until it answers."""

from collections.abc import Callable, Hashable
from typing import Any, ClassVar, Literal

from lagent.actions import ActionExecutor, AsyncActionExecutor
from lagent.agents import unanswered
from lagent.agents.base import MEMORY, Agent, AsyncAgent
from lagent.context import current_context
from lagent.errors import LimitExceeded, ParseFailed, RepeatedCall
from lagent.flow import Flow, arun, call, run
from lagent.memory import Memory
from lagent.schema import AgentMessage


class ToolAgent(Agent):
    """Alternates between an inner agent and tools until the inner agent has an answer.

    Attributes:
        finish_condition: says of a reply of the inner agent whether it is the answer.
        max_turn: how many replies the inner agent may need.
        on_limit: what happens when the last of them is no answer: ``'return'`` gives the tool's
            message, as InternLM's agents do, with the type ``'limit'`` and with the limit in its
            `extra_info`, so that nobody takes it for an answer; ``'raise'`` raises `LimitExceeded`.
    """

    _agent_type: ClassVar[type[Agent]] = Agent
    _executor_type: ClassVar[type[ActionExecutor]] = ActionExecutor

    def __init__(
        self,
        *,
        finish_condition: Callable[[AgentMessage], bool],
        max_turn: int,
        on_limit: Literal['raise', 'return'] = 'return',
        memory: dict[str, Any] | Memory | None = MEMORY,
        **kwargs: Any,
    ) -> None:
        if max_turn < 1:
            raise ValueError(f'max_turn must be at least 1, got {max_turn}')
        super().__init__(memory=memory, **kwargs)
        self.finish_condition = finish_condition
        self.max_turn = max_turn
        self.on_limit = on_limit

    def forward(self, *message: AgentMessage, session_id: Hashable = 0, **kwargs: Any) -> Any:
        """Answer a question with the help of tools.

        Args:
            message: the question.
            session_id: the session.
            kwargs: given to the model.

        Returns:
            The answer, from the inner agent; see `on_limit` for when there is none.

        Raises:
            LimitExceeded: a limit of the run was reached.
            ParseFailed: too many replies in a row could not be read.
        """
        return run(self._solve(message, session_id, kwargs))

    def _inner(self) -> Agent:
        """The agent that decides what is done."""
        raise NotImplementedError

    def _act(self, reply: AgentMessage, session_id: Hashable) -> Flow[AgentMessage]:
        """Do what a reply asks for."""
        raise NotImplementedError

    def _solve(
        self, message: tuple[AgentMessage, ...], session_id: Hashable, kwargs: dict[str, Any]
    ) -> Flow[AgentMessage]:
        inner = self._inner()
        for _ in range(self.max_turn):
            reply = yield from call(inner, *message, session_id=session_id, **kwargs)
            if self.finish_condition(reply):
                return reply  # type: ignore[no-any-return]
            message = ((yield from self._observe(inner, reply, session_id)),)
        inner.update_memory(message, session_id)
        limit = LimitExceeded('max_turn', self.max_turn, self.max_turn)
        if self.on_limit == 'raise':
            raise limit
        numbers = {'limit': limit.limit, 'allowed': limit.allowed, 'used': limit.used}
        return message[0].model_copy(update={'type': 'limit', 'extra_info': numbers})

    def _observe(
        self, inner: Agent, reply: AgentMessage, session_id: Hashable
    ) -> Flow[AgentMessage]:
        try:
            return (yield from self._act(reply, session_id))
        except RepeatedCall as repeated:
            return self._feedback(str(repeated))
        except BaseException as error:
            # The next question must not come right after a call that nothing is said about.
            lost = self._feedback(f'[no result: {unanswered.words(error)}]')
            unanswered.mark(lost, error)
            inner.update_memory(lost, session_id)
            raise

    def _feedback(self, words: str) -> AgentMessage:
        return AgentMessage(sender=self._executor_type.__name__, content=words)


class AsyncToolAgent(ToolAgent, AsyncAgent):
    """A `ToolAgent` whose `__call__` and `forward` are coroutines."""

    _agent_type = AsyncAgent
    _executor_type = AsyncActionExecutor
    __call__ = AsyncAgent.__call__

    async def forward(self, *message: AgentMessage, session_id: Hashable = 0, **kwargs: Any) -> Any:
        """See `ToolAgent.forward`."""
        return await arun(self._solve(message, session_id, kwargs))


def count_parse(reply: AgentMessage, problem: str | None) -> None:
    """Count a reply that could not be read, or begin to count again.

    Args:
        reply: the reply.
        problem: what is wrong with it; None when nothing is.

    Raises:
        ParseFailed: it was one too many in a row.
    """
    context = current_context()
    if context is None:
        return
    usage, allowed = context.usage, context.limits.parse_failures
    usage.parse_failures = 0 if problem is None else usage.parse_failures + 1
    if problem is not None and allowed is not None and usage.parse_failures >= allowed:
        raise ParseFailed(usage.parse_failures, problem, str(reply.content))
