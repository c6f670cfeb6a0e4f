"""Agents: layers that take messages and answer with one.

`__call__` keeps the books (context, hooks, memory) and `forward` is the user's. The books are kept
in one flow, `_turn`; these classes and the streaming ones differ only in the driver that runs it.
"""

import copy
import weakref
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, ClassVar

from lagent.actions.closing import AsyncClosing
from lagent.actions.hooked import settle
from lagent.agents import unanswered
from lagent.agents.aggregator import DefaultAggregator
from lagent.agents.layer import Layer
from lagent.agents.limit_answer import given_limit, limit_answer
from lagent.agents.seams import Aggregator, Config, Instruction, Model, OutputParser
from lagent.agents.session_argument import session_argument
from lagent.agents.sessions import exclusive, is_inside, wait_async, wait_blocking
from lagent.context import RunContext, current_context, resolve_session, run_context
from lagent.effects import Effect, perform
from lagent.errors import LimitExceeded
from lagent.flow import Call, Flow, arun, call, run
from lagent.hooks import Hook
from lagent.limits import RunLimits
from lagent.llms.effect import model_name
from lagent.memory import Memory, MemoryManager
from lagent.schema import AgentMessage
from lagent.utils import create_object
from lagent.watch import watched_call

if TYPE_CHECKING:
    from lagent.journal.recording import Approver, OnUnknown
    from lagent.journal.redact import Redactor
    from lagent.journal.runs import Where

MEMORY: dict[str, Any] = {'type': Memory}
AGGREGATOR: dict[str, Any] = {'type': DefaultAggregator}


