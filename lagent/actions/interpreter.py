"""The layer that runs an agent's code in a sandbox, one sandbox a session."""

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic_core import SchemaSerializer, core_schema

import sandbox
from lagent.actions.cell_codec import compact, complete
from lagent.actions.cell_report import report
from lagent.actions.code import requested_code
from lagent.actions.hooked import AsyncResponder, Responder
from lagent.actions.sandbox_sessions import Preparations, Readiness, names_of
from lagent.context import current_context, resolve_session
from lagent.effects import Effect, emit, is_offline, listening, mark_not_begun, within
from lagent.errors import NotDone, OutcomeUnknown, RepeatedCall
from lagent.flow import Flow, arun, call, each, run
from lagent.hooks import Hook
from lagent.journal.codec import register
from lagent.journal.errors import NotCaptured
from lagent.schema import AgentMessage
from sandbox import (
    ExecutionEvent,
    ExecutionResult,
    FileInfo,
    Outcome,
    SandboxClosed,
    SandboxError,
    SandboxPolicy,
)

# Other modules of lagent catch `SandboxError` and must not import `sandbox` themselves.
__all__ = ['AsyncInterpreter', 'CellResult', 'Interpreter', 'SandboxError', 'execution_results']

_LEAST = 0.001  # seconds that a cell may take

Source = str | PathLike[str]


class CellResult(ExecutionResult):
    """An `ExecutionResult` whose dump in a message is a dict; `execution_results` reads it back."""

    __pydantic_serializer__: ClassVar[SchemaSerializer] = SchemaSerializer(
        core_schema.any_schema(
            serialization=core_schema.plain_serializer_function_ser_schema(ExecutionResult.to_dict)
        )
    )


_BLANK = CellResult(Outcome.OK).to_dict()
register(
    CellResult,
    'cell',
    lambda result: compact(result.to_dict(), _BLANK),
    lambda values: CellResult.from_dict(complete(values, _BLANK)),
)


def execution_results(message: AgentMessage) -> list[ExecutionResult]:
    """The results that an interpreter's message carries, also after a trip through JSON.

    Args:
        message: a message of an `Interpreter`.

    Returns:
        The result of each cell that was run, in order.
    """
    carried = message.formatted
    if not isinstance(carried, list):
        carried = [] if carried is None else [carried]
    return [
        result if isinstance(result, ExecutionResult) else CellResult.from_dict(result)
        for result in carried
    ]


