"""Any program of effects, crashed anywhere and as often as you like, does each of them once."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lagent.context import run_context
from lagent.effects import Effect, perform, within
from lagent.errors import OutcomeUnknown
from lagent.flow import Flow, call, run
from lagent.journal import SqliteJournal, record
from lagent.limits import RunLimits
from lagent.positions import branched

ANY_NUMBER = RunLimits(repeated_calls=None)


class Crash(BaseException):
    """The end of the process, as far as the code can tell."""


@dataclass(frozen=True)
class Leaf:
    """Changes the world."""

    name: int


@dataclass(frozen=True)
class Tool:
    """An effect that consists of others, and may be begun again."""

    body: tuple[Any, ...]


@dataclass(frozen=True)
class Batch:
    """Bodies that run side by side, in whatever order."""

    bodies: tuple[tuple[Any, ...], ...]


@dataclass
class World:
    crashes: Iterator[int]
    random: Random
    happened: Counter[int] = field(default_factory=Counter)

    def moment(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Crash

    def __post_init__(self) -> None:
        self.left = next(self.crashes)

    def change(self, name: int) -> str:
        self.moment()
        self.happened[name] += 1
        self.moment()
        return f'did {name}'


leaves = st.integers(0, 5).map(Leaf)
bodies = st.recursive(
    st.lists(leaves, min_size=1, max_size=3).map(tuple),
    lambda inner: st.lists(
        leaves | inner.map(Tool) | st.lists(inner, min_size=1, max_size=3).map(tuple).map(Batch),
        min_size=1,
        max_size=3,
    ).map(tuple),
    max_leaves=8,
)


def execute(body: Sequence[Any], world: World, path: tuple[int, ...] = ()) -> Flow[list[Any]]:
    seen: list[Any] = []
    for number, node in enumerate(body):
        here = (*path, number)
        if isinstance(node, Leaf):
            # What it does is told apart by its place: names may occur more than once.
            effect = Effect('tool', str(node.name), None)
            try:
                seen.append((yield from perform(effect, world.change, hash(here))))
            except OutcomeUnknown:
                seen.append(('unknown', hash(here)))
        elif isinstance(node, Tool):
            effect = Effect('tool', 'composite', None, idempotent=True)
            inner = yield from within(effect, execute(node.body, world, here))
            seen.append(inner)
        else:
            flows = branched([execute(one, world, (*here, i)) for i, one in enumerate(node.bodies)])
            results: dict[int, Any] = {}
            order = list(range(len(flows)))
            world.random.shuffle(order)
            for i in order:
                results[i] = yield from flows[i]
            seen.append([results[i] for i in range(len(flows))])
        yield from call(world.moment)
    return seen


def flat(seen: Any) -> Iterator[Any]:
    for one in seen:
        if isinstance(one, list):
            yield from flat(one)
        else:
            yield one


def places(body: Sequence[Any], path: tuple[int, ...] = ()) -> Iterator[int]:
    for number, node in enumerate(body):
        here = (*path, number)
        if isinstance(node, Leaf):
            yield hash(here)
        elif isinstance(node, Tool):
            yield from places(node.body, here)
        else:
            for i, one in enumerate(node.bodies):
                yield from places(one, (*here, i))


@settings(max_examples=80)
@given(bodies, st.lists(st.integers(0, 12), max_size=6), st.integers())
def test_each_effect_happens_once_or_is_said_to_be_unknown(
    body: tuple[Any, ...], crashes: list[int], seed: int
) -> None:
    world = World(iter([*crashes, 10**9]), Random(seed))
    with SqliteJournal(':memory:') as journal:
        for left in [*crashes[1:], 10**9, 10**9]:
            try:
                with run_context(limits=ANY_NUMBER), record(journal, 'r') as attempt:
                    if attempt.is_done:
                        break
                    # A list: answers are written and read again as lists, and pairs as tuples.
                    attempt.answer = run(execute(body, world))
            except Crash:
                world.left = left
        assert journal.run('r').status == 'done'
        with record(journal, 'r') as attempt:
            answers = list(flat(attempt.answer))
    expected = list(places(body))
    assert len(answers) == len(expected)
    for place, answer in zip(expected, answers, strict=True):
        if answer == ('unknown', place):
            assert world.happened[place] <= 1
        else:
            assert (answer, world.happened[place]) == (f'did {place}', 1)


@settings(max_examples=40)
@given(bodies, st.integers())
def test_a_run_that_is_given_back_does_nothing(body: tuple[Any, ...], seed: int) -> None:
    world = World(iter([10**9]), Random(seed))
    again = World(iter([10**9]), Random(seed + 1))
    with SqliteJournal(':memory:') as journal, run_context(limits=ANY_NUMBER):
        with suppress(ZeroDivisionError), record(journal, 'r'):
            first = run(execute(body, world))
            1 / 0  # noqa: B018 - so that the run has not ended
        with record(journal, 'r') as attempt:
            attempt.answer = run(execute(body, again))
    assert attempt.answer == first
    assert not again.happened
