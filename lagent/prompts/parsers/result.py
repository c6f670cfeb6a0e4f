"""What the tool and code parsers make of a reply."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Self

from lagent.utils.copies import copy_values


class ToolStatusCode(IntEnum):
    """What a parser found in a reply.

    Attributes:
        NO_TOOL: no call; the reply may be the final answer.
        VALID_TOOL: a complete call.
        PARSING_ERROR: something that was meant as a call and cannot be used.
        INCOMPLETE: a call that the end of the reply cut off. Iteration leaves it out.
    """

    NO_TOOL = 0
    VALID_TOOL = 1
    PARSING_ERROR = -1

    INCOMPLETE: 'ToolStatusCode'


def _add_unlisted(name: str, value: int) -> None:
    # Code written against InternLM's lagent enumerates the three codes above, so a fourth must
    # not appear in the iteration or in `__members__`. `Flag` does the same for its composite
    # members: a real instance, known by value, so that lookup, pickle and copies work.
    member = int.__new__(ToolStatusCode, value)
    member._name_ = name
    member._value_ = value
    ToolStatusCode._value2member_map_[value] = member
    setattr(ToolStatusCode, name, member)


_add_unlisted('INCOMPLETE', -2)


class ParsedReply(dict[str, Any]):
    """InternLM's dict of four keys; what else there is to say are attributes.

    The keys are ``tool_type`` (None without a call), ``thought`` (the text before the call),
    ``action`` (the call) and ``status`` (a `ToolStatusCode`). It equals a plain dict of them, and
    copies and pickles keep the attributes.

    Attributes:
        reason: machine-readable word for what is unusual about the reply, ``''`` when nothing is.
        hint: a sentence that tells the model what to do about it, ``''`` when there is nothing.
        dropped: the end of the reply that takes no part, such as text after the first call.
        span: where the call begins and ends in the reply, as character offsets.
    """

    reason: str = ''
    hint: str = ''
    dropped: str = ''
    span: tuple[int, int] | None = None

    def __init__(
        self,
        tool_type: str | None,
        thought: str,
        action: Any,
        status: ToolStatusCode,
        *,
        reason: str = '',
        hint: str = '',
        dropped: str = '',
        span: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(tool_type=tool_type, thought=thought, action=action, status=status)
        self.reason = reason
        self.hint = hint
        self.dropped = dropped
        self.span = span

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied = type(self).__new__(type(self))
        copied.update(copy_values(self, memo))
        copied.__dict__ = copy_values(self.__dict__, memo)
        return copied


class ParsedCode(ParsedReply):
    """What `CodeParser` gives: the four keys, and ``cells``, ``reason``, ``hint``, ``dropped``.

    They are keys here, and attributes as well, so that a saved and loaded message, whose
    `formatted` is a plain dict, still has them.

    Attributes:
        cells: the code blocks to run, in order; empty unless the status is ``VALID_TOOL``.
        reasoning: what the model thought before it answered, from tags or from the provider.
    """

    reasoning: str = ''

    def __init__(
        self,
        tool_type: str | None,
        thought: str,
        status: ToolStatusCode,
        *,
        cells: Sequence[str] = (),
        reason: str = '',
        hint: str = '',
        dropped: str = '',
        span: tuple[int, int] | None = None,
        reasoning: str = '',
    ) -> None:
        action = '\n\n'.join(cells) if cells else None
        super().__init__(
            tool_type,
            thought,
            action,
            status,
            reason=reason,
            hint=hint,
            dropped=dropped,
            span=span,
        )
        self.reasoning = reasoning
        self['cells'] = list(cells)
        self['reason'] = reason
        self['hint'] = hint
        self['dropped'] = dropped

    @property
    def cells(self) -> list[str]:
        """The code blocks to run, in order."""
        cells: list[str] = self['cells']
        return cells
