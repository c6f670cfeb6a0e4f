"""What `sandbox doctor` makes of an engine's answer."""

from typing import Any

import pytest

from sandbox import doctor
from sandbox.backends import engine
from sandbox.backends.bubblewrap import BubblewrapBackend
from sandbox.errors import BackendUnavailable

GOOD = {
    'Driver': 'overlay2',
    'DockerRootDir': '/var/lib/docker',
    'CgroupVersion': '2',
    'CgroupDriver': 'systemd',
    'MemoryLimit': True,
    'SwapLimit': True,
    'PidsLimit': True,
    'CpuCfsQuota': True,
    'SecurityOptions': ['name=apparmor', 'name=seccomp,profile=default', 'name=cgroupns'],
    'Runtimes': {'runc': {}, 'io.containerd.runc.v2': {}, 'runsc': {}},
    'DefaultRuntime': 'runc',
}


def judge(**changes: Any) -> dict[str, tuple[str, str]]:
    findings = doctor.judge_engine({**GOOD, **changes})
    return {finding.name: (finding.status, finding.detail) for finding in findings}


def test_a_good_engine() -> None:
    assert judge() == {
        'storage': ('ok', 'overlay2 in /var/lib/docker'),
        'limits': ('ok', 'cgroup v2, driver systemd: memory, swap, processes, processor time'),
        'seccomp': ('ok', 'system calls are filtered'),
        'further walls': ('ok', 'AppArmor'),
        'runtimes': ('ok', 'runc, runsc (default runc)'),
        'gVisor': ('ok', "registered: SandboxPolicy(runtime='runsc') can be used"),
    }


def test_gvisor_is_optional() -> None:
    status, detail = judge(Runtimes={'runc': {}})['gVisor']
    assert status == 'ok'
    assert 'not registered' in detail


def test_without_a_limit_no_sandbox_starts() -> None:
    status, detail = judge(MemoryLimit=False, PidsLimit=False)['limits']
    assert (status, detail) == (
        'missing',
        'cgroup v2, driver systemd: no limit on memory, processes',
    )


def test_unlimited_swap_is_a_warning() -> None:
    assert judge(SwapLimit=False)['limits'][0] == 'warning'


def test_no_seccomp_is_a_warning() -> None:
    assert judge(SecurityOptions=[])['seccomp'][0] == 'warning'


def test_an_old_engine_that_leaves_fields_out() -> None:
    found = {f.name: f.status for f in doctor.judge_engine({})}
    assert found['limits'] == 'missing'


def test_without_an_engine_the_rest_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(timeout: float = 0) -> None:
        raise BackendUnavailable('No engine.', hint='Start one.')

    monkeypatch.setattr(engine, 'engine', refuse)
    monkeypatch.setattr(doctor.shutil, 'which', lambda name: None)
    findings = {finding.name: finding for finding in doctor.examine()}
    assert findings['docker engine'] == doctor.Finding(
        'docker engine', 'missing', 'No engine.', 'Start one.'
    )
    assert 'kernel image' not in findings
    assert {'system', 'user namespaces', 'free memory', 'free disk'} <= findings.keys()
    assert not doctor.usable(list(findings.values()))


def test_where_bubblewrap_can_be_used_docker_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(timeout: float = 0) -> None:
        raise BackendUnavailable('No engine.', hint='Start one.')

    monkeypatch.setattr(engine, 'engine', refuse)
    monkeypatch.setattr(doctor.shutil, 'which', lambda name: f'/usr/bin/{name}')
    monkeypatch.setattr(BubblewrapBackend, 'check', lambda self: None)
    findings = {finding.name: finding for finding in doctor.examine()}
    assert findings['docker engine'].status == 'warning'
    assert findings['docker engine'].hint == "Start one. Or use backend='bubblewrap'."
    assert doctor.usable(list(findings.values()))


def test_limits_that_bubblewrap_cannot_enforce_are_named():
    assert doctor.judge_gaps({}).status == 'ok'
    finding = doctor.judge_gaps({'pids': 'too old', 'memory': 'no group'})
    assert (finding.status, finding.detail) == ('warning', 'memory: no group; pids: too old')
    assert 'systemd-run' in finding.hint
