"""Replies, whole or in chunks, from servers that do as they please."""

from typing import Any

import pytest

from lagent.llms import BadReply, Completion, EmptyReply, StreamCut, ToolCall, Usage
from lagent.llms.openai_reply import ReplyBuilder


def chunk(delta: Any, finish_reason: Any = None, **more: Any) -> dict[str, Any]:
    return {'choices': [{'index': 0, 'delta': delta, 'finish_reason': finish_reason, **more}]}


def build(*items: Any, stops: list[str] | None = None, complete: bool = False) -> Completion:
    builder = ReplyBuilder(stops)
    for item in items:
        builder.feed(item)
    return builder.finish(complete=complete)[1]


def arguments(index: Any, text: str, **first: str) -> dict[str, Any]:
    name = {'name': first.pop('name')} if 'name' in first else {}
    return {'index': index, **first, 'function': {**name, 'arguments': text}}


def test_a_whole_reply() -> None:
    usage = {
        'prompt_tokens': 10,
        'completion_tokens': 5,
        'prompt_tokens_details': {'cached_tokens': 4},
        'completion_tokens_details': {'reasoning_tokens': 2},
    }
    said = {'role': 'assistant', 'content': ' hi \n', 'reasoning_content': 'hm'}
    reply = build(
        {'choices': [{'message': said, 'finish_reason': 'length'}], 'usage': usage}, complete=True
    )
    assert reply == 'hi'
    assert (reply.finish_reason, reply.reasoning) == ('length', 'hm')
    assert reply.usage == Usage(10, 5, cached_tokens=4, reasoning_tokens=2)


def test_chunks_are_shown_as_they_come() -> None:
    builder = ReplyBuilder(['END'])
    feed = ['\n', ' He', 'llo E', 'N', 'D more']
    assert [builder.feed(chunk({'content': c})) for c in feed] == ['', 'He', 'llo ', '', '']
    assert builder.stopped
    rest, reply = builder.finish(complete=False)
    assert (rest, reply, reply.finish_reason, reply.stop_reason) == ('', 'Hello', 'stop', 'END')


def test_what_was_held_back_comes_at_the_end() -> None:
    builder = ReplyBuilder(['END'])
    assert builder.feed(chunk({'content': 'x EN'}, 'stop')) == 'x '
    assert builder.finish(complete=False) == ('EN', 'x EN')


def test_usage_comes_in_a_chunk_of_its_own() -> None:
    last = {'choices': [], 'usage': {'prompt_tokens': 3, 'completion_tokens': 1}}
    assert build(chunk({'content': 'x'}, 'stop'), last).usage == Usage(3, 1)


def test_log_probabilities_and_ids() -> None:
    scores = {'content': [{'token': 'x', 'logprob': -0.5}, {'token': '!', 'logprob': -1}]}
    reply = build(chunk({'content': 'x!'}, 'stop', logprobs=scores, token_ids=[4, 5]))
    assert (reply.logprobs, reply.token_ids) == ((-0.5, -1), (4, 5))


@pytest.mark.parametrize('in_choice', [True, False])
def test_the_ids_of_the_prompt(in_choice: bool) -> None:
    ids = {'prompt_token_ids': [1, 2]}
    first = chunk({'content': 'x'}, **ids) if in_choice else {**chunk({'content': 'x'}), **ids}
    assert build(first, chunk({}, 'stop')).prompt_token_ids == (1, 2)
    assert build(chunk({'content': 'x'}, 'stop', prompt_token_ids='x')).prompt_token_ids is None


@pytest.mark.parametrize('name', ['reasoning_content', 'reasoning'])
def test_reasoning_comes_in_pieces(name: str) -> None:
    builder = ReplyBuilder()
    deltas = [{name: 'Let me '}, {name: 'see.', 'content': None}, {'content': 'Yes'}]
    assert [builder.feed(chunk(delta)) for delta in deltas] == ['', '', 'Yes']
    builder.feed(chunk({}, 'stop'))
    reply = builder.finish(complete=False)[1]
    assert (reply, reply.reasoning) == ('Yes', 'Let me see.')


def test_tool_calls_are_joined_by_index() -> None:
    reply = build(
        chunk({'tool_calls': [arguments(0, '{"code":', id='c1', name='python')]}),
        chunk({'tool_calls': [arguments(1, '{"code": "print(2)"}', id='c2', name='python')]}),
        chunk({'tool_calls': [arguments(0, ' "print(1)"}')]}, 'tool_calls'),
    )
    assert reply == ''
    assert reply.tool_calls == (
        ToolCall('c1', 'python', '{"code": "print(1)"}'),
        ToolCall('c2', 'python', '{"code": "print(2)"}'),
    )


def test_arguments_that_end_early_stay_as_they_are() -> None:
    reply = build(
        chunk({'tool_calls': [arguments(0, '{"code": "pri', id='c1', name='python')]}),
        chunk({'tool_calls': [arguments(0, 'nt(1)"')]}),
        chunk({}, 'tool_calls'),
    )
    assert reply.tool_calls == (ToolCall('c1', 'python', '{"code": "print(1)"'),)


