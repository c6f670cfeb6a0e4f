"""ReAct: reason, act with a tool, look at the result, and again; each reply is a JSON object."""

import json
from collections.abc import Callable, Hashable, Iterable
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from lagent.actions import BaseAction
from lagent.agents.base import AGGREGATOR, MEMORY, Agent, AsyncAgent
from lagent.agents.seams import Config, Model
from lagent.agents.tool_loop import AsyncToolAgent, ToolAgent
from lagent.flow import Flow, call
from lagent.hooks import ActionPreprocessor
from lagent.memory import Memory
from lagent.prompts import PromptTemplate
from lagent.prompts.parsers import JSONParser
from lagent.schema import AgentMessage
from lagent.utils import create_object

select_action_template = """\
You answer questions with the help of tools. These are the tools:
{action_info}

{output_format}

Ask for one tool at a time; the next message has its result. Use no tool that is not listed, and
base the answer on what the tools have shown.
"""

output_format_template = """\
Reply with one JSON object and nothing else. To use a tool:
{function_format}

When you know the answer, or need no tool:
{finish_format}"""


class ActionCall(BaseModel):
    """The part of a reply that names a tool."""

    name: str = Field(description='name of the tool')
    parameters: dict[str, Any] = Field(description='its arguments')


class ActionFormat(BaseModel):
    """A reply that asks for a tool."""

    thought_process: str = Field('', description='what is known by now, and what is missing')
    action: ActionCall = Field(description='the tool that finds out what is missing')


class FinishFormat(BaseModel):
    """A reply that answers."""

    thought_process: str = Field('', description='how the answer follows from the results')
    conclusion: str = Field(description='the answer')


PARSER: dict[str, Any] = {
    'type': JSONParser,
    'template': output_format_template,
    'function_format': ActionFormat,
    'finish_format': FinishFormat,
}
HOOKS: tuple[dict[str, Any], ...] = ({'type': ActionPreprocessor},)

PARSE_ERROR = 'parse_error'
"""Key in a reply's `extra_info` that says why it could not be read."""


def has_conclusion(message: AgentMessage) -> bool:
    """Whether a reply is the answer.

    Args:
        message: the reply.

    Returns:
        True when what was parsed has a ``conclusion``; for replies that are text, when they speak
        of one.
    """
    if isinstance(message.formatted, dict):
        return 'conclusion' in message.formatted
    if isinstance(message.extra_info, dict) and PARSE_ERROR in message.extra_info:
        return False
    return 'conclusion' in str(message.content)


class _Selector(Agent):
    """The model's part: remembers a reply that could not be read, and what is wrong with it."""

    def _parse(self, reply: Any) -> AgentMessage:
        try:
            return super()._parse(reply)
        except ValueError as error:
            info = {PARSE_ERROR: str(error)}
            return AgentMessage(sender=self.name or '', content=reply, extra_info=info)


class _AsyncSelector(_Selector, AsyncAgent):
    __call__ = AsyncAgent.__call__
    forward = AsyncAgent.forward


class ReAct(ToolAgent):
    """Lets a model choose tools one after the other until it has a conclusion.

    A reply that is not in the format is answered with what is wrong with it.

    Attributes:
        select_agent: the inner agent that talks to the model.
        actions: the executor of the tools.
    """

    _agent_type: ClassVar[type[Agent]] = _Selector
    _agent_name: ClassVar[str] = 'Agent'

    def __init__(
        self,
        llm: Model | Config | None,
        actions: BaseAction | dict[str, Any] | Iterable[BaseAction | dict[str, Any]],
        template: PromptTemplate | str | None = None,
        memory: dict[str, Any] | Memory | None = MEMORY,
        output_format: Any = PARSER,
        aggregator: Any = AGGREGATOR,
        hooks: Any = HOOKS,
        finish_condition: Callable[[AgentMessage], bool] = has_conclusion,
        max_turn: int = 5,
        **kwargs: Any,
    ) -> None:
        """Build the agent.

        Args:
            llm: the model, or the configuration dict of one.
            actions: the tools, or configuration dicts of tools; one need not be in a list.
            template: system instruction with the fields ``action_info``, which is filled with the
                tools' descriptions, and ``output_format``; `select_action_template` by default.
            memory: configuration of the memories of the inner agent.
            output_format: parser of the replies, or the configuration dict of one.
            aggregator: aggregator of the inner agent.
            hooks: hooks of both the inner agent and the executor.
            finish_condition: see `ToolAgent`.
            max_turn: see `ToolAgent`.
            kwargs: see `ToolAgent` and `Agent`.

        Raises:
            ValueError: `max_turn` is less than 1.
        """
        super().__init__(finish_condition=finish_condition, max_turn=max_turn, **kwargs)
        self.actions = self._executor_type(actions, hooks=hooks)
        parser = create_object(output_format)
        self.select_agent = self._agent_type(
            llm,
            (select_action_template if template is None else template).format(
                action_info=json.dumps(self.actions.description(), ensure_ascii=False),
                output_format=parser.format_instruction(),
            ),
            memory,
            output_format=parser,
            aggregator=aggregator,
            name=self._agent_name,
            hooks=hooks,
            max_sessions=self.max_sessions,
        )

    def _inner(self) -> Agent:
        return self.select_agent

    def _problem(self, reply: AgentMessage) -> str | None:
        return reply.extra_info.get(PARSE_ERROR) if isinstance(reply.extra_info, dict) else None

    def _act(self, reply: AgentMessage, session_id: Hashable) -> Flow[AgentMessage]:
        if (problem := self._problem(reply)) is not None:
            return self._feedback(f'The reply could not be read: {problem}. Write it again.')
        result: AgentMessage = yield from call(self.actions, reply, session_id=session_id)
        return result


class AsyncReAct(AsyncToolAgent, ReAct):
    """A `ReAct` whose `__call__` and `forward` are coroutines."""

    _agent_type = _AsyncSelector
    _agent_name = 'AsyncAgent'
