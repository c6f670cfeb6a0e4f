"""InternLM's agents: plugins that are called with JSON, and an interpreter for code."""

import warnings
from collections.abc import Callable, Hashable
from typing import Any, ClassVar

from lagent.actions import AsyncIPythonInterpreter, BaseAction
from lagent.actions.function_tool import as_tool
from lagent.actions.hooked import Responder
from lagent.agents.aggregator import InternLMToolAggregator
from lagent.agents.base import MEMORY, Agent
from lagent.agents.plugin_prompt import (
    INTERPRETER_CN,
    MATH_PROMPT,
    META_CN,
    PLUGIN_CN,
    get_plugin_prompt,
)
from lagent.agents.seams import Config, Model
from lagent.agents.tool_loop import AsyncToolAgent, ToolAgent
from lagent.flow import Flow, call
from lagent.hooks import InternLMActionProcessor
from lagent.memory import Memory
from lagent.prompts.parsers import (
    InterpreterParser,
    MixedToolParser,
    PluginParser,
    ToolStatusCode,
)
from lagent.schema import AgentMessage
from lagent.utils import create_object

TOOL_AGGREGATOR: dict[str, Any] = {'type': InternLMToolAggregator}
ACTION_HOOKS: tuple[dict[str, Any], ...] = ({'type': InternLMActionProcessor},)
MATH_PARSER: dict[str, Any] = {'type': InterpreterParser, 'template': MATH_PROMPT}


def calls_no_tool(message: AgentMessage) -> bool:
    """Whether a reply is the answer: it calls no tool.

    Args:
        message: the reply; its `formatted` is the dict of a tool parser.

    Returns:
        True for a reply without a call.
    """
    status: Any = message.formatted['status']  # type: ignore[index]
    return bool(status == ToolStatusCode.NO_TOOL)


class AgentForInternLM(ToolAgent):
    """Answers with the help of plugins and of an interpreter.

    Attributes:
        agent: the inner agent that talks to the model.
        plugin_executor: executor of the plugins, or None.
        interpreter_executor: what runs code, or None. A subclass may add executors for tool types
            of its own as ``<tool type>_executor``.
    """

    agent: Agent

    def __init__(
        self,
        llm: Model | Config | None,
        plugins: Any = None,
        interpreter: Any = None,
        template: Any = None,
        memory: dict[str, Any] | Memory | None = MEMORY,
        output_format: Any = None,
        aggregator: Any = TOOL_AGGREGATOR,
        action_hooks: Any = ACTION_HOOKS,
        finish_condition: Callable[[AgentMessage], bool] = calls_no_tool,
        max_turn: int = 4,
        **kwargs: Any,
    ) -> None:
        """Build the agent.

        Args:
            llm: the model, or the configuration dict of one.
            plugins: the tools, functions decorated with `tool_api`, or configuration dicts of
                tools; one need not be in a list.
            interpreter: the tool that runs code, or its configuration dict; or an `Interpreter`.
            template: system instruction of the inner agent.
            memory: configuration of the memories of the inner agent.
            output_format: parser of the replies. By default one that reads InternLM's marks, and
                tells the model of the plugins and the interpreter as far as they are there.
            aggregator: aggregator of the inner agent.
            action_hooks: hooks of the executors.
            finish_condition: see `ToolAgent`.
            max_turn: see `ToolAgent`.
            kwargs: see `ToolAgent` and `Agent`; `hooks` are the inner agent's.

        Raises:
            ValueError: `max_turn` is less than 1.
        """
        hooks = kwargs.pop('hooks', None)
        super().__init__(finish_condition=finish_condition, max_turn=max_turn, **kwargs)
        tools = _tools(plugins)
        self.agent = self._agent_type(
            llm,
            template,
            memory,
            output_format=output_format or _stock_parser(tools, interpreter),
            aggregator=aggregator,
            hooks=hooks,
            max_sessions=self.max_sessions,
        )
        self.plugin_executor = self._executor(tools, action_hooks)
        self.interpreter_executor = self._executor(interpreter, action_hooks)
        if not (self.plugin_executor or self.interpreter_executor):
            warnings.warn(
                'The agent has neither plugins nor an interpreter: a reply that calls a tool '
                'will be an error.',
                UserWarning,
                stacklevel=2,
            )

    def get_steps(self, session_id: Hashable = 0) -> list[dict[str, Any]]:
        """What the inner agent and the tools have done, as a few-shot example has it.

        Args:
            session_id: the session.

        Returns:
            Dicts with ``role`` (``'thought'``, ``'tool'`` or ``'environment'``) and ``content``,
            and with the tool type as ``name`` for tools and what they gave.
        """
        steps: list[dict[str, Any]] = []
        tool_type = None
        for message in self.agent.memory.get_memory(session_id) if self.agent.memory else ():
            parsed = message.formatted
            if message.sender == self.agent.name and isinstance(parsed, dict):
                steps.append({'role': 'thought', 'content': parsed['thought']})
                if parsed['tool_type']:
                    tool_type = parsed['tool_type']
                    steps.append({'role': 'tool', 'content': parsed['action'], 'name': tool_type})
            elif message.sender == self.agent.name:
                steps.append({'role': 'thought', 'content': message.content})
            elif message.sender != 'user':
                name = {'name': tool_type} if tool_type else {}
                steps.append({'role': 'environment', 'content': message.content, **name})
        return steps

    def _inner(self) -> Agent:
        return self.agent

    def _problem(self, reply: AgentMessage) -> str | None:
        parsed = reply.formatted
        assert isinstance(parsed, dict), (
            f'`formatted` must be the dict of a tool parser, not {parsed!r:.200}'
        )
        if parsed['status'] in (ToolStatusCode.VALID_TOOL, ToolStatusCode.NO_TOOL):
            return None
        return getattr(parsed, 'reason', '') or 'unknown'

    def _act(self, reply: AgentMessage, session_id: Hashable) -> Flow[AgentMessage]:
        parsed: Any = reply.formatted
        tool_type = parsed['tool_type']
        if not tool_type:
            hint = getattr(parsed, 'hint', '')
            return self._feedback(hint or 'The reply calls no tool, and it is no answer yet.')
        executor = getattr(self, f'{tool_type}_executor', None)
        if not executor:
            raise RuntimeError(f'No available {tool_type} executor')
        result: AgentMessage = yield from call(executor, reply, session_id=session_id)
        return result

    def _executor(self, tools: Any, hooks: Any) -> Any:
        if not tools:
            return None
        tools = tools if isinstance(tools, list | tuple) else create_object(tools)
        if isinstance(tools, Responder):
            return tools
        return self._executor_type(tools, hooks=hooks)


