"""Control groups: where they may be made, and with which limits, on trees made of plain folders."""

import os
from pathlib import Path

import pytest

from sandbox import SandboxPolicy
from sandbox.backends import cgroups
from sandbox.backends.cgroups import Hierarchy
from sandbox.policy import MIB

POLICY = SandboxPolicy(memory=256 * MIB, pids=40, cpus=1.5)


def process(folder: Path, groups: str, mounts: list[str]) -> Path:
    """Make a folder like `/proc/self`."""
    place = folder / 'self'
    place.mkdir()
    (place / 'cgroup').write_text(groups, encoding='ascii')
    (place / 'mountinfo').write_text('\n'.join(mounts) + '\n', encoding='ascii')
    return place


def mount(root: str, folder: Path, kind: str, options: str) -> str:
    return f'30 25 0:26 {root} {folder} rw,nosuid shared:9 - {kind} {kind} {options}'


def test_version_1_makes_groups_below_our_own(tmp_path):
    (tmp_path / 'memory/own').mkdir(parents=True)
    (tmp_path / 'pids').mkdir()
    place = process(
        tmp_path,
        '8:pids:/\n4:memory:/outer/own\n1:cpu,cpuacct:/\n0::/\n',
        [
            '1 1 8:1 / / rw - ext4 /dev/sda rw',
            mount('/outer', tmp_path / 'memory', 'cgroup', 'rw,memory'),
            mount('/', tmp_path / 'pids', 'cgroup', 'rw,pids'),
            mount('/elsewhere', tmp_path / 'cpu', 'cgroup', 'rw,cpu,cpuacct'),
            mount('/', tmp_path / 'unified', 'cgroup2', 'rw'),
        ],
    )
    assert cgroups.hierarchy(place) == Hierarchy(
        1, {'memory': tmp_path / 'memory/own', 'pids': tmp_path / 'pids'}
    )


def test_version_2_makes_groups_beside_our_own(tmp_path):
    parent = tmp_path / 'cg/user.slice/app.slice'
    (parent / 'some.scope').mkdir(parents=True)
    (parent / 'cgroup.procs').touch()
    (parent / 'cgroup.subtree_control').write_text('memory pids\n', encoding='ascii')
    mounts = [mount('/', tmp_path / 'cg', 'cgroup2', 'rw,nsdelegate')]
    place = process(tmp_path, '0::/user.slice/app.slice/some.scope\n', mounts)
    assert cgroups.hierarchy(place) == Hierarchy(2, {'memory': parent, 'pids': parent})


@pytest.mark.parametrize('groups', ['0::/\n', '0::/../outside\n', ''])
def test_what_is_not_delegated_is_not_used(tmp_path, groups):
    (tmp_path / 'cg').mkdir()
    place = process(tmp_path, groups, [mount('/', tmp_path / 'cg', 'cgroup2', 'rw')])
    assert cgroups.hierarchy(place).parents == {}


def test_the_limits_of_version_1(tmp_path, monkeypatch):
    parents = {name: tmp_path / name for name in ('memory', 'pids', 'cpu')}
    for folder in parents.values():
        folder.mkdir()
    group = cgroups.create(Hierarchy(1, parents), 'x', POLICY, spare_pids=1)
    assert read(tmp_path / 'memory/x') == {'memory.limit_in_bytes': '268435456'}
    assert read(tmp_path / 'pids/x') == {'pids.max': '41'}
    assert read(tmp_path / 'cpu/x') == {
        'cpu.cfs_period_us': '100000',
        'cpu.cfs_quota_us': '150000',
    }
    assert group.oom_counter == (
        tmp_path / 'memory/x/memory.oom_control',
        '/sys/fs/cgroup/memory/memory.oom_control',
    )
    assert group.oom_kills() == 0
    (tmp_path / 'memory/x/memory.oom_control').write_text(
        'oom_kill_disable 0\nunder_oom 0\noom_kill 3\n', encoding='ascii'
    )
    assert group.oom_kills() == 3


def test_the_limits_of_version_2(tmp_path):
    parents = dict.fromkeys(('memory', 'pids', 'cpu'), tmp_path)
    group = cgroups.create(Hierarchy(2, parents), 'x', POLICY, spare_pids=1)
    assert group.folders == (tmp_path / 'x',)
    assert read(tmp_path / 'x') == {
        'memory.max': '268435456',
        'pids.max': '41',
        'cpu.max': '150000 100000',
    }
    assert group.oom_counter == (tmp_path / 'x/memory.events', '/sys/fs/cgroup/memory.events')


def test_without_any_there_is_nothing_to_make_or_to_remove():
    group = cgroups.create(Hierarchy(2, {}), 'x', POLICY, spare_pids=1)
    assert (group.folders, group.oom_counter, group.oom_kills()) == ((), None, 0)
    cgroups.remove(group.folders)


def test_removal_may_be_repeated_and_says_when_it_fails(tmp_path, monkeypatch):
    (tmp_path / 'empty').mkdir()
    cgroups.remove([tmp_path / 'empty', tmp_path / 'gone'])
    assert not (tmp_path / 'empty').exists()
    (tmp_path / 'full').mkdir()
    (tmp_path / 'full/cgroup.procs').write_text('', encoding='ascii')
    monkeypatch.setattr(cgroups, '_PATIENCE', 0.05)
    with pytest.raises(OSError, match='not empty'):
        cgroups.remove([tmp_path / 'full'])


def test_a_group_that_cannot_be_made_leaves_none(tmp_path):
    parents = {'memory': tmp_path / 'memory', 'pids': tmp_path / 'missing'}
    (tmp_path / 'memory').mkdir()
    with pytest.raises(FileNotFoundError):
        cgroups.create(Hierarchy(1, parents), 'x', POLICY, spare_pids=1)
    assert os.listdir(tmp_path / 'memory') == []  # noqa: PTH208


def read(folder: Path) -> dict[str, str]:
    return {each.name: each.read_text(encoding='ascii').strip() for each in folder.iterdir()}
