"""Where InternLM's code tools run their code: one sandbox a session, driven on the portal."""

import asyncio
import atexit
import concurrent.futures.thread
import dataclasses
import functools
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Hashable
from pathlib import Path
from typing import Any, ParamSpec, TypedDict, TypeVar

from lagent.actions.interpreter import AsyncInterpreter, CellResult, SandboxError, carried
from lagent.actions.sandbox_sessions import Readiness
from lagent.actions.sandboxes import AsyncSandboxes
from lagent.flow import Flow, arun, call
from lagent.portal import PortalError, get_portal

P = ParamSpec('P')
T = TypeVar('T')

BACKEND_VARIABLE = 'LAGENT_SANDBOX_BACKEND'
UNSAFE_VARIABLE = 'LAGENT_SANDBOX_UNSAFE'

_EXIT_PATIENCE = 20.0  # seconds that the process waits at its end for sandboxes to be removed


class SandboxOptions(TypedDict, total=False):
    """What the code tools let one say about their sandboxes, beside InternLM's arguments.

    Attributes:
        backend: what isolates them: ``'docker'``, another back end's name, or a back end. By
            default what the environment variable ``LAGENT_SANDBOX_BACKEND`` names, else Docker.
        policy: a `SandboxPolicy`: what each may use and do.
        image: the Docker image; the project's own by default.
        unsafe: allows a back end that doesn't isolate. Where the environment names the back end,
            ``LAGENT_SANDBOX_UNSAFE=1`` does the same.
    """

    backend: Any
    policy: Any
    image: str | None
    unsafe: bool