class Agent(Layer):
    """A layer that answers messages, by default with what a model says.

    A session answers one call at a time: what else is asked in it waits for its turn, in order, or
    is refused, as the limits' `on_busy` says. A call that fails leaves its question in memory,
    marked in `extra_info`; before the next question the memory gets a message of the type
    ``'no_answer'``. A call without a message asks the marked question once more.

    Attributes:
        llm: the model; any object with a `chat(messages, **kwargs)`. One that was made of a
            configuration dict is closed with the agent.
        template: the system instruction: a text, one message dict, a list of them, or a
            `PromptTemplate`.
        memory: the agent's memories by session; None when it keeps none.
        output_format: parser of the model's replies; None to leave `formatted` empty.
        aggregator: turns memory into the list of messages that the model is given.
        name: the sender of the agent's answers; the class's name by default.
        description: what the agent is for.
        limits: what a run may use; see `RunLimits`.
        max_sessions: how many sessions are remembered; see `MemoryManager`.
        redactor: a `lagent.journal.Redactor` for its recorded runs that are given none, such as
            those that ``lagent runs resume`` goes on with; None for the usual rules.
    """

    llm: Any = None
    redactor: 'Redactor | None' = None
    _part_names: ClassVar[frozenset[str]] = frozenset({'llm'})
    _own_llm: Any = None

    def __init__(
        self,
        llm: Model | Config | None = None,
        template: Instruction | None = None,
        memory: dict[str, Any] | Memory | None = MEMORY,
        output_format: OutputParser | Config | None = None,
        aggregator: Aggregator | Config = AGGREGATOR,
        name: str | None = None,
        description: str | None = None,
        hooks: list[Hook | dict[str, Any]] | Hook | dict[str, Any] | None = None,
        limits: RunLimits | None = None,
        max_sessions: int | None = None,
    ) -> None:
        super().__init__(hooks)
        self.name = name or type(self).__name__
        if isinstance(llm, str):
            raise TypeError(f'{llm!r} is no model: give an object, such as GPTAPI({llm!r})')
        self.llm = create_object(llm)
        self._own_llm = None if self.llm is llm else self.llm
        self.template = template
        self.memory = None if memory is None else MemoryManager(memory, max_sessions)
        self.max_sessions = max_sessions
        self.output_format = create_object(output_format)
        self.aggregator = create_object(aggregator)
        self.description = description
        self.limits = limits

    def __call__(
        self, *message: str | AgentMessage, session_id: Hashable | None = None, **kwargs: Any
    ) -> AgentMessage:
        """Answer messages.

        Args:
            message: messages, or texts from the user; they are copied. None at all asks the model
                once more with what is in memory.
            session_id: the session; inside another agent's call its session, else 0.
            kwargs: given to `forward`, whose default gives them to the model.

        Returns:
            The answer; a copy of what memory holds, with the after-hooks applied.

        Raises:
            LimitExceeded: the run reached one of its limits.
        """
        return run(self._turn(message, session_id, kwargs))

    def run(
        self,
        *message: str | AgentMessage,
        journal: 'Where',
        run_id: str | None = None,
        session_id: Hashable | None = None,
        approval: 'Approver | None' = None,
        on_unknown: 'OnUnknown | None' = None,
        redactor: 'Redactor | None' = None,
        factory: str = '',
        **kwargs: Any,
    ) -> Any:
        """Answer messages as a call does, and survive: each effect is recorded in a journal.

        When the journal has the run already, it goes on where it was: the session's memory is what
        it was when the run began, finished effects give what they gave then, and a run that has
        ended gives its answer without doing anything.

        Args:
            message: see `__call__`; may be left out when a run is resumed.
            journal: a `lagent.journal.Journal`, the path of an SQLite file, or a database URL.
            run_id: the run's name; a new one by default.
            session_id: the session; that of the run when it is resumed.
            approval: says which effects need somebody's yes, such as a `lagent.journal.Approval`.
                By default none, and for a run that is resumed those that it began with.
            on_unknown: what happens to an effect that was begun before a crash, of which nobody
                knows whether it happened, and that must not be done twice: ``'tell'`` the model, or
                ``'suspend'`` the run for a person to decide. By default the model is told, and of a
                run that is resumed whoever it was when it began.
            redactor: a `lagent.journal.Redactor`: takes secrets out of what is written; the agent's
                own by default. A run is resumed only with what hides as much.
            factory: ``module:function`` that makes this agent, for ``lagent runs resume``.
            kwargs: given to `forward`.

        Returns:
            What a call returns: the answer, or for asynchronous and streaming agents what gives it.

        Raises:
            RunLocked: somebody else is executing the run.
            RedactorMissing: it began with a redactor that hides what this one does not.
            RunSuspended: an effect needs a decision; resume the run when it is made.
            Diverged: the code takes another way than the journal says.
            JournalError: the journal can't be used, or something can't be recorded.
            LimitExceeded: the run reached one of its limits.
        """
        from lagent.agents.durable import recorded_turn
        from lagent.journal.runs import Options

        options = Options(
            run_id=run_id,
            approval=approval,
            on_unknown=on_unknown,
            redactor=self.redactor if redactor is None else redactor,
            factory=factory,
        )
        return self._drive(
            partial(recorded_turn, self, message, session_id, kwargs, journal, options)
        )

    def rerun(self, run_id: str, *, journal: 'Where', redactor: 'Redactor | None' = None) -> Any:
        """Answer once more what a recorded run was asked, from its journal alone.

        The agent's code, prompts and parsers are those of now; what models, tools and sandboxes
        give is what they gave then. None of them is asked, and the journal is not written. So this
        tells whether a changed agent still takes the way of an old run, as far as that is recorded.
        The session's memory is afterwards what the run left.

        Args:
            run_id: the run.
            journal: a `lagent.journal.Journal`, the path of an SQLite file, or a database URL.
            redactor: the one that the run was recorded with, if it had one; the agent's own by
                default.

        Returns:
            What a call returns: the answer, which is the recorded one; or for asynchronous and
            streaming agents what gives it. What the run failed with is raised again.

        Raises:
            Diverged: the code takes another way than the journal says, or ends otherwise.
            Unfinished: the journal does not say how an effect, or the run, ended.
            RunSuspended: the run waits for a decision at this place.
            NoSuchRun: there is no such run.
            RedactorMissing: the run was recorded with a redactor, and there is none now.
            JournalError: the journal can't be read, or something is asked that it can't hold.
        """
        from lagent.agents.durable import rerun_turn

        redactor = self.redactor if redactor is None else redactor
        return self._drive(partial(rerun_turn, self, run_id, journal, redactor))

    def forward(self, *message: AgentMessage, session_id: Hashable = 0, **kwargs: Any) -> Any:
        """Make the answer; override this.

        Args:
            message: the messages, already in memory.
            session_id: the session.
            kwargs: what the caller gave beside them.

        Returns:
            An `AgentMessage`, which keeps its sender, or any object, which becomes the content of
            one.
        """
        return run(self._ask(message, session_id, kwargs))

    def update_memory(self, message: Any, session_id: Hashable = 0) -> None:
        """Remember messages.

        Args:
            message: one message or several.
            session_id: the session.
        """
        if self.memory is not None:
            self.memory.add(message, session_id=session_id)

    def _own_parts(self) -> list[Any]:
        # A model that was given may be another agent's as well, and is slow to load.
        given = None if self.llm is self._own_llm else self.llm
        return [part for part in super()._own_parts() if part is not given]

    def _turn(
        self,
        messages: tuple[Any, ...],
        session: Hashable | None,
        kwargs: dict[str, Any],
        stream_: 'weakref.ref[Any] | None' = None,
        keep: Callable[[Flow[AgentMessage]], Flow[AgentMessage]] | None = None,
    ) -> Flow[AgentMessage]:
        outer = current_context()
        is_outermost = not is_inside()
        with run_context(session, self.limits) as context:
            given = partial(given_limit, context, outer, is_outermost)
            books = self._keep_books(messages, context, kwargs, given)
            books = books if keep is None else keep(books)
            turn = exclusive(self, context, books, self._wait_turn, stream_)
            try:
                return (yield from watched_call(self, context, turn))
            except LimitExceeded as limit:
                if given(limit) is None:
                    raise
                return limit_answer(limit, self.name)

    def _drive(self, turn: Callable[..., Flow[AgentMessage]]) -> Any:
        return run(turn())

    _wait_turn: Callable[..., Any] = staticmethod(wait_blocking)

    def _keep_books(
        self,
        messages: tuple[Any, ...],
        context: RunContext,
        kwargs: dict[str, Any],
        given: Callable[[BaseException], LimitExceeded | None],
    ) -> Flow[AgentMessage]:
        session_id = context.session_id
        inputs = [_as_message(message) for message in messages]
        for hook in tuple(self._hooks.values()):
            replaced = yield from self._hook(hook.before_agent, inputs, session_id)
            if replaced:
                inputs = [replaced] if isinstance(replaced, AgentMessage) else list(replaced)
        question = self._take_question(inputs, session_id)
        try:
            answer = yield from self._answer(inputs, session_id, kwargs)
        except BaseException as error:
            limit = given(error)
            if limit is None:
                if question is not None:
                    unanswered.mark(question, error)
                raise
            answer = limit_answer(limit, self.name)
        self.update_memory(answer, session_id)
        answer = answer.model_copy(deep=True)
        for hook in tuple(self._hooks.values()):
            answer = (yield from self._hook(hook.after_agent, answer, session_id)) or answer
        return answer

    def _take_question(
        self, inputs: list[AgentMessage], session_id: Hashable
    ) -> AgentMessage | None:
        """Remember the inputs; give the message that an answer is missing to from now on."""
        memory = None if self.memory is None else self.memory.get(session_id)
        if memory is not None and inputs:
            stand_in = unanswered.answer_for(memory, self.name or '')
            if stand_in is not None:
                self.update_memory(stand_in, session_id)
        self.update_memory(inputs, session_id)
        if inputs:
            return inputs[-1]
        return None if memory is None else unanswered.reopen(memory)

    def _hook(self, method: Callable[..., Any], *args: Any) -> Flow[Any]:
        return call(settle, method, self, *args)

    def _answer(
        self, inputs: list[AgentMessage], session_id: Hashable, kwargs: dict[str, Any]
    ) -> Flow[AgentMessage]:
        result = yield Call(self.forward, tuple(inputs), {'session_id': session_id, **kwargs})
        return self._as_answer(result)

    def _as_answer(self, result: Any) -> AgentMessage:
        if isinstance(result, AgentMessage):
            return result
        if isinstance(result, CoroutineType):
            raise self._awaits_nothing(result, f'{type(self).__name__}.forward')
        return AgentMessage(sender=self.name or type(self).__name__, content=result)

    def _ask(
        self, messages: tuple[AgentMessage, ...], session: Hashable | None, kwargs: dict[str, Any]
    ) -> Flow[AgentMessage]:
        session_id = resolve_session(session)
        prompt = self._prompt(messages, session_id)
        effect = model_effect(self.llm, prompt)
        reply = yield from perform(effect, self._chat, prompt, session_id, kwargs)
        return self._parse(reply)

    def _parse(self, reply: Any) -> AgentMessage:
        formatted = self.output_format.parse_response(reply) if self.output_format else None
        return AgentMessage(sender=self.name or '', content=reply, formatted=formatted)

    def _prompt(self, messages: tuple[AgentMessage, ...], session_id: Hashable) -> Any:
        memory = None if self.memory is None else self.memory.get(session_id)
        if memory is None:
            memory = Memory()
            memory.add(messages)
        return self.aggregator.aggregate(memory, self.name, self.output_format, self.template)

    def _chat(self, prompt: Any, session_id: Hashable, kwargs: dict[str, Any]) -> Any:
        reply = self.llm.chat(prompt, **kwargs)
        if isinstance(reply, CoroutineType):
            raise self._awaits_nothing(reply, f'{type(self.llm).__name__}.chat')
        return reply

    def _awaits_nothing(self, coroutine: Coroutine[Any, Any, Any], called: str) -> TypeError:
        coroutine.close()
        return TypeError(
            f'{called} gave a coroutine, and {type(self).__name__} awaits nothing: use an '
            'asynchronous agent, such as AsyncAgent or AsyncCoder, or give this one what is not '
            'asynchronous'
        )


