"""Agents: layers that take messages and answer with one.

`__call__` keeps the books (context, hooks, memory) and `forward` is the user's. The books are kept
in one flow, `_turn`; the four classes differ only in the driver that runs it.
"""

import copy
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Hashable
from typing import Any, TypeVar

from lagent.actions.hooked import settle
from lagent.agents import unanswered
from lagent.agents.aggregator import DefaultAggregator
from lagent.agents.layer import Layer
from lagent.agents.sessions import exclusive, is_inside, wait_async, wait_blocking
from lagent.context import RunContext, resolve_session, run_context
from lagent.effects import Effect, emit, perform, within
from lagent.errors import LimitExceeded
from lagent.flow import Emit, Flow, arun, astream, call, each, run, stream
from lagent.hooks import Hook
from lagent.limits import RunLimits
from lagent.memory import Memory, MemoryManager
from lagent.schema import AgentMessage
from lagent.utils import create_object

G = TypeVar('G')

MEMORY: dict[str, Any] = {'type': Memory}
AGGREGATOR: dict[str, Any] = {'type': DefaultAggregator}


class Agent(Layer):
    """A layer that answers messages, by default with what a model says.

    A session answers one call at a time: what else is asked in it waits for its turn, in order, or
    is refused, as the limits' `on_busy` says. A call that fails leaves its question in memory,
    marked in `extra_info`; before the next question the memory gets a message of the type
    ``'no_answer'``. A call without a message asks the marked question once more.

    Attributes:
        llm: the model; any object with a `chat(messages, **kwargs)`.
        template: the system instruction: a text, one message dict, a list of them, or a
            `PromptTemplate`.
        memory: the agent's memories by session; None when it keeps none.
        output_format: parser of the model's replies; None to leave `formatted` empty.
        aggregator: turns memory into the list of messages that the model is given.
        name: the sender of the agent's answers; the class's name by default.
        description: what the agent is for.
        limits: what a run may use when this agent is the outermost one.
    """

    def __init__(
        self,
        llm: Any = None,
        template: Any = None,
        memory: dict[str, Any] | Memory | None = MEMORY,
        output_format: Any = None,
        aggregator: Any = AGGREGATOR,
        name: str | None = None,
        description: str | None = None,
        hooks: list[Hook | dict[str, Any]] | Hook | dict[str, Any] | None = None,
        limits: RunLimits | None = None,
    ) -> None:
        super().__init__(hooks)
        self.name = name or type(self).__name__
        self.llm = create_object(llm)
        self.template = template
        self.memory = None if memory is None else MemoryManager(memory)
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

    def _turn(
        self,
        messages: tuple[Any, ...],
        session: Hashable | None,
        kwargs: dict[str, Any],
        stream_: 'weakref.ref[Any] | None' = None,
    ) -> Flow[AgentMessage]:
        is_outermost = not is_inside()
        with run_context(session, self.limits) as context:
            gives_limits = is_outermost and context.limits.on_limit == 'return'
            books = self._keep_books(messages, context, kwargs, gives_limits=gives_limits)
            try:
                return (yield from exclusive(self, context, books, self._wait_turn, stream_))
            except LimitExceeded as limit:
                if not gives_limits:
                    raise
                return limit_message(limit, self.name)

    _wait_turn: Callable[..., Any] = staticmethod(wait_blocking)

    def _keep_books(
        self,
        messages: tuple[Any, ...],
        context: RunContext,
        kwargs: dict[str, Any],
        *,
        gives_limits: bool,
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
            if not (gives_limits and isinstance(error, LimitExceeded)):
                if question is not None:
                    unanswered.mark(question, error)
                raise
            answer = limit_message(error, self.name)
        self.update_memory(answer, session_id)
        answer = copy.deepcopy(answer)
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
        result = yield from call(self.forward, *inputs, session_id=session_id, **kwargs)
        return self._as_answer(result)

    def _as_answer(self, result: Any) -> AgentMessage:
        if isinstance(result, AgentMessage):
            return result
        return AgentMessage(sender=self.name or type(self).__name__, content=result)

    def _ask(
        self, messages: tuple[AgentMessage, ...], session: Hashable | None, kwargs: dict[str, Any]
    ) -> Flow[AgentMessage]:
        session_id = resolve_session(session)
        prompt = self._prompt(messages, session_id)
        effect = Effect('model', model_name(self.llm), prompt)
        reply = yield from perform(effect, self._chat, prompt, session_id, kwargs)
        formatted = self.output_format.parse_response(reply) if self.output_format else None
        return AgentMessage(sender=self.name or '', content=reply, formatted=formatted)

    def _prompt(self, messages: tuple[AgentMessage, ...], session_id: Hashable) -> Any:
        memory = None if self.memory is None else self.memory.get(session_id)
        if memory is None:
            memory = Memory()
            memory.add(messages)
        return self.aggregator.aggregate(memory, self.name, self.output_format, self.template)

    def _chat(self, prompt: Any, session_id: Hashable, kwargs: dict[str, Any]) -> Any:
        return self.llm.chat(prompt, **kwargs)


class AsyncAgent(Agent):
    """An `Agent` whose `__call__` and `forward` are coroutines.

    Its model's `chat` is given the session id as second argument and may be a coroutine.
    """

    async def __call__(  # type: ignore[override]
        self, *message: str | AgentMessage, session_id: Hashable | None = None, **kwargs: Any
    ) -> AgentMessage:
        """See `Agent.__call__`."""
        return await arun(self._turn(message, session_id, kwargs))

    async def forward(self, *message: AgentMessage, session_id: Hashable = 0, **kwargs: Any) -> Any:
        """See `Agent.forward`."""
        return await arun(self._ask(message, session_id, kwargs))

    def _hook(self, method: Callable[..., Any], *args: Any) -> Flow[Any]:
        return call(method, self, *args)

    _wait_turn = staticmethod(wait_async)

    def _chat(self, prompt: Any, session_id: Hashable, kwargs: dict[str, Any]) -> Any:
        return self.llm.chat(prompt, session_id, **kwargs)


class StreamingAgent(Agent):
    """An `Agent` that hands out its answer as it grows.

    A call gives a generator of messages: one for each item of `forward`, the content being all
    that was said so far, then once more the last one, with the after-hooks applied. Only that one
    is remembered. A consumer that leaves early leaves the question in memory.
    """

    def __call__(  # type: ignore[override]
        self, *message: str | AgentMessage, session_id: Hashable | None = None, **kwargs: Any
    ) -> Generator[AgentMessage, None, None]:
        """See `Agent.__call__`.

        Yields:
            The growing answer.
        """
        return self._streaming(stream, message, session_id, kwargs)

    def forward(
        self, *message: AgentMessage, session_id: Hashable = 0, **kwargs: Any
    ) -> Generator[Any, None, None]:
        """Make the answer piece by piece; override this.

        Args:
            message: the messages, already in memory.
            session_id: the session.
            kwargs: what the caller gave beside them.

        Yields:
            The growing answer: an `AgentMessage`, a tuple of state and text as models stream them,
            or a text.
        """
        return stream(self._ask_streaming(message, session_id, kwargs))

    def _streaming(
        self,
        driver: Callable[[Flow[None]], G],
        messages: tuple[Any, ...],
        session: Hashable | None,
        kwargs: dict[str, Any],
    ) -> G:
        def emitting() -> Flow[None]:
            answer = yield from self._turn(messages, session, kwargs, reference)
            yield Emit(answer)

        generator = driver(emitting())
        # The call can end the generator of an earlier one that its reader has abandoned.
        reference = weakref.ref(generator)
        return generator

    def _answer(
        self, inputs: list[AgentMessage], session_id: Hashable, kwargs: dict[str, Any]
    ) -> Flow[AgentMessage]:
        answer = self._as_answer('')

        def show(item: Any) -> AgentMessage:
            nonlocal answer
            answer = self._as_partial(item)
            return copy.deepcopy(answer)

        yield from each(self.forward(*inputs, session_id=session_id, **kwargs), show)
        return answer

    def _as_partial(self, item: Any) -> AgentMessage:
        if not isinstance(item, tuple):
            return self._as_answer(item)
        state, text, *_ = item
        message = self._as_answer(text)
        message.stream_state = state
        return message

    def _ask_streaming(
        self, messages: tuple[AgentMessage, ...], session: Hashable | None, kwargs: dict[str, Any]
    ) -> Flow[None]:
        session_id = resolve_session(session)
        prompt = self._prompt(messages, session_id)
        shown = ''

        def show(item: Any) -> AgentMessage:
            nonlocal shown
            message = self._as_partial(item)
            emit(message.content[len(shown) :])
            shown = message.content
            message.formatted = self._parse_partial(shown)
            return message

        def reading() -> Flow[str]:
            yield from each(self.llm.stream_chat(prompt, session_id=session_id, **kwargs), show)
            return shown

        yield from within(Effect('model', model_name(self.llm), prompt), reading())

    def _parse_partial(self, text: str) -> Any:
        if self.output_format is None:
            return None
        try:
            return self.output_format.parse_response(text)
        except ValueError:
            # A parser that needs the whole text has nothing to say about the beginning of it.
            return None


class AsyncStreamingAgent(StreamingAgent):
    """A `StreamingAgent` whose call gives an asynchronous generator."""

    def __call__(  # type: ignore[override]
        self, *message: str | AgentMessage, session_id: Hashable | None = None, **kwargs: Any
    ) -> AsyncGenerator[AgentMessage, None]:
        """See `StreamingAgent.__call__`."""
        return self._streaming(astream, message, session_id, kwargs)

    def forward(  # type: ignore[override]
        self, *message: AgentMessage, session_id: Hashable = 0, **kwargs: Any
    ) -> AsyncGenerator[Any, None]:
        """See `StreamingAgent.forward`."""
        return astream(self._ask_streaming(message, session_id, kwargs))

    _hook = AsyncAgent._hook
    _wait_turn = staticmethod(wait_async)


def limit_message(limit: LimitExceeded, sender: str | None) -> AgentMessage:
    """The message that stands for an answer where a limit was reached.

    Args:
        limit: the limit.
        sender: the agent that would have answered.

    Returns:
        A message of the type ``'limit'``, with the numbers in `extra_info`.
    """
    return AgentMessage(
        sender=sender or '',
        content=str(limit),
        type='limit',
        extra_info={'limit': limit.limit, 'allowed': limit.allowed, 'used': limit.used},
    )


def model_name(llm: Any) -> str:
    """What a model is called in events and errors.

    Args:
        llm: a model object of any kind.

    Returns:
        Its model type or path where it has one, else its class's name.
    """
    for attribute in ('model_type', 'path'):
        if isinstance(name := getattr(llm, attribute, None), str):
            return name
    return type(llm).__name__


def _as_message(message: Any) -> AgentMessage:
    if isinstance(message, str):
        return AgentMessage(sender='user', content=message)
    return copy.deepcopy(message)  # type: ignore[no-any-return]
