"""The layer that runs an agent's code in a sandbox, one sandbox a session."""

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, ClassVar, Literal

from pydantic_core import SchemaSerializer, core_schema

from lagent.actions.cell_codec import compact, complete
from lagent.actions.code import requested_code
from lagent.actions.hooked import AsyncResponder, Responder
from lagent.actions.resumption import CLOSE, EXECUTE, LOOK, RESTART, News, Rebuild, Resumption
from lagent.actions.sandbox_sessions import lasting_name
from lagent.actions.sandboxes import AsyncSandboxes, Sandboxes, Source, policy_for_data
from lagent.context import current_context, resolve_session, run_context
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
    Outcome,
    SandboxError,
    SandboxPolicy,
    Survival,
)

# Other modules of lagent catch `SandboxError` and must not import `sandbox` themselves.
__all__ = [
    'AsyncInterpreter',
    'CellResult',
    'Interpreter',
    'SandboxError',
    'execution_results',
    'policy_for_data',
]

_LEAST = 0.001  # seconds that a cell may take


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


class Interpreter(Responder, Sandboxes):
    """Runs the code of an agent's message and answers with what came out.

    The message's `formatted` is the dict of a parser, such as `CodeParser`. Its cells run in order
    in the sandbox of the session, up to the first that fails. The answer's `content` is the text
    for the model, its `formatted` the cell's `ExecutionResult`, or, where the message had several
    cells, the list of those that ran. Code that is malformed or was cut off is never run; the
    answer says why, and its `formatted` is None.

    Code that fails raises nothing. A sandbox that can't be had raises a `SandboxError`.

    Args:
        policy: what each sandbox may use and do.
        backend: what isolates it: a back end's name, or a back end; ``'docker'`` by default.
        manager: the sandboxes to use instead of own ones, under the ids of the sessions (see
            `lasting_name` for those that are no text). It is not closed with the interpreter.
            `policy`, `backend`, `image`, `max_sessions`, `warm`, `unsafe` and `survival` are its
            own and can't be given beside it.
        timeout: wall clock of one cell, in seconds; the policy's by default.
        files: path of a file, or several, to put into each new sandbox.
        name: the sender of the answers.
        image: the Docker image; the project's own by default.
        workspace: where a container has its workspace; elsewhere it is where the back end has it.
        max_sessions: how many sessions may have a sandbox at once; 32 by default.
        warm: how many sandboxes more are started ahead, for new sessions to take.
        tighten: returns the fields of the policy that are stricter for a session, each time anew.
        unsafe: allows a back end that does not isolate.
        view: decides what of the results the model is shown; see `ModelView`.
        hooks: hooks whose `before_action` and `after_action` are called.
        survival: a `sandbox.Survival`: sandboxes outlive this process when it dies, and a run that
            goes on in another one has its sandbox again, with the cell that was running in it.
        rebuild: when a recorded run goes on and its sandbox is gone, ``'fresh'`` lets it go on in a
            new one and tells the model what is lost; ``'rerun'`` runs the recorded cells in it
            again first; ``'snapshot'`` keeps copies of variables and files after each cell, puts
            them into the new one, and tells the model what could not be kept.

    Raises:
        ValueError: an argument is the manager's own.
    """

    def __init__(
        self,
        policy: SandboxPolicy | None = None,
        backend: Any = None,
        manager: Any = None,
        timeout: float | None = None,
        files: Source | Iterable[Source] = (),
        name: str = 'interpreter',
        *,
        image: str | None = None,
        workspace: str | None = None,
        max_sessions: int | None = None,
        warm: int = 0,
        tighten: Callable[[Hashable], Mapping[str, Any]] | None = None,
        unsafe: bool = False,
        view: ModelView | None = None,
        hooks: Hook | dict[str, Any] | Iterable[Hook | dict[str, Any]] | None = None,
        survival: Survival | None = None,
        rebuild: Rebuild = 'fresh',
    ) -> None:
        Responder.__init__(self, hooks)
        Sandboxes.__init__(
            self,
            policy,
            backend,
            manager,
            files,
            image=image,
            workspace=workspace,
            max_sessions=max_sessions,
            warm=warm,
            tighten=tighten,
            unsafe=unsafe,
            survival=survival,
        )
        self._resumption = Resumption(name, self._survives, rebuild, self._open_box)
        self.name = name
        self.timeout = timeout
        self.view = view or ModelView()

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

    def execute(
        self,
        code: str,
        session_id: Hashable | None = None,
        timeout: float | None = None,
        *,
        idempotent: bool = False,
    ) -> CellResult:
        """Run code of the program's own in a session, beside what an agent asks for.

        It is charged to no limit. Code that fails raises nothing.

        Args:
            code: the code.
            session_id: the session; inside an agent's call its session, else 0.
            timeout: wall clock in seconds; the policy's by default.
            idempotent: whether it only looks at something: in a recorded run it is run again when
                nobody knows how it ended, and leaves nothing that would have to be kept.

        Returns:
            What came out.
        """
        return run(self._run_aside(code, session_id, timeout, idempotent))

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
                result = yield from within(effect, self._cell(code, self.timeout))
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
            yield from self._resumption.keep()
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
        return self.policy.network != 'none'

    def _edited(self, code: str) -> Flow[CellResult]:
        result = yield from self._cell(code, self.timeout)
        notice = f'Somebody has changed the code before it was run. What was run:\n{code}'
        return dataclasses.replace(result, notices=(notice, *result.notices))

    def _cell(
        self, code: str, timeout: float | None, *, only_looks: bool = False
    ) -> Flow[CellResult]:
        try:
            box = yield from self._box(None)
            news = yield from self._resumption.begin(box, timeout)
        except Exception as error:
            mark_not_begun(error)
            raise
        tag = effect_id() if self._survives else None
        result = yield from self._execute(box, code, timeout, tag)
        if not only_looks:
            self._resumption.ran(box, result.state_preserved)
        return _telling(news, result)

    def _inquire(self, tag: str) -> Flow[Ended | Literal['not_begun'] | None]:
        """What became of a cell of an earlier process; see `Effect.inquire`."""
        recording = current_recording()
        if recording is None:
            return None
        if self._resumption.was_not_sent(recording, tag):
            return 'not_begun'
        container = self._resumption.sandbox_of(recording)
        box = yield from self._box(None)
        found = yield from call(box.recall, tag)
        if isinstance(found, ExecutionResult):
            return Ended(_telling(self._resumption.news_of(recording, tag), carried(found)))
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
        self, code: str, session: Hashable | None, timeout: float | None, idempotent: bool
    ) -> Flow[CellResult]:
        with run_context(session):
            yield from self._resumption.announce()
            method = LOOK if idempotent else EXECUTE
            work = self._cell(code, timeout, only_looks=idempotent)
            inquire = self._inquire if self._survives else None
            try:
                result = yield from self._beside(
                    method, code, work, None, idempotent=idempotent, inquire=inquire
                )
            except OutcomeUnknown as unknown:
                return CellResult(Outcome.UNKNOWN, notices=(str(unknown),))
            yield from self._resumption.keep()
        return result

    def _box(self, session: Hashable | None) -> Flow[Any]:
        box = yield from super()._box(session)
        if self._resumption.is_half_built(box):
            yield from super()._close_session(session)
            box = yield from super()._box(session)
        return box

    def _restored_box(self, session: Hashable | None) -> Flow[Any]:
        with run_context(session):
            yield from self._resumption.announce()
            box = yield from self._box(None)
            yield from self._resumption.prepare(box, self.timeout)
            return box

    def _gave(self, box: Any, sources: Mapping[str, Any]) -> Flow[None]:
        yield from self._resumption.gave(box, sources)

    def _restart(self, session: Hashable | None) -> Flow[None]:
        return self._throwing_away(RESTART, session)

    def _close_session(self, session: Hashable | None) -> Flow[None]:
        return self._throwing_away(CLOSE, session)

    def _throwing_away(self, method: str, session: Hashable | None) -> Flow[None]:
        named, work = lasting_name(resolve_session(session)), self._thrown_away(method)
        yield from self._beside(method, named, work, session, idempotent=True)

    def _thrown_away(self, method: str) -> Flow[None]:
        restart, close = super()._restart, super()._close_session
        do = restart if method == RESTART else close
        yield from self._resumption.open()
        if self._resumption.is_left() and (yield from self._open_sandbox(None)) is None:
            box = yield from self._sandbox(self._sandboxes(), resolve_session(None))
            if not box.adopted:  # nothing was left, and what is new is not for the next process
                do = close
        yield from do(None)
        yield from self._resumption.threw_away(method)

    def _begin_run(self, session: Hashable) -> Flow[None]:
        """The flow that notes, in the journal, what a session has when a recorded run begins."""
        with run_context(session):
            yield from self._resumption.open()

    def _open_box(self, session: Hashable) -> Any:
        boxes = self._preparations.open_boxes()
        return next((box for box, owner in boxes if owner == session), None)


