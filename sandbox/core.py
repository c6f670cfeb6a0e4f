"""The state of a session and the one way through it; `session.py` gives it its two faces.

A session owns at most one running machine. When the kernel dies it gets a new one, when the whole
machine is gone the next call starts another, and each time the next result says what was lost.
"""

import asyncio
import contextlib
import functools
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

from sandbox import files as transfer
from sandbox.admission import own_admission
from sandbox.artifacts import Artifacts
from sandbox.backends import Backend, get_backend
from sandbox.calls import Call
from sandbox.errors import PolicyError, SandboxClosed, SandboxError
from sandbox.kernel import verdict
from sandbox.kernel.contract import Listener, Machine
from sandbox.kernel.reattach import Recalled
from sandbox.kernel.spill import Spill
from sandbox.kernel.workspace import FileEntry
from sandbox.outputs import Outputs
from sandbox.policy import SandboxPolicy
from sandbox.pool import cold_start
from sandbox.reattacher import Reattacher
from sandbox.survival import Survival
from sandbox.types import ExecutionResult, FileInfo, Outcome, Timings
from sandbox.uncopied import Uncopied

_STOP_SLACK = 15.0  # seconds on top of the grace for a cell whose caller went away

Source = Callable[[SandboxPolicy, str], Awaitable[Machine]]
"""Where machines come from, for a policy and a session's name."""


