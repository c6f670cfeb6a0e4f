import copy

import pytest
from pydantic import ConfigDict, PrivateAttr

from lagent.llms import Completion, Usage
from lagent.prompts.parsers import CodeParser
from lagent.schema import AgentMessage, AgentStatusCode
from lagent.utils.copies import copy_messages, copy_values


class Noted(AgentMessage):
    model_config = ConfigDict(extra='allow')
    _seen: list[str] = PrivateAttr(default_factory=list)


def test_a_copied_message_shares_nothing_that_can_change():
    message = AgentMessage(content=['a', {'b': [1]}], formatted={'c': [2]}, extra_info=('d', []))
    twin = copy.deepcopy(message)
    assert twin == message
    assert twin.model_fields_set == message.model_fields_set
    twin.content[1]['b'].append(3)
    twin.formatted['c'].append(3)
    twin.extra_info[1].append(3)
    twin.type = 'other'
    assert message.content == ['a', {'b': [1]}]
    assert message.formatted == {'c': [2]}
    assert message.extra_info == ('d', [])
    assert message.type is None
    assert twin.stream_state is AgentStatusCode.END


def test_a_subclass_is_copied_with_all_it_has():
    message = Noted(content='a', more=[1])
    message._seen.append('x')
    twin = copy.deepcopy(message)
    twin.more.append(2)
    twin._seen.append('y')
    assert (message.more, message._seen) == ([1], ['x'])
    assert (twin.more, twin._seen) == ([1, 2], ['x', 'y'])


@pytest.mark.parametrize('reason', [None, 'length'])
def test_a_copied_completion_says_the_same(reason):
    reply = Completion('a', finish_reason=reason, usage=Usage(1, 2), token_ids=[1], logprobs=[0.5])
    twin = copy.deepcopy(reply)
    assert type(twin) is Completion
    assert (twin, twin._fields()) == (reply, reply._fields())
    assert twin is not reply


def test_a_copied_parse_keeps_its_attributes():
    parsed = CodeParser().parse_response('<think>hm</think>\n```python\nx\n```\n')
    twin = copy.deepcopy(parsed)
    assert (twin, vars(twin)) == (parsed, vars(parsed))
    twin.cells.append('y')
    assert parsed.cells == ['x']


def test_the_same_object_twice_stays_one():
    shared = {'a': []}
    message = AgentMessage(content=shared, formatted=shared)
    for twin in (copy.deepcopy(message), message.model_copy(deep=True)):
        assert twin.content is twin.formatted is not shared


def test_what_holds_itself_is_copied():
    loop = []
    loop.append(loop)
    twin = copy_values({'loop': loop})['loop']
    assert twin[0] is twin is not loop


def test_dialogs():
    dialog = [{'role': 'user', 'content': [{'type': 'text', 'text': 'a'}]}, 'b']
    twin = copy_messages(dialog)
    twin[0]['content'][0]['text'] = 'c'
    assert dialog[0]['content'][0]['text'] == 'a'
    assert copy_messages('text') == 'text'
