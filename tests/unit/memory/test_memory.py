"""Memories: what they give, and that what they save is what they load."""

import copy
import json
import pickle
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import IntEnum

import pytest
from pydantic import BaseModel, field_validator

from lagent.context import run_context
from lagent.llms import Completion, ToolCall, Usage
from lagent.memory import Memory, MemoryManager
from lagent.prompts.parsers import CodeParser, ToolParser, ToolStatusCode
from lagent.schema import ActionReturn, ActionStatusCode, AgentMessage, FunctionCall


class Point(BaseModel):
    x: int
    tags: list[str] = []


class Level(IntEnum):
    LOW = 1


@dataclass
class Pair:
    first: int
    point: Point


def memory_of(*messages):
    memory = Memory()
    memory.add(list(messages))
    return memory


def through_json(memory):
    loaded = Memory()
    loaded.load(json.loads(json.dumps(memory.save())))
    return loaded


@pytest.mark.parametrize(
    ('given', 'own', 'expected'),
    [
        (None, None, 'abcd'),
        (0, None, 'abcd'),
        (2, None, 'cd'),
        (9, None, 'abcd'),
        (None, 3, 'bcd'),
        (0, 3, 'bcd'),
        (1, 3, 'd'),
        (4, 3, 'abcd'),
        (None, 0, 'abcd'),
    ],
)
def test_the_last_messages(given, own, expected):
    memory = Memory(recent_n=own)
    memory.add(list('abcd'))
    assert ''.join(m.content for m in memory.get_memory(recent_n=given)) == expected


def test_a_negative_number_is_an_error():
    with pytest.raises(ValueError, match='-1'):
        Memory(recent_n=-1)
    with pytest.raises(ValueError, match='-2'):
        Memory().get_memory(recent_n=-2)


def test_a_filter_counts_inside_the_slice():
    memory = Memory()
    memory.add(list('abcd'))
    kept = memory.get_memory(recent_n=3, filter_func=lambda i, m: i != 1 and m.content != 'd')
    assert [m.content for m in kept] == ['b']


@pytest.mark.parametrize(
    'message',
    [
        AgentMessage(content='急 🎉', sender='A', extra_info={'a': [1, None]}, type='t'),
        AgentMessage(content=FunctionCall('Kit.add', {'a': 1}), sender='A'),
        AgentMessage(
            content=ActionReturn({'q': 1}, errmsg='no', state=ActionStatusCode.ARGS_ERROR)
        ),
        AgentMessage(content='x', formatted=Point(x=1, tags=['a'])),
        AgentMessage(content='x', formatted=Pair(1, Point(x=2))),
        AgentMessage(content='x', formatted=ToolParser('t').parse_response('a<tool>\nb</tool>\n')),
        AgentMessage(content='x', formatted=CodeParser().parse_response('```python\nx = [1,\n')),
        AgentMessage(content=Completion('cut', finish_reason='length'), formatted={'status': 'ok'}),
    ],
    ids=lambda message: type(message.formatted or message.content).__name__,
)
def test_a_trip_through_json_changes_nothing(message):
    memory = memory_of(message)
    loaded = through_json(memory)
    assert loaded.get_memory() == memory.get_memory()
    assert loaded.save() == memory.save()
    [one] = loaded.get_memory()
    for field in ('content', 'formatted'):
        value = getattr(message, field)
        if not isinstance(value, dict):
            assert type(getattr(one, field)) is type(value)
    if isinstance(message.formatted, dict) and 'tool_type' in message.formatted:
        assert one.formatted['status'] is message.formatted['status']
        assert isinstance(one.formatted['status'], ToolStatusCode)


def test_what_internlm_saved_is_what_we_save_for_plain_messages():
    [dumped] = memory_of(AgentMessage(content='q', formatted={'status': Level.LOW})).save()
    assert set(dumped) == set(AgentMessage.model_fields)
    [typed] = memory_of(AgentMessage(content=FunctionCall('f', {}))).save()
    assert typed['content'] == {'name': 'f', 'parameters': {}}
    assert typed['types'] == {'content': 'lagent.schema:FunctionCall'}
    assert AgentMessage(**typed).content == typed['content']  # the extra entry is ignored


@pytest.mark.parametrize(
    'types',
    [
        {'formatted': 'os:system'},
        {'formatted': 'subprocess:Popen'},
        {'formatted': 'no.such.module:Thing'},
        {'formatted': 'lagent.schema:AgentMessage.model_validate'},
        {'formatted': 'tests:<locals>'},
        {'sender': 'lagent.schema:FunctionCall'},
        {'formatted': 3},
        'lagent.schema:FunctionCall',
        # a class whose fields the value doesn't fit
        {'formatted': 'lagent.schema:FunctionCall'},
    ],
)
def test_a_name_of_anything_else_leaves_the_value_as_it_is(types):
    memory = Memory()
    memory.load({'content': 'q', 'formatted': {'x': 1}, 'types': types})
    assert memory.get_memory()[0].formatted == {'x': 1}


class Fussy(BaseModel):
    x: int

    @field_validator('x')
    @classmethod
    def check(cls, value):
        raise RuntimeError('not today')


def test_a_class_that_refuses_leaves_the_plain_value():
    message = AgentMessage(content='q', formatted=Fussy.model_construct(x=1))
    memory = Memory()
    memory.load(json.loads(json.dumps(memory_of(message).save())))
    assert memory.get_memory()[0].formatted == {'x': 1}


