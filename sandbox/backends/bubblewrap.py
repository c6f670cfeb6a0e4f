"""The bubblewrap back end: namespaces, a system call filter and limits, without a container engine.

The supervisor runs as the first process of its own pid namespace, as a user without privileges, in
a file system made of the host's read-only programs and of memory. It dies with this process.
"""

import asyncio
import contextlib
import importlib.util
import json
import os
import platform
import select
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack

from sandbox.backends import cgroups, remount
from sandbox.backends.base import OWN_PACKAGES, Endpoint
from sandbox.backends.bubblewrap_view import Mount, Plan, command, supervisor
from sandbox.backends.layout import SOCKETS
from sandbox.backends.rendezvous import Rendezvous
from sandbox.errors import BackendUnavailable, PolicyNotEnforced, SandboxError, StartFailed
from sandbox.policy import SandboxPolicy
from sandbox.threads import in_thread

_RELAXABLE = frozenset(cgroups.FIELDS.values())
_LAUNCHERS = 1
"""Processes that wait outside for the sandbox to end, and are in its control groups."""
_PATIENCE = 5.0
_TRIAL = 20.0
_POLL = 0.003
_LAST_WORDS = 500
_ENVIRONMENT = {'PATH': '/usr/bin:/bin:/usr/sbin:/sbin'}
"""Of the launchers. The guest gets its own: nothing of ours may be found in `/proc` there."""


class BubblewrapInstance:
    """A sandbox's processes, its control groups and its folder."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        info: int,
        place: Rendezvous,
        endpoint: Endpoint,
        group: cgroups.Group,
        untold: list[str],
    ) -> None:
        self._untold = untold
        self._process, self._info, self._place = process, info, place
        self._endpoint, self._group = endpoint, group
        self._first = 0  # the first process of the sandbox: its id here, and a handle
        self._handle = -1
        self._ran_code = False

    @property
    def id(self) -> str:
        """Process id on the host of the sandbox's first process, the supervisor."""
        return str(self.pid)

    @property
    def pid(self) -> int:
        """The same, as a number."""
        return self._first or self._process.pid

    @property
    def endpoint(self) -> Endpoint:
        """Where its sockets are."""
        return self._endpoint

    def notices(self) -> list[str]:
        """Return what the first result has to say."""
        untold, self._untold = self._untold, []
        return untold

    async def listening(self) -> None:
        """Wait for the supervisor's socket.

        Raises:
            StartFailed: The sandbox has ended before.
        """
        while not self._place.listens():
            if self._process.poll() is not None:
                raise StartFailed(
                    f'The sandbox could not be made: {self._last_words()}.',
                    hint='`sandbox doctor` says what is missing.',
                )
            await asyncio.sleep(_POLL)
        self._identify(_PATIENCE)

    async def unseal(self) -> None:
        """Let a kernel bind its sockets.

        Raises:
            StartFailed: The folder could not be opened.
        """
        self._place.unseal()
        await self._remount('rw')

    async def seal(self) -> None:
        """Take away the sandbox's access to the folder of sockets.

        Raises:
            StartFailed: The folder holds something that does not belong there.
        """
        await self._remount('ro')
        self._place.seal()
        self._ran_code = True

    async def _remount(self, how: str) -> None:
        # Root's folder is not the sandbox's to open again. To the sandbox of an ordinary user it
        # is its own, so there the mount itself is closed, from outside.
        if os.geteuid() == 0:
            return
        script = (sys.executable, '-I', '-S', remount.__file__)
        try:
            process = await asyncio.create_subprocess_exec(
                *(*script, str(self._first), SOCKETS, how),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=_ENVIRONMENT,
            )
        except OSError as error:
            raise StartFailed(f'The folder of sockets was not closed: {error}.') from error
        try:
            _, said = await process.communicate()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            raise
        if process.returncode:
            raise StartFailed(f"The sandbox's folder of sockets was not closed: {_tail(said)}.")

    async def describe_loss(self) -> str:
        """Say in one sentence why the sandbox does not answer any more."""
        code = self._process.poll()
        if code is None:
            return f'its process {self.id} runs but does not answer'
        if self._group.oom_kills():
            return f'its process {self.id} ended after the sandbox had run out of memory'
        # Bubblewrap tells of a signal as a shell does.
        number = code - 128 if code > 128 else -code
        how = f'was killed by signal {number}' if number > 0 else f'ended with exit code {code}'
        words = '' if self._ran_code else f' ({self._last_words()})'
        return f'its process {self.id} {how}{words}'

    async def remove(self) -> None:
        """End all processes, and remove the control groups and the folder.

        Raises:
            SandboxError: Something may be left.
        """
        await asyncio.shield(in_thread(self._remove))

    def _remove(self) -> None:
        try:
            self._end()
            self._place.remove()
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxError(
                f'The sandbox process {self.id} could not be removed: {error}.',
                hint='Call close() again.',
            ) from error
        self._close()

    def _end(self) -> None:
        self._identify(0.0)
        if self._handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            # Its end is reported when nothing of its pid namespace is left.
            if not _readable(self._handle, _PATIENCE):
                raise TimeoutError('its processes did not end')
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE)
        self._process.kill()
        self._process.wait(_PATIENCE)

    def _identify(self, patience: float) -> None:
        """Learn from bubblewrap which process is the first one of the sandbox."""
        if self._first or self._info < 0 or not _readable(self._info, patience):
            return
        said = os.read(self._info, 4096)
        with contextlib.suppress(ValueError, KeyError, ProcessLookupError):
            first = int(json.loads(said)['child-pid'])
            self._handle = os.pidfd_open(first)
            self._first = first

    def _last_words(self) -> str:
        """Return what the launchers said, as long as no code can have said it."""
        assert self._process.stderr is not None
        if self._process.stderr.closed or not _readable(self._process.stderr.fileno(), 0.0):
            return 'without a word'
        return _tail(os.read(self._process.stderr.fileno(), 1 << 16)) or 'without a word'

    def _close(self) -> None:
        assert self._process.stderr is not None
        self._process.stderr.close()
        for number in (self._info, self._handle):
            if number >= 0:
                os.close(number)
        self._info = self._handle = -1