class AsyncInterpreter(AsyncResponder, AsyncSandboxes, Interpreter):
    """An `Interpreter` whose methods are coroutines."""

    async def __call__(  # type: ignore[override]
        self, message: AgentMessage, session_id: Hashable | None = None
    ) -> AgentMessage:
        """See `Interpreter.__call__`."""
        return await arun(self._respond(message, session_id, self._answer))

    async def execute(  # type: ignore[override]
        self,
        code: str,
        session_id: Hashable | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the cell's wall clock
        *,
        idempotent: bool = False,
    ) -> CellResult:
        """See `Interpreter.execute`."""
        return await arun(self._run_aside(code, session_id, timeout, idempotent))


def carried(result: ExecutionResult) -> CellResult:
    """The same result as a `CellResult`."""
    fields = dataclasses.fields(ExecutionResult)
    return CellResult(**{field.name: getattr(result, field.name) for field in fields})


def _telling(news: News | None, result: CellResult) -> CellResult:
    if news is None or (news.is_lost and not result.state_preserved):
        return result  # the session itself has seen the loss
    return dataclasses.replace(
        result,
        notices=(news.notice, *result.notices),
        state_preserved=result.state_preserved and not news.is_lost,
    )


def _within_run(timeout: float | None, box: Any) -> float | None:
    context = current_context()
    left = None if context is None else context.seconds_left
    return timeout if left is None else min(timeout or box.policy.timeout, max(left, _LEAST))
