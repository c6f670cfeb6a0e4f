import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import Allowlist, PolicyError, SandboxPolicy
from sandbox.egress.allowlist import MAX_ENTRIES, host_name


def test_entries_have_one_form():
    one = Allowlist(['PyPI.org:443', '*.Example.ORG.', 'pypi.org:443'])
    assert one.hosts == ('*.example.org', 'pypi.org:443')
    two = Allowlist(iter(('*.example.org', 'pypi.org:443')))
    assert (one, hash(one)) == (two, hash(two))
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one
    assert Allowlist('pypi.org').hosts == ('pypi.org',)


@pytest.mark.parametrize(
    'entry',
    [
        *('', '*', '*.com', 'localhost', 'a..b', '-a.org', 'a-.org', 'a.org/', 'https://a.org'),
        *('a.org:', 'a.org:0', 'a.org:65536', 'a.org:443:443', 'a.org: 443', 'a.org:\u0661'),
        *('127.0.0.1', '127.1', '2130706433', '1.2.3.0x7f', '[::1]', '::1', '10.0.0.0/8'),
        *('a.*.org', '*a.org', '**.a.org', 'ex ample.org', 'exämple.org', 'a.org\n', 'x@a.org'),
        *(7, None, b'a.org', f'{"a" * 64}.org', '.'.join(['abcdefg'] * 33)),
    ],
)
def test_what_is_no_host_is_refused(entry):
    with pytest.raises(PolicyError):
        Allowlist([entry])


def test_none_and_too_many_are_refused():
    with pytest.raises(PolicyError, match="network='none'"):
        Allowlist([])
    with pytest.raises(PolicyError, match='at most'):
        Allowlist(f'h{n}.example.org' for n in range(MAX_ENTRIES + 1))


@pytest.mark.parametrize(
    ('host', 'port', 'permitted'),
    [
        ('pypi.org', 443, True),
        ('pypi.org', 80, False),
        ('files.pypi.org', 443, False),
        ('evilpypi.org', 443, False),
        ('pypi.org.evil.test', 443, False),
        ('example.org', 443, False),
        ('a.example.org', 443, True),
        ('a.b.example.org', 80, True),
        ('a.b.example.org', 22, False),
        ('xexample.org', 80, False),
    ],
)
def test_what_is_permitted(host, port, permitted):
    assert Allowlist(['pypi.org:443', '*.example.org']).permits(host, port) is permitted


@pytest.mark.parametrize(
    ('wide', 'narrow', 'covered'),
    [
        (['a.org'], ['a.org'], True),
        (['a.org'], ['a.org:443'], True),
        (['a.org:443'], ['a.org'], False),
        (['a.org:443', 'a.org:80'], ['a.org'], True),
        (['*.a.org'], ['b.a.org', '*.b.a.org', '*.a.org:80'], True),
        (['*.a.org'], ['a.org'], False),
        (['a.org'], ['*.a.org'], False),
        (['*.b.a.org'], ['*.a.org'], False),
        (['a.org', 'b.org'], ['b.org', 'c.org'], False),
    ],
)
def test_what_covers_what(wide, narrow, covered):
    assert Allowlist(wide).covers(Allowlist(narrow)) is covered


HOSTS = st.sampled_from(['a.org', 'b.a.org', 'c.b.a.org', 'b.org', 'x.b.org'])
PORTS = st.sampled_from([22, 80, 443])
ENTRIES = st.builds(
    lambda star, host, port: f'{"*." if star else ""}{host}{port}',
    st.booleans(),
    HOSTS,
    st.sampled_from(['', ':22', ':80', ':443']),
)
LISTS = st.lists(ENTRIES, min_size=1, max_size=4).map(Allowlist)


@given(LISTS, LISTS, HOSTS, PORTS)
def test_a_covered_list_permits_nothing_more(wide, narrow, host, port):
    if wide.covers(narrow) and narrow.permits(host, port):
        assert wide.permits(host, port)


@pytest.mark.parametrize('text', ['127.1', '0x7f.1', '1.0x', '0', 'a', 'a.b.1', 'a b.org', '.org'])
def test_what_a_resolver_may_take_for_an_address_is_no_name(text):
    assert host_name(text) is None


WIDE, SMALL = Allowlist(['a.org', 'b.org']), Allowlist(['a.org:443'])


@pytest.mark.parametrize(
    ('old', 'new'),
    [('full', WIDE), ('full', 'none'), (WIDE, SMALL), (WIDE, WIDE), (SMALL, 'none')],
)
def test_a_policy_may_reach_less(old, new):
    assert SandboxPolicy(network=old).tighten(network=new).network == new


@pytest.mark.parametrize(
    ('old', 'new'), [('none', SMALL), (SMALL, WIDE), (WIDE, 'full'), ('none', 'full')]
)
def test_a_policy_may_not_reach_more(old, new):
    policy = SandboxPolicy(network=old)
    with pytest.raises(PolicyError, match='loosen'):
        policy.tighten(network=new)
    assert policy.network == old


def test_the_runtime_goes_one_way():
    policy = SandboxPolicy().tighten(runtime='runsc')
    assert policy.runtime == 'runsc'
    with pytest.raises(PolicyError, match='loosen'):
        policy.tighten(runtime='default')
    with pytest.raises(PolicyError, match='runtime'):
        SandboxPolicy(runtime='kata')


def test_a_policy_with_a_list_is_a_value():
    one, two = SandboxPolicy(network=WIDE), SandboxPolicy(network=Allowlist(['B.org', 'a.org']))
    assert (one, hash(one)) == (two, hash(two))
    assert pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(PolicyError, match='network'):
        SandboxPolicy(network=['a.org'])
