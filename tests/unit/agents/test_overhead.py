"""What a step costs, counted in calls and copies: a machine's speed says nothing here."""

import sys
from collections.abc import Callable

import pytest

from lagent.agents import Agent
from lagent.llms import ScriptedModel
from lagent.prompts.parsers import CodeParser, StreamParser
from lagent.schema import AgentMessage

QUESTION = 'What is 6 times 7?'


class Counted:
    """Something in a message that counts how often it is copied."""

    copies = 0

    def __deepcopy__(self, memo):
        Counted.copies += 1
        return self


class Model:
    def chat(self, messages, **kwargs):
        return 'The answer is 42.'


def agent(history: int, model: object) -> Agent:
    made = Agent(model, template='Answer in one sentence.', output_format=CodeParser())
    for number in range(history):
        sender = made.name if number % 2 else 'user'
        made.update_memory(AgentMessage(sender=sender, content='hm', formatted=Counted()))
    return made


def calls_of(function: Callable[..., object], *args: object) -> int:
    """Calls of Python and C functions that a call brings about."""
    count = 0

    def see(frame, event, arg):
        nonlocal count
        count += event in ('call', 'c_call')

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        function(*args)
    finally:
        sys.setprofile(before)
    return count


def test_a_step_copies_nothing_of_the_history():
    steps = agent(100, ScriptedModel(lambda messages: 'ok'))
    Counted.copies = 0
    steps(QUESTION)
    assert Counted.copies == 0


@pytest.mark.parametrize(
    ('model', 'a_message'), [(Model(), 6), (ScriptedModel(lambda messages: 'ok'), 12)]
)
def test_a_step_costs_no_more_than_the_history_that_is_read(model, a_message):
    agent(0, model)(QUESTION)  # what is made once is made now
    empty, some, twice = (calls_of(agent(n, model), QUESTION) for n in (0, 200, 400))
    assert twice - some <= (some - empty) * 1.05
    assert some - empty <= 200 * a_message


def test_a_step_without_history_makes_few_calls():
    model = ScriptedModel(lambda messages: 'The answer is 42.')
    agent(0, model)(QUESTION)
    assert calls_of(agent(0, model), QUESTION) < 600


@pytest.mark.parametrize('line', ['word ', 'x = 1\n', '```python\nx\n```\n', '<think>', 'a <b '])
def test_a_stream_costs_the_same_for_each_chunk(line):
    def calls(chunks: int) -> int:
        stream = StreamParser(CodeParser())

        def read() -> None:
            for _ in range(chunks):
                stream.feed(line)
                # All that is ever looked at again.
                assert len(stream._splitter.buffer) - stream._splitter.at < 200

        return calls_of(read)

    calls(10)
    assert calls(2_000) <= 2.05 * calls(1_000)
