"""One running sandbox with the kernel in it: cells with a wall clock, restarts, files.

A session owns at most one machine at a time. It decides what happens when a machine is lost.
"""

import asyncio
import contextlib
import functools
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Self

from sandbox.backends.base import Assignable, Backend, Instance, Process, Reporter
from sandbox.backends.detach import DetachRecord, Ledger, StartedCell, SupportsDetach
from sandbox.errors import SandboxError, SandboxLost, StartFailed
from sandbox.kernel import reattach, verdict
from sandbox.kernel.client import KernelClient
from sandbox.kernel.collector import Collector
from sandbox.kernel.contract import Files, Listener, Machine
from sandbox.kernel.reattach import Reattached, Recalled
from sandbox.kernel.spill import Spill
from sandbox.kernel.supervisor import Supervisor
from sandbox.kernel.verdict import Ending
from sandbox.kernel.watch import Watch, cancel
from sandbox.policy import SandboxPolicy
from sandbox.types import ExecutionResult, Outcome

_PULSE = 5.0  # seconds between looks at whether the sandbox is alive at all
_DRAIN = 0.5  # seconds for the last output of a kernel that has ended
_DESCRIBE = 10.0
_MORE_TIME = 'Try again, or allow more with SandboxPolicy(start_timeout=...).'


async def open_machine(
    backend: Backend, policy: SandboxPolicy, labels: Mapping[str, str]
) -> Machine:
    """Start a sandbox and wait for its kernel.

    Raises:
        BackendUnavailable, ImageMissing, StartFailed: It could not be started; nothing is left.
    """
    try:
        async with asyncio.timeout(policy.start_timeout):
            instance = await backend.start(policy, labels=labels)
    except TimeoutError:
        raise _too_slow(policy) from None
    if isinstance(instance, Machine):
        return instance  # one that needs no process
    return await KernelMachine.open(instance, policy)


