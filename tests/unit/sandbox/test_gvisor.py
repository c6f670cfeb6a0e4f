import base64

import pytest

from sandbox import Allowlist, PolicyNotEnforced, SandboxPolicy
from sandbox.backends import gvisor
from sandbox.backends.base import Endpoint
from sandbox.backends.container import container_options
from sandbox.backends.layout import SOCKETS
from sandbox.backends.rendezvous import Rendezvous

WITH = {'Runtimes': {'runc': {}, 'runsc': {'path': '/usr/bin/runsc'}}}
POLICY = SandboxPolicy(runtime='runsc', pids=20, uid=4_000)


@pytest.mark.parametrize('info', [{}, {'Runtimes': None}, {'Runtimes': {'runc': {'path': 'runc'}}}])
def test_an_engine_without_it(info):
    with pytest.raises(PolicyNotEnforced, match="no runtime 'runsc'") as caught:
        gvisor.check(POLICY, info)
    assert 'register it' in caught.value.hint
    gvisor.check(SandboxPolicy(), info)  # which nobody asked for


@pytest.mark.parametrize('network', ['full', Allowlist(['example.org'])])
def test_a_network_is_refused(network):
    with pytest.raises(PolicyNotEnforced, match="only network='none'"):
        gvisor.check(SandboxPolicy(runtime='runsc', network=network), WITH)
    gvisor.check(POLICY, WITH)


@pytest.fixture
def options(tmp_path):
    plain = container_options(POLICY, Rendezvous(tmp_path), {'a': 'b'}, '/workspace')
    return gvisor.adapt(plain, POLICY)


def test_nothing_of_the_host_is_shown(options):
    assert options['binds'] == {}
    assert options['runtime'] == 'runsc'
    assert options['network_mode'] == 'none'
    assert options['read_only'] is True
    assert f'uid={POLICY.uid},gid={POLICY.uid},mode=0711' in options['tmpfs'][SOCKETS]
    assert options['labels']['a'] == 'b'


def test_the_bridge_begins_with_what_it_takes_to_become_two_users(options):
    assert options['command'][-2:] == ['--bridge', '4000']
    assert options['cap_drop'] == ['ALL']
    assert options['cap_add'] == ['SETUID', 'SETGID', 'SETPCAP']
    assert options['init'] is False, 'the first program must be the bridge'


def test_processes_are_limited_inside(options):
    limits = {limit.name: (limit.soft, limit.hard) for limit in options['ulimits']}
    assert limits['nproc'] == (20, 20)
    assert {'nofile', 'fsize', 'core'} < limits.keys()
    assert options['pids_limit'] > 20 * 11


def test_the_greeting_has_the_filter_and_the_guests_view_of_the_sockets(tmp_path):
    endpoint = Endpoint({'ip': str(tmp_path / 's'), 'key': 'secret'}, str(tmp_path / 'c'), tmp_path)
    greeting = gvisor.greeting(endpoint)
    assert greeting['connection'] == {'ip': '/run/k/s', 'key': 'secret'}
    assert len(base64.b64decode(greeting['filter'])) % 8 == 0


def test_without_an_engine_it_is_not_promised(monkeypatch):
    monkeypatch.setenv('DOCKER_HOST', 'unix:///nowhere/docker.sock')
    assert 'No Docker engine' in gvisor.unenforced(POLICY)['runtime']
    assert gvisor.unenforced(SandboxPolicy()) == {}
