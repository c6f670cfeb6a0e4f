"""Locking further packages: pip is real, the index is a folder of wheels made here."""

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from sandbox.errors import SandboxError
from sandbox.layer import resolve


def make_wheel(folder: Path, name: str, version: str, *needs: str) -> str:
    """Write a wheel with nothing in it, and return its SHA-256."""
    path = folder / f'{name}-{version}-py3-none-any.whl'
    info = f'{name}-{version}.dist-info'
    metadata = f'Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n'
    metadata += ''.join(f'Requires-Dist: {each}\n' for each in needs)
    with zipfile.ZipFile(path, 'w') as wheel:
        wheel.writestr(f'{info}/METADATA', metadata)
        wheel.writestr(
            f'{info}/WHEEL', 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n'
        )
        wheel.writestr(f'{info}/RECORD', '')
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / 'index'
    folder.mkdir()
    monkeypatch.setenv('PIP_CONFIG_FILE', '/dev/null')
    monkeypatch.setenv('PIP_NO_INDEX', '1')
    monkeypatch.setenv('PIP_FIND_LINKS', str(folder))
    return folder


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / 'image.lock'
    path.write_text('base-thing==1.0 \\\n    --hash=sha256:00\n')
    return path


def test_what_is_new_is_locked_and_what_is_there_stays(index: Path, lock: Path) -> None:
    make_wheel(index, 'base_thing', '1.0')
    make_wheel(index, 'base_thing', '2.0')
    helper = make_wheel(index, 'helper', '0.3')
    wished = make_wheel(index, 'wished', '1.5', 'base-thing', 'helper>=0.2')
    make_wheel(index, 'wished', '2.0')
    assert resolve(['wished<2'], lock, []) == (
        f'helper==0.3 --hash=sha256:{helper}\nwished==1.5 --hash=sha256:{wished}\n'
    )


def test_what_needs_another_version_than_the_image_has_is_refused(index: Path, lock: Path) -> None:
    make_wheel(index, 'base_thing', '1.0')
    make_wheel(index, 'base_thing', '2.0')
    make_wheel(index, 'wished', '1.0', 'base-thing>=2')
    with pytest.raises(SandboxError, match='could not be resolved') as caught:
        resolve(['wished'], lock, [])
    assert 'go with the versions' in caught.value.hint


def test_nothing_is_built_from_source(index: Path, lock: Path) -> None:
    (index / 'wished-1.0.tar.gz').write_bytes(b'its setup.py would run here')
    with pytest.raises(SandboxError, match='No matching distribution'):
        resolve(['wished'], lock, [])


def test_files_of_the_working_folder_are_neither_built_nor_imported(
    index: Path, lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, proof = tmp_path / 'there', tmp_path / 'it ran'
    there.mkdir()
    monkeypatch.chdir(there)
    code = f'from pathlib import Path\nPath({str(proof)!r}).touch()\n'
    contents = {
        'pyproject.toml': '[build-system]\nrequires = []\n'
        'build-backend = "backend"\nbackend-path = ["."]\n',
        'backend.py': code,
    }
    with tarfile.open(there / 'evil-1.0.tar.gz', 'w:gz') as archive:
        for name, text in contents.items():
            info = tarfile.TarInfo(f'evil-1.0/{name}')
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    with pytest.raises(SandboxError, match='could not be resolved'):
        resolve(['evil-1.0.tar.gz'], lock, [])
    assert not proof.exists()
    (there / 'pip.py').write_text(code)
    wished = make_wheel(index, 'wished', '1.0')
    assert resolve(['wished'], lock, []) == f'wished==1.0 --hash=sha256:{wished}\n'
    assert not proof.exists()


def test_what_the_image_has_needs_no_layer(index: Path, lock: Path) -> None:
    make_wheel(index, 'base_thing', '1.0')
    with pytest.raises(SandboxError, match='already'):
        resolve(['base-thing'], lock, [])
