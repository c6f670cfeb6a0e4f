"""The coder's loop, with a scripted model and an interpreter that only notes what it was given."""

import asyncio

import pytest

from lagent.actions import AsyncInterpreter, Interpreter
from lagent.agents import AsyncCoder, Coder
from lagent.agents.aggregator import DefaultAggregator
from lagent.agents.tool_loop import ToolAgent
from lagent.context import current_context, run_context
from lagent.errors import LimitExceeded, ParseFailed
from lagent.limits import RunLimits
from lagent.llms import AsyncScriptedModel, Completion, ScriptedModel
from lagent.schema import AgentMessage

FAKE = {'backend': 'fake', 'unsafe': True}
CODE = 'I compute.\n```python\nprint(6 * 7)\n```'


class Notes:
    """Stands for an interpreter."""

    def __init__(self, *outputs):
        self.outputs, self.seen, self.sessions = list(outputs), [], []

    def __call__(self, message, session_id=None):
        self.seen.append(message.formatted['action'])
        self.sessions.append((session_id, current_context().session_id))
        return AgentMessage(sender='interpreter', content=self.outputs.pop(0), type='interpreter')

    def close(self):
        self.outputs = None


def test_code_is_run_and_the_model_sees_what_came_out():
    llm, interpreter = ScriptedModel([CODE, 'It is 42.']), Notes('42\n')
    with Coder(llm, interpreter, template='sys') as coder:
        answer = coder('6 * 7?', session_id='s')
    assert (answer.sender, answer.content, interpreter.seen) == (
        'Coder',
        'It is 42.',
        ['print(6 * 7)'],
    )
    assert interpreter.sessions == [('s', 's')]
    assert llm.calls[-1].messages == [
        {'role': 'system', 'content': 'sys'},
        {'role': 'user', 'content': '6 * 7?'},
        {'role': 'assistant', 'content': CODE},
        {'role': 'user', 'content': '42\n'},
    ]
    state = coder.state_dict('s')
    assert {key: len(messages) for key, messages in state.items()} == {
        'memory': 2,
        'agent.memory': 4,
    }
    assert interpreter.outputs is None


def test_the_async_coder_gives_the_same_transcript():
    class AsyncNotes(Notes):
        async def __call__(self, message, session_id=None):
            await asyncio.sleep(0)
            return super().__call__(message, session_id)

    plain = Coder(ScriptedModel([CODE, 'It is 42.']), Notes('42\n'))
    later = AsyncCoder(AsyncScriptedModel([CODE, 'It is 42.']), AsyncNotes('42\n'), name='Coder')
    assert plain('q').content == asyncio.run(later('q')).content == 'It is 42.'
    assert plain.state_dict() == later.state_dict()


def test_what_follows_an_invented_observation_does_not_come_back_as_history():
    invented = f'{CODE}\nObservation: 41\nSo it is 41.'
    llm, interpreter = ScriptedModel([invented, 'It is 42.']), Notes('42\n')
    coder = Coder(llm, interpreter)
    assert coder('q').content == 'It is 42.'
    assert interpreter.seen == ['print(6 * 7)']
    said = llm.calls[-1].messages[2]['content']
    assert said.rstrip() == CODE
    assert '41' in coder.agent.memory.get_memory()[1].extra_info['dropped']


def test_turns_that_are_used_up_raise():
    coder = Coder(ScriptedModel([CODE, CODE.replace('6', '5'), CODE]), Notes('1', '2'), max_turn=2)
    with pytest.raises(LimitExceeded, match='max_turn=2'):
        coder('q')


def test_code_that_is_not_run_says_so_in_the_history():
    coder = Coder(ScriptedModel([CODE, CODE, 'fine']), Notes('1'), max_turn=1)
    with pytest.raises(LimitExceeded):
        coder('q')
    last = coder.agent.memory.get_memory()[-1]
    assert (last.sender, last.content) == ('interpreter', '[not run: all turns are used up]')
    coder('again')
    assert [m['role'] for m in coder.agent.llm.calls[-1].messages[-3:]] == [
        'user',
        'assistant',
        'user',
    ]
    cut = Completion('```python\nprint(1', finish_reason='length')
    coder = Coder(ScriptedModel([cut]), Notes(), limits=RunLimits(parse_failures=1))
    with pytest.raises(ParseFailed):
        coder('q')
    assert coder.agent.memory.get_memory()[-1].content.startswith('[not run: the reply could not')


def test_a_turn_that_is_used_up_is_no_answer_of_the_interpreter():
    def is_result(message):
        return message.sender == 'interpreter' and message.content == '42'

    llm, rule = ScriptedModel([CODE, CODE]), {'finish_condition': is_result}
    with pytest.raises(LimitExceeded):
        Coder(llm, Notes('1'), max_turn=1, **rule)('q')
    llm = ScriptedModel([CODE, CODE])
    answer = Coder(llm, Notes('1'), max_turn=1, on_max_turn='return', **rule)('q')
    assert (answer.type, answer.extra_info['limit']) == ('limit', 'max_turn')


