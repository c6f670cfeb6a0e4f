"""The sandboxes that code runs in, one a session: made on demand, given files, removed."""

import asyncio
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn, TypeVar

import sandbox
from lagent.actions.closing import AsyncClosing, Closing
from lagent.actions.sandbox_sessions import Preparations, Readiness, names_of
from lagent.context import resolve_session
from lagent.effects import Effect, beside, is_offline
from lagent.errors import ConfigError
from lagent.flow import Flow, arun, call, run
from lagent.journal.errors import NotCaptured
from sandbox import FileInfo, SandboxPolicy

T = TypeVar('T')
Variant = Literal['minimal', 'analysis']

Source = str | PathLike[str]
Sources = Source | Iterable[Source] | Mapping[str, Source | bytes]


def policy_for_data(variant: Variant | None = None) -> SandboxPolicy:
    """The policy of an analyst's sandboxes.

    Args:
        variant: the kernel image; by default the one with the most libraries of those that are
            built on this machine.

    Returns:
        The default policy, with that image.
    """
    return SandboxPolicy(variant=variant or sandbox.best_variant())


class Sandboxes(Closing):
    """One sandbox a session, and the files in it; see `Interpreter` for the arguments.

    Closed, it removes its sandboxes and can't be used any more. One that could not be removed is a
    `SandboxError`; closing again tries it again.
    """

    name: str
    _manager_class: ClassVar[str] = 'SandboxManager'
    _wait: ClassVar[Callable[..., Any]] = staticmethod(Future.result)

    def __init__(
        self,
        policy: SandboxPolicy | None = None,
        backend: Any = None,
        manager: Any = None,
        files: Source | Iterable[Source] = (),
        *,
        image: str | None = None,
        workspace: str | None = None,
        max_sessions: int | None = None,
        warm: int = 0,
        tighten: Callable[[Hashable], Mapping[str, Any]] | None = None,
        unsafe: bool = False,
        survival: sandbox.Survival | None = None,
    ) -> None:
        options = {
            'policy': policy,
            'backend': backend,
            'image': image,
            'max_sessions': max_sessions,
            'warm': warm or None,
            'unsafe': unsafe or None,
            'survival': survival,
            'workspace': workspace,
        }
        self._options = {name: value for name, value in options.items() if value is not None}
        if manager is not None and (own := [*self._options]):
            raise ValueError(
                f'the sandboxes of a manager have their own {", ".join(own)}: give it them'
            )
        self.policy: SandboxPolicy = policy or SandboxPolicy()
        if manager is not None:
            self.policy = manager.policy
        self.tighten = tighten
        self.initial_files = _paths(files)
        self._options.pop('workspace', None)
        if workspace is not None and backend in (None, 'docker'):
            self._options['backend'] = sandbox.DockerBackend(image=image, workspace=workspace)
            self._options.pop('image', None)  # that back end has it
        of_manager = survival if manager is None else getattr(manager, 'survival', None)
        self._survives = of_manager is not None
        self._manager = manager
        self._owns_manager = manager is None
        self._closed = False
        self._lock = threading.Lock()
        self._preparations = Preparations()

    def __reduce__(self) -> NoReturn:
        raise ConfigError(
            f'{type(self).__name__} has sandboxes, which can be neither copied nor pickled with '
            'what is in them. Build a second agent, with one of its own, where it is used; what '
            'the first remembers goes there with state_dict and load_state_dict.'
        )

    @property
    def image(self) -> tuple[Variant, tuple[str, ...]] | None:
        """The variant of the kernel image and the packages that were added to it.

        None where code finds other libraries: with a manager, an image or a back end of one's own.
        """
        backend = self._options.get('backend', 'docker')
        if not self._owns_manager or 'image' in self._options or backend != 'docker':
            return None
        return self.policy.variant, self.policy.packages

    def upload(self, paths: Sources, session_id: Hashable | None = None) -> list[FileInfo]:
        """Copy files into a session's sandbox.

        Args:
            paths: a file of the host, or several; or a dict of names in the sandbox and what is to
                lie there, paths or bytes.
            session_id: the session; inside an agent's call its session, else 0.

        Returns:
            The files in the sandbox.
        """
        return run(self._upload(paths, session_id))

    def files(self, session_id: Hashable | None = None) -> list[FileInfo]:
        """List the files of a session.

        Args:
            session_id: the session; inside an agent's call its session, else 0.

        Returns:
            The files in its sandbox.
        """
        return run(self._files(session_id))

    def download(self, name: str, to: Source, session_id: Hashable | None = None) -> Path:
        """Copy a file out of a session's sandbox.

        Args:
            name: the file's path in the sandbox.
            to: folder of the host to put it into.
            session_id: the session; inside an agent's call its session, else 0.

        Returns:
            The path of the copy.
        """
        path: Path = run(self._from_file('download', name, session_id, to=to))
        return path

    def read(self, name: str, session_id: Hashable | None = None) -> bytes:
        """The content of a file of a session.

        Args:
            name: the file's path in the sandbox.
            session_id: the session; inside an agent's call its session, else 0.

        Returns:
            Its bytes.
        """
        content: bytes = run(self._from_file('read', name, session_id))
        return content

    def restart(self, session_id: Hashable | None = None) -> None:
        """Forget the variables and imports of a session, if it has a sandbox; files are kept.

        A recorded run does it once, and variables from before do not come back when it is resumed.

        Args:
            session_id: the session; inside an agent's call its session, else 0.
        """
        run(self._restart(session_id))

    def interrupt(self, session_id: Hashable | None = None) -> None:
        """Interrupt the cell that a session is running, if there is one.

        Args:
            session_id: the session; inside an agent's call its session, else 0.
        """
        run(self._interrupt(session_id))

    def close_session(self, session_id: Hashable | None = None) -> None:
        """Remove a session's sandbox with its variables and files, if there is one.

        A recorded run does it once, and what was before does not come back when it is resumed.

        Args:
            session_id: the session; inside an agent's call its session, else 0.
        """
        run(self._close_session(session_id))

    def __repr__(self) -> str:
        where = f'backend={self._options.get("backend", "docker")!r}'
        if not self._owns_manager:
            where = f'manager={self._manager!r}'
        network = self.policy.network
        return f'{type(self).__name__}(name={self.name!r}, {where}, network={network!r})'

    def _sandboxes(self) -> Any:
        with self._lock:
            if self._closed:
                raise sandbox.SandboxClosed('The interpreter is closed.', hint='Make a new one.')
            if self._manager is None:
                self._manager = getattr(sandbox, self._manager_class)(**self._options)
            return self._manager

    def _box(self, session: Hashable | None) -> Flow[Any]:
        return (yield from self._prepared_box(session))[0]

    def _prepared_box(self, session: Hashable | None) -> Flow[tuple[Any, Any]]:
        """The flow of a session's sandbox, and of what preparing it gave if that was needed."""
        session = resolve_session(session)
        box = yield from self._sandbox(self._sandboxes(), session)
        once = self._preparations.once
        return box, (yield from once(box, session, self._is_unprepared, self._prepare, self._wait))

    def _sandbox(self, manager: Any, session: Hashable) -> Flow[Any]:
        changes = self.tighten(session) if self.tighten else {}
        stricter = {'policy': manager.policy.tighten(**changes)} if changes else {}
        return (yield from call(manager.session, self._name(session), **stricter))

    def _name(self, session: Hashable | None) -> str:
        return names_of(self._manager).of(resolve_session(session))

    def _is_unprepared(self, box: Any, ready: Readiness) -> bool:
        is_supplied = ready.supplied and ready.container == box.container_id
        return bool(self.initial_files) and not is_supplied

    def _prepare(self, box: Any, ready: Readiness) -> Flow[Any]:
        there: set[str] = set()
        if getattr(box, 'adopted', False):  # what code has done to them since is to stay
            there = {file.path for file in (yield from call(box.files))}
        for path in self.initial_files:
            if path.name not in there:
                yield from call(box.upload, path)
        ready.supplied, ready.container = True, box.container_id

    def _restored_box(self, session: Hashable | None) -> Flow[Any]:
        """The flow of a session's sandbox, with what it had when a run was interrupted."""
        return (yield from self._box(session))

    def _in_session(
        self, method: str, session: Hashable | None, *args: Any, **kwargs: Any
    ) -> Flow[Any]:
        box = yield from self._restored_box(session)
        return (yield from call(getattr(box, method), *args, **kwargs))

    def _files(self, session: Hashable | None) -> Flow[list[FileInfo]]:
        asking: Flow[list[FileInfo]] = self._in_session('files', session)
        return (yield from self._beside('files', None, asking, session, idempotent=True))

    def _from_file(
        self, method: str, name: str, session: Hashable | None, **options: Any
    ) -> Flow[Any]:
        if is_offline('kernel'):
            raise NotCaptured(
                f'Cassettes do not hold the contents of files, and in a replay there is no sandbox '
                f'to take {name!r} from. Let a cell print what the test is about, or use '
                'replay(..., strict=True).'
            )
        return (yield from self._in_session(method, session, name, **options))

    def _beside(
        self, method: str, asked: Any, flow: Flow[T], session: Hashable | None, **options: Any
    ) -> Flow[T]:
        effect = Effect('kernel', f'{self.name}.{method}', asked, **options)
        return (yield from beside(effect, flow, session))

    def _gave(self, box: Any, sources: Mapping[str, Any]) -> Flow[None]:
        """Note that a sandbox was given files, and where each came from."""
        yield from ()

    def _upload(self, paths: Sources, session: Hashable | None) -> Flow[list[FileInfo]]:
        named = paths if isinstance(paths, Mapping) else _paths(paths)
        work = self._upload_all(named, session)
        return (yield from self._beside('upload', _sizes(named), work, session, idempotent=True))

    def _upload_all(
        self, paths: Mapping[str, Source | bytes] | list[Path], session: Hashable | None
    ) -> Flow[list[FileInfo]]:
        box = yield from self._restored_box(session)
        uploaded: list[FileInfo] = []
        given: dict[str, Any] = {}
        named: Iterable[tuple[str | None, Source | bytes]] = (
            paths.items() if isinstance(paths, Mapping) else ((None, path) for path in paths)
        )
        try:
            for name, source in named:
                info = yield from call(box.upload, source, name=name)
                uploaded.append(info)
                given[info.path] = source
        except Exception:
            yield from self._gave(box, given)
            raise
        yield from self._gave(box, given)
        return uploaded

    def _open_sandbox(self, session: Hashable | None) -> Flow[Any]:
        """The flow of a session's sandbox; None without one."""
        manager = self._manager
        if manager is None or self._name(session) not in (yield from call(manager.sessions)):
            return None
        return (yield from self._sandbox(manager, resolve_session(session)))

    def _interrupt(self, session: Hashable | None) -> Flow[None]:
        box = yield from self._open_sandbox(session)
        if box is not None:
            yield from call(box.interrupt)

    def _restart(self, session: Hashable | None) -> Flow[None]:
        box = yield from self._open_sandbox(session)
        if box is not None:
            self._preparations.forget(box, kernel=True)
            yield from call(box.restart)

    def _close_session(self, session: Hashable | None) -> Flow[None]:
        if self._manager is not None:
            yield from call(self._manager.close_session, self._name(session))

    def _closing(self) -> Flow[None]:
        self._closed = True
        if self._owns_manager and self._manager is not None:
            yield from call(self._manager.close)


