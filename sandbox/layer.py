"""Further packages: a layer of locked wheels on top of a kernel image.

What is asked for is resolved on the host, against the versions that the image has, into a lock file
with hashes. Only wheels are taken: to build a source distribution would run its code on the host.
The layer is installed without a network, by a pip that is not in the image.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sandbox.backends.engine import engine, exists
from sandbox.errors import SandboxError
from sandbox.image_build import (
    BUILD_STALL,
    DIGEST_LABEL,
    Progress,
    build,
    download,
    platform_options,
    resolve_base,
    write_context,
)
from sandbox.image_names import LAYER, guest_folder, image_tag
from sandbox.policy import VARIANTS

PACKAGES_LABEL = 'lagent.sandbox.packages'
LOCK_LABEL = 'lagent.sandbox.lock'

_RESOLVING = 600.0
_LOCKED = re.compile(r'^([\w.-]+)==(\S+)', re.MULTILINE)


def build_layer(
    image: str, tag: str, lock: Path, packages: Sequence[str], progress: Progress
) -> str:
    """Build an image with further packages unless it is there already, and return its name.

    Args:
        image: The image below, which is there.
        tag: The new image's name.
        lock: The lock file of the image below.
        packages: What to install, as an index names it.
        progress: As in `sandbox.image.build_image`.

    Raises:
        ImageMissing: The base of the image below is gone and cannot be had again.
        SandboxError: A step failed; the message has what it said.
    """
    with engine() as client:
        if exists(client, tag):
            progress(f'{tag} is there already')
            return tag
        below = client.images.get(image).labels[f'{DIGEST_LABEL}.base']
    base = resolve_base(below, progress=progress)
    with engine(BUILD_STALL) as client, tempfile.TemporaryDirectory() as scratch:
        target = platform_options(client, base)
        progress(f'Resolving {", ".join(packages)}')
        added = Path(scratch, 'requirements.lock')
        added.write_text(resolve(packages, lock, target), encoding='utf-8')
        wheels = Path(scratch, 'wheels')
        download(target, added, wheels, progress)
        files = [('Dockerfile', guest_folder() / LAYER), (added.name, added)]
        with Path(scratch, 'context.tar').open('w+b') as context:
            write_context(context, files, wheels)
            progress(f'Building {tag} on {image}')
            labels = {PACKAGES_LABEL: json.dumps(packages), LOCK_LABEL: added.read_text('utf-8')}
            build(client, context, tag, {'BASE': base, 'IMAGE': image}, labels, progress)
    return tag


def layers() -> list[tuple[str, list[str]]]:
    """List the images with further packages that belong to this version of the package.

    Returns:
        The name of each, and what was asked for.

    Raises:
        BackendUnavailable: There is no Docker engine.
    """
    ours = tuple(f'{image_tag(variant)}-' for variant in VARIANTS)
    with engine() as client:
        images = client.images.list(filters={'label': PACKAGES_LABEL})
        found = [
            (tag, json.loads(each.labels[PACKAGES_LABEL])) for each in images for tag in each.tags
        ]
    return sorted((tag, packages) for tag, packages in found if tag.startswith(ours))


def resolve(packages: Sequence[str], lock: Path, target: Sequence[str]) -> str:
    """Return a lock file of what is to be added to an image.

    Args:
        packages: What is asked for.
        lock: The lock file of what is there already; its versions stay.
        target: See `sandbox.image_build.platform_options`.

    Raises:
        SandboxError: There is no solution, or none of wheels alone.
    """
    there = dict(_LOCKED.findall(lock.read_text(encoding='utf-8')))
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryDirectory() as empty:
        asked, fixed = Path(scratch, 'asked'), Path(scratch, 'fixed')
        asked.write_text('\n'.join(packages), encoding='utf-8')
        fixed.write_text('\n'.join(f'{name}=={version}' for name, version in there.items()))
        command = [
            *(sys.executable, '-P', '-m', 'pip', 'install'),
            *('--quiet', '--disable-pip-version-check'),
            *('--dry-run', '--ignore-installed', '--report', '-', '--only-binary=:all:', *target),
            *('--target', str(Path(scratch, 'nowhere'))),
            *('--constraint', str(fixed), '--requirement', str(asked)),
        ]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors='replace',
                timeout=_RESOLVING,
                cwd=empty,  # pip takes a requirement for a file where there is one of its name
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SandboxError(f'pip did not resolve the packages in {_RESOLVING:g} s.') from None
    if done.returncode:
        raise SandboxError(
            'The packages could not be resolved:\n' + '\n'.join(done.stderr.splitlines()[-20:]),
            hint='They have to have wheels for the Python of the image, and to go with the '
            'versions that it has.',
        )
    lines = sorted(_locked(json.loads(done.stdout), there))
    if not lines:
        raise SandboxError('The image has all of these packages already; leave them out.')
    return '\n'.join(lines) + '\n'


def _locked(report: dict[str, Any], there: dict[str, str]) -> Iterator[str]:
    """Read pip's report (https://pip.pypa.io/en/stable/reference/installation-report/)."""
    for found in report['install']:
        metadata, source = found['metadata'], found['download_info']
        name = re.sub(r'[-_.]+', '-', metadata['name']).lower()
        if name in there:
            continue
        digest = source.get('archive_info', {}).get('hashes', {}).get('sha256')
        if digest is None:
            raise SandboxError(f'The index tells no SHA-256 of {name}, so it cannot be locked.')
        yield f'{name}=={metadata["version"]} --hash=sha256:{digest}'
