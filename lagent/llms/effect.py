"""Makes the `chat` of a model class a model effect, whoever calls it; and what it is called."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from lagent.effects import Effect, is_performing, perform
from lagent.flow import arun, run

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
        effect = Effect('model', model_name(self), inputs, provider=self.provider)
        return run(perform(effect, chat, self, inputs, *args, **kwargs))

    @functools.wraps(chat)
    async def awaited(self: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if is_performing('model'):
            return await chat(self, inputs, *args, **kwargs)
        effect = Effect('model', model_name(self), inputs, provider=self.provider)
        return await arun(perform(effect, chat, self, inputs, *args, **kwargs))

    return cast('F', awaited if inspect.iscoroutinefunction(chat) else blocking)


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
