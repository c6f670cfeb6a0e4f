"""The connection to the Docker engine, and its errors in our words."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sandbox.errors import BackendUnavailable, SandboxError

if TYPE_CHECKING:
    import docker

API_TIMEOUT = 30.0
"""Seconds that the engine may take for one answer."""

_DEFAULT_HOST = 'unix:///var/run/docker.sock'
_START_IT = (
    'Install and start Docker Engine (https://docs.docker.com/engine/install/), make sure that '
    'this user may use its socket, and try `docker info`.'
)


def connect(timeout: float = API_TIMEOUT) -> 'docker.DockerClient':
    """Return a client of the engine on this machine; the caller closes it.

    Args:
        timeout: How long the engine may take for one answer, in seconds.

    Raises:
        BackendUnavailable: There is no engine, it may not be used, or it is not on this machine.
    """
    from docker.errors import DockerException

    import docker

    host = os.environ.get('DOCKER_HOST') or _DEFAULT_HOST
    if not host.startswith('unix://'):
        raise BackendUnavailable(
            f'DOCKER_HOST={host} is an engine behind a network, but a sandbox and its host share '
            'a folder with sockets.',
            hint='Unset DOCKER_HOST to use the engine of this machine.',
        )
    try:
        # The library leaks a socket for every connection that is refused, so ask first.
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(timeout)
            probe.connect(host.removeprefix('unix://'))
        return docker.DockerClient.from_env(timeout=max(1, round(timeout)))
    except (OSError, DockerException) as error:
        raise BackendUnavailable(
            f'No Docker engine answers at {host}: {error}.', hint=_START_IT
        ) from error


@contextmanager
def engine(timeout: float = API_TIMEOUT) -> Iterator['docker.DockerClient']:
    """Connect for the length of a block, and turn what fails in it into our errors.

    Raises:
        BackendUnavailable: As `connect`.
        SandboxError: The engine refused, or did not answer in time.
    """
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    client = connect(timeout)
    try:
        yield client
    except (DockerException, RequestException) as error:
        raise SandboxError(
            f'The Docker engine failed: {explain(error)}.', hint='See `docker info` and its log.'
        ) from error
    finally:
        client.close()


def explain(error: Exception) -> str:
    """Return what the engine said, without the address of the request."""
    text = getattr(error, 'explanation', None) or str(error)
    return str(text).strip().rstrip('.')