class KernelMachine:
    """An instance of a back end, its supervisor and its kernel. Make it with `open`."""

    def __init__(self, instance: Instance, policy: SandboxPolicy, supervisor: Supervisor) -> None:
        self.loss: str | None = None
        self.unchanged = False
        self._instance = instance
        self._reporter = instance if isinstance(instance, Reporter) else None
        self._policy = policy
        self._supervisor = supervisor
        self._client: KernelClient | None = None
        self._ending: Ending | None = None  # of the cell that runs
        self._preload_told = False
        self.ledger: Ledger | None = None  # of one that survives its owner
        self.reattached: Reattached | None = None

    @classmethod
    async def open(cls, instance: Instance, policy: SandboxPolicy) -> Self:
        """Connect to a new instance; it is removed again where that fails."""
        supervisor = None
        try:
            async with asyncio.timeout(policy.start_timeout):
                supervisor = await Supervisor.connect(instance.endpoint.control)
                machine = cls(instance, policy, supervisor)
                await machine._await_kernel()
        except BaseException as error:
            cause = await _describe(instance) if isinstance(error, TimeoutError) else ''
            if supervisor is not None:
                await supervisor.close()
            await instance.remove()
            if isinstance(error, TimeoutError):
                raise _too_slow(policy, cause) from None
            raise
        return machine

    @classmethod
    async def reattach(
        cls, instance: Instance, policy: SandboxPolicy, record: DetachRecord
    ) -> Self:
        """Take over an instance whose owner has died; it is removed where that fails.

        A cell that still runs has the rest of its time, then it is ended.
        """
        supervisor = None
        try:
            supervisor = await reattach.own(instance.endpoint.control)
            machine = cls(instance, policy, supervisor)
            machine.detach(record)
            await machine._take_stock()
        except BaseException:
            if supervisor is not None:
                await supervisor.close()
            await instance.remove()
            raise
        return machine

    def detach(self, record: DetachRecord) -> None:
        """Let it outlive this process, from now on.

        Raises:
            OSError: That could not be written down.
        """
        assert isinstance(self._instance, SupportsDetach)
        self.ledger = self._instance.detach(record)

    async def _take_stock(self) -> None:
        assert self.ledger is not None
        cells = self.ledger.read()
        grace = self._policy.interrupt_grace
        ending = await reattach.await_idle(self._await_kernel, self._supervisor, cells, grace)
        client = self._client
        kept = await reattach.recalled(client.recall) if client is not None else None
        began = reattach.began(cells, kept, ending)
        last: Recalled = None if began is None else 'not_begun'
        if began:
            result = self._result(reattach.collected(kept, self._policy, ending), ending)
            last = replace(result, notices=(reattach.READ_AGAIN, *result.notices))
        self.reattached = Reattached(cells, last)

    @property
    def id(self) -> str:
        """Container or process id."""
        return self._instance.id

    @property
    def pid(self) -> int | None:
        """Process id, where it is a process of the host."""
        return self._instance.pid if isinstance(self._instance, Process) else None

    @property
    def files(self) -> Files:
        """Its files."""
        return self._supervisor.workspace

    @property
    def has_kernel(self) -> bool:
        """Whether a kernel is there that waits for a cell."""
        if self._client is None or self._ending is not None:
            return False
        return not any(end.done() for end in (*self._client.closed, self._supervisor.ended))

    def assign(self, session: str, policy: SandboxPolicy) -> None:
        """Give it to a session, with a policy that differs in what the host enforces only."""
        self._policy = policy
        if isinstance(self._instance, Assignable):
            self._instance.assign(session)

    async def gone(self) -> None:
        """Wait, between cells, until it or its kernel is gone."""
        assert self._client is not None
        ends = [*self._client.closed, self._supervisor.ended]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)

    async def probe(self) -> None:
        """Find out whether it is still there: sets `loss` if it is not."""
        if self._supervisor.answers_now:
            return
        try:
            await self._supervisor.probe()
        except SandboxError:
            self.loss = self.loss or await self._describe_loss()

    async def run(
        self,
        code: str,
        limit: float,
        listener: Listener | None,
        stop: asyncio.Future[None],
        spill: Spill,
        tag: str | None = None,
    ) -> ExecutionResult:
        """Run one cell for at most `limit` seconds; `stop`, once done, ends it early."""
        assert self._client is not None
        collector = Collector(self._policy, listener, spill)
        begins = functools.partial(self._begins, tag, limit) if self.ledger else None
        cell = self._client.execute(code, collector, begins)
        ending = self._ending = Ending()  # not before: what cannot be written down does not run
        watch = Watch(cell, self._supervisor, self._client, stop)
        try:
            await self._see_through(watch, ending, limit)
        except SandboxError:
            ending.loss = self.loss or await self._describe_loss()
        finally:
            watch.close()
        if ending.stopped and ending.loss is None:
            ending.loss = self.loss  # it was stopped because all of it is being closed
        ending.reply, ending.output_ended = cell.reply, cell.idle
        self.unchanged = (cell.reply or {}).get('workspace_unchanged') is True
        if cell.reply is not None:
            self._supervisor.seen_alive()
        if ending.state_preserved:
            self._ending = None  # otherwise the kernel stays unfit until it is replaced
        elif ending.loss is not None:
            self.loss = ending.loss
        return self._result(collector, ending)

    def _begins(self, tag: str | None, limit: float, request: str) -> None:
        assert self.ledger is not None
        self.ledger.begin(StartedCell(tag, request, limit, time.monotonic() + limit))

    async def _see_through(self, watch: Watch, ending: Ending, limit: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit
        while not await watch.wait(min(deadline - loop.time(), _PULSE), stoppable=True):
            if loop.time() >= deadline:
                ending.timed_out = limit
                break
            await self._supervisor.probe()
        if watch.stopped and not watch.cell_ended:
            ending.stopped = True
        if ending.stopped or ending.timed_out is not None:
            ending.steps.append('interrupt')
            await self._supervisor.signal(signal.SIGINT)
            await watch.wait(self._policy.interrupt_grace)
        if watch.cell_ended and self._supervisor.exit is None:
            return
        if watch.broken:
            ending.disconnected = await self._supervisor.exit_soon() is None
        if self._supervisor.lost:
            raise SandboxLost('the sandbox is gone.')
        if self._supervisor.exit is not None:
            await self._supervisor.probe()  # its kernel may be but the first part to go
        ending.exit = self._supervisor.exit
        if ending.exit is None:
            ending.steps.append('kill')
            await self._supervisor.kill()
        await self._drain()

    async def _drain(self) -> None:
        assert self._client is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN):
                await self._client.drained()

    async def interrupt(self) -> None:
        """Interrupt the cell that runs, if one does."""
        if self._ending is not None:
            self._ending.interrupted = True
            await self._supervisor.signal(signal.SIGINT)

    async def restart(self) -> None:
        """Replace the kernel by a new one; files stay.

        Raises:
            StartFailed: The new kernel did not become ready; `loss` says if the sandbox is
                unfit for another one, too.
            SandboxLost: The sandbox is gone.
        """
        if self.ledger is not None:
            self.ledger.new_kernel()  # where that cannot be written, the old one stays
        if self._client is not None:
            await self._client.close()
            self._client = None
        try:
            async with asyncio.timeout(self._policy.start_timeout):
                # First nobody is left who could write into the folder of sockets.
                await self._supervisor.kill()
                await self._instance.unseal()
                await self._supervisor.start()
                await self._await_kernel()
        except TimeoutError:
            raise StartFailed(
                f'the new kernel was not ready within {self._policy.start_timeout:g} s; the '
                'sandbox and its files are kept.',
                hint=_MORE_TIME,
            ) from None
        except SandboxLost:
            self.loss = await self._describe_loss()
            raise
        self._ending = None

    async def warm(self) -> None:
        """Replace a kernel that has run nothing by one with the policy's `preload` loaded.

        A pool does so before it hands a sandbox out. Where nothing is preloaded, or that takes
        longer than a start may, the kernel stays.

        Raises:
            StartFailed: The new kernel did not become ready.
            SandboxLost: The sandbox is gone.
        """
        if not self._policy.preload:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._policy.start_timeout):
                await self._supervisor.has_preloaded()
        if self._supervisor.preloaded is not None:
            await self.restart()

    async def _await_kernel(self) -> None:
        client = KernelClient(self._instance.endpoint.connection, self._policy.max_message_bytes)
        connecting = asyncio.create_task(client.connect())
        gone = asyncio.create_task(self._supervisor.gone())
        try:
            await asyncio.wait({connecting, gone}, return_when=asyncio.FIRST_COMPLETED)
            self._check_born()
            await connecting
            await self._seal()
        except BaseException:
            await client.close()
            raise
        finally:
            await cancel(connecting, gone)
        self._client = client
        if self._policy.preload and '' not in (self._supervisor.preloaded or ()):
            await self._supervisor.preload(self._policy.preload)

    async def _seal(self) -> None:
        try:
            await self._instance.seal()
        except SandboxError as error:
            self.loss = error.message.rstrip('.')  # it may not be used, now or later
            raise

    def _check_born(self) -> None:
        if self._supervisor.lost:
            raise SandboxLost('the sandbox went away while its kernel started.')
        if (end := self._supervisor.exit) is not None:
            how = f'signal {end.signal}' if end.signal else f'exit code {end.code}'
            raise StartFailed(f'the kernel ended while it started ({how}): {end.log.strip()}')

    async def close(self) -> None:
        """Remove the sandbox. May be repeated; raises if it may still be there."""
        self.loss = self.loss or 'its session was closed'
        try:
            await self._instance.remove()
        finally:
            # Without an owner, one that could not be removed ends itself after a while.
            await self._supervisor.close()
            if self._client is not None:
                await self._client.close()

    async def _describe_loss(self) -> str:
        return await _describe(self._instance)

    def _reported(self) -> list[str]:
        notices = self._reporter.notices() if self._reporter is not None else []
        if (failed := self._supervisor.preloaded) and not self._preload_told:
            self._preload_told = True
            notices += [verdict.not_preloaded(name, why) for name, why in failed.items()]
        return notices

    def _result(self, collector: Collector, ending: Ending) -> ExecutionResult:
        if ending.reply is not None:
            collector.reply(ending.reply)
        outcome = verdict.outcome(ending)
        return ExecutionResult(
            outcome=outcome,
            outputs=collector.outputs(),
            error=None if outcome is Outcome.OK else collector.error,
            state_preserved=ending.state_preserved,
            notices=(*verdict.notices(ending, self._policy), *self._reported()),
            execution_count=collector.execution_count,
            truncated=collector.truncated(),
            exit_code=ending.exit.code if ending.exit else None,
            signal=ending.exit.signal if ending.exit else None,
            steps=tuple(ending.steps),
            text_limit=self._policy.model_text_chars,
        )


async def _describe(instance: Instance) -> str:
    try:
        async with asyncio.timeout(_DESCRIBE):
            return await instance.describe_loss()
    except (TimeoutError, OSError, SandboxError):
        return 'it does not answer'


def _too_slow(policy: SandboxPolicy, cause: str = '') -> StartFailed:
    because = f' ({cause})' if cause else ''
    return StartFailed(
        f'the sandbox was not ready within {policy.start_timeout:g} s{because}; nothing is left of '
        'it.',
        hint=_MORE_TIME,
    )
