"""The agent that answers by writing code, running it and looking at what came out."""

from collections.abc import Callable, Hashable
from typing import Any, ClassVar, Self

from lagent.agents import unanswered
from lagent.agents.base import MEMORY, Agent, AsyncAgent
from lagent.context import current_context
from lagent.errors import LimitExceeded, ParseFailed, RepeatedCall
from lagent.flow import Flow, arun, call, run
from lagent.memory import Memory
from lagent.prompts.parsers import CodeParser, ToolStatusCode
from lagent.schema import AgentMessage
from lagent.utils import create_object

CODER_PROMPT = """\
You solve tasks by writing Python, which runs in a stateful Jupyter kernel.

To run code, write it in one fenced block:
```python
# your code
```
Stop after the block. The next message shows what the code printed, the value of its last
expression, and errors. Variables, imports and files are kept from block to block. Print what you
need to see. If the code fails, read the error and write a corrected block. There is no network.

When you know the answer, reply with it in plain words and without a code block. Base it on what
the code has shown, never on a guess.
"""

PARSER: dict[str, Any] = {'type': CodeParser}


def has_no_code(message: AgentMessage) -> bool:
    """Whether a message is an answer: a reply in which the parser found nothing to run.

    Args:
        message: a reply of the model or an observation of the interpreter.

    Returns:
        True for a reply without code.
    """
    parsed = message.formatted
    return isinstance(parsed, dict) and parsed.get('status') == ToolStatusCode.NO_TOOL


class _Writer(Agent):
    """The model's part of a coder: remembers of a reply what the run goes on with."""

    def _ask(
        self, messages: tuple[AgentMessage, ...], session: Hashable | None, kwargs: dict[str, Any]
    ) -> Flow[AgentMessage]:
        reply = yield from super()._ask(messages, session, kwargs)
        parsed = reply.formatted
        if dropped := getattr(parsed, 'dropped', ''):
            # What a model wrote behind an invented observation rests on the invention: it must
            # not come back to it as history.
            reply.content = str(reply.content).removesuffix(dropped)
            reply.extra_info = {'dropped': dropped}
        if isinstance(parsed, dict) and parsed['action'] and not str(reply.content).strip():
            # A native tool call has no text; without this the model would not see its own code.
            reply.content = self.output_format.format_response(parsed)
        return reply


class _AsyncWriter(_Writer, AsyncAgent):
    __call__ = AsyncAgent.__call__
    forward = AsyncAgent.forward


class Coder(Agent):
    """Thinks, writes code, has it run, observes, and answers.

    Attributes:
        agent: the inner agent that talks to the model; its memory holds the whole transcript.
        interpreter: runs the code; one sandbox a session.
        finish_condition: says of a reply or an observation whether it ends the turn.
        max_turn: how many times code may be run before the answer.
    """

    _writer: ClassVar[type[Agent]] = _Writer
    _interpreter: ClassVar[str] = 'lagent.actions.Interpreter'

    def __init__(
        self,
        llm: Any = None,
        interpreter: Any = None,
        template: Any = CODER_PROMPT,
        memory: dict[str, Any] | Memory | None = MEMORY,
        output_format: Any = PARSER,
        finish_condition: Callable[[AgentMessage], bool] = has_no_code,
        max_turn: int = 10,
        **kwargs: Any,
    ) -> None:
        """Build the coder.

        Args:
            llm: the model, or the configuration dict of one.
            interpreter: an `Interpreter`, or the configuration dict of one; by default one with
                the Docker back end.
            template: system instruction of the inner agent.
            memory: configuration of the memories of both agents.
            output_format: parser of the model's replies.
            finish_condition: see the class.
            max_turn: see the class.
            kwargs: see `Agent`; an aggregator is the inner agent's.
        """
        inner = {'aggregator': kwargs.pop('aggregator')} if 'aggregator' in kwargs else {}
        super().__init__(memory=memory, **kwargs)
        self.agent = self._writer(
            llm, template, memory, output_format=output_format, name=self.name, **inner
        )
        self.interpreter = create_object(interpreter or {'type': self._interpreter})
        self.finish_condition = finish_condition
        self.max_turn = max_turn

    def forward(self, *message: AgentMessage, session_id: Hashable = 0, **kwargs: Any) -> Any:
        """Solve a task.

        Args:
            message: the task.
            session_id: the session.
            kwargs: given to the model.

        Returns:
            The answer: the first message that meets the finish condition.

        Raises:
            LimitExceeded: the turns or a limit of the run were used up.
            ParseFailed: too many replies in a row could not be parsed.
        """
        return run(self._solve(message, session_id, kwargs))

    def _solve(
        self, message: tuple[AgentMessage, ...], session_id: Hashable, kwargs: dict[str, Any]
    ) -> Flow[AgentMessage]:
        for turn in range(self.max_turn + 1):
            reply = yield from call(self.agent, *message, session_id=session_id, **kwargs)
            if self.finish_condition(reply):
                return reply  # type: ignore[no-any-return]
            _count_parse_failure(reply)
            if turn == self.max_turn:
                break
            observation = yield from self._observe(reply, session_id)
            if self.finish_condition(observation):
                self.agent.update_memory(observation, session_id)
                return observation
            message = (observation,)
        raise LimitExceeded('max_turn', self.max_turn, self.max_turn)

    def _observe(self, reply: AgentMessage, session_id: Hashable) -> Flow[AgentMessage]:
        sender = getattr(self.interpreter, 'name', 'interpreter')
        try:
            observation: AgentMessage = yield from call(
                self.interpreter, reply, session_id=session_id
            )
        except RepeatedCall as repeated:
            return AgentMessage(sender=sender, content=str(repeated), type='interpreter')
        except BaseException as error:
            # The model must not take code for run whose result it never saw.
            lost = AgentMessage(
                sender=sender,
                content=f'[no result: {unanswered.words(error)}. The code may have run in part.]',
                type='interpreter',
            )
            unanswered.mark(lost, error)
            self.agent.update_memory(lost, session_id)
            raise
        return observation

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.interpreter.close()


class AsyncCoder(Coder, AsyncAgent):
    """A `Coder` whose `__call__` and `forward` are coroutines."""

    _writer = _AsyncWriter
    _interpreter = 'lagent.actions.AsyncInterpreter'
    __call__ = AsyncAgent.__call__

    async def forward(self, *message: AgentMessage, session_id: Hashable = 0, **kwargs: Any) -> Any:
        """See `Coder.forward`."""
        return await arun(self._solve(message, session_id, kwargs))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.interpreter.close()


def _count_parse_failure(reply: AgentMessage) -> None:
    context = current_context()
    parsed = reply.formatted
    if context is None or not isinstance(parsed, dict):
        return
    if parsed['status'] == ToolStatusCode.VALID_TOOL:
        context.usage.parse_failures = 0
        return
    context.usage.parse_failures += 1
    allowed = context.limits.parse_failures
    if allowed is not None and context.usage.parse_failures >= allowed:
        reason = getattr(parsed, 'reason', None) or 'unknown'
        raise ParseFailed(context.usage.parse_failures, reason, str(reply.content))
