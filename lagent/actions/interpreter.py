"""The layer that runs an agent's code in a sandbox, one sandbox a session."""

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic_core import SchemaSerializer, core_schema

import sandbox
from lagent.actions.code import requested_code
from lagent.actions.hooked import AsyncResponder, Responder
from lagent.actions.resumption import Rebuild, Resumption
from lagent.actions.sandbox_sessions import Preparations, Readiness, names_of
from lagent.context import current_context, resolve_session
from lagent.effects import Effect, Ended, emit, listening, mark_not_begun, within
from lagent.errors import LimitExceeded, NotDone, OutcomeUnknown, RepeatedCall, RunCancelled
from lagent.flow import Flow, arun, call, each, run
from lagent.hooks import Hook
from lagent.journal.codec import register
from lagent.journal.recording import current_recording
from lagent.positions import effect_id
from lagent.schema import AgentMessage
from lagent.view import ModelView
from sandbox import (
    ExecutionEvent,
    ExecutionResult,
    FileInfo,
    Outcome,
    SandboxError,
    SandboxPolicy,
)

# Other modules of lagent catch `SandboxError` and must not import `sandbox` themselves.
__all__ = ['AsyncInterpreter', 'CellResult', 'Interpreter', 'SandboxError', 'execution_results']

_LEAST = 0.001  # seconds that a cell may take

Source = str | PathLike[str]
Sources = Source | Iterable[Source] | Mapping[str, Source | bytes]


class CellResult(ExecutionResult):
    """An `ExecutionResult` whose dump in a message is a dict; `execution_results` reads it back."""

    __pydantic_serializer__: ClassVar[SchemaSerializer] = SchemaSerializer(
        core_schema.any_schema(
            serialization=core_schema.plain_serializer_function_ser_schema(ExecutionResult.to_dict)
        )
    )


