"""Chains and collections of agents: what is a link, what is a child, and names."""

import copy
import pickle

import pytest

from lagent.agents import Agent, AgentDict, AgentList, Sequential
from lagent.hooks import Hook
from lagent.llms import ScriptedModel


def one(*replies):
    return Agent(ScriptedModel(replies or ['x']))


class Reviewed(Sequential):
    """A chain with an agent beside it."""

    def __init__(self, *agents):
        self.critic = one('no')
        super().__init__(*agents)
        self.judge = one('yes')


def test_an_agent_in_an_attribute_is_a_child_and_no_link():
    chain = Reviewed(one('a'), one('b'))
    assert len(chain) == 2
    assert chain('q').content == 'b'
    assert [name for name, _ in chain.named_layers()] == ['', '0', '1', 'critic', 'judge']
    with pytest.raises(KeyError):
        chain['critic']
    chain.judge = None
    assert [name for name, _ in chain.named_children()] == ['0', '1', 'critic']


def test_a_chain_can_be_copied_and_pickled():
    chain = Reviewed(Agent(), Agent())
    chain.critic, chain.judge = Agent(), Agent()
    for twin in (copy.deepcopy(chain), pickle.loads(pickle.dumps(chain))):
        assert [name for name, _ in twin.named_children()] == ['0', '1', 'critic', 'judge']
        assert twin[0] is not chain[0]


def test_names_that_would_make_paths_ambiguous_are_refused():
    with pytest.raises(KeyError, match='dot'):
        Sequential({'a.b': one()})
    chain = Reviewed(one())
    with pytest.raises(KeyError, match='critic'):
        chain.add_agent('critic', one())
    with pytest.raises(KeyError, match='0'):
        setattr(chain, '0', one())
    assert [name for name, _ in chain.named_children()] == ['0', 'critic', 'judge']
    replacement = one()
    chain.add_agent('0', replacement)
    assert chain[0] is replacement


@pytest.mark.parametrize('container', [AgentList([one()]), AgentDict({'a': one()})])
def test_a_collection_takes_hooks(container):
    handle = container.register_hook(Hook())
    assert list(container._hooks) == [handle.id]
    handle.remove()
    assert not container._hooks
    assert not copy.copy(container)._hooks
