"""What the kernel images are called, and what they are made of.

There are two, with few libraries or many (`variant`), from one `Dockerfile`. A tag is made of what
goes into the image, so a changed file means another image and an unchanged one is never built
twice.
"""

import hashlib
import shlex
from collections.abc import Iterable
from pathlib import Path

from sandbox.errors import ImageMissing
from sandbox.policy import DEFAULT_VARIANT, Variant

REPOSITORY = 'lagent-sandbox'
LAYER = 'Dockerfile.packages'

_CONTEXT = (
    *('Dockerfile', 'adapt.py'),
    *('supervisor.py', 'peers.py', 'session.py', 'bridge.py', 'frames.py', 'files.py'),
    *('workspace.py', 'processes.py', 'zygote.py', 'kernel.py', 'output.py', 'messages.py'),
    *('record.py', 'forwarder.py'),
    *('formatters.py', 'tables.py', 'charts.py', 'values.py'),
)


def guest_folder() -> Path:
    """Return the folder with the image's files: in a wheel beside this module, else `docker/`."""
    packaged = Path(__file__).with_name('_docker')
    return packaged if packaged.is_dir() else Path(__file__).parents[1] / 'docker'


def lock_of(variant: Variant) -> Path:
    """Return the lock file of an image."""
    return guest_folder() / f'{variant}.lock'


def context_files(variant: Variant) -> list[tuple[str, Path]]:
    """Return the files that an image is built from, with their names in the build context."""
    files = [(name, guest_folder() / name) for name in _CONTEXT]
    return [*files, ('requirements.lock', lock_of(variant))]


def image_tag(variant: Variant = DEFAULT_VARIANT, packages: Iterable[str] = ()) -> str:
    """Return the full name of an image of this version.

    Args:
        variant: Which one.
        packages: What is installed in it besides, as in `SandboxPolicy`.
    """
    digest = hashlib.sha256()
    for inside, path in context_files(variant):
        content = path.read_bytes()
        digest.update(f'{inside}:{len(content)}:'.encode() + content)
    tag = f'{REPOSITORY}:{variant}-{digest.hexdigest()[:12]}'
    if not packages:
        return tag
    added = (guest_folder() / LAYER).read_bytes() + '\n'.join(sorted(packages)).encode()
    return f'{tag}-{hashlib.sha256(added).hexdigest()[:12]}'


def image_missing(
    name: str | None, variant: Variant = DEFAULT_VARIANT, packages: Iterable[str] = ()
) -> ImageMissing:
    """Return the error for an image that is not on this machine; it names the command.

    Args:
        name: As in `find_image`.
        variant: As in `image_tag`.
        packages: As in `image_tag`.
    """
    if name is not None:
        hint = f'Get it with: docker pull {name}'
        return ImageMissing(f'The kernel image {name} is not on this machine.', hint=hint)
    return ImageMissing(
        f'The kernel image {image_tag(variant, packages)} is not on this machine.',
        hint=f'Build it once with: {build_command(variant, packages)}',
    )


def build_command(variant: Variant, packages: Iterable[str] = ()) -> str:
    """Return the command line that builds an image."""
    command = ['sandbox', 'build']
    if variant != DEFAULT_VARIANT:
        command += ['--variant', variant]
    for package in sorted(packages):
        command += ['--package', package]
    return shlex.join(command)
