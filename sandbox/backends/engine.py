"""The connection to the Docker engine, and its errors in our words.

A client is used again: to make one costs two requests and a look for configuration files, a tenth
of what the engine takes to create a container. Each is lent to one thread at a time, and the
connections of a process are not those of its forks.
"""

import importlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from sandbox.errors import BackendUnavailable, SandboxError
from sandbox.threads import MAX_THREADS

if TYPE_CHECKING:
    import docker

API_TIMEOUT = 30.0
"""Seconds that the engine may take for one answer."""

_DEFAULT_HOST = 'unix:///var/run/docker.sock'
_START_IT = (
    'Install and start Docker Engine (https://docs.docker.com/engine/install/), make sure that '
    'this user may use its socket, and try `docker info`.'
)


class _Home(NamedTuple):
    """Where a client may be used."""

    process: int
    host: str


_spare: dict[_Home, list['docker.DockerClient']] = {}


def load_library() -> None:
    """Import the Docker library; to be called before a part of it is imported.

    Its modules import one another in a circle. Threads that enter that at different places at the
    same time find half of it, or wait for one another; who begins here waits for all of it.
    """
    importlib.import_module('docker')


@contextmanager
def lent_client(timeout: float = API_TIMEOUT) -> Iterator['docker.DockerClient']:
    """Lend a client of the engine on this machine for the length of a block.

    Args:
        timeout: How long the engine may take for one answer, in seconds.

    Raises:
        BackendUnavailable: There is no engine, it may not be used, or it is not on this machine.
    """
    load_library()
    from docker.errors import APIError

    home = _Home(os.getpid(), _answering_host(timeout))
    spare = _spare.setdefault(home, [])
    try:
        client = spare.pop()
    except IndexError:
        client = _new_client(home.host)
    client.api.timeout = max(1, round(timeout))
    try:
        yield client
    except (APIError, SandboxError):
        _keep(client, spare)
        raise
    except BaseException:
        client.close()  # nobody knows what its connections have still to say
        raise
    _keep(client, spare)


def _keep(client: 'docker.DockerClient', spare: list['docker.DockerClient']) -> None:
    if len(spare) < MAX_THREADS:
        spare.append(client)
    else:
        client.close()


def _answering_host(timeout: float) -> str:
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
    except OSError as error:
        raise _unavailable(host, error) from error
    return host


def _new_client(host: str) -> 'docker.DockerClient':
    load_library()
    from docker.errors import DockerException

    import docker

    try:
        return docker.DockerClient.from_env(timeout=round(API_TIMEOUT))
    except (OSError, DockerException) as error:
        raise _unavailable(host, error) from error


def _unavailable(host: str, error: Exception) -> BackendUnavailable:
    return BackendUnavailable(f'No Docker engine answers at {host}: {error}.', hint=_START_IT)


@contextmanager
def engine(timeout: float = API_TIMEOUT) -> Iterator['docker.DockerClient']:
    """Lend a client for the length of a block, and turn what fails in it into our errors.

    Raises:
        BackendUnavailable: As `lent_client`.
        SandboxError: The engine refused, or did not answer in time.
    """
    load_library()
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    try:
        with lent_client(timeout) as client:
            yield client
    except (DockerException, RequestException) as error:
        raise SandboxError(
            f'The Docker engine failed: {explain(error)}.', hint='See `docker info` and its log.'
        ) from error


def exists(client: 'docker.DockerClient', name: str) -> bool:
    """Tell whether an image is on this machine."""
    load_library()
    from docker.errors import ImageNotFound

    try:
        client.images.get(name)
    except ImageNotFound:
        return False
    return True


def attach(container_id: str) -> socket.socket:
    """Return a connection to the standard streams of a container that has not been started yet.

    What is written to it is the container's input; the engine mixes output and error, each piece
    behind 8 bytes that say what it is. The library's own way reads ahead into a buffer of its own.

    Args:
        container_id: The container; it must have been made with an open input.

    Raises:
        SandboxError: The engine refused, or did not answer in time.
    """
    stream = socket.socket(socket.AF_UNIX)
    try:
        stream.settimeout(API_TIMEOUT)
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