class AsyncSandboxes(AsyncClosing, Sandboxes):
    """`Sandboxes` whose methods are coroutines."""

    _manager_class = 'AsyncSandboxManager'
    _wait = staticmethod(asyncio.wrap_future)

    async def upload(  # type: ignore[override]
        self, paths: Sources, session_id: Hashable | None = None
    ) -> list[FileInfo]:
        """See `Sandboxes.upload`."""
        return await arun(self._upload(paths, session_id))

    async def files(  # type: ignore[override]
        self, session_id: Hashable | None = None
    ) -> list[FileInfo]:
        """See `Sandboxes.files`."""
        return await arun(self._files(session_id))

    async def download(  # type: ignore[override]
        self, name: str, to: Source, session_id: Hashable | None = None
    ) -> Path:
        """See `Sandboxes.download`."""
        path: Path = await arun(self._from_file('download', name, session_id, to=to))
        return path

    async def read(  # type: ignore[override]
        self, name: str, session_id: Hashable | None = None
    ) -> bytes:
        """See `Sandboxes.read`."""
        content: bytes = await arun(self._from_file('read', name, session_id))
        return content

    async def restart(  # type: ignore[override]
        self, session_id: Hashable | None = None
    ) -> None:
        """See `Sandboxes.restart`."""
        await arun(self._restart(session_id))

    async def interrupt(  # type: ignore[override]
        self, session_id: Hashable | None = None
    ) -> None:
        """See `Sandboxes.interrupt`."""
        await arun(self._interrupt(session_id))

    async def close_session(  # type: ignore[override]
        self, session_id: Hashable | None = None
    ) -> None:
        """See `Sandboxes.close_session`."""
        await arun(self._close_session(session_id))


def _paths(paths: Source | Iterable[Source]) -> list[Path]:
    return [Path(path) for path in ([paths] if isinstance(paths, str | PathLike) else paths)]


def _sizes(sources: Mapping[str, Source | bytes] | list[Path]) -> dict[str, int | None]:
    """Names and bytes of files that are uploaded; None where there is no such file."""
    named = sources if isinstance(sources, Mapping) else {path.name: path for path in sources}
    return {name: _size(source) for name, source in named.items()}


def _size(source: Source | bytes) -> int | None:
    if isinstance(source, bytes):
        return len(source)
    try:
        return Path(source).stat().st_size
    except OSError:  # the upload says what is wrong with it
        return None