def test_a_second_id_under_one_index_is_another_call() -> None:
    reply = build(
        chunk({'tool_calls': [arguments(0, '{}', id='c1', name='f')]}),
        chunk({'tool_calls': [arguments(0, '{}', id='c2', name='g')]}, 'tool_calls'),
    )
    assert [call.name for call in reply.tool_calls] == ['f', 'g']


def test_decoded_arguments_are_encoded_again() -> None:
    call = {'id': 'c', 'function': {'name': 'f', 'arguments': {'a': 1}}}
    assert build(chunk({'tool_calls': [call]}, 'tool_calls')).tool_calls[0].arguments == '{"a": 1}'


@pytest.mark.parametrize(
    ('choices', 'finish_reason', 'hint'),
    [
        (
            [{'message': {'content': None, 'tool_calls': None}, 'finish_reason': 'stop'}],
            'stop',
            'X',
        ),
        ([{'message': {'content': ' \n'}, 'finish_reason': 'stop'}], 'stop', 'stop word'),
        (
            [{'message': {'content': None}, 'finish_reason': 'content_filter'}],
            'content_filter',
            'f',
        ),
        ([{'message': {'content': ''}, 'finish_reason': 'length'}], 'length', 'max_new_tokens'),
        ([], None, 'None'),
        (None, None, 'None'),
    ],
)
def test_an_empty_reply_is_an_error_that_says_why(
    choices: Any, finish_reason: str | None, hint: str
) -> None:
    with pytest.raises(EmptyReply, match=hint) as caught:
        build({'choices': choices}, stops=['X'], complete=True)
    assert caught.value.finish_reason == finish_reason


USAGE = {'completion_tokens': 1_500, 'completion_tokens_details': {'reasoning_tokens': 1_500}}


@pytest.mark.parametrize(
    ('reply', 'told'),
    [
        ({'finish_reason': 'length', 'message': {'reasoning_content': 'Hm'}}, 'raise max_new'),
        ({'finish_reason': 'length', 'message': {'reasoning': 'Hm'}}, 'raise max_new'),
        ({'finish_reason': 'stop', 'message': {'reasoning': 'Hm'}}, 'less reasoning, or ask again'),
    ],
)
def test_a_reply_that_only_reasons_is_told_as_that(reply: dict[str, Any], told: str) -> None:
    with pytest.raises(EmptyReply, match=rf'^The model only reasoned \(fin.*{told}') as caught:
        build({'choices': [reply]}, complete=True)
    assert 'stop word is' not in str(caught.value)
    unseen = {'choices': [{**reply, 'message': {'content': ''}}], 'usage': USAGE}
    with pytest.raises(EmptyReply, match=rf'^The model only reasoned, 1,500 tokens \(fin.*{told}'):
        build(unseen, complete=True)


def test_a_refusal_is_told_apart() -> None:
    reply = build(chunk({'content': None, 'refusal': 'I will not.'}, 'stop'))
    assert (reply, reply.finish_reason) == ('I will not.', 'refusal')


def test_a_stream_that_breaks_off_is_no_reply() -> None:
    builder = ReplyBuilder()
    builder.feed(chunk({'content': "```python\nos.remove('a')\n```\nBut first "}))
    with pytest.raises(StreamCut):
        builder.finish(complete=False)
    assert builder.text.endswith('But first ')


def test_an_end_mark_ends_a_reply_too() -> None:
    assert build(chunk({'content': 'x'}), complete=True).finish_reason is None


@pytest.mark.parametrize('noise', ['text', None, 3, [], {'choices': [{'delta': 'x'}]}])
def test_what_is_not_the_protocol_is_refused(noise: Any) -> None:
    with pytest.raises(BadReply, match='The server sent'):
        build(noise)


@pytest.mark.parametrize(
    'noise',
    [
        {'choices': 'x', 'usage': 'x'},
        {'choices': [None, 3, {'index': 0}]},
        chunk({'content': 5, 'tool_calls': 'x', 'reasoning_content': {}}),
        chunk({'tool_calls': [None, {'function': 'x'}]}, {}),
        chunk({}, None, logprobs=[1], token_ids='x'),
        {'choices': [{'index': 1, 'delta': {'content': 'another answer'}}]},
        {'usage': {'prompt_tokens': 'many', 'prompt_tokens_details': 3}},
    ],
)
def test_noise_in_fields_adds_nothing(noise: Any) -> None:
    assert build(noise, chunk({'content': 'x'}, 'stop')) == 'x'


def test_content_in_parts() -> None:
    parts = [{'type': 'text', 'text': 'a'}, {'type': 'text', 'text': 'b'}]
    assert build(chunk({'content': parts}, 'stop')) == 'ab'
