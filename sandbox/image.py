"""The kernel image: what it is called, whether it is there, and how it is built.

Its tag is made of what goes into it, so a changed file means another image and an unchanged one
is never built twice. Packages are downloaded on the host, checked against the hashes of the lock
file, and installed without a network: the same lock gives the same image, and machines that reach
no image registry can build it on a base of Debian packages.
"""

import hashlib
import io
import json
import os
import secrets
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from textwrap import shorten
from typing import IO, TYPE_CHECKING, Any

from sandbox.backends.engine import engine, explain, load_library
from sandbox.errors import BackendUnavailable, ImageMissing, SandboxError

if TYPE_CHECKING:
    import docker

Progress = Callable[[str], None]


def _silent(_: str) -> None:
    pass


DEFAULT_IMAGE = 'lagent-sandbox'
DEFAULT_BASE = 'python:3.11-slim'
BOOTSTRAP = 'bootstrap'
BOOTSTRAP_IMAGE = 'lagent-sandbox-base:bookworm'
DIGEST_LABEL = 'lagent.sandbox.image'
STAGE_LABEL = 'lagent.sandbox.stage'

_CONTEXT = (
    *('Dockerfile', 'requirements.lock'),
    *('supervisor.py', 'bridge.py', 'files.py', 'processes.py', 'zygote.py', 'kernel.py'),
    *('output.py', 'messages.py', 'record.py', 'forwarder.py'),
    *('formatters.py', 'tables.py', 'charts.py', 'values.py'),
)
_PULL_STALL = 30.0
_BUILD_STALL = 600.0
_PROBE = (
    'import json, platform, sys; '
    'print(json.dumps([*sys.version_info[:2], platform.machine(), *platform.libc_ver()]))'
)


def guest_folder() -> Path:
    """Return the folder with the image's files: in a wheel beside this module, else `docker/`."""
    packaged = Path(__file__).with_name('_docker')
    return packaged if packaged.is_dir() else Path(__file__).parents[1] / 'docker'


def image_tag() -> str:
    """Return the full name of the image that belongs to this version of the package."""
    digest = hashlib.sha256()
    for name in _CONTEXT:
        content = (guest_folder() / name).read_bytes()
        digest.update(f'{name}:{len(content)}:'.encode() + content)
    return f'{DEFAULT_IMAGE}:{digest.hexdigest()[:12]}'


def find_image(name: str | None = None) -> str:
    """Return the name of an image that is on this machine.

    Args:
        name: The image; the one of this version if None.

    Raises:
        ImageMissing: It is not there.
        BackendUnavailable: There is no Docker engine to ask.
    """
    wanted = name or image_tag()
    with engine() as client:
        if not _exists(client, wanted):
            raise image_missing(wanted, own=name is None)
    return wanted


def image_missing(name: str, *, own: bool) -> ImageMissing:
    """Return the error for an image that is not on this machine."""
    hint = 'Build it once with: sandbox build' if own else f'Get it with: docker pull {name}'
    return ImageMissing(f'The kernel image {name} is not on this machine.', hint=hint)


def build_image(base: str | None = None, *, progress: Progress = _silent) -> str:
    """Build the image unless it is there already, and return its name.

    Args:
        base: Image to build on, `'bootstrap'` to make one from Debian packages, or None for a slim
            Python.
        progress: Called with a line for people whenever something begins.

    Raises:
        BackendUnavailable: There is no Docker engine.
        ImageMissing: The base cannot be had.
        SandboxError: A step failed; the message has what it said.
    """
    tag = image_tag()
    with engine(_BUILD_STALL) as client:
        if _exists(client, tag):
            progress(f'{tag} is there already')
            return tag
    resolved = resolve_base(base, progress=progress)
    with engine(_BUILD_STALL) as client, tempfile.TemporaryDirectory() as scratch:
        wheels = Path(scratch, 'wheels')
        _download(_probe(client, resolved), wheels, progress)
        with Path(scratch, 'context.tar').open('w+b') as context:
            _write_context(context, wheels)
            progress(f'Building {tag} on {resolved}')
            _build(client, context, tag, resolved, progress)
    return tag


def resolve_base(base: str | None, *, progress: Progress = _silent) -> str:
    """Return the name of a base image that is on this machine, getting it if need be.

    Args:
        base: As in `build_image`.
        progress: As in `build_image`.

    Raises:
        ImageMissing: It is not on this machine and no registry could be reached in time.
        BackendUnavailable: There is no Docker engine, or nothing to bootstrap with.
    """
    if base == BOOTSTRAP:
        return bootstrap_base(progress=progress)
    wanted = base or DEFAULT_BASE
    with engine(_PULL_STALL) as client:
        if not _exists(client, wanted):
            progress(f'Pulling {wanted}')
            _pull(client, wanted)
    return wanted


