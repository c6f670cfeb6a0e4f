"""Agents that hand out their answer as it grows."""

import copy
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Hashable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from lagent.actions.closing import AsyncClosing
from lagent.agents.base import Agent, AsyncAgent, model_effect
from lagent.agents.growing_reply import GrowingReply
from lagent.agents.session_argument import session_argument
from lagent.agents.sessions import wait_async
from lagent.context import resolve_session
from lagent.effects import emit, within
from lagent.flow import Emit, Flow, astream, each, stream
from lagent.schema import AgentMessage, ModelStatusCode

G = TypeVar('G')


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
        return self._streaming(stream, partial(self._turn, message, session_id, kwargs))

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

    def _drive(self, turn: Callable[..., Flow[AgentMessage]]) -> Any:
        return self._streaming(stream, turn)

    def _streaming(
        self, driver: Callable[[Flow[None]], G], turn: Callable[..., Flow[AgentMessage]]
    ) -> G:
        def emitting() -> Flow[None]:
            answer = yield from turn(reference)
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
        growing = GrowingReply(self.output_format)
        last: AgentMessage | None = None

        def show(item: Any) -> AgentMessage:
            nonlocal last
            last = self._as_partial(item)
            emit(growing.grow(last.content))
            if last.stream_state == ModelStatusCode.END and isinstance(item, tuple):
                # A parser's complaint waits for the end of the model's call, which has gone well.
                with suppress(Exception):
                    last.formatted = growing.whole()
            else:
                last.formatted = growing.partial()
            return last

        def reading() -> Flow[Any]:
            chat = self.llm.stream_chat
            session = session_argument(chat, session_id)
            yield from each(chat(prompt, **session, **kwargs), show)
            return growing.text

        effect = model_effect(self.llm, prompt)
        reply = yield from within(effect, reading())
        if last is None and reply:  # it is known from a journal, and comes in one piece
            growing.grow(reply)
            last = self._as_partial((ModelStatusCode.END, reply))
            yield Emit(last)
        if last is not None and last.stream_state >= 0:  # below it are errors: the reply is cut
            # A model may not have said which item is its last; the answer is this very object.
            last.formatted = growing.whole()


class AsyncStreamingAgent(AsyncClosing, StreamingAgent):
    """A `StreamingAgent` whose call gives an asynchronous generator."""

    def __call__(  # type: ignore[override]
        self, *message: str | AgentMessage, session_id: Hashable | None = None, **kwargs: Any
    ) -> AsyncGenerator[AgentMessage, None]:
        """See `StreamingAgent.__call__`."""
        return self._streaming(astream, partial(self._turn, message, session_id, kwargs))

    def forward(  # type: ignore[override]
        self, *message: AgentMessage, session_id: Hashable = 0, **kwargs: Any
    ) -> AsyncGenerator[Any, None]:
        """See `StreamingAgent.forward`."""
        return astream(self._ask_streaming(message, session_id, kwargs))

    def _drive(self, turn: Callable[..., Flow[AgentMessage]]) -> Any:
        return self._streaming(astream, turn)

    _hook = AsyncAgent._hook
    _wait_turn = staticmethod(wait_async)
