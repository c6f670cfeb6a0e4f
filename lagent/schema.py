"""What agents, tools and models pass to one another.

Names, field order and printed form are those of InternLM's lagent: memories that were saved
there load here.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass
from enum import IntEnum
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator
from pydantic_core import PydanticSerializationError

from lagent.utils.copies import copy_values


class ModelStatusCode(IntEnum):
    """State of a streamed model reply."""

    END = 0
    STREAM_ING = 1
    SERVER_ERR = -1
    SESSION_CLOSED = -2
    SESSION_OUT_OF_LIMIT = -3
    SESSION_INVALID_ARG = -4
    SESSION_READY = 2


class AgentStatusCode(IntEnum):
    """State of an agent's message; a superset of `ModelStatusCode`."""

    END = 0
    STREAM_ING = 1
    SERVER_ERR = -1
    SESSION_CLOSED = -2
    SESSION_OUT_OF_LIMIT = -3
    SESSION_INVALID_ARG = -4
    SESSION_READY = 2
    PLUGIN_START = 3
    PLUGIN_END = 4
    PLUGIN_RETURN = 5
    CODING = 6
    CODE_END = 7
    CODE_RETURN = 8


class ActionStatusCode(IntEnum):
    """How a tool call ended."""

    ING = 1
    SUCCESS = 0
    HTTP_ERROR = -1000
    ARGS_ERROR = -1001
    API_ERROR = -1002


class ActionValidCode(IntEnum):
    """What a tool call means for the run that made it."""

    FINISH = 1
    OPEN = 0
    CLOSED = -1
    INVALID = -2
    ABSENT = -3


@dataclass
class FunctionCall:
    """A tool call: the tool's name and its arguments (a dict, or the text of one)."""

    name: str
    parameters: dict[str, Any] | str


@dataclass
class ActionReturn:
    """What a tool call gave.

    Attributes:
        args: the arguments the tool was called with.
        url: link that belongs to the result.
        type: name of the tool.
        result: items ``{'type': 'text' | 'image' | ..., 'content': ...}``.
        errmsg: what went wrong, in words a model can act on.
        state: how the call ended.
        thought: what the model thought before the call.
        valid: what the call means for the run.
    """

    args: dict[str, Any] | None = None
    url: str | None = None
    type: str | None = None
    result: list[dict[str, Any]] | None = None
    errmsg: str | None = None
    state: ActionStatusCode = ActionStatusCode.SUCCESS
    thought: str | None = None
    valid: ActionValidCode | None = ActionValidCode.OPEN

    def format_result(self) -> str:
        """The result as one text.

        Returns:
            Text items as they are and others as ``[type](content)``, a line each; ``''`` when
            there is no result.
        """
        return '\n'.join(
            str(item['content']) if item['type'] == 'text' else '[{type}]({content})'.format(**item)
            for item in self.result or []
        )


def enum_dict_factory(inputs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """A `dict_factory` for `dataclasses.asdict` that writes enums as their numbers.

    Args:
        inputs: pairs of field name and value.

    Returns:
        The same pairs as a dict.
    """
    return {key: value.value if isinstance(value, IntEnum) else value for key, value in inputs}


def dataclass2dict(data: Any) -> dict[str, Any]:
    """A dataclass instance as a dict of plain values.

    Args:
        data: the instance.

    Returns:
        Its fields; enums as their numbers.

    Raises:
        TypeError: `data` is not a dataclass instance.
    """
    if not is_dataclass(data) or isinstance(data, type):
        raise TypeError(f'expected a dataclass instance, got {type(data).__name__}')
    return asdict(data, dict_factory=enum_dict_factory)


def _stream_state(value: Any) -> Any:
    # Members stay what they are. A plain number, as it comes from JSON, is read as the agent
    # code that it was written from, so that the default state survives a round trip.
    if isinstance(value, AgentStatusCode | ModelStatusCode):
        return value
    return AgentStatusCode(value)


class AgentMessage(BaseModel):
    """One message between a user, agents and tools.

    Attributes:
        content: what is said: usually a text; a tool call or a tool's return; any object.
        sender: who says it. An agent's own name makes it the assistant, any other the user.
        formatted: what a parser made of the content.
        extra_info: anything a program wants to keep beside the content.
        type: kind of message, free for programs to use.
        receiver: whom it is for.
        stream_state: whether more of this message is to come.
    """

    content: Any
    sender: str = 'user'
    formatted: Any | None = None
    extra_info: Any | None = None
    type: str | None = None
    receiver: str | None = None
    stream_state: Annotated[AgentStatusCode | ModelStatusCode, BeforeValidator(_stream_state)] = (
        AgentStatusCode.END
    )

    def model_dump_json(self, *, indent: int | None = None, **kwargs: Any) -> str:
        """Write the message as JSON.

        Halves of surrogate pairs, which models and file names may hold, become U+FFFD: in UTF-8
        there is nothing that could stand for them.

        Args:
            indent: spaces for each level; None writes one line.
            kwargs: see `pydantic.BaseModel.model_dump_json`.

        Returns:
            The JSON text.
        """
        try:
            return super().model_dump_json(indent=indent, **kwargs)
        except PydanticSerializationError as error:
            if 'surrogates not allowed' not in str(error):
                raise
        text = json.dumps(self.model_dump(mode='json', **kwargs), indent=indent, ensure_ascii=False)
        return without_surrogates(text)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Copy the message and what it holds."""
        if self.__pydantic_extra__ or self.__pydantic_private__:  # a subclass has more to copy
            return super().__deepcopy__(memo)
        copied = type(self).__new__(type(self))
        put = object.__setattr__  # as pydantic's own copies do
        put(copied, '__dict__', copy_values(self.__dict__, {} if memo is None else memo))
        put(copied, '__pydantic_fields_set__', set(self.__pydantic_fields_set__))
        put(copied, '__pydantic_extra__', None)
        put(copied, '__pydantic_private__', None)
        return copied


def without_surrogates(text: str) -> str:
    """Replace what UTF-8 cannot hold.

    Args:
        text: a text, such as one of a model's or of a file's name.

    Returns:
        The text with U+FFFD for each half of a surrogate pair that is alone; two halves that
        belong together become their character.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')
    return str(text)
