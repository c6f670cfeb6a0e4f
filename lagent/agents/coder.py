"""The agent that answers by writing code, running it and looking at what came out."""

import inspect
from collections.abc import Callable, Hashable
from typing import Any, ClassVar

from lagent.actions.hooked import Responder
from lagent.agents.base import AGGREGATOR, MEMORY, Agent, AsyncAgent
from lagent.agents.seams import Aggregator, Config, Instruction, Model, OutputParser
from lagent.agents.tool_loop import AsyncToolAgent, OnMaxTurn, ToolAgent
from lagent.flow import Flow, call
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

    def _parse(self, reply: Any) -> AgentMessage:
        message = super()._parse(reply)
        parsed = message.formatted
        if dropped := getattr(parsed, 'dropped', ''):
            # What a model wrote behind an invented observation rests on the invention: it must
            # not come back to it as history.
            message.content = str(message.content).removesuffix(dropped)
            message.extra_info = {'dropped': dropped}
        if isinstance(parsed, dict) and parsed['action'] and not str(message.content).strip():
            # A native tool call has no text; without this the model would not see its own code.
            message.content = self.output_format.format_response(parsed)
        return message


class _AsyncWriter(_Writer, AsyncAgent):
    __call__ = AsyncAgent.__call__
    forward = AsyncAgent.forward


class Coder(ToolAgent):
    """Thinks, writes code, has it run, observes, and answers.

    Attributes:
        agent: the inner agent that talks to the model; its memory holds the whole transcript.
        interpreter: runs the code; one sandbox a session.
        finish_condition: says of a reply or an observation whether it ends the turn.
        max_turn: how many times code may be run before the answer.
        on_max_turn: what happens after that: ``'raise'`` raises `LimitExceeded`; ``'return'`` gives
            a message of the type ``'limit'``.
    """

    _part_names = Agent._part_names | {'interpreter'}
    _agent_type: ClassVar[type[Agent]] = _Writer
    _interpreter: ClassVar[str] = 'lagent.actions.Interpreter'
    _closing_replies = 1
    _lost_result = '[no result: {}. The code may have run in part.]'

    def __init__(
        self,
        llm: Model | Config | None = None,
        interpreter: Any = None,
        template: Instruction | None = CODER_PROMPT,
        memory: dict[str, Any] | Memory | None = MEMORY,
        output_format: OutputParser | Config | None = PARSER,
        finish_condition: Callable[[AgentMessage], bool] = has_no_code,
        max_turn: int = 10,
        *,
        on_max_turn: OnMaxTurn = 'raise',
        aggregator: Aggregator | Config = AGGREGATOR,
        **kwargs: Any,
    ) -> None:
        """Build the coder.

        Args:
            llm: the model, or the configuration dict of one.
            interpreter: an `Interpreter`, or the configuration dict of one; by default one with
                the Docker back end. An `AsyncCoder` needs an `AsyncInterpreter`.
            template: system instruction of the inner agent.
            memory: configuration of the memories of both agents.
            output_format: parser of the model's replies.
            finish_condition: see the class.
            max_turn: see the class.
            on_max_turn: see the class.
            aggregator: makes the messages for the model; the inner agent's.
            kwargs: see `Agent`.

        Raises:
            TypeError: the interpreter is asynchronous and the coder is not, or the reverse.
            ValueError: `max_turn` is less than 1, or there is no such `on_max_turn`.
        """
        super().__init__(
            finish_condition=finish_condition,
            max_turn=max_turn,
            on_max_turn=on_max_turn,
            memory=memory,
            **kwargs,
        )
        self.agent = self._agent_type(
            llm,
            template,
            memory,
            output_format,
            aggregator,
            name=self.name,
            max_sessions=self.max_sessions,
        )
        self.interpreter = create_object(interpreter or {'type': self._interpreter})
        self._check_interpreter()

    def _check_interpreter(self) -> None:
        given = type(self.interpreter)
        is_async = inspect.iscoroutinefunction(given.__call__)
        wants_async = isinstance(self, AsyncAgent)
        # A plain function may be awaited for; one of our classes would hold up the event loop.
        if is_async != wants_async and (is_async or issubclass(given, Responder)):
            needed = self._interpreter.rpartition('.')[2]
            other = 'an AsyncCoder' if is_async else 'a Coder'
            raise TypeError(
                f'{type(self).__name__} cannot use {given.__name__}: give it an {needed}, '
                f'or make {other} or a subclass of it'
            )

    def _inner(self) -> Agent:
        return self.agent

    def _problem(self, reply: AgentMessage) -> str | None:
        parsed = reply.formatted
        if not isinstance(parsed, dict) or parsed['status'] == ToolStatusCode.VALID_TOOL:
            return None
        return getattr(parsed, 'reason', None) or 'unknown'

    def _act(self, reply: AgentMessage, session_id: Hashable) -> Flow[AgentMessage]:
        return call(self.interpreter, reply, session_id=session_id)

    def _ends(self, result: AgentMessage) -> bool:
        return self.finish_condition(result)

    def _feedback(self, words: str) -> AgentMessage:
        sender = getattr(self.interpreter, 'name', 'interpreter')
        return AgentMessage(sender=sender, content=words, type='interpreter')


class AsyncCoder(AsyncToolAgent, Coder):
    """A `Coder` whose `__call__` and `forward` are coroutines."""

    _agent_type = _AsyncWriter
    _interpreter = 'lagent.actions.AsyncInterpreter'
