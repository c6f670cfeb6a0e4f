"""Registering hooks and removing them."""

from lagent.hooks import Hook, Hookable, RemovableHandle


def test_the_base_hook_does_nothing():
    hook = Hook()
    for method in (hook.before_agent, hook.after_agent, hook.before_action, hook.after_action):
        assert method(None, None, 0) is None


def test_removing_twice_is_harmless():
    register = {}
    first, second = RemovableHandle(register), RemovableHandle(register)
    assert first.id != second.id
    register |= {first.id: 'a', second.id: 'b'}
    first.remove()
    first.remove()
    assert register == {second.id: 'b'}


def test_hooks_are_built_from_configs_and_keep_their_order():
    class Named(Hook):
        def __init__(self, name):
            self.name = name

    config = {'type': Named, 'name': 'b'}
    thing = Hookable([Named('a'), config])
    handle = thing.register_hook({'type': Named, 'name': 'c'})
    assert [hook.name for hook in thing._hooks.values()] == ['a', 'b', 'c']
    assert config == {'type': Named, 'name': 'b'}
    handle.remove()
    assert [hook.name for hook in thing._hooks.values()] == ['a', 'b']