def test_turns_that_are_used_up_do_not_look_like_an_answer():
    limits = RunLimits(on_limit='return')
    coder = Coder(ScriptedModel([CODE] * 2), Notes('1'), max_turn=1, limits=limits)
    answer = coder('q')
    assert (answer.type, answer.extra_info['limit'], answer.formatted) == (
        'limit',
        'max_turn',
        None,
    )
    assert 'max_turn' in answer.content


def test_limits_of_the_run_are_reported_the_same_way():
    limits = RunLimits(model_calls=1, on_limit='return')
    coder = Coder(ScriptedModel([CODE] * 2), Notes('1'), limits=limits)
    assert coder('q').extra_info == {'limit': 'model_calls', 'allowed': 1, 'used': 1}


def test_a_cut_reply_is_answered_with_a_reason_and_failures_in_a_row_end_the_run():
    cut = Completion('```python\nprint(1', finish_reason='length')
    llm = ScriptedModel([cut] * 3)
    coder = Coder(llm, Notes('cut', 'cut', 'cut'), limits=RunLimits(parse_failures=2))
    with pytest.raises(ParseFailed) as caught:
        coder('q')
    assert (caught.value.attempts, caught.value.reply) == (2, '```python\nprint(1')


def test_a_good_reply_ends_the_count_of_failures():
    cut = Completion('```python\nprint(1', finish_reason='length')
    llm = ScriptedModel([cut, CODE, cut, 'Done.'])
    coder = Coder(llm, Notes('cut', '42', 'cut'), limits=RunLimits(parse_failures=2))
    assert coder('q').content == 'Done.'


def test_the_finish_condition_may_take_the_answer_from_the_execution():
    coder = Coder(
        ScriptedModel([CODE]),
        Notes('42\n'),
        finish_condition=lambda message: message.sender == 'interpreter',
    )
    answer = coder('q')
    assert (answer.sender, answer.content) == ('interpreter', '42\n')
    assert coder.agent.memory.get_memory()[-1].content == '42\n'


def test_failures_are_in_a_row_only_within_one_question():
    cut = Completion('```python\nprint(1', finish_reason='length')
    llm = ScriptedModel([cut, 'Done.'] * 3)
    coder = Coder(llm, Notes(*['cut'] * 3), limits=RunLimits(parse_failures=2))
    with run_context(limits=RunLimits(parse_failures=2)) as context:
        assert [coder(str(n)).content for n in range(3)] == ['Done.'] * 3
    assert context.usage.parse_failures == 3


def test_failures_of_other_agents_of_the_run_are_not_counted():
    cut = Completion('```python\nprint(1', finish_reason='length')
    coders = [Coder(ScriptedModel([cut, CODE, 'Done.']), Notes('cut', '42')) for _ in range(3)]
    limits = RunLimits(parse_failures=2, repeated_calls=None)

    class Nested(Notes):
        def __call__(self, message, session_id=None):
            return super().__call__(message) if coders.pop()('sub').content == 'Done.' else None

    outer = Coder(ScriptedModel([cut, CODE, cut, 'Done.']), Nested(*['x'] * 3), limits=limits)
    assert outer('q').content == 'Done.'


def test_an_interpreter_of_the_other_kind_is_refused():
    with pytest.raises(
        TypeError, match='Coder cannot use AsyncInterpreter: give it an Interpreter'
    ):
        Coder(ScriptedModel([]), AsyncInterpreter())
    with pytest.raises(
        TypeError, match='AsyncCoder cannot use Interpreter: give it an AsyncInterp'
    ):
        AsyncCoder(AsyncScriptedModel([]), Interpreter())
    with pytest.raises(TypeError, match='AsyncInterpreter'):
        AsyncCoder(AsyncScriptedModel([]), {'type': 'lagent.actions.Interpreter'})


def test_a_coder_is_a_loop_like_the_others():
    with pytest.raises(ValueError, match='max_turn'):
        Coder(ScriptedModel([]), Notes(), max_turn=0)
    assert issubclass(Coder, ToolAgent)


@pytest.mark.parametrize('cls', [Coder, AsyncCoder])
def test_what_happens_after_the_last_turn_is_checked(cls):
    notes = Interpreter if cls is Coder else AsyncInterpreter
    with pytest.raises(ValueError, match=r"on_max_turn is one of .*, not 'retrun'"):
        cls(ScriptedModel([]), notes(**FAKE), on_max_turn='retrun')


def test_an_aggregator_is_the_inner_agents():
    aggregator = DefaultAggregator()
    coder = Coder(ScriptedModel([]), Notes(), aggregator=aggregator)
    assert coder.agent.aggregator is aggregator
