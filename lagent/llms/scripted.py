"""Models that follow a script: for tests, examples, and work without a model."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from lagent.effects import emit, listening
from lagent.errors import ConfigError
from lagent.flow import Flow, arun, call, run
from lagent.llms.base_llm import AsyncBaseLLM, BaseLLM, Chunk, Message, is_batch
from lagent.llms.completion import Completion
from lagent.llms.effect import model_call, model_stream
from lagent.llms.errors import ScriptEnded
from lagent.schema import ModelStatusCode
from lagent.utils.copies import copy_messages
from lagent.utils.counts import many

Reply = Any  # str, Completion, Stall, an exception to raise, or a function of the messages
Expectation = str | Callable[[list[Message]], bool] | None


@dataclass(frozen=True, slots=True)
class Stall:
    """A reply that takes its time.

    Attributes:
        seconds: how long nothing comes.
        reply: what comes then.
    """

    seconds: float
    reply: Reply = ''


class ScriptedCall(NamedTuple):
    """What a scripted model was asked.

    Attributes:
        messages: a copy of the messages.
        session_id: the session, as far as the caller says it.
        params: generation parameters of the call.
    """

    messages: Any
    session_id: Any
    params: dict[str, Any]


class ScriptedModel(BaseLLM):
    """A model that gives the replies it was made with, one a call.

    Copied, or pickled, it goes on from where it is, for itself.

    A reply is a text or a `Completion` (``finish_reason='length'`` for one that was cut); an
    exception is raised; a `Stall` waits first; a function is called with the messages and gives
    the reply.

    Args:
        replies: a list or another iterable of replies, a generator too; or one function of the
            messages that gives every reply.
        expect: what each call must be asked, in order: a text that occurs in its last message, a
            function of the messages that says whether they are right, or None for anything.
        chunk: characters that a streamed piece has.
        path: the model's name in events.
        base_args: other arguments of `BaseLLM`.

    Attributes:
        calls: what the model was asked, in order.

    Raises:
        ScriptEnded: by a call for which no reply is left.
        AssertionError: by a call that is not what `expect` says.
        TypeError: by a call whose reply is none, such as that of a function without a ``return``.
    """

    _sleep: ClassVar[Callable[[float], Any]] = time.sleep

    def __init__(
        self,
        replies: Iterable[Reply] | Callable[[list[Message]], Reply],
        *,
        expect: Sequence[Expectation] = (),
        chunk: int = 8,
        path: str = 'scripted',
        **base_args: Any,
    ) -> None:
        super().__init__(path, **base_args)
        assert chunk > 0, 'a chunk has at least one character'
        if isinstance(replies, str):
            replies = [replies]
        self._replies: Iterator[Reply] = _Always(replies) if callable(replies) else iter(replies)
        self._expect = tuple(expect)
        self._chunk = chunk
        self._lock = threading.Lock()
        self.calls: list[ScriptedCall] = []

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            state = {name: value for name, value in self.__dict__.items() if name != '_lock'}
            try:
                return state | {'_replies': copy(self._replies), 'calls': list(self.calls)}
            except TypeError as error:
                raise ConfigError(
                    f'The script of {self.path!r} comes from a {type(self._replies).__name__}, '
                    'which can not be copied: give a list of replies, or a function.'
                ) from error

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    @model_call
    def chat(self, inputs: Any, session_ids: Any = None, **gen_params: Any) -> Any:
        """Give the next reply, or one for each of a list of dialogs.

        Args:
            inputs: the dialog or dialogs.
            session_ids: kept in `calls`.
            gen_params: kept in `calls`.

        Returns:
            The reply or replies.
        """
        return run(self._answer(inputs, session_ids, gen_params))

    @model_stream
    def stream_chat(
        self, inputs: Any, session_id: Any = None, **gen_params: Any
    ) -> Iterator[Chunk]:
        """Give the next reply in pieces.

        Args:
            inputs: the dialog.
            session_id: kept in `calls`.
            gen_params: kept in `calls`.

        Yields:
            ``(STREAM_ING, text so far, None)``, and at last ``(END, completion, None)``.
        """
        yield from self._chunks(run(self._next(inputs, session_id, gen_params)))

    def _answer(self, inputs: Any, session: Any, params: dict[str, Any]) -> Flow[Any]:
        if is_batch(inputs):
            replies: list[Completion] = []
            for dialog in inputs:
                reply = yield from self._next(dialog, session, params)
                replies.append(reply)
            return replies
        reply = yield from self._next(inputs, session, params)
        if listening():
            for start in range(0, len(reply), self._chunk):
                emit(reply[start : start + self._chunk])
        return reply

    def _next(self, messages: Any, session: Any, params: dict[str, Any]) -> Flow[Completion]:
        with self._lock:
            self.calls.append(ScriptedCall(copy_messages(messages), session, params))
            number = len(self.calls)
            try:
                reply = next(self._replies)
            except StopIteration:
                raise ScriptEnded(
                    f'The script of {self.path!r} has {many(number - 1, "reply", "replies")}, and '
                    f'the model was called once more. It was asked: {_last_text(messages)[:200]!r}'
                ) from None
        self._check(number, messages)
        return self._resolve(reply, messages)

    def _resolve(self, reply: Reply, messages: Any) -> Flow[Completion]:
        while not isinstance(reply, str):
            if isinstance(reply, Stall):
                yield from call(type(self)._sleep, reply.seconds)
                reply = reply.reply
            elif isinstance(reply, BaseException):
                raise reply
            elif callable(reply):
                reply = yield from call(reply, messages)
            else:
                raise TypeError(
                    f'The script of {self.path!r} gave a {type(reply).__name__} for a reply. '
                    'Give a text, a Completion, a Stall, an exception, or a function.'
                )
        return reply if isinstance(reply, Completion) else Completion(reply)

    def _check(self, number: int, messages: Any) -> None:
        expected = self._expect[number - 1] if number <= len(self._expect) else None
        if expected is None:
            return
        text = _last_text(messages)
        right = expected in text if isinstance(expected, str) else expected(messages)
        assert right, f'call {number} of {self.path!r}: expected {expected!r}, asked: {text!r}'

    def _chunks(self, reply: Completion) -> Iterator[Chunk]:
        for end in range(self._chunk, len(reply), self._chunk):
            yield ModelStatusCode.STREAM_ING, reply[:end], None
        yield ModelStatusCode.END, reply, None


class AsyncScriptedModel(ScriptedModel, AsyncBaseLLM):
    """`ScriptedModel` whose methods are awaited; functions in the script may be async too."""

    _sleep = asyncio.sleep

    @model_call
    async def chat(self, inputs: Any, session_ids: Any = None, **gen_params: Any) -> Any:
        """Give the next reply, or one for each of a list of dialogs; see `ScriptedModel`."""
        return await arun(self._answer(inputs, session_ids, gen_params))

    @model_stream
    async def stream_chat(  # type: ignore[override]  # the awaited face of the same method
        self, inputs: Any, session_id: Any = None, **gen_params: Any
    ) -> AsyncIterator[Chunk]:
        """Give the next reply in pieces; see `ScriptedModel`."""
        for chunk in self._chunks(await arun(self._next(inputs, session_id, gen_params))):
            yield chunk
            await asyncio.sleep(0)


class _Always:
    """An iterator that gives the same again and again."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return self._value


def _last_text(messages: Any) -> str:
    if isinstance(messages, str) or not messages:
        return str(messages)
    last = messages[-1]
    return str(last.get('content')) if isinstance(last, dict) else str(last)
