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


def attach(container_id: str, timeout: float = API_TIMEOUT) -> socket.socket:
    """Return a connection to the standard streams of a container that has not been started yet.

    What is written to it is the container's input; the engine mixes output and error, each piece
    behind 8 bytes that say what it is. The library's own way reads ahead into a buffer of its own.

    Args:
        container_id: The container; it must have been made with an open input.
        timeout: How long the engine may take for its answer, in seconds.

    Raises:
        SandboxError: The engine refused, or did not answer in time.
    """
    stream = socket.socket(socket.AF_UNIX)
    try:
        stream.settimeout(timeout)
        stream.connect((os.environ.get('DOCKER_HOST') or _DEFAULT_HOST).removeprefix('unix://'))
        target = f'/containers/{container_id}/attach?stream=1&stdin=1&stdout=1&stderr=1'
        stream.sendall(
            f'POST {target} HTTP/1.1\r\nHost: docker\r\n'
            'Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n'.encode('ascii')
        )
        head = b''
        while not head.endswith(b'\r\n\r\n') and (byte := stream.recv(1)):
            head += byte
    except OSError as error:
        stream.close()
        raise SandboxError(f'The Docker engine gave no stream: {error}.') from error
    if not head.startswith(b'HTTP/1.1 101 '):
        stream.close()
        raise SandboxError(f'The Docker engine refused a stream: {head[:100]!r}.')
    return stream


def explain(error: Exception) -> str:
    """Return what the engine said, without the address of the request."""
    text = getattr(error, 'explanation', None) or str(error)
    return str(text).strip().rstrip('.')
