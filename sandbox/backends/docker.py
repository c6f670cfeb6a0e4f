"""The Docker back end: one hardened container for each sandbox, reached without a network."""

import asyncio
import contextlib
import functools
import hashlib
import json
import logging
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sandbox.backends import gvisor
from sandbox.backends.base import Endpoint
from sandbox.backends.bridge import Bridge
from sandbox.backends.container import (
    EGRESS_FOLDER,
    OWN_OPTIONS,
    SOCKETS,
    WORKSPACE,
    check_user,
    check_workspace,
    container_options,
)
from sandbox.backends.engine import (
    attach,
    engine,
    explain,
    lent_client,
    load_library,
)
from sandbox.backends.rendezvous import Rendezvous
from sandbox.backends.will import Ledger, Will
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

_INSPECTION = 3.0
_OOM_LAG = 0.3
_REMOVAL = 60.0

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


class DockerInstance:
    """A running container and the folder of its sockets, or the bridge to them."""

    def __init__(
        self,
        container_id: str,
        place: Rendezvous,
        endpoint: Endpoint,
        proxy: EgressProxy | None = None,
        bridge: Bridge | None = None,
    ) -> None:
        self._id, self._place, self._endpoint = container_id, place, endpoint
        self._proxy, self._bridge = proxy, bridge
        self._started = time.time()

    @property
    def id(self) -> str:
        """Id of the container."""
        return self._id

    @property
    def pid(self) -> None:
        """Return None: its processes are the engine's."""

    @property
    def endpoint(self) -> Endpoint:
        """Where its sockets are."""
        return self._endpoint

    def assign(self, session: str) -> None:
        """Write down which session it serves: its labels were fixed when it was made."""
        self._place.assign(session)

    def bequeath(self, will: Will) -> Ledger:
        """Leave it to the next owner; return where its cells are written down."""
        key = str(self._endpoint.connection['key'])
        replace(will, instance=self._id, key=key).write(self._place)
        return Ledger(self._place)

    async def unseal(self) -> None:
        """Let a kernel bind its sockets."""
        if self._bridge is None:
            self._place.unseal()

    async def seal(self) -> None:
        """Take away the container's access to the folder of sockets.

        Raises:
            StartFailed: The folder holds something that does not belong there.
        """
        if self._bridge is None:  # else the folder is not the container's
            self._place.seal()

    @property
    def proxy(self) -> EgressProxy | None:
        """What its network goes through, where its policy has an allow-list."""
        return self._proxy

    def notices(self) -> list[str]:
        """Return what the network policy has refused since the last call."""
        return self._proxy.notices() if self._proxy is not None else []

    async def describe_loss(self) -> str:
        """Say in one sentence why the container does not answer any more."""
        return await in_thread(self._describe_loss)

    def _describe_loss(self) -> str:
        load_library()
        from docker.errors import NotFound

        name = f'its container {self._id[:12]}'
        try:
            with engine(_INSPECTION) as client:
                try:
                    state = client.api.inspect_container(self._id)['State']
                except NotFound:
                    return self._last_words(client, name)
                if state.get('Paused'):
                    return f'{name} is paused'
                if state.get('Running'):
                    return f'{name} runs but does not answer'
                return self._last_words(client, name)
        except SandboxError as error:
            return f'{name} could not be looked at: {error.message.rstrip(".")}'

    def _last_words(self, client: 'docker.DockerClient', name: str) -> str:
        """Look for the reason in the engine's recent events; it keeps a few hundred."""
        # Of gVisor, the engine learns last that it was for want of memory.
        lag = _OOM_LAG if self._bridge is not None else 0.0
        events = client.api.events(
            since=self._started - 1,
            until=time.time() + lag,
            filters={'container': self._id, 'event': ['die', 'oom']},
            decode=True,
        )
        with contextlib.closing(events):
            seen = list(events)
        if any(event.get('Action') == 'oom' for event in seen):
            return f'{name} ran out of memory and is gone'
        codes = [e['Actor']['Attributes'].get('exitCode') for e in seen if e.get('Action') == 'die']
        return f'{name} ended with exit code {codes[-1]}' if codes else f'{name} is gone'

    async def remove(self) -> None:
        """Remove the container, its memory file systems and the folder of sockets.

        Raises:
            SandboxError: Something may be left; the rest has been removed all the same.
        """
        try:
            await asyncio.shield(in_thread(self._remove))
        finally:
            if self._bridge is not None:
                await self._bridge.close()

    def _remove(self) -> None:
        for failure in _take_away(self._id, self._proxy, self._place):
            if isinstance(failure, SandboxError):
                raise failure
            raise SandboxError(
                f'The sandbox in container {self._id[:12]} could not be removed: {failure}.',
                hint='Call close() again.',
            ) from failure


class DockerBackend:
    """Starts containers on the engine of this machine.

    Args:
        image: Kernel image; if None, that of this version which the policy names.
        workspace: Path of the workspace inside the container.
        launch: Starts the network proxy of a sandbox whose policy has an allow-list.
    """

    name = 'docker'

    def __init__(
        self,
        *,
        image: str | None = None,
        workspace: str = WORKSPACE,
        launch: Callable[[Path, Allowlist], EgressProxy] = EgressProxy.launch,
    ) -> None:
        check_workspace(workspace)
        self._image = image
        self._workspace = workspace
        self._launch = launch
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

    async def adopt(self, place: Rendezvous, will: Will) -> DockerInstance:
        """Return the container of a folder that this process owns now.

        Raises:
            SandboxLost: It is gone; nothing is left of it.
        """
        instance = DockerInstance(will.instance, place, place.endpoint(will.key))
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
        proxy = self._launch(place.root / EGRESS_FOLDER, policy.network)
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


def remove_container(name: str) -> None:
    """Remove a container by id or name and wait until it is gone; it may be gone already.

    Raises:
        SandboxError: The engine failed, or the container did not go.
    """
    load_library()
    from docker.errors import APIError, NotFound

    deadline = time.monotonic() + _REMOVAL
    with engine(_REMOVAL) as client:
        while time.monotonic() < deadline:
            try:
                client.api.remove_container(name, force=True, v=True)
                return
            except NotFound:
                return
            except APIError as error:
                # 409: it has ended by itself and the engine is removing it.
                if error.status_code != 409:
                    raise
                time.sleep(0.05)
    raise SandboxError(
        f'The container {name} was not removed within {_REMOVAL:.0f} s.',
        hint='Try it again; if it stays, look into the log of the Docker engine.',
    )


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
    failures = await in_thread(_take_away, name, proxy, place)
    # Without an engine there is no container, or one that ends by itself, for it has no owner.
    return [failure for failure in failures if not isinstance(failure, BackendUnavailable)]


def _take_away(
    container: str, proxy: EgressProxy | None, place: Rendezvous
) -> list[OSError | SandboxError]:
    """Remove all that belongs to a sandbox as far as it can be, and return what went wrong."""
    steps: list[Callable[[], None]] = [
        functools.partial(remove_container, container),
        *([proxy.stop] if proxy is not None else []),
        place.remove,
    ]
    failures: list[OSError | SandboxError] = []
    for step in steps:
        try:
            step()
        except (OSError, SandboxError) as error:
            failures.append(error)
    return failures
