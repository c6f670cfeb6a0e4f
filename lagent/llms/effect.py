"""Makes the calls of a model class model effects, whoever makes them; and what it is called."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from lagent.effects import Effect, emit, is_performing, perform, within
from lagent.flow import Emit, Flow, arun, astream, each, run, stream
from lagent.schema import ModelStatusCode

F = TypeVar('F', bound=Callable[..., Any])


def model_call(chat: F) -> F:
    """Make a method an effect of the kind ``'model'``, with the name that `model_name` gives.

    Inside an agent, which performs that effect itself, the method is simply called.

    Args:
        chat: a method whose first argument is what the model is asked; plain or async.

    Returns:
        The method, with the same signature.
    """

    @functools.wraps(chat)
    def blocking(self: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if is_performing('model'):
            return chat(self, inputs, *args, **kwargs)
        return run(perform(_effect(self, inputs), chat, self, inputs, *args, **kwargs))

    @functools.wraps(chat)
    async def awaited(self: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if is_performing('model'):
            return await chat(self, inputs, *args, **kwargs)
        return await arun(perform(_effect(self, inputs), chat, self, inputs, *args, **kwargs))

    return cast('F', awaited if inspect.iscoroutinefunction(chat) else blocking)


def model_stream(chat: F) -> F:
    """Make a method that yields a growing reply an effect, as `model_call` does.

    Args:
        chat: a plain or async generator method whose first argument is what the model is asked. It
            yields triples of a state, the text so far, and None; the last one has the reply.

    Returns:
        The method, with the same signature.
    """
    drive = astream if inspect.isasyncgenfunction(chat) else stream

    @functools.wraps(chat)
    def streaming(self: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if is_performing('model'):
            return chat(self, inputs, *args, **kwargs)
        return drive(_streamed(_effect(self, inputs), chat, self, inputs, *args, **kwargs))

    return cast('F', streaming)


def _streamed(effect: Effect, chat: Callable[..., Any], *args: Any, **kwargs: Any) -> Flow[None]:
    said: str | None = None

    def show(chunk: tuple[Any, str, Any]) -> tuple[Any, str, Any]:
        nonlocal said
        before = said if said and chunk[1].startswith(said) else ''
        if delta := chunk[1][len(before) :]:
            emit(str(delta))
        said = chunk[1]
        return chunk

    def reading() -> Flow[str | None]:
        yield from each(chat(*args, **kwargs), show)
        return said

    reply = yield from within(effect, reading())
    if said is None and reply is not None:  # it is known from a journal, and comes in one piece
        yield Emit((ModelStatusCode.END, reply, None))


def _effect(llm: Any, inputs: Any) -> Effect:
    return Effect('model', model_name(llm), inputs, provider=llm.provider)


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
