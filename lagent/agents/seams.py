"""What an agent is made of, as far as it asks anything of it: protocols for classes of your own."""

from collections.abc import Callable
from typing import Any, Protocol

from lagent.memory import Memory
from lagent.prompts import PromptTemplate

Config = dict[str, Any]
"""What `create_object` builds an object of: a ``type`` and its arguments."""

Instruction = str | dict[str, Any] | list[dict[str, Any]] | PromptTemplate
"""A system instruction: a text, one message or several, or a template."""


# Properties, and no methods: a method with other names of parameters, which is called all the same,
# would not fit.


class ChatModel(Protocol):
    """A model."""

    @property
    def chat(self) -> Callable[..., Any]:
        """Gives a text for messages: ``chat(messages, **kwargs)``.

        For asynchronous agents it may be a coroutine. It is told the session if it has a parameter
        `session_ids` or `session_id`.
        """


class StreamingModel(Protocol):
    """A model for streaming agents."""

    @property
    def stream_chat(self) -> Callable[..., Any]:
        """Gives tuples ``(ModelStatusCode, text so far, None)``; see `ChatModel`.

        For asynchronous agents it is an asynchronous generator.
        """


Model = ChatModel | StreamingModel


class Aggregator(Protocol):
    """Makes what a model is given."""

    def aggregate(
        self,
        messages: Memory,
        name: str | None,
        parser: Any = None,
        system_instruction: Any = None,
        /,
    ) -> Any:
        """Make the list of messages.

        Args:
            messages: the session's memory.
            name: the agent, whose messages are the assistant's.
            parser: the parser of replies, which may have something to say to the model.
            system_instruction: the agent's template.

        Returns:
            What the model's `chat` takes.
        """


class OutputParser(Protocol):
    """Reads a model's replies."""

    def parse_response(self, reply: Any, /) -> Any:
        """Read a reply.

        Args:
            reply: what the model gave.

        Returns:
            What becomes the message's `formatted`.
        """
