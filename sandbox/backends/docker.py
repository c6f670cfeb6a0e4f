"""The Docker back end: one hardened container for each sandbox, reached without a network."""

import asyncio
import hashlib
import json
import logging
import socket
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, NamedTuple

from sandbox.backends import gvisor
from sandbox.backends.bridge import Bridge
from sandbox.backends.container import (
    EGRESS_FOLDER,
    OWN_OPTIONS,
    check_user,
    check_workspace,
    container_options,
)
from sandbox.backends.detach import DetachRecord
from sandbox.backends.docker_container import DockerInstance, take_away
from sandbox.backends.engine import (
    attach,
    engine,
    explain,
    lent_client,
    load_library,
)
from sandbox.backends.layout import SOCKETS, WORKSPACE
from sandbox.backends.rendezvous import Rendezvous
from sandbox.egress.allowlist import Allowlist
from sandbox.egress.process import EgressProxy
from sandbox.errors import (
    BackendUnavailable,
    PolicyError,
    PolicyNotEnforced,
    SandboxError,
    SandboxLost,
    StartFailed,
)
from sandbox.image import find_image
from sandbox.image_names import image_missing, image_tag
from sandbox.policy import HOST_SIDE, SandboxPolicy
from sandbox.threads import in_thread

if TYPE_CHECKING:
    import docker

_LOG = logging.getLogger(__name__)

_NEEDED = {
    'MemoryLimit': 'memory',
    'PidsLimit': 'the number of processes',
    'CpuCfsQuota': 'processor time',
}


class _Started(NamedTuple):
    """What a start has made besides the folder of sockets."""

    container_id: str
    proxy: EgressProxy | None = None
    stream: socket.socket | None = None


