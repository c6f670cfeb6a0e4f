"""How the kernel images are built.

Packages are downloaded on the host, checked against the hashes of the lock file, and installed
without a network: the same lock gives the same image, and machines that reach no image registry can
build it on a base of Debian packages.
"""

import contextlib
import io
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from textwrap import shorten
from typing import IO, TYPE_CHECKING, Any

from sandbox.backends.engine import engine, exists, explain, load_library
from sandbox.errors import BackendUnavailable, ImageMissing, SandboxError
from sandbox.image_names import context_files, guest_folder, image_tag, lock_of
from sandbox.policy import DEFAULT_VARIANT, SandboxPolicy, Variant

if TYPE_CHECKING:
    import docker

Progress = Callable[[str], None]


def _silent(_: str) -> None:
    pass


DEFAULT_BASE = 'python:3.11-slim'
BOOTSTRAP = 'bootstrap'
BOOTSTRAP_IMAGE = 'lagent-sandbox-base:bookworm'
DIGEST_LABEL = 'lagent.sandbox.image'
STAGE_LABEL = 'lagent.sandbox.stage'

_PULL_STALL = 30.0
BUILD_STALL = 600.0
_LONGEST_RUN = 3600.0
_PATIENCE = 10.0  # seconds in which a program that is ended may clean up
_PROBE = (
    'import json, platform, sys; '
    'print(json.dumps([*sys.version_info[:2], platform.machine(), *platform.libc_ver()]))'
)


def build_image(
    base: str | None = None,
    *,
    variant: Variant = DEFAULT_VARIANT,
    packages: Iterable[str] = (),
    progress: Progress = _silent,
) -> str:
    """Build an image unless it is there already, and return its name.

    Args:
        base: Image to build on, `'bootstrap'` to make one from Debian packages, or None for a slim
            Python.
        variant: Which image.
        packages: What to install in it besides, as in `SandboxPolicy`: wheels only, the newest
            that fit. Their lock is kept as a label of the image.
        progress: Called with a line for people whenever something begins.

    Raises:
        BackendUnavailable: There is no Docker engine.
        ImageMissing: The base cannot be had.
        PolicyError: A package is not named as an index names it, or there is no such variant.
        SandboxError: A step failed; the message has what it said. Or the image is there already,
            and is built on another base than the one that is named.
    """
    wishes = SandboxPolicy(variant=variant, packages=tuple(packages)).packages
    tag = image_tag(variant)
    with engine(BUILD_STALL) as client:
        there = exists(client, tag)
    if not there:
        _build_variant(base, variant, tag, progress)
    else:
        if base is not None:
            _check_base(tag, BOOTSTRAP_IMAGE if base == BOOTSTRAP else base)
        if not wishes:
            progress(f'{tag} is there already')
    if not wishes:
        return tag
    from sandbox.layer import build_layer

    return build_layer(tag, image_tag(variant, wishes), lock_of(variant), wishes, progress)


def _build_variant(base: str | None, variant: Variant, tag: str, progress: Progress) -> None:
    resolved = resolve_base(base, progress=progress)
    arguments = {'BASE': resolved}
    if variant == 'analysis':
        arguments['PLOTLY_RENDERER'] = 'plotly_mimetype+png'
    with engine(BUILD_STALL) as client, tempfile.TemporaryDirectory() as scratch:
        wheels = Path(scratch, 'wheels')
        download(platform_options(client, resolved), lock_of(variant), wheels, progress)
        with Path(scratch, 'context.tar').open('w+b') as context:
            write_context(context, context_files(variant), wheels)
            progress(f'Building {tag} on {resolved}')
            labels = {f'{DIGEST_LABEL}.base': resolved}
            build(client, context, tag, arguments, labels, progress)


