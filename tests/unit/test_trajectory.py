"""Training data of runs: exact tokens where there are any, honest texts where not."""

import io
import json
import threading
from typing import Any

import pytest

from lagent.actions import ActionExecutor, Interpreter, tool_api
from lagent.agents import Agent, Coder
from lagent.effects import subscribe
from lagent.llms import Completion, ScriptedModel, ToolCall
from lagent.schema import AgentMessage
from lagent.steps import Step, as_asked
from lagent.testing import ask
from lagent.trajectory import Collector, Sample, samples, write_samples
from sandbox import FakeBackend

CODE = '```python\nprint(6 * 7)\n```'


def reply(text: str, before: list[int] | None, written: list[int] | None, **more: Any) -> Any:
    return Completion(text, prompt_token_ids=before, token_ids=written, **more)


def asked(result: Any, prompt: Any = 'q', position: str = '', name: str = 'm') -> Step:
    return Step(
        kind='model', name=name, payload=prompt, result=result, position=position, ended=True
    )


def used(position: str = '', **more: Any) -> Step:
    return Step(
        kind='tool', name='t', payload={'a': 1}, result='r', position=position, ended=True, **more
    )


def test_turns_that_go_on_are_one_sequence() -> None:
    (sample,) = samples(
        [
            asked(reply('one', [1, 2, 3], [4, 5], logprobs=[-0.5, -0.25])),
            used(seconds=0.5),
            asked(reply('two', [1, 2, 3, 4, 5, 6, 7], [8], finish_reason='length')),
        ]
    )
    assert sample.token_ids == [1, 2, 3, 4, 5, 6, 7, 8]
    assert sample.loss_mask == [0, 0, 0, 1, 1, 0, 0, 1]
    assert sample.logprobs == [None, None, None, -0.5, -0.25, None, None, None]
    assert [turn.tokens for turn in sample.turns] == [(3, 5), (7, 8)]
    assert [turn.finish_reason for turn in sample.turns] == ['stop', 'length']
    (tool,) = sample.tools
    assert (tool.turn, tool.tokens, tool.asked, tool.result) == (0, (5, 7), {'a': 1}, 'r')
    assert (sample.missing, sample.reward) == (None, None)


def test_a_prompt_that_was_written_anew_begins_another_sample() -> None:
    first, second = samples(
        [asked(reply('one', [1, 2], [3])), asked(reply('two', [1, 2, 9, 4], [5]))]
    )
    assert (first.token_ids, first.loss_mask) == ([1, 2, 3], [0, 0, 1])
    assert (second.token_ids, second.loss_mask) == ([1, 2, 9, 4, 5], [0, 0, 0, 0, 1])


def test_a_conversation_that_forks_is_two_samples() -> None:
    found = samples(
        [
            asked(reply('root', [1], [2])),
            asked(reply('left', [1, 2, 3], [4])),
            asked(reply('right', [1, 2, 5], [6])),
        ]
    )
    assert [sample.token_ids for sample in found] == [[1, 2, 3, 4], [1, 2, 5, 6]]
    assert [sum(sample.loss_mask or []) for sample in found] == [2, 1], 'once each'


def test_other_models_and_sessions_are_not_merged() -> None:
    steps = [asked(reply('a', [1], [2])), asked(reply('b', [1, 2], [3]), name='n')]
    assert len(samples(steps)) == 2
    steps[1].name, steps[1].session = 'm', 'other'
    assert len(samples(steps)) == 2
    steps[1].session, steps[1].run = 0, 'next question'
    assert len(samples(steps)) == 1


def test_runs_that_began_alike_are_told_apart() -> None:
    steps = [asked(reply('a', [1], [2])) for _ in range(2)]
    steps += [asked(reply('b', [1, 2, 3], [4])), asked(reply('c', [1, 2, 5], [6]))]
    for step, run in zip(steps, ['x', 'y', 'x', 'y'], strict=True):
        step.run = run
    found = {sample.run: sample.token_ids for sample in samples(steps)}
    assert found == {'x': [1, 2, 3, 4], 'y': [1, 2, 5, 6]}


