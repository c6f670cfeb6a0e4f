"""What an agent answers when a limit is reached, and nobody is to take for an answer."""

from lagent.context import RunContext
from lagent.errors import LimitExceeded
from lagent.schema import AgentMessage


def limit_answer(
    limit: LimitExceeded, sender: str | None, message: AgentMessage | None = None
) -> AgentMessage:
    """The message that stands for an answer where a limit was reached.

    Args:
        limit: the limit.
        sender: the agent that would have answered.
        message: a message to flag in place of one with the words of the limit.

    Returns:
        A message of the type ``'limit'``, with the numbers in `extra_info`.
    """
    numbers = {'limit': limit.limit, 'allowed': limit.allowed, 'used': limit.used}
    answer = message or AgentMessage(sender=sender or '', content=str(limit))
    return answer.model_copy(update={'type': 'limit', 'extra_info': numbers})


def given_limit(
    context: RunContext, outer: RunContext | None, is_outermost: bool, error: BaseException
) -> LimitExceeded | None:
    """The limit that an agent gives as its answer, rather than to raise it.

    It is given by the outermost agent of those that the limit bounds, if the limits say so.

    Args:
        context: the run.
        outer: what the run was before the agent was called.
        is_outermost: whether no other agent has called this one.
        error: what has ended the agent's call.

    Returns:
        The error, if it is a limit that this agent gives; else None.
    """
    if not isinstance(error, LimitExceeded):
        return None
    around = [] if outer is None else [*outer.usage.charged()]
    reached = error.usage or context.usage
    gives = is_outermost or all(usage is not reached for usage in around)
    return error if gives and reached.limits.on_limit == 'return' else None
