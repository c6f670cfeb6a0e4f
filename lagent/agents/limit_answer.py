"""What an agent answers when a limit is reached, and nobody is to take for an answer."""

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
