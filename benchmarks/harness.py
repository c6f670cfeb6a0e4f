"""What a figure is, and how its samples are taken."""

import asyncio
import gc
import math
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Side = Callable[[], Awaitable[float]]
"""Takes one sample and returns it."""

MS, US = 1e3, 1e6
"""Units in a second."""


class Skipped(Exception):
    """A benchmark can't run here; the text says what it lacks."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure should be.

    Attributes:
        of: `'value'`: our median; `'ratio'`: our median to the floor's; `'excess'`: their
            difference.
        limit: Where it should end.
        at_least: Whether more is better.
    """

    of: Literal['value', 'ratio', 'excess']
    limit: float
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Measurement:
    """Samples of one thing, and of its floor.

    Attributes:
        name: What was measured, in words.
        unit: Unit of the samples.
        ours: Our samples, in the order taken.
        floor: The floor's samples; empty where there is no floor.
        floor_is: What the floor is, in words.
        goals: What should come of it.
        key: Groups measurements for a plot; `x` is where in the plot this one stands.
        x: See `key`.
    """

    name: str
    unit: str
    ours: tuple[float, ...]
    floor: tuple[float, ...] = ()
    floor_is: str = ''
    goals: tuple[Goal, ...] = ()
    key: str = ''
    x: float | None = None

    def __post_init__(self) -> None:
        if not self.ours or not all(map(math.isfinite, (*self.ours, *self.floor))):
            raise ValueError(f'{self.name}: samples are missing or not finite')
        if not self.floor and any(goal.of != 'value' for goal in self.goals):
            raise ValueError(f'{self.name}: a {self.goals[0].of} needs a floor')

    @property
    def value(self) -> float:
        """Our median."""
        return statistics.median(self.ours)

    @property
    def ratio(self) -> float | None:
        """Our median to the floor's."""
        return self.value / statistics.median(self.floor) if self.floor else None

    @property
    def excess(self) -> float | None:
        """Our median less the floor's."""
        return self.value - statistics.median(self.floor) if self.floor else None

    def meets(self, goal: Goal) -> bool:
        """Tell whether a goal is reached."""
        reached = getattr(self, goal.of)
        assert reached is not None
        return bool(reached >= goal.limit if goal.at_least else reached <= goal.limit)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain values, samples with four digits."""
        short = {side: [_short(x) for x in getattr(self, side)] for side in ('ours', 'floor')}
        return {**asdict(self), **short}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> 'Measurement':
        """Make the measurement of what `to_json` gave."""
        return cls(
            **{
                **fields,
                'ours': tuple(fields['ours']),
                'floor': tuple(fields['floor']),
                'goals': tuple(Goal(**goal) for goal in fields['goals']),
            }
        )


def _short(value: float) -> float:
    return float(f'{value:.4g}')


def percentile(samples: Sequence[float], percent: float) -> float:
    """Return the smallest sample that so many percent of them do not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


@dataclass(frozen=True, slots=True)
class Run:
    """How thorough a run is.

    Attributes:
        quick: Fewer samples, for a look.
    """

    quick: bool = False

    def n(self, full: int, quick: int) -> int:
        """Return the number of samples of this run."""
        return quick if self.quick else full


async def interleave(
    n: int, *sides: Side, warm_up: int = 1, settle: float = 0.0
) -> list[tuple[float, ...]]:
    """Take samples in turns, so that what the machine does otherwise meets all sides alike.

    Args:
        n: Samples of each side.
        sides: What is sampled. Every second round goes backwards.
        warm_up: Rounds before the first that counts.
        settle: Seconds of rest before each sample.

    Returns:
        The samples of each side.
    """
    samples: list[list[float]] = [[] for _ in sides]
    gc.collect()
    for number in range(-warm_up, n):
        for at in range(len(sides))[:: -1 if number % 2 else 1]:
            await asyncio.sleep(settle)
            sample = await sides[at]()
            if number >= 0:
                samples[at].append(sample)
    return [tuple(taken) for taken in samples]


def timed(step: Callable[[], Awaitable[object]], unit: float = MS) -> Side:
    """Make the side whose samples are how long a step takes.

    Args:
        step: What is timed.
        unit: Units in a second.
    """

    async def side() -> float:
        started = time.perf_counter()
        await step()
        return (time.perf_counter() - started) * unit

    return side


def blocking(step: Callable[[], object]) -> Callable[[], Awaitable[object]]:
    """Make a blocking step one that can be awaited; it holds up the event loop, and means to."""

    async def awaited() -> object:
        return step()

    return awaited
