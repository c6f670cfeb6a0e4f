import ast
import contextlib
import copy
import dataclasses
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import PolicyError
from sandbox.policy import GIB, MIB, SandboxPolicy


def test_the_default_is_closed_and_bounded():
    policy = SandboxPolicy()
    assert policy.network == 'none'
    assert policy.uid != 0
    assert policy.env == {}
    assert policy.memory == GIB


@pytest.mark.parametrize(
    ('field', 'value'),
    [
        ('cpus', 0),
        ('cpus', float('nan')),
        ('cpus', '2'),
        ('memory', 1024),
        ('memory', 1.5 * GIB),
        ('memory', True),
        ('memory', 1 << 60),
        ('pids', 0),
        ('timeout', -1.0),
        ('timeout', float('inf')),
        ('uid', 0),
        ('network', 'bridge'),
        ('env', {'A=B': 'x'}),
        ('env', {'A': 1}),
        ('env', ['A']),
        ('env', {'A': 'nul\0'}),
    ],
)
def test_invalid_values_are_refused_by_name(field, value):
    with pytest.raises(PolicyError, match=field) as caught:
        SandboxPolicy(**{field: value})
    assert isinstance(caught.value, ValueError)


def test_a_policy_is_a_value():
    one, two = SandboxPolicy(env={'A': '1'}), SandboxPolicy(env={'A': '1'})
    assert one == two
    assert hash(one) == hash(two)
    assert pickle.loads(pickle.dumps(one)) == one
    assert copy.deepcopy(one) == one
    with pytest.raises(AttributeError):
        one.cpus = 2.0
    with pytest.raises(TypeError):
        one.env['B'] = '2'


def test_the_environment_is_a_copy():
    env = {'A': '1'}
    policy = SandboxPolicy(env=env)
    env['B'] = '2'
    assert dict(policy.env) == {'A': '1'}


def test_tighten_goes_one_way():
    policy = SandboxPolicy(network='full', env={'A': '1', 'B': '2'}, memory=GIB)
    tighter = policy.tighten(network='none', env={'A': '1'}, memory=256 * MIB, timeout=5)
    assert tighter.network == 'none'
    assert dict(tighter.env) == {'A': '1'}
    assert (tighter.memory, tighter.timeout) == (256 * MIB, 5.0)
    assert policy.network == 'full'


@pytest.mark.parametrize(
    'change',
    [
        {'network': 'full'},
        {'memory': 2 * GIB},
        {'timeout': 61.0},
        {'env': {'A': '1'}},
        {'uid': 1000},
        {'pids': 129},
    ],
)
def test_loosening_is_refused(change):
    with pytest.raises(PolicyError, match='loosen'):
        SandboxPolicy().tighten(**change)


def test_tighten_knows_its_fields():
    with pytest.raises(PolicyError, match="'cpu'"):
        SandboxPolicy().tighten(cpu=1)


def test_modules_to_preload_can_only_become_fewer():
    policy = SandboxPolicy(preload=('numpy', 'matplotlib.pyplot'))
    assert policy.tighten(preload=('numpy',)).preload == ('numpy',)
    assert SandboxPolicy().preload == ()
    with pytest.raises(PolicyError, match='would loosen'):
        policy.tighten(preload=('numpy', 'pandas'))


@pytest.mark.parametrize(
    'names', [['numpy'], 'numpy', (1,), ('',), ('a b',), ('a.',), ('.a',), ('1a',), ('a' * 201,)]
)
def test_what_names_no_module_is_refused(names):
    with pytest.raises(PolicyError, match='preload'):
        SandboxPolicy(preload=names)
    with pytest.raises(PolicyError, match='preload'):
        SandboxPolicy(preload=('os',) * 65)


def test_the_image_can_only_become_smaller():
    policy = SandboxPolicy(
        variant='analysis', packages=('humanize==4.9.0', 'networkx[extra]>=3,<4')
    )
    assert policy.tighten(variant='minimal').variant == 'minimal'
    assert policy.tighten(packages=()).packages == ()
    with pytest.raises(PolicyError, match='loosen'):
        policy.tighten(packages=('requests',))
    with pytest.raises(PolicyError, match='loosen'):
        SandboxPolicy(variant='minimal').tighten(variant='analysis')
    with pytest.raises(PolicyError, match='variant'):
        SandboxPolicy(variant='large')


@pytest.mark.parametrize(
    'text',
    [
        *('', '-r file', '--index-url=http://x', '-e .', './x', '/etc/passwd', 'x.whl @ file:///x'),
        *('x @ https://x/x.whl', 'git+https://x', 'x; python_version < "4"', 'x==1\ny', 'x y'),
        *('x==1 --hash=sha256:0', 'x' * 201, 'x\n', 'é', 'x==$(id)', 'x#y', 7),
        *('x-1.0.tar.gz', 'x.zip', 'x.WHL', 'x.tar', 'x.Tar.bz2', 'x.tar.lzma', 'x.tgz', 'x.tbz'),
        *('x.txz', 'x.tlz', 'x.zip[y]', 'x.zip  ', 'x==1.zip', 'x>=1, <2.tar.gz'),
    ],
)
def test_a_package_is_named_as_an_index_names_it(text):
    with pytest.raises(PolicyError, match='packages'):
        SandboxPolicy(packages=(text,))


@pytest.mark.parametrize('text', ['zip', 'tar.py', 'x.tarball', 'whl', 'x-zip==1.0'])
def test_a_package_may_be_called_as_an_archive_is(text):
    assert SandboxPolicy(packages=(text,)).packages == (text,)


def test_packages_are_a_short_tuple():
    for packages in (['humanize'], 'humanize', ('humanize',) * 65):
        with pytest.raises(PolicyError, match='packages'):
            SandboxPolicy(packages=packages)


def policies_in(text: str) -> Iterator[ast.Call]:
    """Yield the calls of `SandboxPolicy` in a text of any kind."""
    for begin in (found.start() for found in re.finditer(r'\bSandboxPolicy\(', text)):
        for end in (begin + found.end() for found in re.finditer(r'\)', text[begin:])):
            with contextlib.suppress(SyntaxError):
                call = ast.parse(text[begin:end], mode='eval').body
                assert isinstance(call, ast.Call)
                yield call
                break


def test_every_policy_that_is_written_somewhere_has_fields_that_there_are():
    root = Path(__file__).parents[3]
    folders = ('sandbox', 'lagent', 'docs', 'examples', 'benchmarks')
    files = [
        *root.glob('*.md'),
        *(path for folder in folders for path in (root / folder).rglob('*.[mp][dy]')),
    ]
    known = {field.name for field in dataclasses.fields(SandboxPolicy)}
    used = {
        (str(path.relative_to(root)), keyword.arg)
        for path in files
        for call in policies_in(path.read_text(encoding='utf-8'))
        for keyword in call.keywords
        if keyword.arg is not None
    }
    assert len(used) > 20
    assert [each for each in sorted(used) if each[1] not in known] == []


def test_a_number_that_is_too_large_is_told_so():
    with pytest.raises(PolicyError, match='memory must be at most 9,007,199,254,740,991, not'):
        SandboxPolicy(memory=2**60)
