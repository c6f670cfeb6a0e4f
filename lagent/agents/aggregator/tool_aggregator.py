"""The conversation of an agent with tools, as InternLM's models expect it."""

from collections.abc import Iterator, Sequence
from typing import Any

from lagent.agents.aggregator.default_aggregator import DefaultAggregator
from lagent.memory import Memory
from lagent.prompts.parsers import ToolStatusCode

Message = dict[str, Any]


class InternLMToolAggregator(DefaultAggregator):
    """Writes tool calls as the parser formats them and tool answers as the environment's.

    Attributes:
        environment_role: role of what is neither the agent's nor a user's.
        environment_begin: put before an environment message.
        environment_end: put behind an environment message.
        user_names: senders that count as users.
        few_shot: example conversations. Their roles are ``user``, ``assistant``, ``system`` and the
            environment's, and a ``thought`` (or ``language``), which together with a following
            ``tool`` message, whose ``name`` is the tool type, makes one assistant message.
    """

    def __init__(
        self,
        environment_role: str = 'environment',
        environment_begin: str = '',
        environment_end: str = '',
        user_names: Sequence[str] | None = None,
        few_shot: Sequence[Sequence[Message]] | None = None,
    ) -> None:
        self.environment_role = environment_role
        self.environment_begin = environment_begin
        self.environment_end = environment_end
        self.user_names = ['user'] if user_names is None else list(user_names)
        self.few_shot = [] if few_shot is None else list(few_shot)

    def aggregate(
        self,
        messages: Memory,
        name: str | None,
        parser: Any = None,
        system_instruction: Any = None,
    ) -> list[Message]:
        """The messages that a model is given.

        Args:
            messages: the session's memory.
            name: sender of the assistant's messages.
            parser: the agent's output parser; its instruction follows the system's.
            system_instruction: see `DefaultAggregator.aggregate_system_intruction`.

        Returns:
            Instructions, few-shots and conversation. A reply that could not be parsed is left out.

        Raises:
            KeyError: a few-shot message has an unknown role.
        """
        chat: list[Message] = []
        if system_instruction:
            chat.extend(self.aggregate_system_intruction(system_instruction))
        chat.extend(self._tool_instruction(parser))
        for shot in self.few_shot:
            chat.extend(self._shot(shot, parser))
        chat.extend(self._conversation(messages, name, parser))
        return chat

    def _tool_instruction(self, parser: Any) -> list[Message]:
        instruction = parser.format_instruction() if parser is not None else None
        if not instruction:
            return []
        if not isinstance(instruction, str):
            return self.aggregate_system_intruction(instruction)
        message = {'role': 'system', 'content': instruction}
        if tool_type := getattr(parser, 'tool_type', None):
            message['name'] = tool_type
        return [message]

    def _shot(self, shot: Sequence[Message], parser: Any) -> Iterator[Message]:
        rest = list(shot)
        while rest:
            message = rest.pop(0)
            role, content = message['role'], message['content']
            if role in {'user', 'assistant', 'system'}:
                yield dict(message)
            elif role == self.environment_role:
                begin = '' if content.startswith(self.environment_begin) else self.environment_begin
                end = '' if content.endswith(self.environment_end) else self.environment_end
                yield {**message, 'content': f'{begin}{content}{end}'}
            elif role in {'thought', 'language'}:
                tool = rest.pop(0) if rest and rest[0]['role'] == 'tool' else None
                parsed = {
                    'tool_type': tool and tool['name'],
                    'thought': content,
                    'action': tool and tool['content'],
                    'status': ToolStatusCode.VALID_TOOL if tool else ToolStatusCode.NO_TOOL,
                }
                yield {'role': 'assistant', 'content': _formatted(parser, parsed)}
            else:
                raise KeyError(f'unknown role {role!r} in a few-shot example')

    def _conversation(self, messages: Memory, name: str | None, parser: Any) -> Iterator[Message]:
        tool_type = None
        for message in messages.get_memory():
            if message.sender == name:
                parsed = message.formatted if isinstance(message.formatted, dict) else {}
                status = parsed.get('status', ToolStatusCode.INCOMPLETE)
                if status == ToolStatusCode.INCOMPLETE:
                    # Not a tool parser's, or cut off: there are no parts to write it from.
                    yield {'role': 'assistant', 'content': str(message.content)}
                elif status != ToolStatusCode.PARSING_ERROR:
                    tool_type = parsed['tool_type'] or tool_type
                    yield {'role': 'assistant', 'content': _formatted(parser, parsed)}
            elif message.sender in self.user_names:
                yield {'role': 'user', 'content': message.content}
            else:
                content = f'{self.environment_begin}{message.content}{self.environment_end}'
                answer = {'role': self.environment_role, 'content': content}
                yield {**answer, 'name': tool_type} if tool_type else answer


def _formatted(parser: Any, parsed: dict[str, Any]) -> str:
    if parser is None:
        return f'{parsed["thought"] or ""}{parsed["action"] or ""}'
    return str(parser.format_response(parsed))
