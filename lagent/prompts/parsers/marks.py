"""What a stream is watched for, so that its parts can be shown as what they are."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Marks:
    """What surrounds code and reasoning in the replies that a parser reads.

    Attributes:
        calls: pairs of marks around a call.
        reasoning: pairs of tags around reasoning.
        languages: tags of Markdown fences around code; ``''`` for fences without one.
    """

    calls: tuple[tuple[str, str], ...] = ()
    reasoning: tuple[tuple[str, str], ...] = ()
    languages: tuple[str, ...] = ()

    def __or__(self, other: Self) -> 'Marks':
        return Marks(
            tuple(dict.fromkeys((*self.calls, *other.calls))),
            tuple(dict.fromkeys((*self.reasoning, *other.reasoning))),
            tuple(dict.fromkeys((*self.languages, *other.languages))),
        )
