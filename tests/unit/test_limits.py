"""Limits and the policies that go with them."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lagent.actions import ActionExecutor, BaseAction
from lagent.agents import Agent, Coder, Sequential
from lagent.context import run_context
from lagent.effects import Effect, perform
from lagent.errors import ConfigError, LimitExceeded, RepeatedCall
from lagent.flow import run
from lagent.limits import Price, RunLimits, RunUsage
from lagent.llms import Completion, ScriptedModel, Usage
from lagent.schema import ActionStatusCode, AgentMessage

CODE = '```python\nprint(1)\n```'


class Echo(BaseAction):
    """echo"""

    calls = 0

    def run(self, text: str):
        type(self).calls += 1
        return text


@pytest.fixture(autouse=True)
def count():
    Echo.calls = 0


@pytest.mark.parametrize(
    ('field', 'value'), [('on_limit', 'stop'), ('on_repeat', True), ('on_busy', None)]
)
def test_policies_are_checked(field, value):
    with pytest.raises(ValueError, match=f'RunLimits.{field} is one of'):
        RunLimits(**{field: value})


@pytest.mark.parametrize('value', [0, -1, -0.5, float('nan'), float('inf')])
def test_limits_are_positive_and_finite(value):
    with pytest.raises(ValueError, match='seconds must be positive'):
        RunLimits(seconds=value)


def call(executor):
    return executor(AgentMessage(content={'name': 'Echo', 'parameters': {'text': 'x'}})).content


def test_a_model_that_repeats_itself_is_told_before_the_run_ends():
    executor = ActionExecutor(Echo())
    with run_context(limits=RunLimits(repeated_calls=2)) as context:
        results = [call(executor) for _ in range(4)]
        assert [r.state for r in results[:2]] == [ActionStatusCode.SUCCESS] * 2
        assert [r.state for r in results[2:]] == [ActionStatusCode.API_ERROR] * 2
        assert "the same call of 'Echo' as the last 2" in results[2].errmsg
        with pytest.raises(LimitExceeded, match=r"repeated_calls=4 .*by the same call of 'Echo'"):
            call(executor)
    assert (Echo.calls, context.usage.tool_calls) == (2, 2)


def test_something_else_in_between_ends_the_repetition():
    executor = ActionExecutor(Echo())
    other = AgentMessage(content={'name': 'Echo', 'parameters': {'text': 'y'}})
    with run_context(limits=RunLimits(repeated_calls=1, on_repeat='tell')):
        assert call(executor).errmsg is None
        assert 'Not run' in call(executor).errmsg
        assert executor(other).content.errmsg is None
        assert call(executor).errmsg is None


def test_a_coder_that_repeats_itself_is_told():
    class Notes:
        name = 'interpreter'

        def __call__(self, message, session_id=None):
            code = message.formatted['action']
            text = run(perform(Effect('kernel', 'python', code), lambda: '1\n'))
            return AgentMessage(sender='interpreter', content=text)

    llm = ScriptedModel([CODE, CODE, 'It is 1.'])
    limits = RunLimits(repeated_calls=1, on_repeat='tell')
    assert Coder(llm, Notes(), limits=limits)('q').content == 'It is 1.'
    assert 'Not run' in llm.calls[-1].messages[-1]['content']


def test_calls_at_the_same_time_are_counted_exactly():
    usage, refused = RunUsage(limits=RunLimits(tool_calls=500)), []
    start = threading.Barrier(8)

    def charge(thread):
        start.wait(10)
        for n in range(100):
            try:
                usage.count_tool_call((thread, 't'), str(n))
            except LimitExceeded as error:
                refused.append(error)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(charge, range(8)))
    assert (usage.tool_calls, len(refused)) == (500, 300)


def test_errors_and_usage_can_be_copied():
    error = RepeatedCall('repeated_calls', 5, 5)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert copy.deepcopy(RunUsage(tool_calls=2)) == RunUsage(tool_calls=2)


def test_repetition_is_counted_for_each_session_and_each_tool():
    executor = ActionExecutor(Echo())
    with run_context(limits=RunLimits(repeated_calls=1, on_repeat='raise')) as context:
        for session in range(10):
            executor(
                AgentMessage(content={'name': 'Echo', 'parameters': {'text': 'x'}}),
                session_id=session,
            )
        for name in 'abc':
            run(perform(Effect('kernel', name, 'x = 1'), lambda: None))
        with pytest.raises(LimitExceeded, match='repeated_calls'):
            run(perform(Effect('kernel', 'a', 'x = 1'), lambda: None))
    assert (Echo.calls, context.usage.tool_calls) == (10, 13)


class Asks(BaseAction):
    """asks an agent"""

    def __init__(self, agent):
        super().__init__()
        self.agent = agent

    def run(self, text: str):
        return str(self.agent(text).content)


class Twice(Agent):
    def __init__(self, llm, **kwargs):
        super().__init__(**kwargs)
        self.inner = Agent(llm)

    def forward(self, *message, session_id=0):
        return self.inner(self.inner(*message))


def test_limits_of_an_agent_below_a_bare_executor_count():
    agent = Twice(ScriptedModel(['a', 'b', 'c']), limits=RunLimits(model_calls=1))
    executor = ActionExecutor(Asks(agent))
    message = AgentMessage(content={'name': 'Asks', 'parameters': {'text': 'x'}})
    with pytest.raises(LimitExceeded, match='model_calls=1'):
        executor(message)


def test_limits_given_inside_count_for_their_own_part_and_are_charged_outside():
    agent = Twice(ScriptedModel(list('abcd')), limits=RunLimits(model_calls=2, tool_calls=1))
    with run_context() as context:
        assert [agent('q').content for _ in range(2)] == ['b', 'd']
        assert context.usage.model_calls == 4
        with run_context('s', RunLimits(tool_calls=1)) as inner:
            run(perform(Effect('tool', 't', 1), lambda: None))
            with pytest.raises(LimitExceeded):
                run(perform(Effect('tool', 't', 2), lambda: None))
        assert (inner.session_id, inner.run_id) == ('s', context.run_id)
        assert (inner.cancel, context.usage.tool_calls) == (context.cancel, 1)


def test_limits_given_inside_never_loosen_the_outer_ones():
    agent = Twice(ScriptedModel(list('ab')), limits=RunLimits(model_calls=9))
    with run_context(limits=RunLimits(model_calls=1)), pytest.raises(LimitExceeded):
        agent('q')


@pytest.mark.parametrize('outer', [RunLimits(seconds=600), RunLimits(model_calls=9), None])
def test_limits_around_an_agent_never_loosen_its_own(outer):
    agent = Twice(ScriptedModel(list('abc')), limits=RunLimits(model_calls=1))
    with pytest.raises(LimitExceeded, match='model_calls=1'):
        Sequential(agent, limits=outer)('q')


def test_what_a_limited_agent_uses_counts_for_the_run_around_it():
    agents = [
        Twice(ScriptedModel(list('ab')), limits=RunLimits(model_calls=2), name=str(n))
        for n in range(3)
    ]
    with pytest.raises(LimitExceeded, match='model_calls=5'):
        Sequential(*agents, limits=RunLimits(model_calls=5))('q')


@pytest.mark.parametrize('outer', ['return', 'raise'])
def test_a_limit_is_answered_by_the_outermost_agent_that_it_bounds(outer):
    agent = Twice(
        ScriptedModel(list('ab')), limits=RunLimits(model_calls=1, on_limit='return'), name='inner'
    )
    chain = Sequential(agent, limits=RunLimits(seconds=600, on_limit=outer), name='outer')
    answer = chain('q')
    assert (answer.type, answer.sender) == ('limit', 'inner')


def test_an_agent_does_not_answer_for_a_limit_below_it():
    inner = Twice(ScriptedModel(list('abc')), limits=RunLimits(model_calls=1), name='inner')
    outer = Sequential(inner, limits=RunLimits(seconds=600, on_limit='return'), name='outer')
    with pytest.raises(LimitExceeded, match='model_calls=1'):
        outer('q')


def test_an_inner_agent_does_not_answer_for_a_limit_around_it():
    agent = Twice(
        ScriptedModel(list('abcdef')),
        limits=RunLimits(seconds=600, on_limit='return'),
        name='inner',
    )
    with pytest.raises(LimitExceeded, match='model_calls=1'):
        Sequential(agent, limits=RunLimits(model_calls=1))('q')
    around = RunLimits(model_calls=1, on_limit='return')
    assert Sequential(agent, limits=around, name='outer')('q').sender == 'outer'
    with run_context(limits=around):
        assert agent('q').type == 'limit'


def test_repetition_counts_inside_and_around():
    executor = ActionExecutor(Echo())
    with run_context(limits=RunLimits(repeated_calls=3, on_repeat='raise')):
        for _ in range(2):
            with run_context(limits=RunLimits(repeated_calls=2, on_repeat='tell')):
                assert call(executor).errmsg is None
        with run_context(limits=RunLimits(repeated_calls=None)):
            assert call(executor).errmsg is None
            with pytest.raises(LimitExceeded, match='repeated_calls=3'):
                call(executor)


def test_the_shortest_time_counts():
    with run_context(limits=RunLimits(seconds=60)) as outer:
        with run_context(limits=RunLimits(seconds=600)) as inner:
            assert inner.deadline == outer.deadline
        with run_context(limits=RunLimits(seconds=6)) as inner:
            assert 0 < inner.seconds_left <= 6 < outer.seconds_left
        with (
            run_context(limits=RunLimits(seconds=1e-6)),
            pytest.raises(LimitExceeded, match='seconds=1e-06'),
        ):
            run(perform(Effect('tool', 't', 1), pytest.fail))


def test_an_inner_agent_that_gives_the_limits_answers_as_they_say():
    inner = Twice(
        ScriptedModel(list('ab')), limits=RunLimits(model_calls=1, on_limit='return'), name='inner'
    )

    class Outer(Agent):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, *message, session_id=0):
            return self.inner(*message)

    assert Outer()('q').type == 'limit'


class Priced:
    """A model whose replies say that they cost a thousand tokens each."""

    model_type = 'priced'

    def chat(self, messages: Any, **_: Any) -> Completion:
        return Completion('x', usage=Usage(1_000, 1_000, cached_tokens=500))


def test_a_run_ends_when_it_has_cost_too_much() -> None:
    price = Price(input=2.0, output=10.0, cached=1.0)
    assert price.of(Usage(1_000_000, 1_000_000)) == 12.0
    assert Price(input=2.0, output=10.0).of(Usage(1_000, 0, cached_tokens=500)) == 0.002
    limits = RunLimits(cost=0.02, prices={'priced': price})
    with run_context(limits=limits) as context:
        for _ in range(2):  # 0.0115 each
            Agent(Priced())('q')
        assert context.usage.cost == pytest.approx(0.023)
        with pytest.raises(LimitExceeded, match=r'cost=0\.02 \(used: 0\.023\)'):
            Agent(Priced())('q')
    with run_context(limits=RunLimits(cost=1)), pytest.raises(ConfigError, match="'priced'"):
        Agent(Priced())('q')


def test_prices_and_costs_inside_and_around() -> None:
    prices = {'priced': Price(input=2.0, output=10.0, cached=1.0)}
    for outer, inner in (
        (RunLimits(cost=1, prices=prices), RunLimits(cost=0.01)),
        (RunLimits(cost=1), RunLimits(cost=0.01, prices=prices)),
    ):
        with run_context(limits=outer) as around, run_context(limits=inner) as context:
            Agent(Priced())('q')
            assert context.usage.cost == around.usage.cost == pytest.approx(0.0115)
            with pytest.raises(LimitExceeded, match=r'cost=0\.01'):
                Agent(Priced())('q')
