"""The image's name, and what goes into its build; no engine is needed."""

import json
import re
import shutil
import tarfile
import time
from pathlib import Path
from typing import Self

import pytest

from sandbox import image, image_build, image_names
from sandbox.errors import BackendUnavailable, ImageMissing, SandboxError
from sandbox.policy import VARIANTS


def test_the_tag_follows_the_content(monkeypatch, tmp_path):
    original = image.image_tag()
    assert re.fullmatch(r'lagent-sandbox:minimal-[0-9a-f]{12}', original)

    copy = tmp_path / 'docker'
    shutil.copytree(image.guest_folder(), copy)
    monkeypatch.setattr(image_names, 'guest_folder', lambda: copy)
    assert image.image_tag() == original
    (copy / 'README.md').write_text('not part of the image')
    assert image.image_tag() == original
    (copy / 'kernel.py').write_text('changed')
    assert image.image_tag() != original


def test_every_file_of_the_guest_is_built_in_and_explained():
    folder = image.guest_folder()
    programs = {path.name for path in folder.glob('*.py')}
    assert {name for name in image_names._CONTEXT if name.endswith('.py')} == programs
    dockerfile = (folder / 'Dockerfile').read_text().replace('\\\n', ' ')
    copied = re.findall(r'^COPY (.*) /(?:opt/sandbox/|adapt.py)$', dockerfile, re.MULTILINE)
    assert sorted(' '.join(copied).split()) == sorted(programs)
    table = re.findall(r'^\| (`.*?) \|', (folder / 'README.md').read_text(), re.MULTILINE)
    assert set(re.findall(r'`([^`]+)`', ' '.join(table))) >= programs


def test_the_build_context_has_what_the_dockerfile_copies(tmp_path):
    wheels = tmp_path / 'wheels'
    wheels.mkdir()
    (wheels / 'a-1-py3-none-any.whl').write_bytes(b'wheel')
    first, second = tmp_path / '1.tar', tmp_path / '2.tar'
    for path in (first, second):
        with path.open('w+b') as target:
            image_build.write_context(target, image_names.context_files('analysis'), wheels)
    assert first.read_bytes() == second.read_bytes()

    with tarfile.open(first) as archive:
        members = archive.getnames()
    assert 'wheels/a-1-py3-none-any.whl' in members
    dockerfile = (image.guest_folder() / 'Dockerfile').read_text()
    copied = [
        word
        for line in re.findall(r'^COPY (?!--from)(.*)$', dockerfile, re.MULTILINE)
        for word in line.split()[:-1]
    ]
    assert copied
    for name in copied:
        assert any(member.split('/')[0] == name for member in members), name


@pytest.mark.parametrize('variant', VARIANTS)
def test_every_locked_package_has_a_version_and_hashes(variant):
    lock = image.lock_of(variant).read_text().replace('\\\n', ' ')
    lines = [line for line in lock.splitlines() if line and not line.startswith('#')]
    assert len(lines) > 30
    for line in lines:
        assert re.fullmatch(r'[a-z0-9-]+==\S+(\s+--hash=sha256:[0-9a-f]{64})+\s*', line), line
    asked = (image.guest_folder() / f'{variant}.in').read_text()
    for name in re.findall(r'^[a-z][a-z0-9-]+', asked, re.MULTILINE):
        assert f'\n{name}==' in lock


def test_what_both_images_have_is_of_the_same_version():
    few, many = (
        dict(re.findall(r'^([\w.-]+)==(\S+)', image.lock_of(variant).read_text(), re.MULTILINE))
        for variant in VARIANTS
    )
    assert few.items() <= many.items()


def test_a_tag_tells_the_variant_and_the_packages():
    plain, more = image.image_tag('analysis'), image.image_tag('analysis', ['b>1', 'a'])
    assert re.fullmatch(r'lagent-sandbox:analysis-[0-9a-f]{12}', plain)
    assert re.fullmatch(re.escape(plain) + r'-[0-9a-f]{12}', more)
    assert image.image_tag('analysis', ['a', 'b>1']) == more
    assert image.image_tag('analysis', ['a', 'b>2']) != more


def test_the_command_that_builds_an_image_is_for_a_shell():
    assert image.build_command('minimal') == 'sandbox build'
    assert image.build_command('analysis', ['b>1', 'a']) == (
        "sandbox build --variant analysis --package a --package 'b>1'"
    )


def test_without_an_engine_the_default_is_the_best(monkeypatch):
    def fail(*_: object, **__: object) -> str:
        raise BackendUnavailable('no engine')

    monkeypatch.setattr(image, 'find_image', fail)
    assert image.best_variant() == 'minimal'
    monkeypatch.setattr(image, 'find_image', lambda *_, **__: 'there')
    assert image.best_variant() == 'analysis'


