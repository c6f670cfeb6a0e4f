"""The seam: events, limits, and what counts as one effect."""

import asyncio
import contextvars

import pytest

from lagent.agents import Agent, AsyncAgent
from lagent.context import RunContext, current_context, resolve_session, run_context
from lagent.effects import (
    Effect,
    Stage,
    emit,
    intercept,
    is_not_begun,
    listening,
    offline,
    perform,
    publish_replayed,
    subscribe,
)
from lagent.errors import LimitExceeded, RunCancelled
from lagent.flow import arun, run
from lagent.journal.recording import unrecorded
from lagent.journal.rerun import nothing_done
from lagent.limits import RunLimits, RunUsage
from lagent.llms import AsyncBaseLLM, BaseLLM
from lagent.positions import Scope, entered
from lagent.utils.config import resolved_by
from lagent.watch import watched_by

MODEL = Effect('model', 'm', ['hello'])
TOOL = Effect('tool', 't', {'a': 1})


class Reply(str):
    __slots__ = ('usage',)

    def __new__(cls, text, prompt, completion):
        self = super().__new__(cls, text)
        self.usage = RunUsage(prompt_tokens=prompt, completion_tokens=completion)
        return self


def shape(events):
    return [(event.type, event.effect.kind, event.data) for event in events]


def test_subscribers_see_begin_deltas_and_end():
    events = []

    def answer():
        assert listening()
        emit('he')
        emit('llo')
        return 'hello'

    with subscribe(events.append):
        assert run(perform(MODEL, answer)) == 'hello'
    assert shape(events) == [
        ('begin', 'model', None),
        ('delta', 'model', 'he'),
        ('delta', 'model', 'llo'),
        ('end', 'model', 'hello'),
    ]
    assert all(event.elapsed >= 0 and event.run is events[0].run for event in events)
    assert not listening()


def test_a_failing_effect_says_so_and_raises():
    events = []
    with subscribe(events.append), pytest.raises(ZeroDivisionError):
        run(perform(TOOL, lambda: 1 / 0))
    assert [event.type for event in events] == ['begin', 'error']
    assert isinstance(events[-1].data, ZeroDivisionError)


def test_nobody_listens_by_default():
    seen = []
    run(perform(MODEL, lambda: seen.append(listening())))
    assert seen == [False]


def test_an_effect_outside_of_any_run_is_a_run_of_its_own():
    events, seen = [], []
    with subscribe(events.append):
        run(perform(MODEL, lambda: seen.append(current_context())))
    (context,) = seen
    assert [event.run for event in events] == [context, context]
    assert (context.usage.model_calls, context.ended.is_set()) == (1, True)
    assert current_context() is None


def test_a_model_call_inside_a_model_call_counts_once():
    events = []
    with subscribe(events.append), run_context() as context:
        run(perform(MODEL, lambda: run(perform(MODEL, lambda: Reply('x', 3, 1)))))
    assert [event.type for event in events] == ['begin', 'end']
    assert (context.usage.model_calls, context.usage.tokens) == (1, 4)


def test_a_tool_call_inside_a_tool_call_counts_by_itself():
    with run_context() as context:
        inner = Effect('tool', 'inner', {})
        run(perform(TOOL, lambda: run(perform(inner, lambda: None))))
    assert context.usage.tool_calls == 2


async def test_effects_of_concurrent_tasks_do_not_mix():
    async def ask(text):
        await asyncio.sleep(0.01)
        emit(text)
        return text

    events = []
    with subscribe(events.append):
        effects = [Effect('model', name, []) for name in 'abc']
        flows = [arun(perform(effect, ask, effect.name)) for effect in effects]
        assert await asyncio.gather(*flows) == ['a', 'b', 'c']
    deltas = [event for event in events if event.type == 'delta']
    assert sorted((event.effect.name, event.data) for event in deltas) == [
        ('a', 'a'),
        ('b', 'b'),
        ('c', 'c'),
    ]


@pytest.mark.parametrize(
    ('limits', 'name'),
    [
        (RunLimits(model_calls=2), 'model_calls'),
        (RunLimits(tokens=8), 'tokens'),
    ],
)
def test_model_calls_stop_at_a_limit(limits, name):
    made = []
    with run_context(limits=limits), pytest.raises(LimitExceeded) as caught:
        for i in range(10):
            run(perform(MODEL, lambda i=i: made.append(i) or Reply('x', 3, 1)))
    assert (caught.value.limit, made) == (name, [0, 1])


def test_tool_calls_stop_at_a_limit_and_repetition_is_noticed():
    made = []
    with (
        run_context(limits=RunLimits(tool_calls=3)),
        pytest.raises(LimitExceeded, match='tool_calls'),
    ):
        for i in range(10):
            run(perform(Effect('tool', 't', {'i': i}), made.append, i))
    assert made == [0, 1, 2]
    made.clear()
    with run_context(limits=RunLimits(repeated_calls=2, on_repeat='raise')) as context:
        for i in (1, 1, 2, 1, 1):
            run(perform(Effect('kernel', 'k', f'x = {i}'), made.append, i))
        with pytest.raises(LimitExceeded, match='repeated_calls'):
            run(perform(Effect('kernel', 'k', 'x = 1'), made.append, 1))
    assert made == [1, 1, 2, 1, 1]
    assert context.usage.tool_calls == 5


