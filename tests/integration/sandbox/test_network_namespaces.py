"""The egress proxy as users get it, on an internet of two network namespaces.

The other tests of the network inject names and a judge of addresses. Here the proxy has the
system's resolver and its own judge: it lives in one namespace, and a name service and servers with
public, private and metadata addresses in the other. Nothing leaves the two.
"""

import ast
import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Allowlist, Sandbox, SandboxPolicy
from sandbox.egress.process import COMMAND, EgressProxy

IP = shutil.which('ip') or ''
pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(os.geteuid() != 0 or not IP, reason='needs root and iproute2'),
]

HERE = Path(__file__).parent
# The block 44.128.0.0/16 is set aside for tests, yet public by its number.
PUBLIC, OWN, PRIVATE, METADATA = '44.128.7.2', '44.128.7.1', '10.99.7.2', '169.254.169.254'
NAMES = {
    'good.egress.test': [[PUBLIC]],
    'private.egress.test': [[PRIVATE]],
    'metadata.egress.test': [[METADATA]],
    'own.egress.test': [[OWN]],
    'mixed.egress.test': [[PUBLIC, PRIVATE]],
    'rebind.egress.test': [[PUBLIC], [PRIVATE]],
    'evil.test': [[PUBLIC]],
}


def ip(*arguments: str) -> None:
    subprocess.run([IP, *arguments], check=True, capture_output=True, timeout=20)


def within(namespace: str, *command: str) -> list[str]:
    return [IP, 'netns', 'exec', namespace, *command]


@contextlib.contextmanager
def serving(namespace: str) -> Iterator['subprocess.Popen[str]']:
    command = within(namespace, sys.executable, str(HERE / 'egress_world.py'), json.dumps(NAMES))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == 'ready\n'
            yield process
        finally:
            process.kill()


@pytest.fixture(scope='module')
def inside() -> Iterator[str]:
    """Name of the namespace that the proxy lives in; servers are in the other one."""
    tag = secrets.token_hex(3)
    ours, theirs = f'lagent-{tag}-a', f'lagent-{tag}-b'
    resolver = Path('/etc/netns', ours)
    with contextlib.ExitStack() as stack:
        resolver.mkdir(parents=True)
        stack.callback(shutil.rmtree, resolver)
        (resolver / 'resolv.conf').write_text(f'nameserver {PUBLIC}\noptions timeout:2\n')
        for name in (ours, theirs):
            ip('netns', 'add', name)
            stack.callback(ip, 'netns', 'delete', name)
            ip('-n', name, 'link', 'set', 'lo', 'up')
        ip('-n', ours, 'link', 'add', 'inner', 'type', 'veth', 'peer', 'name', 'outer')
        ip('-n', ours, 'link', 'set', 'outer', 'netns', theirs)
        for name, link, addresses in (
            (ours, 'inner', [OWN, '10.99.7.1', '169.254.169.1']),
            (theirs, 'outer', [PUBLIC, PRIVATE, METADATA]),
        ):
            for address in addresses:
                ip('-n', name, 'address', 'add', f'{address}/24', 'dev', link)
            ip('-n', name, 'link', 'set', link, 'up')
        world = stack.enter_context(serving(theirs))
        stack.enter_context(serving(ours))
        for address in (PUBLIC, PRIVATE, METADATA):  # they are there, and only the proxy says no
            fetch = f'import urllib.request as u; u.urlopen("http://{address}:8080", timeout=10)'
            subprocess.run(within(ours, sys.executable, '-c', fetch), check=True, timeout=30)
            assert world.stdout is not None
            assert world.stdout.readline().strip() == address
        yield ours


@pytest.fixture(scope='module')
def box(inside: str) -> Iterator[Sandbox]:
    def launch(folder: Path, allow: Allowlist) -> EgressProxy:
        return original(folder, allow, command=within(inside, *COMMAND))

    original = EgressProxy.launch
    policy = SandboxPolicy(network=Allowlist(['*.egress.test:8080']))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EgressProxy, 'launch', launch)
        with Sandbox(policy) as box:
            yield box


def fetch(box: Sandbox, host: str) -> str:
    result = box.execute(
        'import urllib.error, urllib.request\n'
        'try:\n'
        f'    with urllib.request.urlopen("http://{host}:8080/", timeout=20) as answer:\n'
        '        text = answer.read().decode()\n'
        'except urllib.error.HTTPError as error:\n'
        '    text = f"{error.code} {error.reason}"\n'
        'text'
    )
    assert result.ok, result.text
    return ast.literal_eval(result.result)


def test_a_public_host_is_reached(box):
    assert fetch(box, 'good.egress.test') == PUBLIC


@pytest.mark.parametrize('host', ['private', 'metadata', 'own', 'mixed'])
def test_hosts_with_other_addresses_are_not(box, host):
    assert fetch(box, f'{host}.egress.test') == '403 leads to an address that is not public'


def test_a_name_that_is_answered_anew_each_time(box):
    assert fetch(box, 'rebind.egress.test') == PUBLIC
    assert fetch(box, 'rebind.egress.test') == '403 leads to an address that is not public'


def test_names_and_addresses_outside_the_list(box):
    assert fetch(box, 'evil.test') == '403 not on the allow-list'
    assert fetch(box, 'egress.test') == '403 not on the allow-list'
    assert fetch(box, PUBLIC) == '403 not a host name'
    assert fetch(box, 'missing.egress.test') == '502 The name has no address'
