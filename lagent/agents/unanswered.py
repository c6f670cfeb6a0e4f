"""Questions that got no answer: marked when a call fails, closed when the next one begins.

A call that raises, is interrupted, or whose stream is left leaves its question as the last message
of the memory. Without an answer behind it, the next question would reach the model as part of it.
"""

from typing import Any

from lagent.errors import LagentError
from lagent.flow import ConsumerLeft
from lagent.memory import Memory
from lagent.schema import AgentMessage

NO_ANSWER = 'no_answer'
"""Key in a message's `extra_info` that says why it was not answered, and type of the answer that
stands in for it."""

_MAX_WORDS = 200  # characters of an error that a model is shown


def mark(message: AgentMessage, error: BaseException) -> None:
    """Note in a message why it was not answered.

    Args:
        message: the message. One whose `extra_info` is something other than a dict is left alone.
        error: what ended the call.
    """
    if message.extra_info is None or isinstance(message.extra_info, dict):
        message.extra_info = {**(message.extra_info or {}), NO_ANSWER: words(error)}


def words(error: BaseException) -> str:
    """An error in one short line.

    Args:
        error: the error.

    Returns:
        Its kind and its words; what it means, for a stream that was left.
    """
    if isinstance(error, ConsumerLeft | GeneratorExit):
        return 'the stream was left before its end'
    text = ' '.join(f'{type(error).__name__}: {error}'.removesuffix(': ').split())
    return text if len(text) <= _MAX_WORDS else f'{text[:_MAX_WORDS]}...'


def results(error: BaseException) -> AgentMessage | None:
    """What had been done of the request that an error broke off.

    Args:
        error: the error.

    Returns:
        A copy of the message with the results, or None.
    """
    found = error.results if isinstance(error, LagentError) else None
    return found.model_copy() if isinstance(found, AgentMessage) else None


def reopen(memory: Memory) -> AgentMessage | None:
    """Take the mark off the last message, which is about to be asked once more.

    Args:
        memory: the session's memory.

    Returns:
        The message, or None when the last one was not marked.
    """
    last: AgentMessage | None = _marked(memory)
    if last is not None and last.extra_info is not None:
        last.extra_info = {k: v for k, v in last.extra_info.items() if k != NO_ANSWER} or None
    return last


def answer_for(memory: Memory, name: str) -> AgentMessage | None:
    """What stands in for the missing answer to the last message.

    Args:
        memory: the session's memory.
        name: the agent that should have answered.

    Returns:
        A message of the type ``'no_answer'``, or None when the last message is not marked.
    """
    last = _marked(memory)
    if last is None:
        return None
    content = f'[no answer: {last.extra_info[NO_ANSWER]}]'
    return AgentMessage(sender=name, content=content, type=NO_ANSWER)


def _marked(memory: Memory) -> Any:
    last = memory.get_memory(recent_n=1)
    info = last[-1].extra_info if last else None
    return last[-1] if isinstance(info, dict) and NO_ANSWER in info else None
