"""What a session does whose sandbox survives its program: reattach, detach, and recall."""

from sandbox.backends.base import Backend
from sandbox.backends.detach import (
    DetachRecord,
    SessionLock,
    SupportsReattach,
    orphans_of,
    take_over,
)
from sandbox.errors import PolicyError, SandboxError, SandboxLost
from sandbox.kernel.contract import Machine
from sandbox.kernel.machine import KernelMachine
from sandbox.kernel.reattach import Recalled
from sandbox.policy import SandboxPolicy
from sandbox.survival import Survival
from sandbox.threads import in_thread


class Reattacher:
    """Gives a session the sandbox that an earlier process has detached.

    Args:
        survival: Its scope, and how long sandboxes wait.
        session: Its id.
        policy: Its policy.
        backend: What its sandboxes are made by.

    Raises:
        PolicyError: Sandboxes of this back end, or of this policy, cannot survive their program.
    """

    def __init__(
        self, survival: Survival, session: str, policy: SandboxPolicy, backend: Backend
    ) -> None:
        if not isinstance(backend, SupportsReattach):
            raise PolicyError(
                f'A sandbox of the back end {backend.name!r} cannot outlive its program.',
                hint="Use backend='docker', or leave survival out.",
            )
        self._backend = backend
        made_as = backend.made_as(policy)
        self._record = DetachRecord(survival.scope, session, survival.seconds, made_as)
        self._lock: SessionLock | None = None
        self._machine: KernelMachine | None = None
        self.failure = ''

    async def reattach(self, policy: SandboxPolicy) -> Machine | None:
        """Return the sandbox that was left to the session, or None; only the first call looks.

        Raises:
            SandboxError: A living process has the session, or the folders cannot be read.
        """
        if self._lock is not None:
            return None
        scope, session = self._record.scope, self._record.session
        try:
            self._lock = await in_thread(SessionLock.take, scope, session)
            left = await in_thread(orphans_of, scope, session) if self._lock is not None else []
        except OSError as error:
            raise SandboxError(
                f'What was left to the session {session!r} could not be looked for: {error}.'
            ) from error
        if self._lock is None:
            raise SandboxError(
                f'A living process has the session {session!r} of {scope!r}; nothing was changed.',
                hint='Give the session another id, or the program another Survival(scope=...).',
            )
        for place, record in left:
            try:
                await in_thread(take_over, place)
                instance = await self._backend.reattach(place, record)
                if record.made_as != self._record.made_as:
                    await instance.remove()
                    raise SandboxLost('it was made by another policy or image')
                machine = await KernelMachine.reattach(instance, policy, self._record)
            except SandboxError as error:
                self.failure = error.message.rstrip('.')
            except OSError as error:
                self.failure = f'it could not be taken over: {error}'
            else:
                self._machine = machine
                return machine
        return None

    async def detach(self, machine: Machine) -> None:
        """Let a new machine survive, from now on; where that fails it is removed.

        Raises:
            SandboxError: It cannot.
        """
        assert isinstance(machine, KernelMachine)
        try:
            machine.detach(self._record)
        except OSError as error:
            await machine.close()
            raise SandboxError(f'The sandbox could not be made to survive: {error}.') from error
        self._machine = machine

    @property
    def cells(self) -> int:
        """How many cells the sandbox was sent before it was taken over."""
        reattached = self._machine and self._machine.reattached
        return reattached.cells.count if reattached else 0

    def recall(self, tag: str) -> Recalled:
        """Return what a cell came to."""
        machine = self._machine
        if machine is None or machine.ledger is None:
            return None
        reattached = machine.reattached
        if reattached and reattached.cells.last and reattached.cells.last.tag == tag:
            return reattached.last
        cells = machine.ledger.read()
        return 'not_begun' if cells.is_whole and tag not in cells.tags else None

    def release(self) -> None:
        """Give the session's lock back."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