def test_a_name_in_a_file_loads_no_module(monkeypatch):
    asked = []

    class Lazy(types.ModuleType):
        def __getattr__(self, name):
            asked.append(name)
            return Point

    class Lazier(types.ModuleType):
        def __getattribute__(self, name):
            asked.append(name)
            return super().__getattribute__(name)

    monkeypatch.setitem(sys.modules, 'lazy_one', Lazy('lazy_one'))
    monkeypatch.setitem(sys.modules, 'lazy_two', Lazier('lazy_two'))
    memory = Memory()
    for name in ('lazy_one:Thing', 'lazy_two:Thing', 'lazy_two:Thing.Inner'):
        memory.load({'content': 'q', 'formatted': {'x': 1}, 'types': {'formatted': name}})
        assert memory.get_memory()[0].formatted == {'x': 1}
    assert asked == []
    before = set(sys.modules)
    memory.load({'content': {}, 'types': {'content': 'lagent.llms:LMDeployServer'}})
    assert set(sys.modules) == before


def test_what_the_provider_said_of_a_reply_survives():
    reply = Completion(
        'so',
        finish_reason='tool_calls',
        usage=Usage(3, 1, attempts=2),
        reasoning='hm',
        tool_calls=[ToolCall('1', 'f', '{}')],
        token_ids=[7],
    )
    memory = memory_of(AgentMessage(content=reply, sender='A'))
    [dumped] = memory.save()
    assert type(json.loads(json.dumps(dumped))['content']) is str
    loaded = through_json(memory).get_memory()[0].content
    assert (loaded, loaded._fields()) == (reply, reply._fields())
    assert type(loaded.usage) is Usage


@pytest.mark.parametrize('said', [{}, {'completion': 3}, {'completion': {'usage': {'?': 1}}}])
def test_a_reply_of_which_something_else_is_said_is_its_text(said):
    memory = Memory()
    memory.load({'content': 'q', 'types': {'content': said}})
    assert memory.get_memory()[0].content == 'q'


def test_loading_does_not_change_what_is_loaded():
    state = [{'content': 'q', 'formatted': dict.fromkeys(('tool_type', 'thought', 'action'), '')}]
    state[0]['formatted']['status'] = 0
    memory = Memory()
    memory.load(state)
    assert type(state[0]['formatted']['status']) is int
    assert memory.get_memory()[0].formatted['status'] is ToolStatusCode.NO_TOOL


def test_thousands_of_sessions():
    manager = MemoryManager({'type': Memory, 'recent_n': 1})
    for session in range(5_000):
        manager.add([f'q{session}', f'a{session}'], session_id=session)
    assert [m.content for m in manager.get_memory(4_321)] == ['a4321']
    assert manager.get_memory('unknown') == []
    manager.reset(4_321)
    assert manager.get_memory(4_321) == []
    assert len(manager.memory_map) == 4_999


def test_the_session_that_was_used_least_recently_makes_room():
    manager = MemoryManager({'type': Memory}, max_sessions=2)
    for session in 'ab':
        manager.add('q', session_id=session)
    assert len(manager.get_memory('a')) == 1
    manager.add('q', session_id='c')
    assert set(manager.memory_map) == {'a', 'c'}
    manager.create_instance('d')
    assert set(manager.memory_map) == {'c', 'd'}
    manager.reset('c')
    manager.add('q', session_id='e')
    assert set(manager.memory_map) == set(manager._used) == {'d', 'e'}


def test_a_session_that_a_run_works_with_stays():
    manager = MemoryManager({'type': Memory}, max_sessions=1)
    with run_context('a'):
        manager.add('q', session_id='a')
        for session in 'bcd':
            manager.add('q', session_id=session)
        assert set(manager.memory_map) == set('abcd')
    manager.add('q', session_id='e')
    assert set(manager.memory_map) == {'e'}


def test_a_bound_may_come_later_and_is_copied():
    manager = MemoryManager({'type': Memory})
    with run_context('a'):
        for session in range(10):
            manager.add('q', session_id=session)
        manager.max_sessions = 3
        manager.add('q', session_id=10)
        for twin in (copy.deepcopy(manager), pickle.loads(pickle.dumps(manager))):
            twin.add('q', session_id=11)
            assert set(twin.memory_map) == {9, 10, 11}
    assert set(manager.memory_map) == {8, 9, 10}


def test_no_message_is_lost_to_sessions_of_other_threads():
    manager = MemoryManager({'type': Memory}, max_sessions=4)

    def talk(session):
        with run_context(session):
            for _ in range(50):
                manager.add('q', session_id=session)
            return len(manager.get_memory(session))

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(talk, range(64))) == {50}
    manager.add('q', session_id=64)
    assert len(manager.memory_map) == 4


def test_a_bound_is_at_least_one():
    with pytest.raises(ValueError, match='max_sessions'):
        MemoryManager({'type': Memory}, max_sessions=0)


def test_a_memory_and_a_manager_say_how_much_they_hold():
    manager = MemoryManager({'type': Memory, 'recent_n': 3}, max_sessions=9)
    manager.create_instance('s').add(AgentMessage(sender='user', content='secret'))
    assert repr(manager.get('s')) == 'Memory(messages=1, recent_n=3)'
    assert repr(manager) == 'MemoryManager(sessions=1, max_sessions=9)'