def _check_base(tag: str, base: str) -> None:
    """Refuse an image that is there already, and built on another base than this one is now."""
    with engine() as client:
        image = client.images.get(tag)
        old = image.labels.get(f'{DIGEST_LABEL}.base', 'another image')
        fits = old == base
        if exists(client, base):  # what it was called says less than what it consists of
            layers, below = (
                each.attrs['RootFS'].get('Layers') or []
                for each in (image, client.images.get(base))
            )
            fits = layers[: len(below)] == below
    if not fits:
        raise SandboxError(
            f'{tag} is there already, but built on {old}, and not on {base} as it is now.',
            hint=f'Remove it, then build again: docker rmi {tag}',
        )


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
        if not exists(client, wanted):
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
        if exists(client, BOOTSTRAP_IMAGE):
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
    run(['sh', str(guest_folder() / 'bootstrap-base.sh'), BOOTSTRAP_IMAGE], progress)
    return BOOTSTRAP_IMAGE


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


def platform_options(client: 'docker.DockerClient', base: str) -> list[str]:
    """Return the options that make pip choose the wheels for the Python of an image.

    Raises:
        SandboxError: The usual wheels do not run on it.
    """
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


def download(target: list[str], lock: Path, wheels: Path, progress: Progress) -> None:
    """Download the wheels of a lock file; each is checked against its hashes.

    Args:
        target: See `platform_options`.
        lock: The lock file.
        wheels: The folder to put them into.
        progress: As in `build_image`.

    Raises:
        SandboxError: pip failed; the message has what it said.
    """
    progress('Downloading the locked packages')
    run(
        [
            *(sys.executable, '-P', '-m', 'pip', 'download'),
            *('--quiet', '--disable-pip-version-check'),
            *('--no-deps', '--require-hashes', '--only-binary=:all:', *target),
            *('--dest', str(wheels), '--requirement', str(lock)),
        ],
        _silent,
    )


def run(command: list[str], progress: Progress) -> None:
    """Run a command and pass its lines on.

    Raises:
        SandboxError: It failed, or took more than an hour; the message has its last lines.
    """
    lines: list[str] = []
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors='replace',
        start_new_session=True,  # it is ended together with all it has started
    ) as process:
        assert process.stdout is not None
        deadline = time.monotonic() + _LONGEST_RUN
        late = threading.Timer(_LONGEST_RUN, _end, (process,))
        late.start()
        try:
            for line in process.stdout:
                if text := line.strip():
                    lines = [*lines[-19:], text]
                    progress(text)
            process.wait()
        finally:
            was_late = time.monotonic() >= deadline
            late.cancel()
            if process.poll() is None:
                _end(process)
    if was_late:
        lines.append(f'It was ended after {_LONGEST_RUN:g} s.')
    if was_late or process.returncode:
        raise SandboxError(
            f'{Path(command[0]).name} ended with exit code {process.returncode}:\n'
            + '\n'.join(lines),
            hint='Nothing was built. Fix the cause and run `sandbox build` again.',
        )


def _end(process: subprocess.Popen[str]) -> None:
    """End a command and all it has started, which may first remove what they have made."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE)


def write_context(target: IO[bytes], files: Iterable[tuple[str, Path]], wheels: Path) -> None:
    """Write a build context.

    Args:
        target: Where to; afterwards it is at its beginning.
        files: Names inside, and where the files are.
        wheels: The folder of the wheels.
    """
    packed = [(f'wheels/{path.name}', path) for path in sorted(wheels.iterdir())]
    with tarfile.open(fileobj=target, mode='w') as archive:
        for inside, path in [*files, *packed]:
            content = path.read_bytes()
            # Neither times nor owners of the host go in: the same files make the same layers.
            member = tarfile.TarInfo(inside)
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    target.seek(0)


def build(
    client: 'docker.DockerClient',
    context: IO[bytes],
    tag: str,
    arguments: Mapping[str, str],
    labels: Mapping[str, str],
    progress: Progress,
) -> None:
    """Have the engine build an image, without a network.

    Args:
        client: The engine.
        context: The build context.
        tag: The image's name.
        arguments: What the Dockerfile's `ARG`s are.
        labels: Labels of the image.
        progress: As in `build_image`.

    Raises:
        SandboxError: A step failed; the message has what it said.
    """
    stage = secrets.token_hex(8)
    events: Iterable[dict[str, Any]] = client.api.build(
        fileobj=context,
        custom_context=True,
        decode=True,
        tag=tag,
        buildargs={**arguments, 'STAGE': stage},
        labels={DIGEST_LABEL: tag.partition(':')[2], **labels},
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
