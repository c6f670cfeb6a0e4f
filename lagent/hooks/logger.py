"""A hook that writes messages to a log."""

import logging
import zlib
from collections.abc import Hashable, Iterable
from typing import Any

from lagent.hooks.hook import Hook
from lagent.schema import AgentMessage
from lagent.utils import get_logger

_COLOURS = tuple(range(31, 37)) + tuple(range(91, 97))
_CONTROLS = {*range(32), *range(127, 160)} - {ord('\n'), ord('\t')}
_VISIBLE = {code: f'\\x{code:02x}' for code in _CONTROLS}


class MessageLogger(Hook):
    """Logs every message, at level INFO; on a terminal each sender keeps a colour of its own.

    Args:
        name: name of the logger, which gets a handler for standard error, and keeps its records
            from the loggers above. Not ``'lagent'`` as in InternLM's, whose own warnings would no
            longer reach yours.
        add_file_handler: whether to write to a file below ``./log`` as well.
    """

    def __init__(self, name: str = 'lagent.messages', add_file_handler: bool = False) -> None:
        self.logger = get_logger(name, add_file_handler=add_file_handler)
        for handler in self.logger.handlers:
            # A file handler is a subclass, and stays plain.
            if type(handler) is logging.StreamHandler and not isinstance(
                handler.formatter, _Colouring
            ):
                handler.setFormatter(_Colouring(handler))

    def before_agent(self, agent: Any, message: list[AgentMessage], session_id: Hashable) -> None:
        """Log the messages for an agent."""
        self._log(message, session_id)

    def after_agent(self, agent: Any, message: AgentMessage, session_id: Hashable) -> None:
        """Log an agent's answer."""
        self._log([message], session_id)

    def before_action(self, executor: Any, message: AgentMessage, session_id: Hashable) -> None:
        """Log the message that asks for a tool call."""
        self._log([message], session_id)

    def after_action(self, executor: Any, message: AgentMessage, session_id: Hashable) -> None:
        """Log the result of a tool call."""
        self._log([message], session_id)

    def _log(self, messages: Iterable[AgentMessage], session_id: Hashable) -> None:
        for message in messages:
            self.logger.info(
                'session id: %s, message sender: %s\n%s',
                session_id,
                message.sender,
                message.content,
                extra={'sender': message.sender},
            )


class _Colouring(logging.Formatter):
    """Colours what a console handler writes, and shows control characters instead of obeying."""

    def __init__(self, handler: Any) -> None:
        super().__init__()
        self._handler = handler
        self._plain = handler.formatter or logging.Formatter()

    def format(self, record: logging.LogRecord) -> str:
        text = self._plain.format(record)
        sender = getattr(record, 'sender', None)
        if sender is None or not self._handler.stream.isatty():
            return text
        # Not hash(): it differs from process to process.
        colour = _COLOURS[zlib.crc32(sender.encode(errors='replace')) % len(_COLOURS)]
        return f'\x1b[{colour}m{text.translate(_VISIBLE)}\x1b[0m'
