"""What an interpreter does with its sandboxes beside running cells."""

import copy
import pickle

import pytest

from lagent.actions import AsyncInterpreter, Interpreter
from lagent.actions.hooked import settle
from lagent.agents import AsyncCoder, Coder
from lagent.errors import ConfigError
from lagent.llms import ScriptedModel
from sandbox import SandboxPolicy, Survival


class Manager:
    """Stands for a manager, of which only the policy is looked at."""

    def __init__(self, policy):
        self.policy = policy


@pytest.mark.parametrize('cls', [Interpreter, AsyncInterpreter])
@pytest.mark.parametrize(
    'given',
    [
        {'policy': SandboxPolicy()},
        {'backend': 'docker'},
        {'image': 'mine'},
        {'max_sessions': 32},
        {'warm': 1},
        {'unsafe': True},
        {'survival': Survival('name', 60)},
        {'workspace': '/w'},
    ],
)
def test_what_a_manager_decides_cannot_be_given_beside_it(cls, given):
    manager = Manager(SandboxPolicy(network='full'))
    with pytest.raises(ValueError, match=f'have their own {next(iter(given))}'):
        cls(manager=manager, **given)
    assert cls(manager=manager).policy.network == 'full'


def test_an_image_and_a_workspace_go_together(tmp_path):
    with Interpreter(image='mine', workspace=str(tmp_path)) as interpreter:
        assert interpreter._sandboxes() is not None


@pytest.mark.parametrize('cls', [Interpreter, AsyncInterpreter])
def test_a_restart_forgets_variables_and_keeps_files(cls):
    interpreter = cls(backend='local', unsafe=True)
    settle(interpreter.execute, "x = 1; open('kept.txt', 'w').write('yes')", 's')
    settle(interpreter.restart, 's')
    assert settle(interpreter.execute, 'x', 's').error.name == 'NameError'
    assert settle(interpreter.read, 'kept.txt', 's') == b'yes'
    settle(interpreter.close)


@pytest.mark.parametrize('cls', [Interpreter, AsyncInterpreter])
def test_a_copy_of_an_agent_with_sandboxes_says_what_to_do(cls):
    agent = (AsyncCoder if 'Async' in cls.__name__ else Coder)(ScriptedModel([]), cls())
    for how in (copy.deepcopy, pickle.dumps):
        with pytest.raises(ConfigError, match=f'{cls.__name__} has sandboxes, .* Build a second'):
            how(agent)
    assert copy.copy(agent).interpreter is agent.interpreter


def test_a_second_agent_remembers_what_the_first_does():
    first = Coder(ScriptedModel(['one']), Interpreter())
    first('remember this')
    second = Coder(ScriptedModel(['two']), Interpreter())
    second.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    assert second.state_dict() == first.state_dict()