@pytest.mark.parametrize(
    ('before', 'written', 'words'),
    [(None, None, 'the reply came without'), (None, [1], 'prompt'), ([1], None, 'the reply')],
)
def test_without_ids_there_is_text_and_the_reason(before: Any, written: Any, words: str) -> None:
    dialog = [{'role': 'user', 'content': 'q'}]
    (sample,) = samples([asked(reply('a', before, written), dialog)])
    assert (sample.token_ids, sample.loss_mask, sample.logprobs) == (None, None, None)
    assert sample.missing is not None
    assert words in sample.missing
    assert 'return_token_ids=True' in sample.missing
    assert sample.messages == [*dialog, {'role': 'assistant', 'content': 'a'}]
    assert sample.message_mask == [0, 1]
    assert sample.turns[0].tokens is None


def test_turns_with_and_without_ids_are_not_mixed() -> None:
    dialog = [{'role': 'user', 'content': 'q'}]
    longer = [*dialog, {'role': 'assistant', 'content': 'a'}, {'role': 'user', 'content': 'r'}]
    exact, text = samples([asked(reply('a', [1], [2]), dialog), asked('b', longer)])
    assert exact.token_ids == [1, 2]
    assert text.token_ids is None
    assert text.message_mask == [0, 0, 0, 1], 'a reply of another sample is not trained twice'


def test_texts_that_go_on_are_one_conversation() -> None:
    dialog = [{'role': 'system', 'content': 's'}, {'role': 'user', 'content': 'q'}]
    longer = [*dialog, {'role': 'assistant', 'content': 'a'}, {'role': 'user', 'content': 'r'}]
    cut = longer[2:]
    first, second = samples([asked('a', dialog), asked('b', longer), asked('c', cut)])
    assert first.message_mask == [0, 0, 1, 0, 1]
    assert [turn.text for turn in first.turns] == ['a', 'b']
    assert second.message_mask == [0, 0, 1]


def test_an_example_that_reads_like_a_reply_is_not_trained() -> None:
    shots = [{'role': 'user', 'content': '2+2?'}, {'role': 'assistant', 'content': '4'}]
    first = [*shots, {'role': 'user', 'content': '1+3?'}]
    second = [*first, {'role': 'assistant', 'content': '4'}, {'role': 'user', 'content': '2+3?'}]
    (sample,) = samples([asked('4', first), asked('5', second)])
    assert sample.message_mask == [0, 0, 0, 1, 0, 1]


def test_of_replies_that_are_not_in_the_prompt_any_more_the_others_are_found() -> None:
    dialog = [{'role': 'user', 'content': 'q'}]
    kept = [*dialog, {'role': 'assistant', 'content': 'a'}, {'role': 'user', 'content': 'r'}]
    first, second = (reply('a', [1], [2]), reply('edited later', [1, 2, 3], [4]))
    last = [*kept, {'role': 'assistant', 'content': 'shorter'}, {'role': 'user', 'content': 's'}]
    third = reply('c', [1, 2, 3, 4, 5], [6])
    (sample,) = samples([asked(first, dialog), asked(second, kept), asked(third, last)])
    assert sample.message_mask == [0, 1, 0, 0, 0, 1]


class InPlace(Agent):
    """Goes on with the list of messages that it has given to the model."""

    def forward(self, *message: AgentMessage, **kwargs: Any) -> Any:
        dialog = [{'role': 'user', 'content': '1+3?'}]
        reply = self.llm.chat(dialog)
        dialog.append({'role': 'assistant', 'content': str(reply)})
        dialog.append({'role': 'user', 'content': '2+3?'})
        return self.llm.chat(dialog)


def test_what_was_asked_is_what_was_asked_then() -> None:
    collector = Collector()
    with subscribe(collector):
        run = ask(InPlace(ScriptedModel(['4', '5'])), 'Go')
    (sample,) = collector.samples()
    assert [turn.text for turn in sample.turns] == ['4', '5']
    assert sample.message_mask == [0, 1, 0, 1]
    assert run.model_calls[0].asked == [{'role': 'user', 'content': '1+3?'}]


def test_what_cannot_be_copied_is_kept_as_it_is() -> None:
    payload = {'lock': threading.Lock()}
    assert as_asked(payload) is payload


