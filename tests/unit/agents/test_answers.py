"""Whoever drives an agent that he does not know gets its answer, whatever kind it is of."""

import pytest

from lagent.agents import Agent, AsyncAgent, AsyncStreamingAgent, StreamingAgent
from lagent.agents.answers import alast_answer, last_answer
from lagent.llms import AsyncScriptedModel, ScriptedModel

KINDS = {
    Agent: ScriptedModel,
    AsyncAgent: AsyncScriptedModel,
    StreamingAgent: ScriptedModel,
    AsyncStreamingAgent: AsyncScriptedModel,
}


class Kept(list[int]):
    """A beginning of a reply that counts how many are kept."""

    alive = 0

    def __init__(self) -> None:
        type(self).alive += 1

    def __del__(self) -> None:
        type(self).alive -= 1


@pytest.mark.parametrize('kind', KINDS)
def test_of_every_kind_the_last_answer_is_given(kind: type[Agent]) -> None:
    agent = kind(KINDS[kind](['one two three']))
    assert last_answer(agent('q')).content == 'one two three'


@pytest.mark.parametrize('kind', KINDS)
async def test_awaited_as_well(kind: type[Agent]) -> None:
    agent = kind(KINDS[kind](['one two three']))
    assert (await alast_answer(agent('q'))).content == 'one two three'


def test_the_beginnings_are_not_kept() -> None:
    def stream() -> object:
        for _ in range(50):
            yield Kept()
            assert Kept.alive <= 2

    assert isinstance(last_answer(stream()), Kept)