async def on_portal(
    async_fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Await a coroutine that runs on the portal's loop, from any loop.

    Args:
        async_fn: the coroutine function; it runs in a copy of the caller's context, and is
            cancelled with the caller.
        args: its positional arguments.
        kwargs: its keyword arguments.

    Returns:
        What it returns.
    """
    try:
        loop = get_portal().call(_running_loop)
    except PortalError:  # this is the portal's loop
        return await async_fn(*args, **kwargs)
    future = asyncio.run_coroutine_threadsafe(async_fn(*args, **kwargs), loop)
    return await asyncio.wrap_future(future)


class Cells(AsyncInterpreter):
    """The sandboxes of a code tool.

    Its coroutines run on the portal's loop, so that a tool outlives the event loops that use it.
    Sandboxes are removed by `close`, and at the end of the process.

    Args:
        options: back end, policy, image and consent.
        timeout: wall clock of a cell that is given none, in seconds.
        setup: code that each new kernel runs first.
        folder: folder of the host that the code works with: a process without isolation works in
            it, a sandbox in a copy of its files, which in a container has the same path unless
            that belongs to the container's system.
        max_sessions: how many sandboxes may exist at once.
    """

    def __init__(
        self,
        options: SandboxOptions,
        timeout: float,
        setup: str = '',
        folder: Path | None = None,
        max_sessions: int = 32,
    ) -> None:
        shared = {'timeout': timeout, 'max_sessions': max_sessions, **_resolved(options)}
        try:
            super().__init__(workspace=None if folder is None else str(folder), **shared)
        except SandboxError:
            # The path belongs to the container's system: the copy lies where others have theirs.
            super().__init__(**shared)
        self.setup = setup
        self.folder = folder
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        _live.add(self)
        _close_at_exit()

    async def start(self, session: Hashable | None = None) -> CellResult | None:
        """Make the sandbox of a session ready.

        Args:
            session: the session; inside a run its session, else 0.

        Returns:
            What setting up its kernel gave; None if there was nothing to do.

        Raises:
            SandboxError: there is no sandbox.
        """
        _, prepared = await self._entered(session)
        return prepared

    async def execute(  # type: ignore[override]
        self,
        code: str,
        session: Hashable | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the cell's wall clock
    ) -> CellResult:
        """Run a cell. Code that fails raises nothing.

        Args:
            code: the code.
            session: the session; inside a run its session, else 0.
            timeout: wall clock in seconds; the constructor's by default.

        Returns:
            What came out; what setting up a new kernel gave, when that failed.

        Raises:
            SandboxError: there is no sandbox.
        """
        box, prepared = await self._entered(session)
        if prepared is not None and not prepared.ok:
            return prepared
        result = await arun(self._execute(box, code, timeout or self.timeout))
        if prepared is None:
            return result
        # A notice is told with the first cell of a new kernel, and that was ours.
        return dataclasses.replace(result, notices=(*prepared.notices, *result.notices))

    def sessions(self) -> set[Hashable]:
        """The sessions that have sandboxes.

        Returns:
            Their ids.
        """
        return {session for _, session in self._preparations.open_boxes()}

    async def restart_all(self) -> None:
        """Forget the variables of all sessions and keep their files."""
        await asyncio.gather(*map(self.restart, self.sessions()))

    async def close_all(self) -> None:
        """Remove all sandboxes; sessions get new ones when they run code again."""
        await asyncio.gather(*map(self.close_session, self.sessions()))

    def abandon(self) -> 'concurrent.futures.Future[None] | None':
        """Have the sandboxes removed, without waiting for it; from any thread.

        Returns:
            What will tell the end of it; None when there is nothing to remove.
        """
        # A forked child owns neither the loop nor the sandboxes.
        if self._loop is None or self._closed or os.getpid() != self._pid:
            return None
        future = asyncio.run_coroutine_threadsafe(self.close(), self._loop)
        _pending.add(future)
        future.add_done_callback(_pending.discard)
        return future

    async def _entered(self, session: Hashable | None) -> tuple[Any, CellResult | None]:
        self._loop = asyncio.get_running_loop()
        return await arun(self._prepared_box(session))

    # What a tool does is recorded with its call, and what it does outside of one is not.
    _restart = AsyncSandboxes._restart
    _close_session = AsyncSandboxes._close_session

    def _is_unprepared(self, box: Any, ready: Readiness) -> bool:
        return not ready.set_up

    def _prepare(self, box: Any, ready: Readiness) -> Flow[CellResult | None]:
        setup = self.setup
        if self.folder is not None and box.backend == 'local':
            setup += f'\n__import__("os").chdir({os.fspath(self.folder)!r})'
        elif self.folder is not None and not ready.supplied:
            yield from call(self._supply, box, self.folder)
            ready.supplied = True
        result = carried((yield from call(box.execute, setup))) if setup else None
        ready.set_up = result is None or result.ok
        return result

    async def _supply(self, box: Any, folder: Path) -> None:
        files = await asyncio.to_thread(_files_below, folder)
        if len(files) > box.policy.max_files:
            raise ValueError(
                f'{folder} holds {len(files):,} files and the policy allows '
                f'{box.policy.max_files:,}. Give a smaller folder, or raise max_files.'
            )
        for path in files:
            await box.upload(path, name=path.relative_to(folder).as_posix())


def _resolved(options: SandboxOptions) -> dict[str, Any]:
    resolved: dict[str, Any] = dict(options)
    if resolved.get('backend') is None:
        resolved['backend'] = os.environ.get(BACKEND_VARIABLE) or 'docker'
        resolved['unsafe'] = options.get('unsafe') or os.environ.get(UNSAFE_VARIABLE) == '1'
    return resolved


async def _running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def _files_below(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise NotADirectoryError(f'{folder} is no folder')
    # What a link points to may be anything, and is not the user's data.
    return sorted(p for p in folder.rglob('*') if p.is_file() and not p.is_symlink())


_live: weakref.WeakSet[Cells] = weakref.WeakSet()
_pending: set['concurrent.futures.Future[None]'] = set()


@functools.cache
def _close_at_exit() -> None:
    # `atexit` would be too late: by then no thread can be started, and removing a container takes
    # one. This is what the thread pools themselves use; the last to register is the first called.
    register = getattr(threading, '_register_atexit', atexit.register)
    register(_close_the_rest)


def _close_the_rest() -> None:
    for cells in list(_live):
        cells.abandon()
    concurrent.futures.wait(list(_pending), timeout=_EXIT_PATIENCE)
