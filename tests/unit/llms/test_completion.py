"""A completion is a text everywhere, and keeps what it knows."""

import copy
import json
import pickle
from collections.abc import Callable

import pytest

from lagent.llms import Completion, ToolCall, Usage
from lagent.schema import AgentMessage

FULL = Completion(
    'hi',
    finish_reason='length',
    stop_reason=7,
    usage=Usage(3, 4, cached_tokens=2),
    reasoning='hm',
    tool_calls=[ToolCall('c1', 'python', '{}')],
    thinking_blocks=[{'type': 'thinking', 'thinking': 'hm', 'signature': 's'}],
    token_ids=[5, 6],
    logprobs=[-0.5, -0.1],
    prompt_token_ids=[1, 2, 3],
    latency=0.25,
)
FIELDS = (*Completion.__slots__, 'text')


@pytest.mark.parametrize('reply', [FULL, Completion('x'), Completion('', finish_reason=None)])
def test_what_it_says_makes_it_again(reply: Completion) -> None:
    said = reply.said()
    again = Completion(str(reply), **said)
    assert [getattr(again, name) for name in FIELDS] == [getattr(reply, name) for name in FIELDS]
    empty = {name for name in said if said[name] in (None, ())}
    assert empty <= {'finish_reason'}


@pytest.mark.parametrize(
    'duplicate',
    [
        copy.copy,
        copy.deepcopy,
        *(lambda c, p=p: pickle.loads(pickle.dumps(c, p)) for p in range(2, 6)),
        lambda c: AgentMessage(content=c).model_copy(deep=True).content,
    ],
)
def test_copies_keep_every_field(duplicate: Callable[[Completion], Completion]) -> None:
    twin = duplicate(FULL)
    assert type(twin) is Completion
    assert [getattr(twin, name) for name in FIELDS] == [getattr(FULL, name) for name in FIELDS]


def test_it_behaves_as_its_text() -> None:
    reply = Completion('a\nb')
    assert reply == 'a\nb'
    assert hash(reply) == hash('a\nb')
    assert repr(reply) == repr('a\nb')
    assert type(reply.text) is str
    assert f'{reply}!' == 'a\nb!'
    assert json.dumps({'content': reply}) == '{"content": "a\\nb"}'
    assert not Completion()


def test_a_message_with_it_prints_and_dumps_like_one_with_the_text() -> None:
    with_completion, with_text = AgentMessage(content=FULL), AgentMessage(content='hi')
    assert str(with_completion) == str(with_text)
    assert with_completion.model_dump() == with_text.model_dump()
    assert with_completion.model_dump_json() == with_text.model_dump_json()


def test_made_by_hand_it_is_a_whole_reply_of_unknown_cost() -> None:
    reply = Completion('x')
    assert (reply.finish_reason, reply.usage, reply.tool_calls) == ('stop', None, ())


def test_another_text_keeps_the_rest() -> None:
    other = FULL.replace_text('ho')
    assert (other, other.finish_reason, other.token_ids) == ('ho', 'length', (5, 6))
    assert FULL == 'hi'


def test_another_text_is_not_continued_from_the_tokens_of_the_old_one() -> None:
    reply = Completion('the password', token_ids=[1], prompt_token_ids=[2])
    assert reply.replace_text('***').prompt_token_ids is None
    assert reply.replace_text('the password').prompt_token_ids == (2,)
    assert copy.deepcopy(reply).prompt_token_ids == (2,)


def test_usage_adds_up() -> None:
    total = Usage(1, 2, 3, 4) + Usage(10, 20, 30, 40)
    assert total == Usage(11, 22, 33, 44, attempts=2)
    assert total.total_tokens == 33