class Interpreter(Responder):
    """Runs the code of an agent's message and answers with what came out.

    The message's `formatted` is the dict of a parser, such as `CodeParser`. Its cells run in order
    in the sandbox of the session, up to the first that fails. The answer's `content` is the text
    for the model, its `formatted` the cell's `ExecutionResult`, or, where the message had several
    cells, the list of those that ran. Code that is malformed or was cut off is never run; the
    answer says why, and its `formatted` is None.

    Code that fails raises nothing. A sandbox that can't be had raises a `SandboxError`.

    Args:
        policy: what each sandbox may use and do.
        backend: what isolates it: ``'docker'``, another back end's name, or a back end.
        manager: the sandboxes to use instead of own ones, under the ids of the sessions (see
            `SessionNames` for those that are no text). It is not closed with the interpreter, and
            `policy`, `backend`, `image`, `max_sessions` and `unsafe` are its own.
        timeout: wall clock of one cell, in seconds; the policy's by default.
        files: path of a file, or several, to put into each new sandbox.
        name: the sender of the answers.
        image: the Docker image; the project's own by default.
        workspace: where a container has its workspace; elsewhere it is where the back end has it.
        max_sessions: how many sandboxes may exist at once.
        unsafe: allows a back end that does not isolate.
        hooks: hooks whose `before_action` and `after_action` are called.
    """

    _manager_class: ClassVar[str] = 'SandboxManager'
    _wait: ClassVar[Callable[..., Any]] = staticmethod(Future.result)

    def __init__(
        self,
        policy: SandboxPolicy | None = None,
        backend: Any = 'docker',
        manager: Any = None,
        timeout: float | None = None,
        files: Source | Iterable[Source] = (),
        name: str = 'interpreter',
        *,
        image: str | None = None,
        workspace: str | None = None,
        max_sessions: int = 32,
        unsafe: bool = False,
        hooks: Hook | dict[str, Any] | Iterable[Hook | dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(hooks)
        self.name = name
        self.policy = policy or SandboxPolicy()
        self.timeout = timeout
        self.initial_files = _paths(files)
        if workspace is not None and backend == 'docker':
            backend = sandbox.DockerBackend(image=image, workspace=workspace)
        self._options = {
            'policy': self.policy,
            'backend': backend,
            'image': image,
            'max_sessions': max_sessions,
            'unsafe': unsafe,
        }
        self._manager = manager
        self._owns_manager = manager is None
        self._closed = False
        self._lock = threading.Lock()
        self._preparations = Preparations()

    def __call__(self, message: AgentMessage, session_id: Hashable | None = None) -> AgentMessage:
        """Run the code of a message.

        Args:
            message: the message; it is copied.
            session_id: the session; inside an agent's call its session, else 0.

        Returns:
            What came out, from the interpreter.

        Raises:
            ValueError: the message was not parsed.
            LimitExceeded: the run reached one of its limits.
            EffectRejected: the run is recorded, and somebody has decided against the code.
            SandboxError: there is no sandbox to run the code in.
        """
        return run(self._respond(message, session_id, self._answer))

    def upload(
        self, paths: Source | Iterable[Source], session_id: Hashable | None = None
    ) -> list[FileInfo]:
        """Copy files into a session's sandbox.

        Args:
            paths: a file of the host, or several.
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
        return run(self._in_session('files', session_id))

    def download(self, name: str, to: Source, session_id: Hashable | None = None) -> Path:
        """Copy a file out of a session's sandbox.

        Args:
            name: the file's path in the sandbox.
            to: folder of the host to put it into.
            session_id: the session; inside an agent's call its session, else 0.

        Returns:
            The path of the copy.
        """
        path: Path = run(self._in_session('download', session_id, name, to=to))
        return path

    def interrupt(self, session_id: Hashable | None = None) -> None:
        """Interrupt the cell that a session is running, if there is one.

        Args:
            session_id: the session; inside an agent's call its session, else 0.
        """
        run(self._interrupt(session_id))

    def close_session(self, session_id: Hashable | None = None) -> None:
        """Remove a session's sandbox with its variables and files, if there is one.

        Args:
            session_id: the session; inside an agent's call its session, else 0.
        """
        run(self._close_session(session_id))

    def close(self) -> None:
        """Remove all sandboxes; the interpreter can't be used any more.

        Raises:
            SandboxError: a sandbox could not be removed; closing again tries it again.
        """
        run(self._close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _answer(self, message: AgentMessage) -> Flow[AgentMessage]:
        request = requested_code(message)
        if not request.cells:
            return self._message(request.refusal, None)
        results: list[CellResult] = []
        refusal = ''
        for code in request.cells:
            effect = Effect(
                'kernel', self.name, code, network=self._has_network, edited=self._edited
            )
            try:
                result = yield from within(effect, self._cell(code))
            except OutcomeUnknown as unknown:
                result = CellResult(Outcome.UNKNOWN, notices=(str(unknown),))
            except (RepeatedCall, NotDone) as refused:
                if not results:
                    raise
                refusal = str(refused)
                break
            results.append(result)
            if not result.ok:
                break
        if len(request.cells) == 1:
            return self._message(results[0].text, results[0])
        return self._message(report(results, len(request.cells), refusal), results)

    def _message(self, content: str, formatted: Any) -> AgentMessage:
        return AgentMessage(
            sender=self.name, content=content, formatted=formatted, type='interpreter'
        )

    @property
    def _has_network(self) -> bool:
        policy = self.policy if self._owns_manager else getattr(self._manager, 'policy', None)
        return getattr(policy, 'network', 'none') != 'none'

    def _edited(self, code: str) -> Flow[CellResult]:
        result = yield from self._cell(code)
        notice = f'Somebody has changed the code before it was run. What was run:\n{code}'
        return dataclasses.replace(result, notices=(notice, *result.notices))

    def _cell(self, code: str) -> Flow[CellResult]:
        try:
            box = yield from self._box(None)
        except Exception as error:
            mark_not_begun(error)
            raise
        return (yield from self._execute(box, code, self.timeout))

    def _execute(self, box: Any, code: str, timeout: float | None) -> Flow[CellResult]:
        done: ExecutionResult | None = None

        def note(event: ExecutionEvent) -> None:
            nonlocal done
            done = event.result or done
            if event.output is not None:
                emit(event.output)

        timeout = _within_run(timeout, box)
        if listening():
            yield from each(box.stream(code, timeout=timeout), note)
        else:
            done = yield from call(box.execute, code, timeout=timeout)
        assert done is not None, 'the stream of a cell ends with its result'
        self._preparations.forget(
            box, kernel=not done.state_preserved, files=done.outcome is Outcome.SANDBOX_LOST
        )
        return carried(done)

    def _sandboxes(self) -> Any:
        with self._lock:
            if self._closed:
                raise SandboxClosed('The interpreter is closed.', hint='Make a new one.')
            if self._manager is None:
                self._manager = getattr(sandbox, self._manager_class)(**self._options)
            return self._manager

    def _box(self, session: Hashable | None) -> Flow[Any]:
        return (yield from self._prepared_box(session))[0]

    def _prepared_box(self, session: Hashable | None) -> Flow[tuple[Any, Any]]:
        """The flow of a session's sandbox, and of what preparing it gave if that was needed."""
        session = resolve_session(session)
        box = yield from call(self._sandboxes().session, self._name(session))
        prepared = yield from self._preparations.once(
            box, session, self._is_unprepared, self._prepare, self._wait
        )
        return box, prepared

    def _name(self, session: Hashable | None) -> str:
        return names_of(self._manager).of(resolve_session(session))

    def _is_unprepared(self, box: Any, ready: Readiness) -> bool:
        is_supplied = ready.supplied and ready.container == box.container_id
        return bool(self.initial_files) and not is_supplied

    def _prepare(self, box: Any, ready: Readiness) -> Flow[Any]:
        for path in self.initial_files:
            yield from call(box.upload, path)
        ready.supplied, ready.container = True, box.container_id

    def _in_session(
        self, method: str, session: Hashable | None, *args: Any, **kwargs: Any
    ) -> Flow[Any]:
        if is_offline('kernel'):
            raise NotCaptured(
                'In a replay there is no sandbox, and cassettes do not hold its files: '
                f'{method}() has nothing to give. Let a cell print what the test is about, or use '
                'replay(..., strict=True).'
            )
        box = yield from self._box(session)
        return (yield from call(getattr(box, method), *args, **kwargs))

    def _upload(
        self, paths: Source | Iterable[Source], session: Hashable | None
    ) -> Flow[list[FileInfo]]:
        if is_offline('kernel'):  # the cells that are going to use them are not executed
            return [_of_host(path) for path in _paths(paths)]
        box = yield from self._box(session)
        uploaded: list[FileInfo] = []
        for path in _paths(paths):
            uploaded += [(yield from call(box.upload, path))]
        return uploaded

    def _interrupt(self, session: Hashable | None) -> Flow[None]:
        if (manager := self._manager) is None:
            return
        if (name := self._name(session)) in (yield from call(manager.sessions)):
            box = yield from call(manager.session, name)
            yield from call(box.interrupt)

    def _close_session(self, session: Hashable | None) -> Flow[None]:
        if self._manager is not None:
            yield from call(self._manager.close_session, self._name(session))

    def _close(self) -> Flow[None]:
        self._closed = True
        if self._owns_manager and self._manager is not None:
            yield from call(self._manager.close)


class AsyncInterpreter(AsyncResponder, Interpreter):
    """An `Interpreter` whose methods are coroutines."""

    _manager_class = 'AsyncSandboxManager'
    _wait = staticmethod(asyncio.wrap_future)

    async def __call__(  # type: ignore[override]
        self, message: AgentMessage, session_id: Hashable | None = None
    ) -> AgentMessage:
        """See `Interpreter.__call__`."""
        return await arun(self._respond(message, session_id, self._answer))

    async def upload(  # type: ignore[override]
        self, paths: Source | Iterable[Source], session_id: Hashable | None = None
    ) -> list[FileInfo]:
        """See `Interpreter.upload`."""
        return await arun(self._upload(paths, session_id))

    async def files(  # type: ignore[override]
        self, session_id: Hashable | None = None
    ) -> list[FileInfo]:
        """See `Interpreter.files`."""
        return await arun(self._in_session('files', session_id))

    async def download(  # type: ignore[override]
        self, name: str, to: Source, session_id: Hashable | None = None
    ) -> Path:
        """See `Interpreter.download`."""
        return await arun(self._in_session('download', session_id, name, to=to))

    async def interrupt(  # type: ignore[override]
        self, session_id: Hashable | None = None
    ) -> None:
        """See `Interpreter.interrupt`."""
        await arun(self._interrupt(session_id))

    async def close_session(  # type: ignore[override]
        self, session_id: Hashable | None = None
    ) -> None:
        """See `Interpreter.close_session`."""
        await arun(self._close_session(session_id))

    async def close(self) -> None:  # type: ignore[override]
        """See `Interpreter.close`."""
        await arun(self._close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


def _paths(paths: Source | Iterable[Source]) -> list[Path]:
    return [Path(path) for path in ([paths] if isinstance(paths, str | PathLike) else paths)]


def _of_host(path: Path) -> FileInfo:
    info = path.stat()
    return FileInfo(path.name, info.st_size, info.st_mtime)


def carried(result: ExecutionResult) -> CellResult:
    """The same result as a `CellResult`."""
    fields = dataclasses.fields(ExecutionResult)
    return CellResult(**{field.name: getattr(result, field.name) for field in fields})


def _within_run(timeout: float | None, box: Any) -> float | None:
    context = current_context()
    left = None if context is None else context.seconds_left
    return timeout if left is None else min(timeout or box.policy.timeout, max(left, _LEAST))
