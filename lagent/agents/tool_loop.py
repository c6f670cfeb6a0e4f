"""The loop of agents with tools: a model asks for them and sees results until it answers."""

import math
from collections.abc import Callable, Hashable
from typing import Any, ClassVar, Literal, get_args

from lagent.actions import ActionExecutor, AsyncActionExecutor
from lagent.agents import unanswered
from lagent.agents.base import MEMORY, Agent, AsyncAgent
from lagent.agents.limit_answer import limit_answer
from lagent.context import RunContext, current_context
from lagent.errors import LimitExceeded, NotDone, ParseFailed, RepeatedCall, RunSuspended
from lagent.flow import Flow, arun, call, run
from lagent.memory import Memory
from lagent.schema import AgentMessage

OnMaxTurn = Literal['raise', 'return']


class ToolAgent(Agent):
    """Alternates between an inner agent and tools until the inner agent has an answer.

    Attributes:
        finish_condition: says of a reply of the inner agent whether it is the answer.
        max_turn: how many replies the inner agent may need.
        on_max_turn: what happens when the last of them is no answer: ``'return'`` gives the last
            result, as InternLM's agents do, with the type ``'limit'`` and with the limit in its
            `extra_info`, so that nobody takes it for an answer; ``'raise'`` raises `LimitExceeded`.
    """

    _agent_type: ClassVar[type[Agent]] = Agent
    _executor_type: ClassVar[type[ActionExecutor]] = ActionExecutor
    # Replies beyond `max_turn` whose requests are not carried out: they can only be the answer.
    _closing_replies: ClassVar[int] = 0
    _lost_result: ClassVar[str] = '[no result: {}]'

    def __init__(
        self,
        *,
        finish_condition: Callable[[AgentMessage], bool],
        max_turn: int,
        on_max_turn: OnMaxTurn = 'return',
        memory: dict[str, Any] | Memory | None = MEMORY,
        **kwargs: Any,
    ) -> None:
        if max_turn < 1:
            raise ValueError(f'max_turn must be at least 1, got {max_turn}')
        if on_max_turn not in get_args(OnMaxTurn):
            raise ValueError(f'on_max_turn is one of {get_args(OnMaxTurn)}, not {on_max_turn!r}')
        super().__init__(memory=memory, **kwargs)
        self.finish_condition = finish_condition
        self.max_turn = max_turn
        self.on_max_turn = on_max_turn

    def forward(self, *message: AgentMessage, session_id: Hashable = 0, **kwargs: Any) -> Any:
        """Answer a question with the help of tools.

        Args:
            message: the question.
            session_id: the session.
            kwargs: given to the model.

        Returns:
            The answer, from the inner agent; see `on_max_turn` for when there is none.

        Raises:
            LimitExceeded: a limit of the run was reached, or `max_turn`.
            ParseFailed: too many replies in a row could not be read.
        """
        return run(self._solve(message, session_id, kwargs))

    def _inner(self) -> Agent:
        """The agent that decides what is done."""
        raise NotImplementedError

    def _problem(self, reply: AgentMessage) -> str | None:
        """Why a reply could not be read; None when it could."""
        raise NotImplementedError

    def _act(self, reply: AgentMessage, session_id: Hashable) -> Flow[AgentMessage]:
        """Do what a reply asks for."""
        raise NotImplementedError

    def _ends(self, _result: AgentMessage) -> bool:
        """Whether a result is the answer."""
        return False

    def _objection(self, _reply: AgentMessage, _session_id: Hashable) -> Flow[AgentMessage | None]:
        """What the inner agent is told in place of having its answer accepted; None to accept."""
        yield from ()
        return None

    def _solve(
        self, message: tuple[AgentMessage, ...], session_id: Hashable, kwargs: dict[str, Any]
    ) -> Flow[AgentMessage]:
        inner, unread = self._inner(), 0
        for turn in range(self.max_turn + self._closing_replies):
            reply = yield from call(inner, *message, session_id=session_id, **kwargs)
            if self.finish_condition(reply):
                objection = yield from self._objection(reply, session_id)
                if objection is None or turn + 1 >= self.max_turn:
                    return reply  # type: ignore[no-any-return]
                message, unread = (objection,), 0
                continue
            problem = self._problem(reply)
            unread = 0 if problem is None else unread + 1
            if problem is not None:
                self._check_unread(unread, problem, reply, session_id)
            if turn == self.max_turn:
                message = (self._feedback('[not run: all turns are used up]'),)
                break
            result = yield from self._observe(reply, session_id)
            if self._ends(result):
                inner.update_memory(result, session_id)
                return result
            message = (result,)
        limit = LimitExceeded('max_turn', self.max_turn, self.max_turn)
        if self.on_max_turn == 'raise':
            self._close(message[0], limit, session_id)
            raise limit
        inner.update_memory(message, session_id)
        return limit_answer(limit, self.name, message[0])

    def _observe(self, reply: AgentMessage, session_id: Hashable) -> Flow[AgentMessage]:
        try:
            return (yield from self._act(reply, session_id))
        except (RepeatedCall, NotDone) as refused:
            return unanswered.results(refused) or self._feedback(str(refused))
        except RunSuspended:
            raise  # the same reply is carried out when the run goes on
        except BaseException as error:
            lost = self._feedback(self._lost_result.format(unanswered.words(error)))
            self._close(unanswered.results(error) or lost, error, session_id)
            raise

    def _check_unread(
        self, times: int, problem: str, reply: AgentMessage, session_id: Hashable
    ) -> None:
        context = current_context() or RunContext()
        context.usage.count_parse_failure()
        bounds = [usage.limits.parse_failures for usage in context.usage.bounded()]
        if times >= min(bound or math.inf for bound in bounds):
            error = ParseFailed(times, problem, str(reply.content))
            words = f'[not run: the reply could not be read ({problem})]'
            self._close(self._feedback(words), error, session_id)
            raise error

    def _close(self, result: AgentMessage, error: BaseException, session_id: Hashable) -> None:
        """Remember what came of the last reply of a run that ends without an answer.

        The next question must not come right after a call that nothing is said about.
        """
        unanswered.mark(result, error)
        self._inner().update_memory(result, session_id)

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