class Session(Uncopied):
    """What both faces share: the state of a session and the one way through it; see `Sandbox`."""

    def __init__(
        self,
        policy: SandboxPolicy = SandboxPolicy(),  # noqa: B008 - it is a frozen value
        backend: str | Backend = 'docker',
        image: str | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the public name
        unsafe: bool = False,
        survival: Survival | None = None,
    ) -> None:
        self.policy = policy if survival is None else survival.applied(policy)
        self.id = id or f'session-{secrets.token_hex(6)}'
        self._backend = get_backend(backend, image=image, unsafe=unsafe)
        self._reattacher = None
        if survival is not None:
            self._reattacher = Reattacher(survival, self.id, self.policy, self._backend)
        self._source: Source = functools.partial(cold_start, self._backend)
        self._on_closed: Callable[[], None] = lambda: None
        self._machine: Machine | None = None
        self._lock = asyncio.Lock()
        self._calls: set[Call] = set()
        self._closing = False
        self._closed = False
        self._untold: list[str] = []  # what the next result has to say first
        self._loss_told = False  # whether the last result said that state was lost
        self._outputs = Outputs(policy)
        self._artifacts = Artifacts(policy.max_files)
        self._file_calls = 0
        self._process = os.getpid()
        self.last_used = time.monotonic()
        self.adopted = False
        """Whether its sandbox is one that an earlier process has left to it."""

    def __repr__(self) -> str:
        state = 'closed' if self._closed else self._machine.id if self._machine else 'not started'
        return f'<{type(self).__name__} {self.id!r} on {self._backend.name}: {state}>'

    @property
    def closed(self) -> bool:
        """Whether the session was closed and its sandbox removed."""
        return self._closed

    @property
    def backend(self) -> str:
        """Name of what isolates the session."""
        return self._backend.name

    @property
    def container_id(self) -> str | None:
        """Id of the container, or None while there is none."""
        return self._machine.id if self._machine and self._machine.pid is None else None

    @property
    def pid(self) -> int | None:
        """Process id on the host of a sandbox that is a plain process, or None."""
        return self._machine.pid if self._machine else None

    @property
    def busy(self) -> bool:
        """Whether a call is in progress or queued."""
        return bool(self._calls) or self._file_calls > 0 or self._lock.locked()

    def _note(self, notice: str) -> None:
        """Tell the next result something that it has to say."""
        if notice not in self._untold:
            self._untold.append(notice)

    # Machines

    def _check_open(self) -> None:
        check_process(f'the session {self.id!r}', self._process)
        if self._closing:
            raise SandboxClosed(
                f'the session {self.id!r} is closed; its variables and files are gone.',
                hint='Make a new Sandbox, or ask the manager for the session again.',
            )

    async def _running(self) -> Machine:
        """Return a machine with a kernel; the lock must be held."""
        self._check_open()
        machine = self._machine
        if machine is not None and machine.loss is None:
            await machine.probe()  # before the code is sent: it is never sent twice
        if machine is not None and machine.loss is None and not machine.has_kernel:
            await self._replace_kernel(machine)
            self._note(verdict.RAN_IN_NEW_KERNEL)
        if machine is None or machine.loss is not None:
            machine = await self._new_machine()
        return machine

    async def _replace_kernel(self, machine: Machine) -> None:
        try:
            await machine.restart()
        except SandboxError:
            if machine.loss is None:
                raise

    async def _new_machine(self) -> Machine:
        if (lost := self._machine) is not None:
            await self._drop_machine()
            self._untold = [verdict.ran_in_new_sandbox(lost.loss or 'its session was restarted')]
        self._check_open()
        self._outputs.forget()
        if self._reattacher is None:
            self._machine = await self._source(self.policy, self.id)
            self._artifacts.forget()
        else:
            self._machine = await self._reattached_or_new(self._reattacher)
        self._check_open()
        return self._machine

    async def _reattached_or_new(self, reattacher: Reattacher) -> Machine:
        """Return the machine that was left to the session, or a new one that will be."""
        try:
            machine = await reattacher.reattach(self.policy)
            self.adopted = machine is not None
            self._artifacts.forget(known=machine is None)
            self._outputs.begin_after(reattacher.cells)
            if machine is None:
                machine = await self._source(self.policy, self.id)
                await reattacher.detach(machine)
        except BaseException:
            reattacher.release()
            raise
        if reattacher.failure:
            self._note(verdict.ran_in_new_sandbox(reattacher.failure))
            reattacher.failure = ''
        return machine

    async def _recall(self, tag: str) -> Recalled:
        await self._any_machine()
        return None if self._reattacher is None else self._reattacher.recall(tag)

    async def _any_machine(self) -> Machine:
        """Return the running machine, also while a cell runs in it; start one if there is none."""
        self._check_open()
        if (machine := self._machine) is not None and machine.loss is None:
            return machine
        async with self._lock:
            return await self._running()

    @contextlib.asynccontextmanager
    async def _file_call(self) -> AsyncIterator[Machine]:
        """Give a call the machine whose files it uses; the session is busy meanwhile."""
        self._file_calls += 1
        self.last_used = time.monotonic()
        try:
            yield await self._any_machine()
        finally:
            self._file_calls -= 1
            self.last_used = time.monotonic()

    # Cells

    def _submit(
        self, code: str, timeout: float | None, listener: Listener | None, tag: str | None
    ) -> Call:
        self._check_open()
        if not isinstance(code, str):
            raise TypeError(f'code is a text, not {type(code).__name__}; nothing was run.')
        seconds = self.policy.timeout if timeout is None else float(timeout)
        if not 0 < seconds < float('inf'):
            raise PolicyError(f'timeout must be positive and finite, not {timeout!r}.')
        call = Call(code, seconds, listener, tag)
        call.task = asyncio.create_task(self._answer(call), name=f'sandbox-cell-{self.id}')
        self._calls.add(call)
        return call

    async def _finish(self, call: Call) -> ExecutionResult:
        """Wait for a cell. When the wait is broken off, end the cell first, in bounded time."""
        try:
            return await call.result
        except asyncio.CancelledError:
            await self._stop(call)
            raise

    async def _stop(self, call: Call) -> None:
        assert call.task is not None
        call.abandoned = True
        call.end()
        if not call.has_turn:
            call.task.cancel()
        await asyncio.wait({call.task}, timeout=self.policy.interrupt_grace + _STOP_SLACK)
        if call.task.done():  # perhaps before it began
            self._calls.discard(call)

    async def _answer(self, call: Call) -> None:
        try:
            call.resolve(await self._cell(call))
        except BaseException as error:  # noqa: BLE001 - whoever waits raises it
            call.fail(error)
        finally:
            self._calls.discard(call)  # before whoever waits is woken

    async def _cell(self, call: Call) -> ExecutionResult:
        async with self._lock:
            call.has_turn = True
            machine = await self._awaited_machine(call)
            if not self._artifacts.known:
                await self._artifacts.look(machine.files)
            admitted = await own_admission().admit()
            with admitted, self._outputs.begin() as spill:
                began = time.monotonic()
                result = await self._run(call, machine, spill)
                ended = time.monotonic()
                kept, words = await self._keep(machine, spill)
            told, self._untold = self._untold, []
            news = bool(told) and not self._loss_told
            if call.abandoned:
                self._untold = told
            else:
                self._loss_told = not result.state_preserved
            artifacts, incomplete = await self._made(machine, kept)
            steps, notices = await self._recover(machine, result)
            self.last_used = time.monotonic()
            return replace(
                result,
                state_preserved=result.state_preserved and not news,
                notices=(*told, *result.notices, *notices, *words),
                truncated=replace(result.truncated, files=int(incomplete)),
                artifacts=artifacts,
                full_output=tuple(map(transfer.file_info, kept)),
                steps=(*result.steps, *steps),
                timings=Timings(
                    queued=began - call.asked,
                    running=ended - began,
                    total=self.last_used - call.asked,
                ),
            )

    async def _run(self, call: Call, machine: Machine, spill: Spill) -> ExecutionResult:
        if call.stop.done():  # meanwhile: its kernel would not know what to interrupt
            return ExecutionResult(
                Outcome.INTERRUPTED,
                notices=(verdict.NEVER_BEGAN,),
                text_limit=self.policy.model_text_chars,
            )
        call.started = True
        return await machine.run(call.code, call.timeout, call.listener, call.stop, spill, call.tag)

    async def _interrupt(self) -> None:
        """Interrupt the cell that runs, or that only waits for a machine."""
        for call in self._calls:
            if call.has_turn and not call.started:
                call.end()
        if self._machine is not None:
            await self._machine.interrupt()

    async def _awaited_machine(self, call: Call) -> Machine:
        """Return a machine with a kernel, for as long as somebody waits for it."""
        if not call.abandoned:
            machine = await self._running()
            if not call.abandoned:
                return machine
        raise asyncio.CancelledError

    async def _recover(
        self, machine: Machine, result: ExecutionResult
    ) -> tuple[list[str], list[str]]:
        """Replace a kernel that is gone; return the steps taken and what there is to say."""
        if result.state_preserved or machine.loss is not None or self._closing:
            return [], []
        try:
            await machine.restart()
        except SandboxError as error:
            if machine.loss is not None:
                return [], [verdict.sandbox_gone(machine.loss)]
            self._note(verdict.RAN_IN_NEW_KERNEL)
            return [], [f'no new kernel could be started yet: {error.message}']
        self._note(verdict.RAN_IN_NEW_KERNEL)
        return ['restart'], [verdict.KERNEL_RESTARTED]

    async def _keep(self, machine: Machine, spill: Spill) -> tuple[list[FileEntry], list[str]]:
        """Keep text that the result has no room for; return its files and what there is to say."""
        if machine.loss is not None or self._closing:
            return [], []
        return await self._outputs.keep(machine.files, spill)

    async def _made(
        self, machine: Machine, kept: list[FileEntry]
    ) -> tuple[tuple[FileInfo, ...], bool]:
        """Return the files that the cell has made, and whether some may be missed."""
        if machine.loss is not None:
            return (), False
        if machine.unchanged and self._artifacts.known:
            for entry in kept:
                self._artifacts.add(entry)
            return (), self._artifacts.incomplete
        changes = await self._artifacts.changes(machine.files, kept)
        return changes, self._artifacts.incomplete

    async def _restart(self) -> None:
        for call in list(self._calls):
            if call.has_turn:
                call.end()
        async with self._lock:
            self._check_open()
            machine = self._machine
            if machine is None or machine.loss is not None:
                await self._new_machine()
            else:
                await self._replace_kernel(machine)
                if machine.loss is not None:
                    await self._new_machine()
            # A new kernel is what was asked for; lost files are news.
            self._untold = [told for told in self._untold if told != verdict.RAN_IN_NEW_KERNEL]

    async def _shut(self) -> None:
        """Remove the machine and end all calls; what fails may be repeated."""
        if os.getpid() != self._process:
            return  # the sandbox is that of the process that forked this one
        self._closing = True
        for call in list(self._calls):
            call.end()
        await self._drop_machine()
        async with self._lock:
            await self._drop_machine()  # one that was just being started
            self._closed = True
        if self._reattacher is not None:
            self._reattacher.release()
        self._on_closed()

    async def _drop_machine(self) -> None:
        # The handle is kept until the removal has succeeded.
        if (machine := self._machine) is not None:
            await machine.close()
            if self._machine is machine:  # there may be another one by now
                self._machine = None


def check_process(what: str, process: int) -> None:
    """Refuse to use in a forked process what another process owns.

    Raises:
        SandboxError: This is not the process of that id.
    """
    if os.getpid() != process:
        raise SandboxError(
            f'{what} belongs to process {process}, which forked this one, and can only be used '
            'there; nothing was changed.',
            hint='Make a Sandbox of its own in each process, after the fork.',
        )