class DockerBackend:
    """Starts containers on the engine of this machine.

    Args:
        image: Kernel image; if None, that of this version which the policy names.
        workspace: Path of the workspace inside the container.
    """

    name = 'docker'

    def __init__(self, *, image: str | None = None, workspace: str = WORKSPACE) -> None:
        check_workspace(workspace)
        self._image = image
        self._workspace = workspace
        self._limits_checked = False

    def check(self, policy: SandboxPolicy | None = None) -> None:
        """Return when containers can be started.

        Args:
            policy: What they may use, and with which image; the default one if None.

        Raises:
            BackendUnavailable: There is no engine, or it cannot enforce the limits.
            ImageMissing: The kernel image is not on this machine.
        """
        policy = policy or SandboxPolicy()
        with engine() as client:
            self._check_limits(client)
        find_image(self._image, variant=policy.variant, packages=policy.packages)

    def unenforced(self, policy: SandboxPolicy) -> dict[str, str]:
        """Return the fields that do not hold on this machine, each with the reason."""
        found = gvisor.unenforced(policy)
        if policy.packages and self._image is not None:
            found['packages'] = f'the image {self._image} is used as it is'
        return found

    def _image_for(self, policy: SandboxPolicy) -> str:
        return self._image or image_tag(policy.variant, policy.packages)

    async def start(self, policy: SandboxPolicy, *, labels: Mapping[str, str]) -> DockerInstance:
        """Start a container.

        Args:
            policy: What it may use.
            labels: Names and values to attach to the container.

        Raises:
            BackendUnavailable: There is no engine, or it cannot enforce the limits.
            PolicyError: The policy's user is the one that this program runs as.
            PolicyNotEnforced: The policy asks for gVisor, which cannot be had, or not like that;
                or for packages in an image of another making.
            ImageMissing: The kernel image is not on this machine.
            StartFailed: The engine refused or failed.
        """
        check_user(policy.uid)
        if policy.packages and self._image is not None:
            raise PolicyNotEnforced(
                f'The policy asks for packages, but the image {self._image} is used as it is.',
                hint='Leave packages out, or the image.',
            )
        place, endpoint = Rendezvous.create(SOCKETS)
        name = f'lagent-sandbox-{place.root.name}'
        starting = asyncio.ensure_future(in_thread(self._start, name, policy, place, labels))
        try:
            started = await asyncio.shield(starting)
            bridge = None
            if started.stream is not None:
                greeting = gvisor.greeting(endpoint)
                bridge = await Bridge.open(started.stream, place.sockets, greeting)
        except BaseException as error:
            for failure in await asyncio.shield(_undo(starting, name, place)):
                error.add_note(f'What had been started could not be removed: {failure}')
            raise
        return DockerInstance(started.container_id, place, endpoint, started.proxy, bridge)

    def made_as(self, policy: SandboxPolicy) -> str:
        """Return what tells the containers of this policy from others that differ inside.

        Raises:
            PolicyError: Containers of this policy cannot outlive their owner.
        """
        if isinstance(policy.network, Allowlist) or policy.runtime == gvisor.RUNTIME:
            what = 'an allow-list' if isinstance(policy.network, Allowlist) else 'gVisor'
            raise PolicyError(
                f'A sandbox with {what} cannot outlive its program, which carries its network or '
                'its sockets.',
                hint="Leave survival out, or use network='none' or 'full' and the default runtime.",
            )
        values = {each.name: getattr(policy, each.name) for each in fields(policy)}
        values = {name: value for name, value in values.items() if name not in HOST_SIDE}
        values |= {'env': dict(policy.env), 'image': self._image_for(policy)}
        values['workspace'] = self._workspace
        text = json.dumps(values, sort_keys=True, default=list)
        return hashlib.sha256(text.encode()).hexdigest()

    async def reattach(self, place: Rendezvous, record: DetachRecord) -> DockerInstance:
        """Return the container of a folder that this process owns now.

        Raises:
            SandboxLost: It is gone; nothing is left of it.
        """
        instance = DockerInstance(record.instance, place, place.endpoint(record.key))
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(instance.endpoint.control)
        except OSError:
            lost = await instance.describe_loss()
            await instance.remove()
            raise SandboxLost(lost) from None
        return instance

    def _start(
        self, name: str, policy: SandboxPolicy, place: Rendezvous, labels: Mapping[str, str]
    ) -> _Started:
        if not isinstance(policy.network, Allowlist) or policy.runtime == gvisor.RUNTIME:
            return self._start_container(name, policy, place, labels)
        proxy = EgressProxy.launch(place.root / EGRESS_FOLDER, policy.network)
        try:
            return self._start_container(name, policy, place, labels)._replace(proxy=proxy)
        except BaseException:
            proxy.stop()
            raise

    def _start_container(
        self, name: str, policy: SandboxPolicy, place: Rendezvous, labels: Mapping[str, str]
    ) -> _Started:
        load_library()
        from docker.errors import APIError, ImageNotFound
        from requests.exceptions import RequestException

        image = self._image_for(policy)
        options = container_options(policy, place, labels, self._workspace)
        if policy.runtime == gvisor.RUNTIME:
            options = gvisor.adapt(options, policy)
        own = {name: options.pop(name) for name in OWN_OPTIONS}
        try:
            with lent_client() as client:
                self._check_limits(client)
                if policy.runtime == gvisor.RUNTIME:
                    gvisor.check(policy, client.info())
                host = client.api.create_host_config(**options)
                created = client.api.create_container(image, name=name, host_config=host, **own)
                container = str(created['Id'])
                stream = attach(container) if policy.runtime == gvisor.RUNTIME else None
                try:
                    client.api.start(container)
                except BaseException:
                    if stream is not None:
                        stream.close()
                    raise
                return _Started(container, stream=stream)
        except ImageNotFound:
            raise image_missing(self._image, policy.variant, policy.packages) from None
        except (APIError, RequestException) as error:
            raise StartFailed(
                f'The container could not be started: {explain(error)}.',
                hint='`sandbox doctor` checks the engine and the image.',
            ) from error

    def _check_limits(self, client: 'docker.DockerClient') -> None:
        # An engine that lacks a control group drops the limit with no more than a warning.
        if self._limits_checked:
            return
        info = client.info()
        missing = [what for flag, what in _NEEDED.items() if not info.get(flag)]
        if missing:
            raise BackendUnavailable(
                f'This Docker engine cannot limit {" and ".join(missing)}.',
                hint='Enable the control groups of the Linux kernel; see `docker info`.',
            )
        if not info.get('SwapLimit'):
            _LOG.warning('This Docker engine cannot limit swap, so sandboxes may use it.')
        self._limits_checked = True


async def _undo(
    starting: 'asyncio.Future[_Started]', name: str, place: Rendezvous
) -> list[OSError | SandboxError]:
    """Wait for a start that nobody wants any more, and take back what it has made."""
    await asyncio.wait([starting])
    proxy = None
    if not starting.cancelled() and starting.exception() is None:
        started = starting.result()
        proxy = started.proxy
        if started.stream is not None:
            started.stream.close()
    failures = await in_thread(take_away, name, proxy, place)
    # Without an engine there is no container, or one that ends by itself, for it has no owner.
    return [failure for failure in failures if not isinstance(failure, BackendUnavailable)]