class BubblewrapBackend:
    """Starts sandboxes with bubblewrap.

    Args:
        accept_unenforced: Fields of the policy that need not hold where this machine cannot
            enforce them, of `'memory'`, `'pids'` and `'cpus'`. Without this, a policy that cannot
            be enforced is refused; with it, every new sandbox says so in its first result.

    Raises:
        ValueError: Another field was named.
    """

    name = 'bubblewrap'

    def __init__(self, *, accept_unenforced: Iterable[str] = ()) -> None:
        self._accepted = frozenset(accept_unenforced)
        if unknown := sorted(self._accepted - _RELAXABLE):
            raise ValueError(
                f'{", ".join(unknown)} cannot be relaxed; only {", ".join(sorted(_RELAXABLE))} can.'
            )
        self._checked = False

    def check(self) -> None:
        """Return when sandboxes can be made.

        Raises:
            BackendUnavailable: A program is missing, or the system does not allow it.
        """
        if self._checked:
            return
        if importlib.util.find_spec('ipykernel') is None:
            raise BackendUnavailable(
                "The back end 'bubblewrap' runs this interpreter's ipykernel, which is not "
                'installed.',
                hint="Install it with: pip install 'lagent-sandbox[local]'",
            )
        trial = Plan(SandboxPolicy(), (sys.executable, '-I', '-S', '-c', ''))
        with ExitStack() as files:
            try:
                words, inherited = command(trial, files)
                done = subprocess.run(
                    words,
                    pass_fds=inherited,
                    env=_ENVIRONMENT,
                    cwd='/',
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_TRIAL,
                    check=False,
                )
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                raise BackendUnavailable(f'bubblewrap cannot be used: {error}.') from error
        if done.returncode:
            raise BackendUnavailable(
                f'bubblewrap cannot make a sandbox here: {_tail(done.stderr)}.',
                hint='It needs version 0.8 or later, user namespaces that this user may make '
                '(sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns), '
                'and, in a container, a /proc that is not masked.',
            )
        self._checked = True

    def unenforced(self, policy: SandboxPolicy) -> dict[str, str]:
        """Return the fields that do not hold on this machine, each with the reason."""
        where = cgroups.hierarchy()
        found = {
            field: _NO_GROUP[field]
            for controller, field in cgroups.FIELDS.items()
            if controller not in where.parents
        }
        if _linux() >= (5, 14):
            found.pop('pids', None)  # the resource limit counts within the sandbox
        if policy.network != 'none':
            found['network'] = "only 'none' can be had, for another network would be the host's own"
        if policy.runtime != 'default':
            found['runtime'] = f'there is no {policy.runtime} in it'
        if policy.packages:
            found['packages'] = OWN_PACKAGES
        return found

    async def start(
        self, policy: SandboxPolicy, *, labels: Mapping[str, str]
    ) -> BubblewrapInstance:
        """Make a sandbox.

        Args:
            policy: What it may use.
            labels: Not used: processes have none.

        Raises:
            BackendUnavailable: Sandboxes cannot be made here.
            PolicyNotEnforced: This machine cannot enforce a field, and that was not accepted.
            StartFailed: This one could not be made.
        """
        del labels
        await in_thread(self.check)
        gaps = self.unenforced(policy)
        refused = {field: reason for field, reason in gaps.items() if field not in self._accepted}
        if refused:
            raise _refusal(refused)
        untold = [f'{field} is not enforced: {gaps[field]}' for field in sorted(gaps)]
        instance = _launch(policy, gaps, untold)
        try:
            await instance.listening()
        except BaseException:
            await instance.remove()
            raise
        return instance


