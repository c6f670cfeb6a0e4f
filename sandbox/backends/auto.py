"""`backend='auto'`: Docker where it can be used, else bubblewrap, and never anything weaker."""

import logging
from collections.abc import Mapping

from sandbox.backends.base import Assignable, Endpoint, Instance, Process, Reporter
from sandbox.backends.bubblewrap import BubblewrapBackend
from sandbox.backends.docker import DockerBackend
from sandbox.errors import BackendUnavailable, ImageMissing
from sandbox.policy import SandboxPolicy
from sandbox.threads import in_thread

_LOG = logging.getLogger(__name__)


class AutoBackend:
    """Chooses a back end when the first sandbox is started, and stays with it.

    Where Docker cannot be used, the log has a warning and the first result of every new sandbox
    says what it runs in and why.
    """

    def __init__(self) -> None:
        self._chosen: DockerBackend | BubblewrapBackend | None = None
        self._notice = ''

    @property
    def name(self) -> str:
        """`'auto'`, and once it has chosen the name of what it has chosen."""
        return self._chosen.name if self._chosen else 'auto'

    def check(self) -> None:
        """Choose a back end.

        Raises:
            BackendUnavailable: Neither can be used.
        """
        self._choose(SandboxPolicy())

    def _choose(self, policy: SandboxPolicy) -> DockerBackend | BubblewrapBackend:
        if self._chosen is not None:
            return self._chosen
        docker, bubblewrap = DockerBackend(), BubblewrapBackend()
        try:
            docker.check(policy)
        except (BackendUnavailable, ImageMissing) as error:
            try:
                bubblewrap.check()
            except BackendUnavailable as other:
                raise BackendUnavailable(
                    f'There is neither Docker nor bubblewrap: {error.message} {other.message}',
                    hint=f'{error.hint} {other.hint}'.strip(),
                ) from error
            self._notice = (
                f'this sandbox is made by bubblewrap, since Docker cannot be used: {error.message}'
            )
            _LOG.warning('Sandboxes are made by bubblewrap: %s', error.message)
            self._chosen = bubblewrap
        else:
            self._chosen = docker
        return self._chosen

    def unenforced(self, policy: SandboxPolicy) -> Mapping[str, str]:
        """Return the fields that do not hold with the chosen back end, each with the reason."""
        return self._choose(policy).unenforced(policy)

    async def start(self, policy: SandboxPolicy, *, labels: Mapping[str, str]) -> Instance:
        """Start a sandbox with the back end that was chosen; the errors are that one's."""
        backend = await in_thread(self._choose, policy)
        instance = await backend.start(policy, labels=labels)
        return _Announced(instance, self._notice) if self._notice else instance


class _Announced:
    """An instance whose first result says more."""

    def __init__(self, instance: Instance, notice: str) -> None:
        self._instance = instance
        self._untold = [notice]

    @property
    def id(self) -> str:
        return self._instance.id

    @property
    def pid(self) -> int | None:
        return self._instance.pid if isinstance(self._instance, Process) else None

    @property
    def endpoint(self) -> Endpoint:
        return self._instance.endpoint

    def notices(self) -> list[str]:
        untold, self._untold = self._untold, []
        own = self._instance.notices() if isinstance(self._instance, Reporter) else []
        return untold + own

    def assign(self, session: str) -> None:
        if isinstance(self._instance, Assignable):
            self._instance.assign(session)

    async def unseal(self) -> None:
        await self._instance.unseal()

    async def seal(self) -> None:
        await self._instance.seal()

    async def describe_loss(self) -> str:
        return await self._instance.describe_loss()

    async def remove(self) -> None:
        await self._instance.remove()