def test_native_tool_calls_are_kept_and_joined() -> None:
    asks = Completion('', tool_calls=[ToolCall('c1', 'add', '{"a": 1}')], reasoning='Adding.')
    dialog = [{'role': 'user', 'content': 'q'}]
    written = [{'id': 'c1', 'type': 'function', 'function': {'name': 'add', 'arguments': ''}}]
    longer = [
        *dialog,
        {'role': 'assistant', 'content': None, 'tool_calls': written},
        {'role': 'tool', 'tool_call_id': 'c1', 'content': '2'},
    ]
    other = [*dialog, {'role': 'assistant', 'content': None, 'tool_calls': [{'id': 'c2'}]}]
    first, second = samples([asked(asks, dialog), asked('2', longer), asked('x', other)])
    assert first.message_mask == [0, 1, 0, 1]
    assert first.turns[0].reasoning == 'Adding.'
    assert second.message_mask == [0, 0, 1]
    (alone,) = samples([asked(asks, dialog)])
    assert alone.messages is not None
    assert alone.messages[-1]['tool_calls'][0]['function'] == {
        'name': 'add',
        'arguments': '{"a": 1}',
    }
    assert alone.to_dict()['turns'][0]['tool_calls'][0]['name'] == 'add'


def test_batches_failures_and_what_has_not_ended() -> None:
    batch = asked([reply('a', [1], [2]), reply('b', [3], [4])], ['q', 'r'])
    failed = Step(kind='model', name='m', payload='q', error='ValueError: no', ended=True)
    unknown = Step(kind='kernel', name='k', payload='1')
    found = samples([used(), batch, failed, unknown])
    assert [sample.token_ids for sample in found] == [[1, 2], [3, 4]]
    assert [sample.tools for sample in found] == [[], []]


def test_logprobs_of_another_length_are_left_out() -> None:
    (sample,) = samples([asked(reply('a', [1], [2, 3], logprobs=[-1.0]))])
    assert sample.logprobs is None


def test_tools_belong_to_the_turn_that_asked_for_them() -> None:
    outer, first, second = samples(
        [
            asked(reply('outer', [1], [2]), position='1'),
            asked(reply('first', [10], [11]), position='2[0].1'),
            asked(reply('second', [20], [21]), position='2[1].1'),
            used('2[0].2'),
            used('3'),
            used('2[1].2.4'),
            asked(reply('outer again', [1, 2, 3], [4]), position='4'),
        ]
    )
    assert [tool.position for tool in first.tools] == ['2[0].2']
    assert [tool.position for tool in second.tools] == ['2[1].2.4']
    assert [tool.position for tool in outer.tools] == ['3']
    assert outer.tools[0].tokens == (2, 3)


def test_a_collector_hears_an_agent_with_code() -> None:
    llm = ScriptedModel([reply(CODE, [1, 2], [3]), reply('42', [1, 2, 3, 4], [5])])
    interpreter = Interpreter(backend=FakeBackend(lambda _: 'ran it'), unsafe=True)
    collector = Collector()
    with Coder(llm, interpreter) as coder, subscribe(collector):
        coder('6 * 7?')
    (sample,) = collector.samples()
    assert (sample.token_ids, sample.loss_mask) == ([1, 2, 3, 4, 5], [0, 0, 1, 0, 1])
    (tool,) = sample.tools
    assert (tool.kind, tool.asked, tool.tokens) == ('kernel', 'print(6 * 7)', (3, 4))
    assert sample.message_mask is not None
    assert sum(sample.message_mask) == 2
    assert collector.samples(sample.run) == [sample]
    assert collector.samples('another run') == []


def test_a_collector_hears_tools_and_failures() -> None:
    @tool_api
    def fail() -> None:
        """Fail."""
        raise ValueError('no')

    collector = Collector()
    with subscribe(collector):
        Agent(ScriptedModel(['a']))('q')
        call = {'name': 'fail', 'parameters': {}, 'id': 'call_1'}
        ActionExecutor([fail])(AgentMessage(sender='m', content=[call]))
        with pytest.raises(KeyError):
            Agent(ScriptedModel([KeyError('x')]))('q')
    (sample,) = collector.samples()
    (tool,) = sample.tools
    assert tool.call_id == 'call_1'
    assert 'no' in tool.result.errmsg


def test_lines_hold_everything() -> None:
    (sample,) = samples([asked(reply('é\ud83d', [1], [2], logprobs=[-0.5])), used()])
    sample.reward = 1.0
    out = io.StringIO()
    write_samples([sample], out)
    line = json.loads(out.getvalue())
    assert line['v'] == 1
    assert set(line) == {'v'} | set(Sample.__slots__)
    assert (line['token_ids'], line['loss_mask'], line['reward']) == ([1, 2], [0, 1], 1.0)
    assert line['turns'][0]['tokens'] == [1, 2]
    assert line['turns'][0]['text'] == 'é\ud83d'
    assert line['tools'][0]['result'] == 'r'