def _launch(
    policy: SandboxPolicy, gaps: Mapping[str, str], untold: list[str]
) -> BubblewrapInstance:
    # On this thread and not on another one: the sandbox dies with the thread that has started it.
    place, endpoint = Rendezvous.create(SOCKETS)
    with ExitStack() as undo, ExitStack() as files:
        undo.callback(place.remove)
        try:
            where = cgroups.hierarchy()
            name = f'lagent-{place.root.name}'
            place.keep_groups(cgroups.plan(where, name))
            group = cgroups.create(where, name, policy, spare_pids=_LAUNCHERS)
            info, told = os.pipe()
            undo.callback(os.close, info)
            files.callback(os.close, told)
            plan = Plan(
                policy,
                supervisor(policy),
                (Mount(str(place.sockets), SOCKETS, writable=True), *_counter(group)),
                group.folders,
                policy.memory if 'memory' in gaps else None,
            )
            words, inherited = command(plan, files, told)
            process = subprocess.Popen(
                words,
                pass_fds=inherited,
                env=_ENVIRONMENT,
                cwd='/',
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise StartFailed(f'The sandbox could not be made: {error}.') from error
        undo.pop_all()
    return BubblewrapInstance(process, info, place, endpoint, group, untold)


def _counter(group: cgroups.Group) -> list[Mount]:
    return [Mount(str(group.oom_counter[0]), group.oom_counter[1])] if group.oom_counter else []


_NO_GROUP = {
    'memory': 'no control group of memory can be made by this user, so the limit holds for each '
    'process and not for all together',
    'pids': 'no control group of processes can be made by this user, and this kernel counts a '
    "user's processes over all sandboxes",
    'cpus': 'no control group of processor time can be made by this user',
}


def _refusal(gaps: Mapping[str, str]) -> PolicyNotEnforced:
    fields = ', '.join(sorted(gaps))
    hint = "Use backend='docker'."
    if gaps.keys() <= _RELAXABLE:
        hint = (
            'Run as root, or with delegated control groups (systemd-run --user --scope), or accept '
            f'it with BubblewrapBackend(accept_unenforced={sorted(gaps)}).'
        )
    return PolicyNotEnforced(
        f"The back end 'bubblewrap' cannot enforce {fields} here, and nothing was started: "
        f'{"; ".join(gaps[field] for field in sorted(gaps))}.',
        hint=hint,
    )


def _readable(descriptor: int, seconds: float) -> bool:
    poll = select.poll()  # `select.select` takes none above 1,023
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _linux() -> tuple[int, ...]:
    return tuple(int(part) for part in platform.release().split('-')[0].split('.')[:2])


def _tail(said: bytes) -> str:
    text = ' '.join(said.decode('utf-8', 'replace').split())
    return ''.join(character for character in text if character.isprintable())[-_LAST_WORDS:]
