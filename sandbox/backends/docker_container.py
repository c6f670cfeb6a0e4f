"""One container that runs: how it was lost, and how all that belongs to it is removed."""

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox.backends.base import Endpoint
from sandbox.backends.bridge import Bridge
from sandbox.backends.detach import DetachRecord, Ledger
from sandbox.backends.engine import engine, load_library
from sandbox.backends.rendezvous import Rendezvous
from sandbox.egress.process import EgressProxy
from sandbox.errors import SandboxError
from sandbox.threads import in_thread

if TYPE_CHECKING:
    import docker

_INSPECTION = 3.0
_OOM_LAG = 0.3
_REMOVAL = 60.0


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
    def endpoint(self) -> Endpoint:
        """Where its sockets are."""
        return self._endpoint

    def assign(self, session: str) -> None:
        """Write down which session it serves: its labels were fixed when it was made."""
        self._place.assign(session)

    def detach(self, record: DetachRecord) -> Ledger:
        """Let it outlive this process; return where its cells are written down."""
        key = str(self._endpoint.connection['key'])
        replace(record, instance=self._id, key=key).write(self._place)
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
        for failure in take_away(self._id, self._proxy, self._place):
            if isinstance(failure, SandboxError):
                raise failure
            raise SandboxError(
                f'The sandbox in container {self._id[:12]} could not be removed: {failure}.',
                hint='Call close() again.',
            ) from failure


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


def take_away(
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