register(CellResult, 'cell', CellResult.to_dict, CellResult.from_dict)


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
            `policy`, `backend`, `image`, `max_sessions`, `warm`, `unsafe` and `survival` are its
            own.
        timeout: wall clock of one cell, in seconds; the policy's by default.
        files: path of a file, or several, to put into each new sandbox.
        name: the sender of the answers.
        image: the Docker image; the project's own by default.
        workspace: where a container has its workspace; elsewhere it is where the back end has it.
        max_sessions: how many sessions may have a sandbox at once.
        warm: how many sandboxes more are started ahead, for new sessions to take.
        tighten: returns the fields of the policy that are stricter for a session, each time anew.
        unsafe: allows a back end that does not isolate.
        view: decides what of the results the model is shown; see `ModelView`.
        hooks: hooks whose `before_action` and `after_action` are called.
        survival: a `sandbox.Survival`: sandboxes outlive this process when it dies, and a run that
            goes on in another one has its sandbox again, with the cell that was running in it.
        rebuild: when a recorded run goes on and its sandbox is gone, ``'fresh'`` lets it go on in a
            new one and tells the model what is lost; ``'rerun'`` runs the recorded cells in it
            again first.
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
        warm: int = 0,
        tighten: Callable[[Hashable], Mapping[str, Any]] | None = None,
        unsafe: bool = False,
        view: ModelView | None = None,
        hooks: Hook | dict[str, Any] | Iterable[Hook | dict[str, Any]] | None = None,
        survival: sandbox.Survival | None = None,
        rebuild: Rebuild = 'fresh',
    ) -> None:
        super().__init__(hooks)
        self.name = name
        self.policy = policy or SandboxPolicy()
        self.timeout = timeout
        self.tighten = tighten
        self.view = view or ModelView()
        self.initial_files = _paths(files)
        if workspace is not None and backend == 'docker':
            backend = sandbox.DockerBackend(image=image, workspace=workspace)
        self._options = {
            'policy': self.policy,
            'backend': backend,
            'image': image,
            'max_sessions': max_sessions,
            'warm': warm,
            'unsafe': unsafe,
            'survival': survival,
        }
        if manager is not None:
            survival = getattr(manager, 'survival', None)
        self._survives = survival is not None
        self._resumption = Resumption(name, self._survives, rebuild)
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

    def execute(
        self, code: str, session_id: Hashable | None = None, timeout: float | None = None
    ) -> CellResult:
        """Run code of the program's own in a session, beside what an agent asks for.

        It is charged to no limit. Code that fails raises nothing.

        Args:
            code: the code.
            session_id: the session; inside an agent's call its session, else 0.
            timeout: wall clock in seconds; the policy's by default.

        Returns:
            What came out.
        """
        return run(self._run_aside(code, session_id, timeout))

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
        yield from self._resumption.announce()
        results: list[CellResult] = []
        for code in request.cells:
            effect = Effect(
                'kernel',
                self.name,
                code,
                network=self._has_network,
                inquire=self._inquire if self._survives else None,
                edited=self._edited,
            )
            try:
                result = yield from within(effect, self._cell(code))
            except OutcomeUnknown as unknown:
                result = CellResult(Outcome.UNKNOWN, notices=(str(unknown),))
            except (LimitExceeded, RunCancelled, NotDone) as error:
                if not results:
                    raise
                error.results = told = self._observation(results, len(request.cells), str(error))
                if isinstance(error, RepeatedCall | NotDone):
                    return told
                raise
            results.append(result)
            if not result.ok:
                break
        return self._observation(results, len(request.cells))

    def _observation(
        self, results: list[CellResult], cells: int, refusal: str = ''
    ) -> AgentMessage:
        content = self.view.content(results, cells, refusal)
        return self._message(content, results[0] if cells == 1 else results)

    def _message(self, content: Any, formatted: Any) -> AgentMessage:
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
            news = yield from self._resumption.begin(box, self.timeout)
        except Exception as error:
            mark_not_begun(error)
            raise
        tag = effect_id() if self._survives else None
        result = yield from self._execute(box, code, self.timeout, tag)
        if news is None or (news.is_lost and not result.state_preserved):
            return result  # the session itself has seen the loss
        return dataclasses.replace(
            result,
            notices=(news.notice, *result.notices),
            state_preserved=result.state_preserved and not news.is_lost,
        )

    def _inquire(self, tag: str) -> Flow[Ended | Literal['not_begun'] | None]:
        """What became of a cell of an earlier process; see `Effect.inquire`."""
        recording = current_recording()
        container = None if recording is None else self._resumption.sandbox_of(recording)
        if container == '':
            return 'not_begun'
        box = yield from self._box(None)
        found = yield from call(box.recall, tag)
        if isinstance(found, ExecutionResult):
            return Ended(carried(found))
        return 'not_begun' if found and container == box.container_id else None

    def _execute(
        self, box: Any, code: str, timeout: float | None, tag: str | None = None
    ) -> Flow[CellResult]:
        done: ExecutionResult | None = None

        def note(event: ExecutionEvent) -> None:
            nonlocal done
            done = event.result or done
            if event.output is not None:
                emit(event.output)

        timeout = _within_run(timeout, box)
        named = {} if tag is None else {'tag': tag}
        if listening():
            yield from each(box.stream(code, timeout=timeout, **named), note)
        else:
            done = yield from call(box.execute, code, timeout=timeout, **named)
        assert done is not None, 'the stream of a cell ends with its result'
        self._preparations.forget(
            box, kernel=not done.state_preserved, files=done.outcome is Outcome.SANDBOX_LOST
        )
        return carried(done)

    def _run_aside(
        self, code: str, session: Hashable | None, timeout: float | None
    ) -> Flow[CellResult]:
        box = yield from self._box(session)
        return (yield from self._execute(box, code, timeout))

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

    def _in_session(
        self, method: str, session: Hashable | None, *args: Any, **kwargs: Any
    ) -> Flow[Any]:
        box = yield from self._box(session)
        return (yield from call(getattr(box, method), *args, **kwargs))

    def _upload(self, paths: Sources, session: Hashable | None) -> Flow[list[FileInfo]]:
        box = yield from self._box(session)
        uploaded: list[FileInfo] = []
        if isinstance(paths, Mapping):
            for name, source in paths.items():
                uploaded += [(yield from call(box.upload, source, name=name))]
        else:
            for path in _paths(paths):
                uploaded += [(yield from call(box.upload, path))]
        return uploaded

    def _interrupt(self, session: Hashable | None) -> Flow[None]:
        manager = self._manager
        if manager and self._name(session) in (yield from call(manager.sessions)):
            box = yield from self._sandbox(manager, resolve_session(session))
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
        self, paths: Sources, session_id: Hashable | None = None
    ) -> list[FileInfo]:
        """See `Interpreter.upload`."""
        return await arun(self._upload(paths, session_id))

    async def execute(  # type: ignore[override]
        self,
        code: str,
        session_id: Hashable | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the cell's wall clock
    ) -> CellResult:
        """See `Interpreter.execute`."""
        return await arun(self._run_aside(code, session_id, timeout))

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


def carried(result: ExecutionResult) -> CellResult:
    """The same result as a `CellResult`."""
    fields = dataclasses.fields(ExecutionResult)
    return CellResult(**{field.name: getattr(result, field.name) for field in fields})


def _within_run(timeout: float | None, box: Any) -> float | None:
    context = current_context()
    left = None if context is None else context.seconds_left
    return timeout if left is None else min(timeout or box.policy.timeout, max(left, _LEAST))