class MathCoder(AgentForInternLM):
    """Solves problems of mathematics by writing code."""

    _interpreter: ClassVar[dict[str, Any]] = {
        'type': 'lagent.actions.IPythonInteractive',
        'timeout': 20,
        'max_out_len': 8192,
    }

    def __init__(
        self,
        llm: Model | Config | None,
        interpreter: Any = None,
        template: Any = None,
        memory: dict[str, Any] | Memory | None = MEMORY,
        output_format: Any = MATH_PARSER,
        aggregator: Any = TOOL_AGGREGATOR,
        action_hooks: Any = ACTION_HOOKS,
        finish_condition: Callable[[AgentMessage], bool] = calls_no_tool,
        max_turn: int = 6,
        **kwargs: Any,
    ) -> None:
        """Build the agent.

        Args:
            llm: see `AgentForInternLM`.
            interpreter: see `AgentForInternLM`; an `IPythonInteractive` by default.
            template: see `AgentForInternLM`.
            memory: see `AgentForInternLM`.
            output_format: see `AgentForInternLM`.
            aggregator: see `AgentForInternLM`.
            action_hooks: see `AgentForInternLM`.
            finish_condition: see `ToolAgent`.
            max_turn: see `ToolAgent`.
            kwargs: see `AgentForInternLM`.
        """
        super().__init__(
            llm,
            interpreter=interpreter or self._interpreter,
            template=template,
            memory=memory,
            output_format=output_format,
            aggregator=aggregator,
            action_hooks=action_hooks,
            finish_condition=finish_condition,
            max_turn=max_turn,
            **kwargs,
        )


class AsyncAgentForInternLM(AsyncToolAgent, AgentForInternLM):
    """An `AgentForInternLM` whose `__call__` and `forward` are coroutines."""


class AsyncMathCoder(AsyncAgentForInternLM, MathCoder):
    """A `MathCoder` that is awaited. Each answer ends the session of its Jupyter kernel."""

    _interpreter: ClassVar[dict[str, Any]] = {'type': 'lagent.actions.AsyncIPythonInterpreter'}

    def _solve(
        self, message: tuple[AgentMessage, ...], session_id: Hashable, kwargs: dict[str, Any]
    ) -> Flow[AgentMessage]:
        try:
            return (yield from super()._solve(message, session_id, kwargs))
        finally:
            for tool in getattr(self.interpreter_executor, 'actions', {}).values():
                if isinstance(tool, AsyncIPythonInterpreter):
                    yield from call(tool.close_session, session_id)


def _tools(plugins: Any) -> list[BaseAction]:
    given = [plugins] if isinstance(plugins, dict) or callable(plugins) else plugins or ()
    return [as_tool(plugin) for plugin in given]


def _stock_parser(tools: list[BaseAction], interpreter: Any) -> MixedToolParser:
    # Both kinds of calls are read, also where the tool is missing: a call must not pass for an
    # answer. The model is told of what there is.
    prompt = {'template': PLUGIN_CN, 'prompt': get_plugin_prompt(tools)} if tools else {}
    plugin = PluginParser(**prompt)
    code = InterpreterParser(template=INTERPRETER_CN if interpreter else '')
    return MixedToolParser(template=META_CN, parsers=[plugin, code])
