"""The state of a tree: versions, strictness, and files."""

import json
import pickle
import warnings

import pytest

from lagent.agents import Agent, StateDict
from lagent.schema import AgentMessage, FunctionCall


class Pair(Agent):
    def __init__(self):
        super().__init__()
        self.inner = Agent()

    def forward(self, *message, session_id=0):
        self.inner.update_memory(message, session_id)
        return AgentMessage(sender='inner', content=FunctionCall('f', {'a': 1}))


@pytest.fixture
def pair():
    agent = Pair()
    agent('q')
    return agent


def test_a_state_is_a_plain_dict_that_knows_its_version(pair):
    state = pair.state_dict()
    assert state == dict(state)
    assert list(state) == ['memory', 'inner.memory']
    assert state.version == 1
    assert pickle.loads(pickle.dumps(state)) == state


@pytest.mark.parametrize(
    'trip',
    [
        lambda state: StateDict.from_json(state.to_json()),
        lambda state: StateDict.from_json(json.dumps(state, indent=1)),
        lambda state: json.loads(json.dumps(state)),
        lambda state: pickle.loads(pickle.dumps(state)),
    ],
)
def test_a_state_comes_back_as_it_was(pair, trip):
    other = Pair()
    other.load_state_dict(trip(pair.state_dict()), session_id='s', strict=True)
    assert other.state_dict('s') == pair.state_dict()
    assert other.memory.get_memory('s') == pair.memory.get_memory()
    assert isinstance(other.memory.get_memory('s')[-1].content, FunctionCall)


def test_a_later_version_is_refused(pair):
    text = pair.state_dict().to_json().replace('"version": 1', '"version": 2')
    with pytest.raises(ValueError, match='format 2'):
        StateDict.from_json(text)
    state = pair.state_dict()
    state.version = 2
    before = pair.state_dict()
    with pytest.raises(ValueError, match='format 2'):
        pair.load_state_dict(state)
    assert pair.state_dict() == before


@pytest.mark.parametrize(('text', 'error'), [('[]', TypeError), ('{', ValueError)])
def test_what_is_no_state(text, error):
    with pytest.raises(error):
        StateDict.from_json(text)


def test_strictness(pair):
    before = pair.state_dict()
    extra = {**before, 'ghost.memory': []}
    with pytest.warns(UserWarning, match='ghost'):
        pair.load_state_dict(extra)
    with pytest.raises(KeyError, match='ghost'):
        pair.load_state_dict({**extra, 'memory': []}, strict=True)
    assert pair.state_dict() == before
    for strict in (None, True):
        with pytest.raises(KeyError, match=r'inner\.memory'):
            pair.load_state_dict({'memory': []}, strict=strict)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        pair.load_state_dict({'memory': [], 'ghost.memory': []}, strict=False)
    assert pair.state_dict() == {'memory': [], 'inner.memory': before['inner.memory']}
