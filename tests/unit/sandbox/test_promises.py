"""What back ends say about the fields of a policy."""

from dataclasses import fields

import pytest

from sandbox import SandboxPolicy
from sandbox.backends import get_backend
from sandbox.backends.auto import _Announced
from sandbox.backends.bubblewrap import BubblewrapBackend
from sandbox.backends.docker import DockerBackend
from sandbox.backends.fake import FakeBackend

FIELDS = {field.name for field in fields(SandboxPolicy)}


def test_docker_enforces_everything():
    assert SandboxPolicy().enforced_by('docker') == dict.fromkeys(FIELDS, 'enforced')


def test_a_plain_process_is_not_limited():
    promises = SandboxPolicy().enforced_by('local')
    assert promises.keys() == FIELDS
    assert {name for name, said in promises.items() if said != 'enforced'} == {
        *('cpus', 'memory', 'pids', 'disk', 'tmp', 'shm', 'network', 'runtime', 'uid')
    }


def test_a_script_enforces_what_the_session_does():
    promises = SandboxPolicy().enforced_by(FakeBackend())
    assert promises['memory'] == 'answers are scripted, and nothing runs'
    assert promises['timeout'] == 'enforced'


def test_auto_passes_on_which_process_it_is():
    class Here:
        id, pid = '7', 7

    class There:
        id = 'abc'

    assert _Announced(Here(), '').pid == 7
    assert _Announced(There(), '').pid is None


@pytest.mark.parametrize(
    'changes', [{'network': 'full'}, {'runtime': 'runsc'}, {'packages': ('humanize',)}]
)
def test_bubblewrap_names_what_it_cannot_do(changes):
    (name,) = changes
    assert name in BubblewrapBackend().unenforced(SandboxPolicy(**changes))
    assert name not in BubblewrapBackend().unenforced(SandboxPolicy())


def test_only_limits_of_resources_can_be_given_up():
    with pytest.raises(ValueError, match='network, uid cannot be relaxed'):
        BubblewrapBackend(accept_unenforced=['uid', 'network', 'memory'])


def test_back_ends_are_found_by_name():
    assert get_backend('bubblewrap').name == 'bubblewrap'
    assert get_backend('auto').name == 'auto'
    for other in ('bubblewrap', DockerBackend()):
        with pytest.raises(ValueError, match='image goes with'):
            get_backend(other, image='x')
