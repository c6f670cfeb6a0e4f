"""The back end without isolation: the supervisor as a plain process of this user.

The code can do whatever this user can. It exists for trusted code, and for developing where there
is no container engine; nothing chooses it by itself.
"""

import asyncio
import contextlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping

from sandbox.backends.base import OWN_PACKAGES, SANDBOX_SIDE, Endpoint
from sandbox.backends.rendezvous import Rendezvous, runtime_folder
from sandbox.errors import BackendUnavailable, PolicyNotEnforced, SandboxError, StartFailed
from sandbox.image_names import guest_folder
from sandbox.policy import SandboxPolicy
from sandbox.threads import in_thread

_PLAIN_PROCESS = 'a plain process of this user has no such limit'
_PATIENCE = 5.0
"""Seconds that a supervisor gets to end its session before it is killed."""


class LocalInstance:
    """A supervisor process and the folder it works in."""

    def __init__(
        self, process: subprocess.Popen[bytes], place: Rendezvous, endpoint: Endpoint
    ) -> None:
        self._process, self._place, self._endpoint = process, place, endpoint

    @property
    def id(self) -> str:
        """Process id of the supervisor."""
        return str(self.pid)

    @property
    def pid(self) -> int:
        """The same, as a number."""
        return self._process.pid

    @property
    def endpoint(self) -> Endpoint:
        """Where its sockets are."""
        return self._endpoint

    async def unseal(self) -> None:
        """Do nothing: the code runs as the user who owns the folder, and cannot be kept out."""

    async def seal(self) -> None:
        """Do nothing, for the same reason."""

    async def describe_loss(self) -> str:
        """Say how the process ended."""
        code = self._process.poll()
        if code is None:
            return f'its process {self.id} runs but does not answer'
        how = f'was killed by signal {-code}' if code < 0 else f'ended with exit code {code}'
        return f'its process {self.id} {how}'

    async def remove(self) -> None:
        """End the process and all it has started, and remove its files."""
        await asyncio.shield(in_thread(self._remove))

    def _remove(self) -> None:
        try:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE)
            self._process.kill()
            self._process.wait(_PATIENCE)
            self._place.remove()
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxError(
                f'The sandbox process {self.id} could not be removed: {error}.',
                hint='Call close() again.',
            ) from error


class LocalBackend:
    """Starts supervisors as plain processes.

    Args:
        unsafe: Must be True: the code is not isolated from this user's files and processes.
    """

    name = 'local'

    def __init__(self, *, unsafe: bool = False) -> None:
        self._unsafe = unsafe

    def check(self) -> None:
        """Return when local sandboxes can be started.

        Raises:
            BackendUnavailable: There is no consent, or ipykernel is not installed.
        """
        if not self._unsafe:
            raise BackendUnavailable(
                "The back end 'local' does not isolate anything: code can read, change and send "
                'whatever you can.',
                hint="Use backend='docker', or pass unsafe=True if you trust the code.",
            )
        if importlib.util.find_spec('ipykernel') is None:
            raise BackendUnavailable(
                "The back end 'local' needs ipykernel, which is not installed.",
                hint="Install it with: pip install 'lagent-sandbox[local]'",
            )

    def unenforced(self, policy: SandboxPolicy) -> dict[str, str]:
        """Return the fields that do not hold, each with the reason."""
        found = dict.fromkeys(SANDBOX_SIDE - {'env', 'orphan_grace', 'packages'}, _PLAIN_PROCESS)
        return found | ({'packages': OWN_PACKAGES} if policy.packages else {})

    async def start(self, policy: SandboxPolicy, *, labels: Mapping[str, str]) -> LocalInstance:
        """Start a supervisor; of the policy, times and output limits hold and nothing else.

        Args:
            policy: What it may use.
            labels: Not used: a process has none.

        Raises:
            BackendUnavailable: There is no consent, or ipykernel is not installed.
            PolicyNotEnforced: The policy asks for an `Allowlist`, a runtime, or packages.
            StartFailed: The process could not be started.
        """
        del labels
        self.check()
        if policy.network not in ('none', 'full') or policy.runtime != 'default':
            raise PolicyNotEnforced(
                "The back end 'local' can enforce neither an Allowlist nor a runtime.",
                hint="Use backend='docker', or leave both out: local code may reach anything.",
            )
        if policy.packages:
            raise PolicyNotEnforced(
                f"The back end 'local' adds no packages: {OWN_PACKAGES}.",
                hint="Use backend='docker', or install them here and leave them out.",
            )
        place, endpoint = Rendezvous.create()
        try:
            workspace, home = place.root / 'w', place.root / 'home'
            temporary = place.root / 'tmp'
            for folder in (workspace, home, temporary):
                folder.mkdir()
            process = subprocess.Popen(  # noqa: ASYNC220 - takes a millisecond and never waits
                [
                    *(sys.executable, '-I', guest_folder() / 'supervisor.py'),
                    *('--dir', endpoint.directory, '--workspace', workspace),
                    *('--orphan-grace', str(policy.orphan_grace), '--same-uid'),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={
                    'PATH': os.environ.get('PATH', os.defpath),
                    'HOME': str(home),
                    'TMPDIR': str(temporary),
                    'LANG': 'C.UTF-8',
                    # Fonts are looked up once for all sandboxes: it takes seconds.
                    'MPLCONFIGDIR': str(runtime_folder() / 'matplotlib'),
                    'SANDBOX_FONT_CACHE': str(runtime_folder() / 'matplotlib'),
                    **policy.env,
                },
            )
        except OSError as error:
            place.remove()
            raise StartFailed(f'The sandbox process could not be started: {error}.') from error
        except BaseException:
            place.remove()
            raise
        return LocalInstance(process, place, endpoint)