def test_a_cancelled_run_makes_no_further_effect():
    with run_context() as context:
        run(perform(TOOL, lambda: None))
        context.cancel.set()
        with pytest.raises(RunCancelled):
            run(perform(TOOL, pytest.fail))


def test_a_run_whose_time_is_over_makes_no_further_effect():
    with run_context(limits=RunLimits(seconds=1e-6)), pytest.raises(LimitExceeded, match='seconds'):
        run(perform(TOOL, pytest.fail))


def test_contexts_nest():
    assert current_context() is None
    assert resolve_session(None) == 0
    with run_context('a', RunLimits(model_calls=1)) as outer:
        assert current_context() is outer
        assert resolve_session(None) == 'a'
        with run_context() as same:
            assert same is outer
        with run_context('b', RunLimits(model_calls=99)) as inner:
            assert (inner.session_id, inner.run_id) == ('b', outer.run_id)
            assert (inner.limits.model_calls, inner.usage.outer) == (99, outer.usage)
    assert current_context() is None


@pytest.mark.parametrize(
    'block',
    [
        lambda: run_context(),
        lambda: subscribe(print),
        lambda: intercept(print, Stage.LIVE),
        lambda: offline({'model'}),
        lambda: watched_by(None),
        lambda: entered(Scope('r')),
        lambda: resolved_by(print),
        lambda: unrecorded(),
        lambda: nothing_done(),
    ],
)
def test_an_abandoned_generator_may_be_ended_in_another_context(block):
    def generator():
        with block():
            yield

    left = generator()
    contextvars.copy_context().run(next, left)
    left.close()


def test_runs_have_names_of_their_own():
    assert RunContext().run_id != RunContext().run_id


@pytest.mark.parametrize('field', ['model_calls', 'tool_calls', 'tokens', 'seconds'])
def test_limits_must_be_positive(field):
    with pytest.raises(ValueError, match=field):
        RunLimits(**{field: 0})


@pytest.mark.parametrize('moment', ['begin', 'delta', 'end', 'error'])
def test_a_subscriber_that_fails_afterwards_costs_nothing(moment, caplog):
    told = []

    def failing(event):
        if event.type == moment:
            raise OSError('the screen is gone')

    def work(fails):
        emit('piece')
        if fails:
            raise ZeroDivisionError
        return 42

    effect = Effect('kernel', 'py', '')
    with subscribe(failing), subscribe(lambda event: told.append(event.type)):
        if moment == 'end':
            assert run(perform(effect, work, False)) == 42
        else:
            error = ZeroDivisionError if moment == 'error' else OSError
            with pytest.raises(error):
                run(perform(effect, work, True))
    assert ('the screen is gone' in caplog.text) == (moment in ('end', 'error'))
    assert told[-1] == ('end' if moment == 'end' else 'error')


@pytest.mark.parametrize('moment', ['begin', 'delta'])
@pytest.mark.parametrize('known', [False, True])
def test_what_a_subscriber_stops_at_its_beginning_was_not_begun(moment, known):
    def failing(event):
        if event.type == moment:
            raise BrokenPipeError

    def work():
        if known:
            publish_replayed(TOOL, RunContext(), 0.0, 42)
        emit('piece')

    with subscribe(failing), pytest.raises(BrokenPipeError) as caught:
        run(perform(TOOL, work))
    assert is_not_begun(caught.value) == (moment == 'begin')


class Generating(BaseLLM):
    def generate(self, inputs, **gen_params):
        return [f'reply to {inputs[-1]}'] if isinstance(inputs, list) else f'reply to {inputs}'


class AsyncGenerating(AsyncBaseLLM):
    async def generate(self, inputs, session_ids=None, **gen_params):
        return f'reply to {inputs}'


class Own:
    """No model class of ours: it makes its calls effects itself."""

    def chat(self, messages, **kwargs):
        return run(perform(Effect('model', 'own', messages), str, messages))


class ByHand(Agent):
    def forward(self, *message, **kwargs):
        return str(self.llm.chat('by hand'))


class AsyncByHand(AsyncAgent):
    async def forward(self, *message, **kwargs):
        return str(await self.llm.chat('by hand'))


@pytest.mark.parametrize('kind', [Agent, ByHand])
@pytest.mark.parametrize('llm', [Generating('own'), Own()])
def test_a_model_of_the_users_own_is_asked_in_one_effect(kind, llm):
    events = []
    with subscribe(events.append):
        kind(llm)('by hand')
    assert [(event.type, event.effect.kind) for event in events] == [
        ('begin', 'model'),
        ('end', 'model'),
    ]


@pytest.mark.parametrize('kind', [AsyncAgent, AsyncByHand])
async def test_an_awaited_model_of_the_users_own_is_asked_in_one_effect(kind):
    events = []
    with subscribe(events.append):
        await kind(AsyncGenerating('own'))('by hand')
    assert [event.type for event in events] == ['begin', 'end']