def bootstrap_base(*, progress: Progress = _silent) -> str:
    """Make a base image out of Debian packages, unless it is there, and return its name.

    Args:
        progress: As in `build_image`.

    Raises:
        BackendUnavailable: This is not root on a Debian with mmdebstrap and the docker command.
        SandboxError: mmdebstrap failed; the message has what it said last.
    """
    with engine() as client:
        if _exists(client, BOOTSTRAP_IMAGE):
            return BOOTSTRAP_IMAGE
    missing = [tool for tool in ('mmdebstrap', 'docker') if shutil.which(tool) is None]
    if missing:
        raise BackendUnavailable(
            f'A base image cannot be made here: {" and ".join(missing)} is not installed.',
            hint='On Debian or Ubuntu, as root: apt-get install mmdebstrap docker.io',
        )
    if os.geteuid() != 0:
        raise BackendUnavailable(
            'A base image can only be made from Debian packages as root.',
            hint='Run `sandbox build --base bootstrap` as root, or name an image with --base.',
        )
    progress(f'Making {BOOTSTRAP_IMAGE} from Debian packages')
    _run(['sh', str(guest_folder() / 'bootstrap-base.sh'), BOOTSTRAP_IMAGE], progress)
    return BOOTSTRAP_IMAGE


def _exists(client: 'docker.DockerClient', name: str) -> bool:
    load_library()
    from docker.errors import ImageNotFound

    try:
        client.images.get(name)
    except ImageNotFound:
        return False
    return True


def _pull(client: 'docker.DockerClient', name: str) -> None:
    load_library()
    from docker.errors import APIError
    from docker.utils import parse_repository_tag
    from requests.exceptions import RequestException

    repository, tag = parse_repository_tag(name)
    try:
        for event in client.api.pull(repository, tag=tag or 'latest', stream=True, decode=True):
            _fail_on_error(event)
    except (APIError, RequestException) as error:
        raise ImageMissing(
            f'The base image {name} is not on this machine and could not be pulled: '
            f'{explain(error)}.',
            hint='Without a registry, make a base from Debian packages (as root): '
            'sandbox build --base bootstrap',
        ) from error


def _fail_on_error(event: dict[str, Any]) -> None:
    load_library()
    from docker.errors import APIError

    if 'error' in event:
        raise APIError(event['error'])


def _probe(client: 'docker.DockerClient', base: str) -> list[str]:
    """Return the options that make pip choose the wheels for the Python of an image."""
    output = client.containers.run(
        base, ['-c', _PROBE], entrypoint='python3', network_mode='none', remove=True
    )
    major, minor, machine, libc, version = json.loads(output)
    if libc != 'glibc':
        raise SandboxError(
            f'{base} has no glibc, so the usual wheels do not run on it.',
            hint='Use a base on Debian, Ubuntu, Fedora or the like.',
        )
    _, _, newest = version.partition('.')
    platforms = [f'manylinux_2_{number}_{machine}' for number in range(int(newest), 4, -1)]
    return [
        f'--python-version={major}.{minor}',
        *(f'--platform={name}' for name in [*platforms, f'manylinux2014_{machine}']),
    ]


def _download(target: list[str], wheels: Path, progress: Progress) -> None:
    progress('Downloading the locked packages')
    _run(
        [
            *(sys.executable, '-m', 'pip', 'download', '--quiet', '--disable-pip-version-check'),
            *('--no-deps', '--require-hashes', '--only-binary=:all:', *target),
            *('--dest', str(wheels), '--requirement', str(guest_folder() / 'requirements.lock')),
        ],
        _silent,
    )


def _run(command: list[str], progress: Progress) -> None:
    """Run a command, passing its lines on; its last ones go into the error."""
    lines: list[str] = []
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors='replace',
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if text := line.strip():
                lines = [*lines[-19:], text]
                progress(text)
    if process.returncode:
        raise SandboxError(
            f'{Path(command[0]).name} ended with exit code {process.returncode}:\n'
            + '\n'.join(lines),
            hint='Nothing was built. Fix the cause and run `sandbox build` again.',
        )


def _write_context(target: IO[bytes], wheels: Path) -> None:
    with tarfile.open(fileobj=target, mode='w') as archive:
        for path in [*(guest_folder() / name for name in _CONTEXT), *sorted(wheels.iterdir())]:
            content = path.read_bytes()
            inside = path.name if path.parent != wheels else f'wheels/{path.name}'
            # Neither times nor owners of the host go in: the same files make the same layers.
            member = tarfile.TarInfo(inside)
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    target.seek(0)


def _build(
    client: 'docker.DockerClient', context: IO[bytes], tag: str, base: str, progress: Progress
) -> None:
    stage = secrets.token_hex(8)
    events: Iterable[dict[str, Any]] = client.api.build(
        fileobj=context,
        custom_context=True,
        decode=True,
        tag=tag,
        buildargs={'BASE': base, 'STAGE': stage},
        labels={DIGEST_LABEL: tag.partition(':')[2], f'{DIGEST_LABEL}.base': base},
        network_mode='none',
        use_config_proxy=False,
        rm=True,
        forcerm=True,
    )
    tail: list[str] = []
    for event in events:
        text = str(event.get('stream') or event.get('error') or '').strip()
        if text:
            tail = [*tail[-19:], text]
        if text.startswith('Step '):
            progress(shorten(text, 100, placeholder=' ...'))
        if 'error' in event:
            raise SandboxError(
                'The image could not be built:\n' + '\n'.join(tail),
                hint='Nothing was tagged. Fix the cause and run `sandbox build` again.',
            )
    client.images.prune(filters={'dangling': True, 'label': f'{STAGE_LABEL}={stage}'})