def test_the_seccomp_profile_refuses_by_default():
    profile = json.loads((image.guest_folder() / 'seccomp.json').read_text())
    assert profile['defaultAction'] == 'SCMP_ACT_ERRNO'
    allowed = [
        (name, rule.get('args'))
        for rule in profile['syscalls']
        if rule['action'] == 'SCMP_ACT_ALLOW'
        for name in rule['names']
    ]
    unconditional = {name for name, args in allowed if not args}
    assert {'read', 'write', 'futex', 'execve'} <= unconditional
    assert unconditional.isdisjoint({'clone', 'clone3', 'socket', 'socketpair', 'personality'})
    dangerous = {
        *('ptrace', 'process_vm_readv', 'process_vm_writev', 'mount', 'umount2', 'unshare'),
        *('setns', 'pivot_root', 'chroot', 'keyctl', 'add_key', 'request_key', 'bpf'),
        *('perf_event_open', 'userfaultfd', 'io_uring_setup', 'kexec_load', 'init_module'),
        *('finit_module', 'open_by_handle_at', 'reboot', 'swapon', 'setuid', 'pidfd_getfd'),
    }
    assert dangerous.isdisjoint(name for name, _ in allowed)


def test_a_failing_command_is_told_with_its_last_words():
    lines: list[str] = []
    with pytest.raises(SandboxError, match=r'(?s)exit code 3:.*line 99') as caught:
        image_build.run(
            ['sh', '-c', 'for i in $(seq 99); do echo line $i; done; exit 3'], lines.append
        )
    assert len(lines) == 99
    assert 'line 79' not in str(caught.value)


def test_a_command_that_does_not_end_is_ended_with_all_it_has_started(monkeypatch):
    monkeypatch.setattr(image_build, '_LONGEST_RUN', 0.3)
    began = time.monotonic()
    with pytest.raises(SandboxError, match=r'(?s)I wait.*ended after 0.3 s'):
        image_build.run(['sh', '-c', 'echo I wait; sleep 60 & sleep 60; true'], lambda _: None)
    assert time.monotonic() - began < 30


def test_a_command_that_is_ended_may_clean_up(monkeypatch, tmp_path):
    monkeypatch.setattr(image_build, '_LONGEST_RUN', 0.5)
    left = tmp_path / 'left'
    script = f'trap "rm {left}; exit 1" TERM; touch {left}; sleep 60 & wait'
    with pytest.raises(SandboxError, match=r'ended after 0\.5 s'):
        image_build.run(['sh', '-c', script], lambda _: None)
    assert not left.exists()


class Image:
    def __init__(self, *layers: str) -> None:
        self.attrs = {'RootFS': {'Layers': list(layers)}}
        self.labels = {'lagent.sandbox.image.base': 'old:1'}


@pytest.mark.parametrize(
    ('base', 'layers', 'fits'),
    [('old:1', 'ab', True), ('old:1', 'aB', False), ('new:1', 'x', False), (None, '', True)],
)
def test_an_image_that_is_there_has_the_base_that_is_named(monkeypatch, base, layers, fits):
    class Engine(FakeEngine):
        @property
        def images(self):
            return self

        def get(self, name):
            return Image('a', 'b', 'c') if name == image.image_tag() else Image(*layers)

    monkeypatch.setattr(image_build, 'exists', lambda client, name: True)
    monkeypatch.setattr(image_build, 'engine', Engine)
    if fits:
        assert image.build_image(base) == image.image_tag()
        return
    with pytest.raises(SandboxError, match=f'built on old:1, and not on {base}') as caught:
        image.build_image(base)
    assert f'docker rmi {image.image_tag()}' in caught.value.hint


def test_an_image_that_is_there_needs_no_base(monkeypatch):
    class Engine(FakeEngine):
        @property
        def images(self):
            return self

        def get(self, name):
            return Image('a')

    monkeypatch.setattr(image_build, 'exists', lambda client, name: name == image.image_tag())
    monkeypatch.setattr(image_build, 'engine', Engine)
    assert image.build_image('old:1') == image.image_tag()
    with pytest.raises(SandboxError, match='built on old:1, and not on lagent-sandbox-base'):
        image.build_image('bootstrap')


def test_a_base_cannot_be_made_without_the_tools(monkeypatch):
    monkeypatch.setattr(image_build, 'exists', lambda client, name: False)
    monkeypatch.setattr(image_build, 'engine', FakeEngine)
    monkeypatch.setattr(image_build.shutil, 'which', lambda name: None)
    with pytest.raises(BackendUnavailable, match='mmdebstrap') as caught:
        image_build.bootstrap_base()
    assert 'apt-get install' in caught.value.hint


def test_a_base_that_cannot_be_pulled_names_the_way_out(monkeypatch):
    monkeypatch.setattr(image_build, 'exists', lambda client, name: False)
    monkeypatch.setattr(image_build, 'engine', FakeEngine)
    lines: list[str] = []
    with pytest.raises(ImageMissing, match='no route') as caught:
        image_build.resolve_base(None, progress=lines.append)
    assert '--base bootstrap' in caught.value.hint
    assert lines == ['Pulling python:3.11-slim']


class FakeEngine:
    """An engine whose registry is out of reach."""

    def __init__(self, timeout: float = 30.0) -> None:
        self.api = self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def pull(self, *_: object, **__: object) -> list[dict[str, str]]:
        return [{'status': 'Pulling'}, {'error': 'no route to the registry'}]


def test_the_guest_is_found_beside_the_package_or_in_the_repository():
    folder = image.guest_folder()
    assert (folder / 'supervisor.py').is_file()
    assert isinstance(folder, Path)