class AsyncAgent(AsyncClosing, Agent):
    """An `Agent` whose `__call__` and `forward` are coroutines.

    Its model's `chat` may be a coroutine, and is given the session if it has a parameter
    `session_ids`.
    """

    async def __call__(  # type: ignore[override]
        self, *message: str | AgentMessage, session_id: Hashable | None = None, **kwargs: Any
    ) -> AgentMessage:
        """See `Agent.__call__`."""
        return await arun(self._turn(message, session_id, kwargs))

    async def forward(self, *message: AgentMessage, session_id: Hashable = 0, **kwargs: Any) -> Any:
        """See `Agent.forward`."""
        return await arun(self._ask(message, session_id, kwargs))

    def _drive(self, turn: Callable[..., Flow[AgentMessage]]) -> Any:
        return arun(turn())

    def _hook(self, method: Callable[..., Any], *args: Any) -> Flow[Any]:
        return call(method, self, *args)

    _wait_turn = staticmethod(wait_async)

    def _chat(self, prompt: Any, session_id: Hashable, kwargs: dict[str, Any]) -> Any:
        chat = self.llm.chat
        return chat(prompt, **session_argument(chat, session_id), **kwargs)


def model_effect(llm: Any, prompt: Any) -> Effect:
    """The effect of asking a model.

    Args:
        llm: a model object of any kind.
        prompt: what it is asked.

    Returns:
        The effect, named after the model.
    """
    return Effect('model', model_name(llm), prompt, provider=getattr(llm, 'provider', ''))


def _as_message(message: Any) -> AgentMessage:
    if isinstance(message, str):
        return AgentMessage(sender='user', content=message)
    return copy.deepcopy(message)  # type: ignore[no-any-return]
