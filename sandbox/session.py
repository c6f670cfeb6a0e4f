"""`Sandbox` and `AsyncSandbox`: the two faces of a session, written once."""

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from sandbox import files as transfer
from sandbox.core import Session, check_process
from sandbox.events import EventQueue
from sandbox.kernel.reattach import Recalled
from sandbox.portal import blocking, blocking_iterator
from sandbox.types import ExecutionEvent, ExecutionResult, FileInfo

__all__ = ['AsyncSandbox', 'Sandbox']


class AsyncSandbox(Session):
    """A sandboxed Python session for asyncio; its arguments are those of `Sandbox`.

    Several tasks may use one session: its cells run one after the other, in the order asked.

    Example:
        >>> async with AsyncSandbox() as box:
        ...     result = await box.execute('6 * 7')
        ...     print(result.result)
    """

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Start the sandbox now; otherwise the first call that needs it does.

        Raises:
            BackendUnavailable: There is no engine, or no consent to use this back end.
            ImageMissing: The kernel image has not been built.
            StartFailed: It did not become ready in time.
            SandboxClosed: The session was closed.
        """
        await self._any_machine()

    async def execute(  # a wall clock in the contract: more than a wait that is broken off
        self,
        code: str,
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        tag: str | None = None,
    ) -> ExecutionResult:
        """Run a cell and return what it gave. Never raises for user code.

        Cancelling the call interrupts the cell, and kills its kernel if that does not end it; the
        session stays usable.

        Args:
            code: Python, or IPython's dialect of it. Variables of earlier cells are there.
            timeout: Wall clock in seconds; the policy's if None.
            tag: What the cell is called in `recall`.

        Raises:
            SandboxClosed: The session was closed.
            SandboxError: No sandbox or kernel could be started.
        """
        return await self._finish(self._submit(code, timeout, None, tag))

    async def stream(
        self,
        code: str,
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        tag: str | None = None,
    ) -> AsyncIterator[ExecutionEvent]:
        """Run a cell and yield its outputs as they come; the last event carries the result.

        Leaving the loop early ends the cell. A consumer that is too slow misses the oldest of the
        events that wait for it; the result is always whole.

        Args:
            code: Python, or IPython's dialect of it.
            timeout: Wall clock in seconds; the policy's if None.
            tag: What the cell is called in `recall`.

        Raises:
            SandboxClosed: The session was closed.
            SandboxError: No sandbox or kernel could be started.
        """
        events = EventQueue(2 * (self.policy.output_bytes + self.policy.output_chars))
        call = self._submit(code, timeout, events.put, tag)
        call.result.add_done_callback(lambda _: events.end())
        try:
            async for event in events:
                yield event
            yield ExecutionEvent('result', result=await self._finish(call))
        finally:
            if not call.result.done():
                await self._stop(call)

    async def recall(self, tag: str) -> Recalled:
        """Find out what a cell came to that an earlier process has run in this session.

        It is for sessions with a `survival`. If there is no sandbox yet, it is taken over, or
        started; a cell that still runs is waited for.

        Args:
            tag: What that process called the cell.

        Returns:
            The result, as far as the sandbox has kept it; `'not_begun'` if the sandbox was never
            sent the cell; None if nothing is known.

        Raises:
            SandboxClosed: The session was closed.
            SandboxError: No sandbox could be started, or a living process has the session.
        """
        return await self._recall(tag)

    async def interrupt(self) -> None:
        """Interrupt the cell that runs, like Ctrl-C; without one, do nothing.

        A cell whose sandbox is still being started does not begin.
        """
        check_process(f'the session {self.id!r}', self._process)
        await self._interrupt()

    async def restart(self) -> None:
        """Start a new kernel: variables and imports are gone, files are kept.

        A cell that runs is ended first.

        Raises:
            SandboxClosed: The session was closed.
            SandboxError: No kernel could be started.
        """
        await self._restart()

    async def upload(
        self, source: bytes | str | os.PathLike[str], name: str | None = None
    ) -> FileInfo:
        """Copy a file, or bytes, into the workspace. Folders in the name are made.

        Args:
            source: Path of a file on the host, or the bytes themselves.
            name: Path in the workspace; the file's own name if None.

        Raises:
            FileRefused: The name, the size or the kind of the file; nothing was changed.
            SandboxError: The sandbox could not be started, or is gone.
        """
        async with self._file_call() as machine:
            entry = await transfer.upload(machine.files, source, name, self.policy)
            self._artifacts.add(entry)
        return transfer.file_info(entry)

    async def download(self, name: str, to: str | os.PathLike[str]) -> Path:
        """Copy a file of the workspace into a folder of the host.

        Args:
            name: Path in the workspace.
            to: The folder, made if need be; the file keeps its own name.

        Returns:
            The path of the copy.

        Raises:
            FileRefused: The name, the size or the kind of the file.
            SandboxError: The sandbox could not be started, or is gone.
        """
        async with self._file_call() as machine:
            return await transfer.download(machine.files, name, to, self.policy)

    async def read(self, name: str, *, max_bytes: int | None = None) -> bytes:
        """Return the bytes of a file of the workspace.

        Args:
            name: Path in the workspace.
            max_bytes: Refuse a larger file, also where the policy allows it.

        Raises:
            FileRefused: The name, the size or the kind of the file.
            SandboxError: The sandbox could not be started, or is gone.
        """
        policy = self.policy
        if max_bytes is not None:
            policy = replace(policy, max_file_bytes=min(max_bytes, policy.max_file_bytes))
        async with self._file_call() as machine:
            return b''.join([c async for c in transfer.read(machine.files, name, policy)])

    async def files(self, path: str = '') -> list[FileInfo]:
        """Return the files of the workspace, or below one of its folders, sorted by path.

        Raises:
            FileRefused: There is no such folder, or it holds too many files to list.
            SandboxError: The sandbox could not be started, or is gone.
        """
        async with self._file_call() as machine:
            return await transfer.listing(machine.files, path, self.policy)

    async def delete(self, name: str) -> None:
        """Remove a file of the workspace, or a folder with all it holds.

        Raises:
            FileRefused: The name, or there is no such file.
            SandboxError: The sandbox could not be started, or is gone.
        """
        async with self._file_call() as machine:
            await transfer.delete(machine.files, name)

    async def close(self) -> None:
        """Remove the sandbox with all its state. May be repeated.

        Raises:
            SandboxError: It may still be there; call again.
        """
        await self._shut()


class Sandbox(Session):
    """A sandboxed Python session.

    Several threads may use one session: its cells run one after the other, in the order asked.
    It belongs to the process that made it: in a forked child every call raises `SandboxError`, and
    `close()` does nothing.

    Args:
        policy: What the sandbox may use and do.
        backend: `'docker'`, `'bubblewrap'`, `'auto'` (Docker, or else bubblewrap), `'local'`,
            `'fake'`, or a back end.
        image: Kernel image of the Docker back end; the one of this version if None.
        id: Name of the session, for people and logs; made up if None.
        unsafe: Consent to a back end that isolates nothing (`'local'`).
        survival: Lets the sandbox outlive this program for a while, so that a session of the same
            id has it again; see `Survival`.

    Raises:
        ValueError: There is no such back end, or an argument does not fit it.

    Example:
        >>> with Sandbox() as box:
        ...     print(box.execute('6 * 7').result)
    """

    start = blocking(AsyncSandbox.start)
    execute = blocking(AsyncSandbox.execute)
    stream = blocking_iterator(AsyncSandbox.stream)
    recall = blocking(AsyncSandbox.recall)
    interrupt = blocking(AsyncSandbox.interrupt)
    restart = blocking(AsyncSandbox.restart)
    upload = blocking(AsyncSandbox.upload)
    download = blocking(AsyncSandbox.download)
    read = blocking(AsyncSandbox.read)
    files = blocking(AsyncSandbox.files)
    delete = blocking(AsyncSandbox.delete)
    close = blocking(AsyncSandbox.close)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
